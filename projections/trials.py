"""Each trial as it stands: its six signals side by side, none folded into another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.bulk import find, remove, upsert
from ledger.database import metadata
from ledger.errors import NotFound
from ledger.facts.entry import AnyFact
from ledger.facts.trial import (
    ArtifactFailed,
    ArtifactPersisted,
    RewardRecorded,
    RewardRejected,
    RewardRevised,
    Slot,
    StructuredResultRecorded,
    StructuredResultRejected,
    TrialCanceled,
    TrialDispatched,
    TrialFailed,
    TrialReleased,
    TrialStarted,
    TrialSucceeded,
)
from projections.following import Batch, ReadModel, microseconds, runs_of

TASKS_PER_SELECT = 400
ID_CHARS = 36
ID_BEGINNING_CHARS_MIN = 4

trials = sa.Table(
    "trials",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("trial_id", sa.Text, nullable=False),
    sa.Column("task_digest", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("worker", sa.Text),
    sa.Column("exit_code", sa.BigInteger),
    sa.Column("error_type", sa.Text),
    sa.Column("phase", sa.Text),
    sa.Column("message", sa.Text),
    sa.Column("reward", sa.Float(53)),
    sa.Column("first_reward", sa.Float(53)),
    sa.Column("no_reward", sa.Text),
    sa.Column("raw_reward", sa.Text),
    sa.Column("structured", sa.LargeBinary),
    sa.Column("artifacts_kept", sa.BigInteger, nullable=False),
    sa.Column("artifacts_failed", sa.BigInteger, nullable=False),
    sa.Column("dispatched_us", sa.BigInteger, nullable=False),
    sa.Column("started_us", sa.BigInteger),
    sa.Column("ended_us", sa.BigInteger),
    sa.Column("duration_s", sa.Float(53)),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Index("trials_id", "project_id", "trial_id", unique=True),
    sqlite_with_rowid=False,
)
# What `job result` shows next: the ended trials of a job that have no reward.
sa.Index(
    "trials_unscored",
    trials.c.project_id,
    trials.c.job_id,
    trials.c.ended_us,
    sqlite_where=sa.and_(trials.c.reward.is_(None), trials.c.ended_us.is_not(None)),
    postgresql_where=sa.and_(trials.c.reward.is_(None), trials.c.ended_us.is_not(None)),
)
# What `job result` shows beside the first rewards: those that were corrected later.
_REVISED = trials.c.reward.is_distinct_from(trials.c.first_reward)
sa.Index(
    "trials_revised",
    trials.c.project_id,
    trials.c.job_id,
    trials.c.task,
    sqlite_where=_REVISED,
    postgresql_where=_REVISED,
)
# Where workers look for trials that others left behind: dispatched to a worker and not ended.
sa.Index(
    "trials_at_work",
    trials.c.project_id,
    trials.c.worker,
    sqlite_where=sa.and_(trials.c.ended_us.is_(None), trials.c.worker.is_not(None)),
    postgresql_where=sa.and_(trials.c.ended_us.is_(None), trials.c.worker.is_not(None)),
)


class TrialRow(msgspec.Struct, gc=False):
    """A trial. Times in microseconds since 1970 UTC, as the tool told them, else as they were recorded.

    `reward` is what holds now, `first_reward` what the verifier gave first. `no_reward` says why an ended trial has
    none: the reason it was rejected for, else `trial-error`, `canceled` or `not-reported`. `structured` is the fact
    about the structured result as JSON. `message` and `raw_reward` name artifacts by sha256.
    """

    job_id: str
    attempt: int
    task: str
    trial_id: str
    task_digest: str
    status: str
    worker: str | None
    exit_code: int | None
    error_type: str | None
    phase: str | None
    message: str | None
    reward: float | None
    first_reward: float | None
    no_reward: str | None
    raw_reward: str | None
    structured: bytes | None
    artifacts_kept: int
    artifacts_failed: int
    dispatched_us: int
    started_us: int | None
    ended_us: int | None
    duration_s: float | None
    position: int


_COLUMNS = tuple(trials.c[name] for name in TrialRow.__struct_fields__)
_astuple = msgspec.structs.astuple


def apply(connection: Connection, project_id: str, batch: Batch) -> None:
    """Fold the batch into the rows it touches; each is read once and written once."""
    born = {slot for slot, _, entry in batch.of_trials if type(entry.fact) is TrialDispatched}
    rows: dict[Slot, TrialRow | None] = dict.fromkeys(born)
    touched = dict.fromkeys(slot for slot, _, _ in batch.of_trials if slot not in born)
    rows.update(touched)
    rows.update(_read(connection, project_id, touched))
    for slot, position, entry in batch.of_trials:
        rows[slot] = evolve(rows[slot], entry.fact, slot, position, microseconds(entry.at))
    upsert(connection, trials, [(project_id, *_astuple(row)) for row in rows.values() if row])
    remove(connection, trials, [(project_id, *slot) for slot, row in rows.items() if row is None])


def evolve(row: TrialRow | None, fact: AnyFact, slot: Slot, position: int, at_us: int) -> TrialRow | None:  # noqa: PLR0912
    """The row after one more fact; None once the slot is free again. The row is changed in place."""
    if isinstance(fact, TrialDispatched):
        return _dispatched(fact, slot, position, at_us)
    if row is None:
        return None
    row.position = position
    match fact:
        case TrialStarted():
            if row.ended_us is None:
                row.status = "running"
            row.started_us = microseconds(fact.started_at) if fact.started_at else at_us
        case RewardRecorded(reward):
            row.reward, row.first_reward, row.no_reward = reward, reward, None
        case TrialSucceeded():
            row.status = "succeeded"
            _end(row, at_us, fact)
        case TrialFailed():
            row.status = "failed"
            row.error_type, row.phase, row.message = fact.error_type, fact.phase, fact.message
            _end(row, at_us, fact)
        case TrialCanceled():
            row.status = "canceled"
            _end(row, at_us, fact)
        case RewardRejected(why="lapsed-claim"):
            pass
        case RewardRejected(why, raw):
            row.no_reward, row.raw_reward = why, raw
        case RewardRevised():
            row.reward, row.no_reward = fact.new, None
        case StructuredResultRecorded() | StructuredResultRejected():
            row.structured = msgspec.json.encode(fact)
        case ArtifactPersisted():
            row.artifacts_kept += 1
        case ArtifactFailed():
            row.artifacts_failed += 1
        case TrialReleased():
            return None
        case _:
            pass
    return row


MODEL = ReadModel("trials", 1, (trials,), apply)


def get_trial(connection: Connection, project_id: str, trial_id: str) -> TrialRow:
    """One trial by its id."""
    query = sa.select(*_COLUMNS).where(trials.c.project_id == project_id, trials.c.trial_id == trial_id)
    row = connection.execute(query).first()
    if row is None:
        raise NotFound(f"There is no trial {trial_id}; `el job trials JOB` lists the trials of a job.")
    return TrialRow(*row)


def find_trial(connection: Connection, project_id: str, text: str) -> TrialRow:
    """The one trial that a text names: by its whole id, or by a beginning of it of at least four characters."""
    if len(text) == ID_CHARS:
        return get_trial(connection, project_id, text)
    if len(text) < ID_BEGINNING_CHARS_MIN or not set(text) <= set("0123456789abcdef-"):
        raise NotFound(
            f"There is no trial {text[:80]}; give the id that `el job trials JOB` lists, or its first characters."
        )
    # A range, for which `trials_id` serves; LIKE would read the ids of all trials. No id has a letter beyond f.
    begins = sa.and_(trials.c.trial_id >= text, trials.c.trial_id < f"{text}g")
    query = sa.select(*_COLUMNS).where(trials.c.project_id == project_id, begins).limit(2)
    found = connection.execute(query).all()
    if not found:
        raise NotFound(f"There is no trial {text}; `el job trials JOB` lists the trials of a job.")
    if len(found) > 1:
        raise NotFound(f"Several trials begin with {text}; give more of the id.")
    return TrialRow(*found[0])


def slot_by_id(connection: Connection, project_id: str, trial_id: str) -> Slot | None:
    """The slot of a trial by its id, which never changes; None when it is not known here, or not yet."""
    query = sa.select(trials.c.job_id, trials.c.attempt, trials.c.task)
    row = connection.execute(query.where(trials.c.project_id == project_id, trials.c.trial_id == trial_id)).first()
    return Slot(*row) if row else None


def slots_by_ids(connection: Connection, project_id: str, trial_ids: Collection[str]) -> dict[str, Slot]:
    """The same for many trials; those that are not known are left out."""
    query = sa.select(trials.c.trial_id, trials.c.job_id, trials.c.attempt, trials.c.task)
    found: dict[str, Slot] = {}
    for some in runs_of(sorted(trial_ids), TASKS_PER_SELECT):
        rows = connection.execute(query.where(trials.c.project_id == project_id, trials.c.trial_id.in_(some)))
        found |= {trial_id: Slot(*slot) for trial_id, *slot in rows}
    return found


def list_trials(
    connection: Connection, project_id: str, job_id: str, *, after: Slot | None = None, limit: int = 100
) -> list[TrialRow]:
    """The trials of a job by attempt, then task, after a slot, at most `limit`."""
    query = sa.select(*_COLUMNS).where(trials.c.project_id == project_id, trials.c.job_id == job_id)
    if after:
        beyond = sa.and_(trials.c.attempt == after.attempt, trials.c.task > after.task)
        query = query.where(sa.or_(trials.c.attempt > after.attempt, beyond))
    query = query.order_by(trials.c.attempt, trials.c.task).limit(limit)
    return [TrialRow(*row) for row in connection.execute(query)]


def unscored(connection: Connection, project_id: str, job_id: str, *, limit: int) -> list[TrialRow]:
    """Ended trials of a job that have no reward, at most `limit`, those that ended first."""
    query = sa.select(*_COLUMNS).where(
        trials.c.project_id == project_id,
        trials.c.job_id == job_id,
        trials.c.reward.is_(None),
        trials.c.ended_us.is_not(None),
    )
    # In the order of `trials_unscored`: else SQLite walks through all trials of the job.
    return [TrialRow(*row) for row in connection.execute(query.order_by(trials.c.ended_us).limit(limit))]


def count_revised(connection: Connection, project_id: str, job_id: str) -> int:
    """How many rewards of a job were corrected after the verifier had spoken."""
    # With a bound on the task, which every name keeps to: else SQLite walks through all trials of the job.
    of_job = (trials.c.project_id == project_id, trials.c.job_id == job_id, trials.c.task > "")
    return connection.execute(sa.select(sa.func.count()).where(*of_job, _REVISED)).scalar_one()


def revised(connection: Connection, project_id: str, job_id: str, tasks: Sequence[str]) -> list[TrialRow]:
    """The trials of some members of a job whose rewards were corrected, by task, then attempt."""
    query = sa.select(*_COLUMNS).where(trials.c.project_id == project_id, trials.c.job_id == job_id, _REVISED)
    found: list[TrialRow] = []
    for some in runs_of(tasks, TASKS_PER_SELECT):
        rows = connection.execute(query.where(trials.c.task.in_(some)).order_by(trials.c.task, trials.c.attempt))
        found += [TrialRow(*row) for row in rows]
    return found


def ended_by(
    connection: Connection, project_id: str, job_id: str, error_types: Collection[str]
) -> set[tuple[str, int]]:
    """The (task, attempt) of a job's trials that failed with an error of one of these types."""
    query = sa.select(trials.c.task, trials.c.attempt).where(
        trials.c.project_id == project_id,
        trials.c.job_id == job_id,
        trials.c.status == "failed",
        trials.c.error_type.in_(sorted(error_types)),
    )
    return {(task, attempt) for task, attempt in connection.execute(query)}


