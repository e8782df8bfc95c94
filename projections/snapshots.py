"""The numbers that a snapshot freezes: the same bytes from the read models and from the entries of the job alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger import codec
from ledger.facts.entry import Entry, Recorded
from ledger.facts.job import JobSubmitted
from ledger.facts.leaderboard import FrozenNumbers
from ledger.facts.trial import (
    RewardRecorded,
    RewardRevised,
    StructuredResultRecorded,
    TrialDispatched,
    TrialReleased,
    slot_of,
)
from projections import audit_trail, job_metrics, jobs, trials
from projections.following import position_of
from projections.job_metrics import Attempts, evolve, result_of, tally_of
from projections.metrics import Metrics, measure
from projections.tally import JobTally, MemberTally

ENTRIES_PER_READ = 1_000

# The read models that a job's numbers and its ending are read from.
MODELS = (jobs.MODEL, trials.MODEL, job_metrics.MODEL)


def snapshot_numbers(metrics: Metrics, composites: Iterable[float | None]) -> FrozenNumbers:
    """Numbers as they are frozen: a job's metrics, and the composite of each scored trial in any order."""
    numbers = msgspec.to_builtins(metrics)
    return msgspec.convert(
        {
            **numbers,
            "curve": [[point["pass_at_k"], point["pass_hat_k"]] for point in numbers["curve"]],
            "composite": mean_composite(composites),
        },
        FrozenNumbers,
    )


def mean_composite(composites: Iterable[float | None]) -> float | None:
    """The mean in the composites' own units; None when a scored trial has none, or nothing is scored."""
    values: list[float] = []
    for composite in composites:
        if composite is None:
            return None
        values.append(composite)
    if not values:
        return None
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is no float; the mean of floats always is
        return float(sum(map(Fraction, values)) / len(values))


# --- from the read models --------------------------------------------------------------------------------------------


def common_position(connection: Connection, project_id: str) -> int | None:
    """The one position that the job's read models stand at; None while one of them is being brought up to another."""
    found = {position_of(connection, project_id, [model]) for model in MODELS}
    return found.pop() if len(found) == 1 else None


def numbers_of(connection: Connection, project_id: str, job_id: str) -> FrozenNumbers:
    """A job's numbers as the read models have them. Reads each scored trial only where there are composites."""
    metrics = result_of(connection, project_id, job_id).metrics
    return snapshot_numbers(metrics, _composites(connection, project_id, job_id))


class _Composite(msgspec.Struct):
    """Of a fact about a structured result, what matters here; a rejected one has none."""

    composite: float | None = None


_decode_composite = msgspec.json.Decoder(_Composite).decode


def _composites(connection: Connection, project_id: str, job_id: str) -> Iterator[float | None]:
    table = trials.trials.c
    scored = (table.project_id == project_id, table.job_id == job_id, table.reward.is_not(None))
    if connection.execute(sa.select(table.attempt).where(*scored, table.structured.is_(None)).limit(1)).first():
        yield None
        return
    query = sa.select(table.structured).where(*scored).execution_options(yield_per=ENTRIES_PER_READ)
    for (structured,) in connection.execute(query):
        yield _decode_composite(structured).composite


# --- from the entries ------------------------------------------------------------------------------------------------


class JobFold:
    """One job's numbers, folded from its entries in order; entries of other streams are passed over."""

    def __init__(self, job_id: str) -> None:
        self._of_trials = f"trial/{job_id}/"
        self._of_job = f"job/{job_id}"
        self._tally: JobTally | None = None
        self._members: dict[str, Attempts] = {}
        self._tallied: dict[str, MemberTally] = {}  # what the tally holds of each member
        self._touched: dict[str, None] = {}  # members whose attempts have moved on from that
        self._composites: dict[tuple[str, int], float | None] = {}
        self._composite: float | None = None
        self._composite_known = True

    def apply(self, entry: Entry) -> None:
        """One more entry."""
        stream, fact = entry.stream, entry.fact
        if stream == self._of_job:
            if isinstance(fact, JobSubmitted):
                self._tally = JobTally(fact.attempts, fact.member_count)
            return
        if not stream.startswith(self._of_trials) or self._tally is None:
            return
        _, attempt, task = slot_of(stream)
        evolve(self._members.setdefault(task, {}), fact, attempt)
        self._touched[task] = None
        match fact:
            case StructuredResultRecorded(composite):
                self._composites[task, attempt] = composite
            case TrialDispatched() | TrialReleased():
                self._composites.pop((task, attempt), None)
            case RewardRecorded() | RewardRevised():
                pass
            case _:
                return
        self._composite_known = False

    def numbers(self) -> FrozenNumbers | None:
        """The numbers after the entries applied so far; None before the job was submitted."""
        if self._tally is None:
            return None
        for task in self._touched:
            member = tally_of(self._members[task], self._tally.attempts)
            self._tally.replace_member(self._tallied.get(task), member)
            self._tallied[task] = member
        self._touched.clear()
        if not self._composite_known:
            self._composite = mean_composite(self._scored())
            self._composite_known = True
        frozen = snapshot_numbers(measure(self._tally), ())
        return msgspec.structs.replace(frozen, composite=self._composite)

    def _scored(self) -> Iterator[float | None]:
        for task, attempts in self._members.items():
            for number, attempt in attempts.items():
                if attempt.reward is not None:
                    yield self._composites.get((task, number))


def fold_numbers(entries: Iterable[Recorded], job_id: str) -> FrozenNumbers | None:
    """A job's numbers from entries in order: those of the job, or a whole log."""
    fold = JobFold(job_id)
    for _, entry in entries:
        fold.apply(entry)
    return fold.numbers()


def entries_of(connection: Connection, project_id: str, job_id: str, *, upto: int) -> Iterator[Recorded]:
    """The entries of a job and its trials up to a position, in order."""
    after = 0
    while after < upto:
        rows = audit_trail.events(connection, project_id, after=after, limit=ENTRIES_PER_READ, job_id=job_id)
        for row in rows:
            if row.position > upto:
                return
            yield codec.decode(row.position, bytes(row.body))
        if len(rows) < ENTRIES_PER_READ:
            return
        after = rows[-1].position
