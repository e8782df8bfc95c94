"""The neutral form: what `el import jsonl` reads, so that the same values come back."""

from __future__ import annotations

from typing import IO, Any

import msgspec

from api.exporters.reading import JobReading, Trial
from api.exporters.table import artifacts_of
from api.importers.rewards import dimensions_of
from api.importers.strict_json import read_value, to_text
from ledger.errors import BadInput

NAME = "jsonl"
SUFFIX = ".jsonl"
IS_TEXT = True

_encode = msgspec.json.Encoder().encode


def write(reading: JobReading, file: IO[bytes]) -> None:
    """One line a trial, by member and attempt; a line with only `task` for a member without one."""
    for member in reading.members():
        if not member.trials:
            file.write(_encode({"task": member.task}) + b"\n")
        for trial in member.trials:
            file.write(_encode(line_of(reading, trial)) + b"\n")


def line_of(reading: JobReading, trial: Trial) -> dict[str, Any]:
    """A trial as a line of the form holds it; what it has no place for is counted as left out."""
    line: dict[str, Any] = {"task": trial.task, "attempt": trial.attempt}
    if trial.reward is not None:
        line["reward"] = trial.reward
    elif trial.no_reward is not None:
        line["no_reward"] = trial.no_reward
        line["raw_reward"] = reading.text(trial.raw_reward, "raw rewards", trial.redacted)
    line["status"] = "queued" if trial.status == "dispatched" else trial.status
    if trial.error_type is not None:
        line["error"] = {
            "type": trial.error_type,
            "phase": trial.phase,
            "exit_code": trial.exit_code,
            "message": reading.text(trial.message, "messages", trial.redacted),
        }
    line["dimensions"] = trial.dimensions
    line["composite"] = trial.composite
    if trial.rejected_result:
        line["dimensions"] = _rejected(reading.text(trial.rejected_result.raw, "rejected results", trial.redacted))
        reading.left_out["rejected results"] += trial.rejected_result.raw is None
    line["artifacts"] = artifacts_of(trial)
    line["started_at"] = trial.started_at
    line["ended_at"] = trial.ended_at
    reading.left_out["judge summaries"] += trial.judge is not None
    reading.left_out["files that could not be kept"] += len(trial.lost)
    return {name: value for name, value in line.items() if value is not None and value != []}


def _rejected(raw: str | None) -> Any:
    """What stood in place of dimensions, so that the import rejects it again: as the JSON it was, else as a text."""
    if raw is None:
        return None
    try:
        value = read_value(raw.encode())
        if isinstance(dimensions_of(value), bytes) and to_text(value).decode() == raw:
            return msgspec.Raw(raw.encode())
    except BadInput:
        pass
    return raw