def running(connection: Connection, project_id: str, *, limit: int) -> list[TrialRow]:
    """Dispatched trials under a worker's lease that have not ended, at most `limit`."""
    query = sa.select(*_COLUMNS).where(
        # A comparison, not only NOT NULL: else SQLite scans the project instead of taking `trials_at_work`.
        trials.c.project_id == project_id,
        trials.c.ended_us.is_(None),
        trials.c.worker > "",
    )
    return [TrialRow(*row) for row in connection.execute(query.limit(limit))]


def _dispatched(fact: TrialDispatched, slot: Slot, position: int, at_us: int) -> TrialRow:
    nothing = (None,) * 10
    return TrialRow(
        slot.job_id, slot.attempt, slot.task, fact.trial_id, fact.task_digest, "dispatched", fact.worker,
        *nothing[:9], 0, 0, at_us, None, None, None, position,
    )  # fmt: skip


def _end(row: TrialRow, at_us: int, fact: TrialSucceeded | TrialFailed | TrialCanceled) -> None:
    row.ended_us = microseconds(fact.ended_at) if fact.ended_at else at_us
    if not isinstance(fact, TrialCanceled):
        row.exit_code, row.duration_s = fact.exit_code if hasattr(fact, "exit_code") else None, fact.duration_s


def _read(connection: Connection, project_id: str, slots: Iterable[Slot]) -> Iterator[tuple[Slot, TrialRow]]:
    for _, *row in find(connection, trials, [(project_id, *slot) for slot in slots]):
        found = TrialRow(*row)
        yield Slot(found.job_id, found.attempt, found.task), found


def why_no_reward(row: TrialRow) -> str | None:
    """Why an ended trial has no reward; None when it has one or has not ended."""
    if row.reward is not None or row.ended_us is None:
        return None
    return row.no_reward or {"failed": "trial-error", "canceled": "canceled"}.get(row.status, "not-reported")


def structured_result(row: TrialRow) -> Any:
    """The fact about the trial's structured result; None when there is none."""
    if row.structured is None:
        return None
    return msgspec.json.decode(row.structured, type=StructuredResultRecorded | StructuredResultRejected)
