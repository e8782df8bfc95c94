"""Facts of one leaderboard: jobs' results frozen on it, and taken back. Its stream is named by its cohort."""

from __future__ import annotations

from typing import Literal
from uuid import UUID, uuid5

import msgspec

from ledger.facts.fact import Fact


def leaderboard_stream(cohort: str) -> str:
    """The stream of a leaderboard."""
    return f"leaderboard/{cohort}"


def snapshot_id_for(job_id: str) -> str:
    """The id of a job's one snapshot: the same job again names the same snapshot, so a repeat is harmless."""
    return str(uuid5(UUID(job_id), "snapshot"))


class FrozenCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of what was requested was measured; the fields are those of a result's `score_counts`."""

    total: int
    scored: int
    missing: int
    invalid: int
    total_members: int
    complete_members: int
    extra: int


class FrozenPoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """pass@j and pass^j of one j; j is the place in the curve, from 1. Without names, or k = 1,000 would not fit."""

    pass_at: float
    pass_hat: float


class FrozenBounds(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The score were every missing reward 0, and were it 1."""

    low: float
    high: float


class FrozenInterval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A 95% interval around the score, as the definition makes it."""

    low: float
    high: float
    standard_error: float
    clusters: int
    method: str


class FrozenDenominators(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each number was averaged over."""

    score: int
    pass_: int = msgspec.field(name="pass")
    pass_at_k: int
    pass_hat_k: int
    curve: int
    score_bounds: int
    interval_95: int


class FrozenNumbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job's numbers to the last bit, with the name of the formulas that gave them.

    `composite` is the mean of the structured results' composites over the scored trials, in their own units; null
    unless every scored trial has one.
    """

    definition: str
    k: int
    score: float | None
    pass_: float | None = msgspec.field(name="pass")
    pass_at_k: float | None
    pass_hat_k: float | None
    score_counts: FrozenCounts
    score_bounds: FrozenBounds | None
    interval_95: FrozenInterval | None
    denominators: FrozenDenominators
    curve: tuple[FrozenPoint, ...]
    composite: float | None


class SnapshotAdded(Fact, frozen=True, tag="snapshot-added"):
    """A job's result was frozen on the leaderboard of its cohort.

    `position` is that of the log which the numbers were computed at. `manifest` is the sha256 of the job-submitted
    fact's bytes as they stand in its entry. `model` is the model's name, where the job says one.
    """

    snapshot_id: str
    job_id: str
    cohort: str
    position: int
    status: Literal["completed", "failed", "canceled"]
    manifest: str
    dataset: str
    runner: str
    attempts: int
    numbers: FrozenNumbers
    profile: str | None = None
    model: str | None = None


class SnapshotWithdrawn(Fact, frozen=True, tag="snapshot-withdrawn"):
    """A snapshot was taken out of the ranking, and why; it stays readable."""

    snapshot_id: str
    reason: str


LeaderboardFact = SnapshotAdded | SnapshotWithdrawn
