"""A job as a table: one row a slot, requested or not; what was not measured is an empty cell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from api.exporters.reading import JobReading, Member, Trial


class Row(msgspec.Struct, frozen=True, gc=False):
    """A slot. Without `trial` it was never dispatched, and nothing but the slot is known."""

    job: str
    dataset: str
    task: str
    attempt: int
    extra: bool
    trial: str | None = None
    task_digest: str | None = None
    status: str | None = None
    reward: float | None = None
    no_reward: str | None = None
    composite: float | None = None
    dimensions: dict[str, float] | None = None
    error_type: str | None = None
    phase: str | None = None
    exit_code: int | None = None
    message: str | None = None
    artifacts: list[dict[str, Any]] | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None


def rows(reading: JobReading) -> Iterator[Row]:
    """Every slot of the job, by member and attempt; those beyond k only where there is a trial."""
    for member in reading.members():
        yield from _of_member(reading, member)


def _of_member(reading: JobReading, member: Member) -> Iterator[Row]:
    manifest = reading.job.manifest
    by_number = {trial.attempt: trial for trial in member.trials}
    for number in sorted(by_number.keys() | range(1, manifest.attempts + 1)):
        slot = (reading.job.id, manifest.dataset, member.task, number, number > manifest.attempts)
        trial = by_number.get(number)
        yield Row(*slot) if trial is None else Row(*slot, **_of_trial(trial))
        if trial:
            reading.left_out["judge summaries"] += trial.judge is not None
            reading.left_out["files that could not be kept"] += len(trial.lost)
            reading.left_out["rejected results"] += trial.rejected_result is not None


def _of_trial(trial: Trial) -> dict[str, Any]:
    values = {name: getattr(trial, name, None) for name in Row.__struct_fields__[5:]}
    return values | {"trial": trial.trial_id, "artifacts": artifacts_of(trial)}


def artifacts_of(trial: Trial) -> list[dict[str, Any]]:
    """The files of a trial by their digests: name, sha256, size in bytes, role."""
    return [
        {"name": part.name, "sha256": part.sha256, "size": part.size, "role": part.role} for part in trial.artifacts
    ]
