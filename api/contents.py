"""The contents that a trial's facts name: its files, and what stands behind its rejections and messages."""

from __future__ import annotations

import msgspec

from ledger.facts.trial import (
    ArtifactFailed,
    ArtifactPersisted,
    RewardRejected,
    StructuredResultRecorded,
    StructuredResultRejected,
    TrialFailed,
)
from ledger.rules.trial import Trial


class Content(msgspec.Struct, frozen=True):
    """A content that a trial names. `size` in bytes, where a fact tells it.

    `sha256` is None for a file that could not be kept, and `why` says why. `redacted` when it was erased on purpose.
    """

    name: str
    role: str
    size: int | None
    sha256: str | None
    why: str | None
    redacted: bool


def contents_of(trial: Trial) -> list[Content]:
    """Every content of a trial, its files first."""
    found: list[tuple[str, str, int | None, str | None, str | None]] = []
    for kept in trial.artifacts.values():
        match kept:
            case ArtifactPersisted():
                found.append((kept.name, kept.role, kept.size, kept.sha256, None))
            case ArtifactFailed():
                found.append((kept.name, "output", None, None, f"lost: {kept.why}"))
    if isinstance(trial.graded, RewardRejected) and trial.graded.raw:
        found.append(("(raw reward)", "raw reward", None, trial.graded.raw, None))
    if isinstance(trial.structured, StructuredResultRecorded) and trial.structured.judge:
        found.append(("(judge summary)", "judge", None, trial.structured.judge, None))
    if isinstance(trial.structured, StructuredResultRejected) and trial.structured.raw:
        found.append(("(raw result)", "raw result", None, trial.structured.raw, None))
    if isinstance(trial.ended, TrialFailed) and trial.ended.message:
        found.append(("(message)", "message", None, trial.ended.message, None))
    return [Content(*content, redacted=content[3] in trial.redacted) for content in found]
