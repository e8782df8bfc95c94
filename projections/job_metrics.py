"""What each job measured: exact tallies, kept up to date member by member, so a result costs the same at any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.bulk import find, upsert
from ledger.database import metadata
from ledger.errors import NotFound
from ledger.facts.entry import AnyFact
from ledger.facts.job import JobSubmitted
from ledger.facts.trial import (
    RewardRecorded,
    RewardRevised,
    TrialCanceled,
    TrialDispatched,
    TrialFailed,
    TrialReleased,
    TrialStarted,
    TrialSucceeded,
)
from projections.following import Batch, ReadModel
from projections.metrics import Metrics, measure
from projections.tally import JobTally, MemberTally, Trial, member_tally

MEMBERS_PER_READ = 1_000

job_metrics = sa.Table(
    "job_metrics",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("tally", sa.Text, nullable=False),
    sa.Column("endings", sa.Text, nullable=False),
    sa.Column("lost", sa.Text, nullable=False),
)

job_tasks = sa.Table(
    "job_tasks",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("attempts", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)


class Attempt(msgspec.Struct, array_like=True, gc=False):
    """One dispatched attempt of a member. `lost` is the phase that lost the reward of an ended trial without one."""

    attempt: int
    status: str = "dispatched"
    reward: float | None = None
    lost: str | None = None


class JobResult(msgspec.Struct, frozen=True):
    """The numbers of a job; how its trials ended; and, of ended trials without a reward, the phase that lost it."""

    metrics: Metrics
    endings: dict[str, int]
    lost: dict[str, int]


_decode_attempts = msgspec.json.Decoder(list[Attempt]).decode
_encode = msgspec.json.Encoder().encode
_ENDED = frozenset({"succeeded", "failed", "canceled"})

Key = tuple[str, str]  # job, task
Attempts = dict[int, Attempt]
Counts = Counter[str]


def apply(connection: Connection, project_id: str, batch: Batch) -> None:
    """Fold the batch into the members it touches, and the difference each makes into its job's tally."""
    for _, entry in batch.others:
        if isinstance(entry.fact, JobSubmitted):
            tally = JobTally(entry.fact.attempts, entry.fact.member_count)
            upsert(connection, job_metrics, [_job_row(project_id, entry.fact.job_id, tally, Counter(), Counter())])
    touched: dict[Key, None] = dict.fromkeys((slot.job_id, slot.task) for slot, _, _ in batch.of_trials)
    if not touched:
        return
    members: dict[Key, Attempts] = {key: {} for key in touched}
    for key, row in _read_members(connection, project_id, touched):
        members[key] = {attempt.attempt: attempt for attempt in row}
    jobs = _read_jobs(connection, project_id, {job_id for job_id, _ in touched})
    before = {key: _contribution(attempts, jobs[key[0]][0].attempts) for key, attempts in members.items() if attempts}
    for slot, _, entry in batch.of_trials:
        evolve(members[slot.job_id, slot.task], entry.fact, slot.attempt)
    for key, attempts in members.items():
        tally, endings, lost = jobs[key[0]]
        old_member, old_endings, old_lost = before.get(key, _NOTHING)
        new_member, new_endings, new_lost = _contribution(attempts, tally.attempts)
        tally.replace_member(old_member, new_member)
        for total, new, old in ((endings, new_endings, old_endings), (lost, new_lost, old_lost)):
            for name in new:
                total[name] += new[name]
            for name in old:
                total[name] -= old[name]
    upsert(
        connection,
        job_tasks,
        [(project_id, job_id, task, _encode(_in_order(attempts))) for (job_id, task), attempts in members.items()],
    )
    upsert(connection, job_metrics, [_job_row(project_id, job_id, *parts) for job_id, parts in jobs.items()])


def evolve(attempts: Attempts, fact: AnyFact, number: int) -> None:
    """One member's attempts after one more fact about the attempt of that number; changed in place."""
    if isinstance(fact, TrialDispatched):
        attempts[number] = Attempt(number)
        return
    attempt = attempts.get(number)
    if attempt is None:  # evidence of a reward that came after the slot was freed
        return
    match fact:
        case TrialStarted():
            if attempt.status == "dispatched":
                attempt.status = "running"
        case RewardRecorded(reward):
            attempt.reward = reward
        case TrialSucceeded():
            attempt.status, attempt.lost = "succeeded", "verifier"
        case TrialFailed(phase=phase):
            attempt.status, attempt.lost = "failed", phase
        case TrialCanceled():
            attempt.status, attempt.lost = "canceled", "canceled"
        case RewardRevised(new=new):
            attempt.reward = new
        case TrialReleased():
            del attempts[number]
        case _:
            pass


