"""The one reading of a job that every format is written from: by member, as of one position, a page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from itertools import islice
from typing import NamedTuple

import msgspec

from api.el import El
from api.shaping import metrics_of
from ledger.errors import BadInput, DamagedStore, NotFound
from ledger.facts.entry import Recorded
from ledger.facts.job import JobCanceled, JobCompleted, JobFailed, JobOriginSealed, JobSubmitted, job_stream
from ledger.facts.trial import (
    ArtifactFailed,
    ArtifactPersisted,
    RewardRejected,
    StructuredResultRecorded,
    StructuredResultRejected,
    TrialStarted,
    slot_of,
    trial_stream,
)
from ledger.rules import trial as rules
from projections import trials as trial_rows
from projections.following import instant, microseconds
from projections.metrics import Metrics
from projections.trials import TrialRow, why_no_reward

MEMBERS_PER_PAGE = 200
STREAMS_PER_SELECT = 200
TEXT_BYTES_MAX = 1_000_000


class Job(msgspec.Struct, frozen=True):
    """The job that is exported, as it stood at the position `as_of`: of its secrets, only the names leave."""

    id: str
    status: str
    manifest: JobSubmitted
    metrics: Metrics
    endings: Mapping[str, int]
    submitted_at: datetime
    ended_at: datetime | None
    as_of: int


class Trial(msgspec.Struct, frozen=True, gc=False):
    """One dispatched attempt. Times are in UTC: what the tool told; of a live run, else when it was recorded.

    `no_reward` says why an ended trial has no reward; `raw_reward`, `judge` and `message` name artifacts by sha256.
    `dimensions` is None without a structured result that could be used. `extra` is an attempt beyond k.
    """

    task: str
    task_digest: str
    attempt: int
    extra: bool
    trial_id: str
    status: str
    reward: float | None
    no_reward: str | None
    raw_reward: str | None
    composite: float | None
    dimensions: dict[str, float] | None
    rejected_result: StructuredResultRejected | None
    judge: str | None
    error_type: str | None
    phase: str | None
    exit_code: int | None
    message: str | None
    artifacts: tuple[ArtifactPersisted, ...]
    lost: tuple[ArtifactFailed, ...]
    redacted: frozenset[str]
    started_at: datetime | None
    ended_at: datetime | None
    duration_s: float | None


class Member(NamedTuple):
    """A task of the job with its trials by attempt; none where it was never dispatched."""

    task: str
    trials: Sequence[Trial]


class JobReading:
    """One job open for reading; `members` can be gone through as often as needed.

    `left_out` counts what the format that is being written has no place for; `attempt_max` is the largest attempt
    that `members` has come to.
    """

    def __init__(self, client: El, job: Job, seen: Callable[[int], None]) -> None:
        self.job = job
        self.left_out: Counter[str] = Counter()
        self.attempt_max = 0
        self._client = client
        self._seen = seen

    def members(self) -> Iterator[Member]:
        """Every member in the job's order. Memory holds a page of members' names and trials, not the job."""
        after = 0
        while attempts := self._page(after):
            slots = [(name, number) for name, numbers in attempts.items() for number in numbers]
            trials = self._trials(slots)
            for name, numbers in attempts.items():
                there = [trial for trial in islice(trials, len(numbers)) if trial]
                self.attempt_max = max([self.attempt_max, *(trial.attempt for trial in there)])
                yield Member(name, there)
            after += len(attempts)
            self._seen(after)

    def tasks(self) -> list[str]:
        """The names of the job's members in their order, all of them."""
        names: list[str] = []
        while page := self._page(len(names)):
            names += page
        return names

    def text(self, sha256: str | None, what: str, redacted: frozenset[str] = frozenset()) -> str | None:
        """A short text artifact; None, and counted as left out, when it is erased, too long, or no UTF-8."""
        if sha256 is None:
            return None
        if sha256 not in redacted:
            try:
                return self._client.artifacts.read_bytes(sha256, max_bytes=TEXT_BYTES_MAX).decode()
            except (BadInput, NotFound, DamagedStore, UnicodeDecodeError):
                pass
        self.left_out[what] += 1
        return None

    def _page(self, after: int) -> dict[str, list[int]]:
        """The next members in the job's order, each with the numbers of its attempts."""
        page = self._client.job_tasks(self.job.id, after=after, limit=MEMBERS_PER_PAGE)
        return {member.task: [attempt.attempt for attempt in member.attempts] for member in page.tasks}

    def _trials(self, slots: Sequence[tuple[str, int]]) -> Iterator[Trial | None]:
        """The trials of slots, some at a time; None for one that was not dispatched as of the job's position.

        No transaction is open while a trial is handed out: SQLite's writers would wait for a slow reader.
        """
        job = self.job
        for start in range(0, len(slots), STREAMS_PER_SELECT):
            streams = [trial_stream(job.id, *slot) for slot in slots[start : start + STREAMS_PER_SELECT]]
            found = self._client.streams(streams)
            for stream in streams:
                past = [recorded for recorded in found[stream] if recorded.position <= job.as_of]
                yield _trial(job.manifest, stream, past)


