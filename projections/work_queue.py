"""Which slots wait to be dispatched. Imported jobs have no queue: nobody will run them."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.bulk import remove, upsert
from ledger.database import metadata
from ledger.facts.job import JobCanceled, JobFailed, JobRetryRequested, JobSubmitted
from ledger.facts.trial import Slot, TrialDispatched, TrialReleased
from projections.following import Batch, ReadModel
from projections.jobs import jobs, members

work_queue = sa.Table(
    "work_queue",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("task", sa.Text, primary_key=True),
    sqlite_with_rowid=False,
)

# Jobs whose released slots go back into the queue: submitted here and not called off.
queued_jobs = sa.Table(
    "queued_jobs",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
)

_JOB = (work_queue.c.project_id == sa.bindparam("p"), work_queue.c.job_id == sa.bindparam("j"))


def apply(connection: Connection, project_id: str, batch: Batch) -> None:
    """Open slots on submission, close them on dispatch, open them again on release."""
    for _, entry in batch.others:
        job_id = entry.stream.removeprefix("job/")
        match entry.fact:
            case JobSubmitted() as manifest if manifest.origin.kind != "import":
                _open_slots(connection, project_id, manifest)
            case JobRetryRequested(task, attempt):
                if job_id in _queued(connection, project_id, [job_id]):
                    upsert(connection, work_queue, [_row(project_id, Slot(job_id, attempt, task.name))])
            case JobCanceled() | JobFailed(error_type=str()):
                connection.execute(work_queue.delete().where(*_JOB), {"p": project_id, "j": job_id})
                gone = (queued_jobs.c.project_id == project_id, queued_jobs.c.job_id == job_id)
                connection.execute(queued_jobs.delete().where(*gone))
            case _:
                pass
    _follow_trials(connection, project_id, batch)


MODEL = ReadModel("work_queue", 1, (work_queue, queued_jobs), apply)


def open_slots(connection: Connection, project_id: str, *, job_id: str | None = None, limit: int) -> list[Slot]:
    """The next slots to dispatch: first attempts before second ones, so that coverage grows evenly."""
    table = work_queue.c
    query = sa.select(table.job_id, table.attempt, table.task).where(table.project_id == project_id)
    if job_id is not None:
        query = query.where(table.job_id == job_id)
    query = query.order_by(table.job_id, table.attempt, table.task).limit(limit)
    return [Slot(*row) for row in connection.execute(query)]


def jobs_waiting(connection: Connection, project_id: str, *, job_id: str | None = None) -> list[str]:
    """The jobs, or the one, that have a slot waiting, by id. Goes from job to job: long queues cost nothing more."""
    if job_id is not None:
        return [job_id] if open_slots(connection, project_id, job_id=job_id, limit=1) else []
    table = work_queue.c
    found: list[str] = []
    while True:
        query = sa.select(sa.func.min(table.job_id)).where(table.project_id == project_id)
        if found:
            query = query.where(table.job_id > found[-1])
        job_id = connection.execute(query).scalar_one()
        if job_id is None:
            return found
        found.append(job_id)


def count_open(connection: Connection, project_id: str, job_id: str) -> int:
    """How many slots of a job wait to be dispatched."""
    query = sa.select(sa.func.count()).where(work_queue.c.project_id == project_id, work_queue.c.job_id == job_id)
    return connection.execute(query).scalar_one()


def jobs_without_open_slots(connection: Connection, project_id: str, *, limit: int) -> list[str]:
    """Jobs that have not ended though nothing of them waits: their last trials run, or nobody said that they ended."""
    waits = sa.exists().where(work_queue.c.project_id == project_id, work_queue.c.job_id == queued_jobs.c.job_id)
    query = (
        sa.select(queued_jobs.c.job_id)
        .join(jobs, sa.and_(jobs.c.project_id == queued_jobs.c.project_id, jobs.c.job_id == queued_jobs.c.job_id))
        .where(queued_jobs.c.project_id == project_id, jobs.c.ended_us.is_(None), ~waits)
        .order_by(queued_jobs.c.job_id)
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def _row(project_id: str, slot: Slot) -> tuple[str, str, int, str]:
    return (project_id, *slot)


def _queued(connection: Connection, project_id: str, job_ids: Collection[str]) -> set[str]:
    query = sa.select(queued_jobs.c.job_id).where(
        queued_jobs.c.project_id == project_id, queued_jobs.c.job_id.in_(sorted(job_ids))
    )
    return set(connection.execute(query).scalars())


def _open_slots(connection: Connection, project_id: str, manifest: JobSubmitted) -> None:
    job_id = manifest.job_id
    connection.execute(queued_jobs.insert(), {"project_id": project_id, "job_id": job_id})
    columns = ["project_id", "job_id", "attempt", "task"]
    for attempt in range(1, manifest.attempts + 1):
        slot = (sa.literal(project_id), sa.literal(job_id), sa.literal(attempt))
        connection.execute(work_queue.insert().from_select(columns, members(project_id, manifest, *slot)))


def _follow_trials(connection: Connection, project_id: str, batch: Batch) -> None:
    """Only the last dispatch or release of a slot counts."""
    last: dict[Slot, bool] = {}
    for slot, _, entry in batch.of_trials:
        match entry.fact:
            case TrialDispatched():
                last[slot] = False
            case TrialReleased():
                last[slot] = True
            case _:
                pass
    if not last:
        return
    queued = _queued(connection, project_id, {slot.job_id for slot in last})
    moved = [(slot, is_open) for slot, is_open in last.items() if slot.job_id in queued]
    remove(connection, work_queue, [_row(project_id, slot) for slot, is_open in moved if not is_open])
    upsert(connection, work_queue, [_row(project_id, slot) for slot, is_open in moved if is_open])
