"""The numbers that a snapshot freezes: the same bytes from the read models and from the entries of the job alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger import codec
from ledger.codec import TAGS
from ledger.facts.entry import Entry, Recorded
from ledger.facts.job import JobSubmitted
from ledger.facts.leaderboard import FrozenNumbers
from ledger.facts.trial import (
    RewardRecorded,
    RewardRevised,
    StructuredResultRecorded,
    TrialCanceled,
    TrialDispatched,
    TrialFailed,
    TrialReleased,
    TrialSucceeded,
    slot_of,
)
from projections import audit_trail, job_metrics, jobs, trials
from projections.following import position_of
from projections.job_metrics import Attempts, evolve, result_of, tally_of
from projections.metrics import Metrics, measure
from projections.tally import JobTally, MemberTally

ENTRIES_PER_READ = 1_000

_UNITS = 2**1074

# The kinds of facts that a job's numbers are made of; the fold passes over any other.
_COUNTING = tuple(
    TAGS[kind]
    for kind in (
        JobSubmitted,
        TrialDispatched,
        RewardRecorded,
        RewardRevised,
        StructuredResultRecorded,
        TrialSucceeded,
        TrialFailed,
        TrialCanceled,
        TrialReleased,
    )
)

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
    total = count = 0
    for composite in composites:
        if composite is None:
            return None
        total, count = total + _units(composite), count + 1
    return _mean(total, count)


def _units(value: float) -> int:
    """A float in units that every float is a whole number of: sums of them are exact in any order."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_UNITS // denominator)


def _mean(total: int, count: int) -> float | None:
    if not count:
        return None
    try:
        return total / _UNITS / count
    except OverflowError:  # the sum is no float; the mean of floats always is
        return total / (_UNITS * count)


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
        self._scored = self._lacking = self._total = 0  # scored trials, those without a composite, the others' sum

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
        self._count(task, attempt, -1)
        evolve(self._members.setdefault(task, {}), fact, attempt)
        self._touched[task] = None
        match fact:
            case StructuredResultRecorded(composite):
                self._composites[task, attempt] = composite
            case TrialDispatched() | TrialReleased():
                self._composites.pop((task, attempt), None)
            case _:
                pass
        self._count(task, attempt, +1)

    def _count(self, task: str, attempt: int, change: int) -> None:
        """Take a trial's composite, if it is scored, into the sums, or out of them."""
        found = self._members.get(task, {}).get(attempt)
        if found is None or found.reward is None:
            return
        self._scored += change
        composite = self._composites.get((task, attempt))
        if composite is None:
            self._lacking += change
        else:
            self._total += change * _units(composite)

    def numbers(self) -> FrozenNumbers | None:
        """The numbers after the entries applied so far; None before the job was submitted."""
        if self._tally is None:
            return None
        for task in self._touched:
            member = tally_of(self._members[task], self._tally.attempts)
            self._tally.replace_member(self._tallied.get(task), member)
            self._tallied[task] = member
        self._touched.clear()
        frozen = snapshot_numbers(measure(self._tally), ())
        composite = None if self._lacking else _mean(self._total, self._scored)
        return msgspec.structs.replace(frozen, composite=composite)


def fold_numbers(entries: Iterable[Recorded], job_id: str) -> FrozenNumbers | None:
    """A job's numbers from entries in order: those of the job, or a whole log."""
    fold = JobFold(job_id)
    for _, entry in entries:
        fold.apply(entry)
    return fold.numbers()


def entries_of(connection: Connection, project_id: str, job_id: str, *, upto: int) -> Iterator[Recorded]:
    """The entries up to a position that a job's numbers are folded from, in order; read as they are taken."""
    return codec.decode_each(audit_trail.bodies_of(connection, project_id, job_id, tags=_COUNTING, upto=upto))
