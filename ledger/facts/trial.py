"""Facts of one trial: one dispatched attempt at one member of a job.

A stream is one trial, so workers never contend. Its name is the slot itself, `trial/<job>/<attempt>/<task>`: whoever
reads an entry knows its job, attempt and task without looking anything up, and the entries of a job stand together.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from hashlib import sha1
from typing import Literal, NamedTuple
from uuid import UUID

from ledger.facts.fact import Fact

Phase = Literal["setup", "agent", "verifier", "collection", "unknown"]

WhyNoReward = Literal[
    "not-reported",
    "null",
    "not-finite",
    "not-a-number",
    "conflicting",
    "no-reward-key",
    "unscored",
    "error",
    "empty-patch",
    "lapsed-claim",
]


class Slot(NamedTuple):
    """What was requested: a member's attempt, counted from 1. Attempts above k are extra."""

    job_id: str
    attempt: int
    task: str


def trial_stream(job_id: str, task: str, attempt: int) -> str:
    """The stream of the trial in a slot."""
    return f"trial/{job_id}/{attempt}/{task}"


def slot_of(stream: str) -> Slot:
    """The slot that a trial's stream names. The task comes last because its name may hold slashes."""
    _, job_id, attempt, task = stream.split("/", 3)
    return Slot(job_id, int(attempt), task)


def trial_id_for(job_id: str, task: str, attempt: int) -> str:
    """The trial's id, the same for every dispatch of the slot: uuid5 of the job and `<attempt>/<task>`."""
    # Written out: `uuid5` and `str` of a UUID take as long as recording the trial.
    name = sha1(_namespace(job_id) + f"{attempt}/{task}".encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(name[16], 16) & 3]
    return f"{name[:8]}-{name[8:12]}-5{name[13:16]}-{variant}{name[17:20]}-{name[20:32]}"


@lru_cache(maxsize=1_000)
def _namespace(job_id: str) -> bytes:
    return UUID(job_id).bytes


class TrialDispatched(Fact, frozen=True, tag="trial-dispatched"):
    """The slot was given out. `worker` is who took it under a lease; without one, no lease is kept."""

    trial_id: str
    job_id: str
    task: str
    task_digest: str
    attempt: int
    worker: str | None = None


class TrialStarted(Fact, frozen=True, tag="trial-started"):
    """Execution began. `started_at` is the tool's own time, when an import tells one."""

    started_at: datetime | None = None


class RewardRecorded(Fact, frozen=True, tag="reward-recorded"):
    """The verifier gave a finite number. `source` names the file or field it stood in."""

    reward: float
    source: str | None = None


class RewardRejected(Fact, frozen=True, tag="reward-rejected"):
    """The verifier gave no usable number, and why; what it wrote is the artifact `raw`.

    `lapsed-claim` is no grading: it is kept as evidence of a reward that was reported under a claim that had lapsed.
    """

    why: WhyNoReward
    raw: str | None = None


class StructuredResultRecorded(Fact, frozen=True, tag="structured-result-recorded"):
    """The declared result file: composite, named dimensions in their own units, judge summary as an artifact."""

    composite: float | None = None
    dimensions: dict[str, float] = {}
    judge: str | None = None


class StructuredResultRejected(Fact, frozen=True, tag="structured-result-rejected"):
    """The declared result file could not be used, and why; what stood in it is the artifact `raw`."""

    why: Literal["missing", "not-json", "wrong-shape", "too-large"]
    raw: str | None = None


class ArtifactPersisted(Fact, frozen=True, tag="artifact-persisted"):
    """A file the trial left, kept by its sha256. `size` in bytes; `name` as the trial called it."""

    name: str
    sha256: str
    size: int
    role: Literal["output", "stdout", "stderr", "message", "reward", "result", "source"] = "output"


class ArtifactFailed(Fact, frozen=True, tag="artifact-failed"):
    """A file that should have been kept could not be."""

    name: str
    why: Literal["missing", "too-large", "not-a-file", "unreadable", "too-many"]


class ArtifactRedacted(Fact, frozen=True, tag="artifact-redacted"):
    """An artifact's content was erased on purpose; its digest, and every proof, stay valid."""

    sha256: str
    reason: str


class TrialSucceeded(Fact, frozen=True, tag="trial-succeeded"):
    """Execution ended well. It says nothing of the reward. `duration_s` in seconds."""

    exit_code: int | None = None
    duration_s: float | None = None
    ended_at: datetime | None = None


class TrialFailed(Fact, frozen=True, tag="trial-failed"):
    """Execution failed: in which phase, how; the message is an artifact. A reward it has still counts."""

    error_type: str
    phase: Phase = "unknown"
    exit_code: int | None = None
    message: str | None = None
    duration_s: float | None = None
    ended_at: datetime | None = None


class TrialCanceled(Fact, frozen=True, tag="trial-canceled"):
    """Execution was called off."""

    reason: str = ""
    ended_at: datetime | None = None


class TrialReleased(Fact, frozen=True, tag="trial-released"):
    """Dispatched but never started: the slot is free again."""

    reason: str = ""


class RewardRevised(Fact, frozen=True, tag="reward-revised"):
    """A reward was corrected by a later grading; the old value stays in the log."""

    old: float | None
    new: float
    verifier: str
    reason: str


TrialFact = (
    TrialDispatched
    | TrialStarted
    | RewardRecorded
    | RewardRejected
    | StructuredResultRecorded
    | StructuredResultRejected
    | ArtifactPersisted
    | ArtifactFailed
    | ArtifactRedacted
    | TrialSucceeded
    | TrialFailed
    | TrialCanceled
    | TrialReleased
    | RewardRevised
)

# What whoever executes a trial may report on it. Dispatches, corrections and erasures have ways of their own.
ReportedFact = (
    TrialStarted
    | RewardRecorded
    | RewardRejected
    | StructuredResultRecorded
    | StructuredResultRejected
    | ArtifactPersisted
    | ArtifactFailed
    | TrialSucceeded
    | TrialFailed
    | TrialCanceled
    | TrialReleased
)