def read_job(client: El, job: str, seen: Callable[[int], None] = lambda _: None) -> JobReading:
    """A job, by its id or the beginning of it, to be read as it stands now; `seen` is told how many members were read.

    Raises:
        NotFound: there is no such job.
    """
    result = client.result(job, tasks_limit=0)
    past = [one for one in client.stream(job_stream(result.id)) if one.position <= result.as_of]
    manifest, submitted_at, ended_at = _submission(past)
    found = Job(
        result.id, result.status, manifest, metrics_of(result), result.endings, submitted_at, ended_at, result.as_of
    )
    return JobReading(client, found, seen)


def _submission(past: Sequence[Recorded]) -> tuple[JobSubmitted, datetime, datetime | None]:
    """The manifest of a job, with the origin that was sealed later, if one was; when it was submitted, and ended."""
    submitted = next(one.entry for one in past if isinstance(one.entry.fact, JobSubmitted))
    manifest, ended_at = submitted.fact, None
    assert isinstance(manifest, JobSubmitted)  # noqa: S101 - told to mypy
    for _, entry in past:
        match entry.fact:
            case JobOriginSealed(origin=origin):
                manifest = msgspec.structs.replace(manifest, origin=origin)
            case JobCompleted() | JobFailed() | JobCanceled():
                ended_at = entry.at
            case _:
                pass
    return manifest, submitted.at, ended_at


def _trial(manifest: JobSubmitted, stream: str, past: Sequence[Recorded]) -> Trial | None:
    """The trial that the facts of a stream tell of; None when its slot is free again.

    From the facts, not from the rows of the read model: SQLite keeps no sign of a zero.
    """
    slot = slot_of(stream)
    row: TrialRow | None = None
    for position, entry in past:
        row = trial_rows.evolve(row, entry.fact, slot, position, microseconds(entry.at))
    if row is None:
        return None
    state: rules.Trial = reduce(
        lambda state, recorded: rules.evolve(state, recorded.entry.fact),  # type: ignore[arg-type]  # a trial's fact
        past,
        rules.Trial(),
    )
    started, ended = _times(manifest, row, state, past)
    structured, graded = state.structured, state.graded
    usable = structured if isinstance(structured, StructuredResultRecorded) else None
    kept = state.artifacts.values()
    return Trial(
        task=slot.task,
        task_digest=row.task_digest,
        attempt=slot.attempt,
        extra=slot.attempt > manifest.attempts,
        trial_id=row.trial_id,
        status=row.status,
        reward=row.reward,
        no_reward=None if row.reward is not None else why_no_reward(row) or row.no_reward,
        raw_reward=graded.raw if isinstance(graded, RewardRejected) and row.reward is None else None,
        composite=usable.composite if usable else None,
        dimensions=usable.dimensions if usable else None,
        rejected_result=structured if isinstance(structured, StructuredResultRejected) else None,
        judge=usable.judge if usable else None,
        error_type=row.error_type,
        phase=row.phase,
        exit_code=row.exit_code,
        message=row.message,
        artifacts=tuple(part for part in kept if isinstance(part, ArtifactPersisted)),
        lost=tuple(part for part in kept if isinstance(part, ArtifactFailed)),
        redacted=state.redacted,
        started_at=started,
        ended_at=ended,
        duration_s=row.duration_s,
    )


def _times(
    manifest: JobSubmitted, row: TrialRow, state: rules.Trial, past: Sequence[Recorded]
) -> tuple[datetime | None, datetime | None]:
    """When a trial started and ended. An import was not there: only what its tool told is a time of the trial."""
    if manifest.origin.kind != "import":
        return tuple(None if at is None else instant(at) for at in (row.started_us, row.ended_us))  # type: ignore[return-value]
    told = next((recorded.entry.fact for recorded in past if isinstance(recorded.entry.fact, TrialStarted)), None)
    return told.started_at if told else None, state.ended.ended_at if state.ended else None