MODEL = ReadModel("job_metrics", 1, (job_metrics, job_tasks), apply)


def result_of(connection: Connection, project_id: str, job_id: str) -> JobResult:
    """A job's numbers. Reads one row, whatever the size of the job."""
    row = connection.execute(
        sa.select(job_metrics.c.tally, job_metrics.c.endings, job_metrics.c.lost).where(
            job_metrics.c.project_id == project_id, job_metrics.c.job_id == job_id
        )
    ).first()
    if row is None:
        raise NotFound(f"There is no job {job_id}; `el job list` shows those there are.")
    tally, endings, lost = row
    return JobResult(measure(JobTally.from_json(tally)), msgspec.json.decode(endings), msgspec.json.decode(lost))


def endings_of(connection: Connection, project_id: str, job_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """How the trials of each job stand, counted by status."""
    query = sa.select(job_metrics.c.job_id, job_metrics.c.endings).where(
        job_metrics.c.project_id == project_id, job_metrics.c.job_id.in_(job_ids)
    )
    return {job_id: msgspec.json.decode(endings) for job_id, endings in connection.execute(query)}


def attempts_of(connection: Connection, project_id: str, job_id: str, tasks: Sequence[str]) -> dict[str, list[Attempt]]:
    """The dispatched attempts of the named members of a job; none for a member never dispatched."""
    found: dict[str, list[Attempt]] = {task: [] for task in tasks}
    for (_, task), attempts in _read_members(connection, project_id, [(job_id, task) for task in tasks]):
        found[task] = attempts
    return found


def members_of(connection: Connection, project_id: str, job_id: str) -> Iterator[tuple[str, list[Attempt]]]:
    """Each member of a job that was ever dispatched, by name, with its dispatched attempts; read as it is taken."""
    query = sa.select(job_tasks.c.task, job_tasks.c.attempts).where(
        job_tasks.c.project_id == project_id, job_tasks.c.job_id == job_id
    )
    query = query.order_by(job_tasks.c.task).execution_options(yield_per=MEMBERS_PER_READ)
    for task, attempts in connection.execute(query):
        yield task, _decode_attempts(attempts)


_NOTHING: tuple[MemberTally | None, Counts, Counts] = (None, Counter(), Counter())


def tally_of(attempts: Attempts, k: int) -> MemberTally:
    """What a member adds to its job's numbers."""
    ended = _ENDED
    return member_tally([Trial(row.reward, row.status in ended, row.attempt > k) for row in attempts.values()])


def _contribution(attempts: Attempts, k: int) -> tuple[MemberTally | None, Counts, Counts]:
    """What a member adds to its job: its tally, how its trials ended, which phases lost a reward."""
    endings: Counts = Counter()
    lost: Counts = Counter()
    for row in attempts.values():
        endings[row.status] += 1
        if row.reward is None and row.lost is not None:
            lost[row.lost] += 1
    return tally_of(attempts, k), endings, lost


def _in_order(attempts: Attempts) -> list[Attempt]:
    return [attempts[number] for number in sorted(attempts)]


def _job_row(project_id: str, job_id: str, tally: JobTally, endings: Counts, lost: Counts) -> tuple[str, ...]:
    counts = (_encode({name: c[name] for name in sorted(c) if c[name]}).decode() for c in (endings, lost))
    return (project_id, job_id, tally.to_json(), *counts)


def _read_members(connection: Connection, project_id: str, keys: Iterable[Key]) -> Iterator[tuple[Key, list[Attempt]]]:
    for _, job_id, task, attempts in find(connection, job_tasks, [(project_id, *key) for key in keys]):
        yield (job_id, task), _decode_attempts(attempts)


def _read_jobs(
    connection: Connection, project_id: str, job_ids: Collection[str]
) -> dict[str, tuple[JobTally, Counts, Counts]]:
    table = job_metrics.c
    query = sa.select(table.job_id, table.tally, table.endings, table.lost).where(
        table.project_id == project_id, table.job_id.in_(sorted(job_ids))
    )
    return {
        job_id: (JobTally.from_json(tally), Counter(msgspec.json.decode(endings)), Counter(msgspec.json.decode(lost)))
        for job_id, tally, endings, lost in connection.execute(query)
    }
