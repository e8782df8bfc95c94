"""Each job: its frozen manifest, its members, how it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.bulk import insert
from ledger.database import metadata
from ledger.errors import NotFound
from ledger.facts.catalogue import Task
from ledger.facts.job import (
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobMembersSelected,
    JobOriginSealed,
    JobSubmitted,
    Origin,
)
from ledger.facts.trial import TrialDispatched
from projections.catalogue import dataset_tasks
from projections.following import Batch, ReadModel, microseconds

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("profile", sa.Text),
    sa.Column("agent_run", sa.Text),
    sa.Column("model", sa.Text),
    sa.Column("manifest", sa.LargeBinary, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("submitted_us", sa.BigInteger, nullable=False),
    sa.Column("ended_us", sa.BigInteger),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Index("jobs_position", "project_id", "position"),
    # A list is asked for by one of these, the newest first, so that a page costs no more than its rows.
    *(
        sa.Index(f"jobs_{name}", "project_id", name, "position")
        for name in ("status", "dataset", "profile", "model", "agent_run")
    ),
)

job_tags = sa.Table(
    "job_tags",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

# The members of jobs that take only a part of their dataset; the others have the dataset's tasks.
job_members = sa.Table(
    "job_members",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("ordinal", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)


ID_BEGINNING_CHARS_MIN = 4

# What runners call the parameter that names the model, the seed's first.
MODEL_PARAMETERS = ("MODEL_NAME", "model")
MODEL_CHARS_MAX = 500


class JobRow(msgspec.Struct, frozen=True):
    """A job. `position` is that of its submission; times are in microseconds since 1970 UTC.

    The manifest has the origin that was sealed later, if one was.
    """

    job_id: str
    status: str
    manifest: JobSubmitted
    reason: str | None
    submitted_us: int
    ended_us: int | None
    position: int


_COLUMNS = tuple(jobs.c[name] for name in JobRow.__struct_fields__)
_ONE = sa.and_(jobs.c.project_id == sa.bindparam("p"), jobs.c.job_id == sa.bindparam("j"))


def apply(connection: Connection, project_id: str, batch: Batch) -> None:
    """Take over submissions and endings; a job runs once its first trial was dispatched."""
    for position, entry in batch.others:
        job_id = entry.stream.removeprefix("job/")
        match entry.fact:
            case JobMembersSelected(tasks):
                _add_members(connection, project_id, job_id, tasks)
            case JobSubmitted() as manifest:
                row = {
                    "project_id": project_id,
                    "job_id": job_id,
                    "status": "submitted",
                    "dataset": manifest.dataset,
                    "profile": manifest.profile,
                    "agent_run": manifest.agent_run,
                    "model": model_of(manifest),
                    "manifest": msgspec.json.encode(manifest),
                    "submitted_us": microseconds(entry.at),
                    "position": position,
                }
                connection.execute(jobs.insert(), row)
                insert(connection, job_tags, [(project_id, *tag, position) for tag in manifest.tags.items()])
            case JobOriginSealed(origin=origin):
                _seal(connection, project_id, job_id, origin)
            case JobCompleted():
                _end(connection, project_id, job_id, "completed", None, microseconds(entry.at))
            case JobFailed(error_type=error_type):
                _end(connection, project_id, job_id, "failed", error_type, microseconds(entry.at))
            case JobCanceled(reason):
                _end(connection, project_id, job_id, "canceled", reason or None, microseconds(entry.at))
            case _:
                pass
    dispatched = {slot.job_id for slot, _, entry in batch.of_trials if type(entry.fact) is TrialDispatched}
    if dispatched:
        started = jobs.update().where(_ONE, jobs.c.status == "submitted").values(status="running")
        connection.execute(started, [{"p": project_id, "j": job_id} for job_id in sorted(dispatched)])


MODEL = ReadModel("jobs", 2, (jobs, job_tags, job_members), apply)


def model_of(manifest: JobSubmitted) -> str | None:
    """The model under evaluation: the effective parameter of that name, else what the imported tool said."""
    said = (*(manifest.parameters.get(name) for name in MODEL_PARAMETERS), manifest.origin.as_reported.get("model"))
    # No column holds the character NUL, and PostgreSQL no long text in an index.
    named = (name for name in said if isinstance(name, str) and name and "\0" not in name)
    return next((name[:MODEL_CHARS_MAX] for name in named), None)


def get_job(connection: Connection, project_id: str, job_id: str) -> JobRow:
    """One job by its id."""
    row = connection.execute(sa.select(*_COLUMNS).where(_ONE), {"p": project_id, "j": job_id}).first()
    if row is None:
        raise NotFound(f"There is no job {job_id}; `el job list` shows those there are.")
    return _row(row)


def find_job_id(connection: Connection, project_id: str, beginning: str) -> str:
    """The id of the one job whose id begins so; at least four characters."""
    if len(beginning) < ID_BEGINNING_CHARS_MIN or not set(beginning) <= set("0123456789abcdef-"):
        raise NotFound(
            f"There is no job {beginning[:80]}; give the id that `el job list` shows, or its first characters."
        )
    query = (
        sa.select(jobs.c.job_id).where(jobs.c.project_id == project_id, jobs.c.job_id.startswith(beginning)).limit(2)
    )
    found: list[str] = list(connection.execute(query).scalars())
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"Several jobs begin with {beginning}; give more of the id.")
    raise NotFound(f"There is no job {beginning}; `el job list` shows those there are.")


def list_jobs(
    connection: Connection,
    project_id: str,
    *,
    status: str | None = None,
    dataset: str | None = None,
    profile: str | None = None,
    model: str | None = None,
    agent_run: str | None = None,
    tags: Mapping[str, str] | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[JobRow]:
    """Jobs, the newest first, of those submitted before a position that fit every condition given."""
    query = sa.select(*_COLUMNS).where(jobs.c.project_id == project_id)
    wanted = {"status": status, "dataset": dataset, "profile": profile, "model": model, "agent_run": agent_run}
    for column, value in wanted.items():
        if value is not None:
            query = query.where(jobs.c[column] == value)
    for name, value in (tags or {}).items():
        tag = sa.select(sa.literal(1)).where(
            job_tags.c.project_id == project_id,
            job_tags.c.name == name,
            job_tags.c.value == value,
            job_tags.c.position == jobs.c.position,
        )
        query = query.where(tag.exists())
    if before is not None:
        query = query.where(jobs.c.position < before)
    query = query.order_by(jobs.c.position.desc()).limit(limit)
    return [_row(row) for row in connection.execute(query)]


def members(project_id: str, manifest: JobSubmitted, *more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """The query for a job's members in their order: `more`, then the task's name."""
    table = job_members if manifest.subset else dataset_tasks
    of_job = job_members.c.job_id == manifest.job_id if manifest.subset else dataset_tasks.c.ref == manifest.dataset
    query = sa.select(*more, table.c.task).where(table.c.project_id == project_id, of_job)
    return query.order_by(table.c.ordinal)


def list_members(
    connection: Connection, project_id: str, manifest: JobSubmitted, *, after: int = 0, limit: int | None = None
) -> list[str]:
    """The names of a job's members in their order, leaving out the first `after`."""
    table = job_members if manifest.subset else dataset_tasks
    query = members(project_id, manifest).where(table.c.ordinal >= after).limit(limit)
    return list(connection.execute(query).scalars())


def find_member(connection: Connection, project_id: str, manifest: JobSubmitted, task: str) -> Task:
    """One member of a job by its task's name."""
    table = job_members if manifest.subset else dataset_tasks
    query = members(project_id, manifest).add_columns(table.c.digest).where(table.c.task == task)
    row = connection.execute(query).first()
    if row is None:
        raise NotFound(f"Job {manifest.job_id} has no member {task!r}; `el job result` lists its members.")
    return Task(row[0], row[1])


def _row(row: sa.Row[Any]) -> JobRow:
    job_id, status, manifest, *rest = row
    return JobRow(job_id, status, msgspec.json.decode(manifest, type=JobSubmitted), *rest)


def _seal(connection: Connection, project_id: str, job_id: str, origin: Origin) -> None:
    manifest = msgspec.structs.replace(get_job(connection, project_id, job_id).manifest, origin=origin)
    sealed = jobs.update().where(_ONE).values(manifest=msgspec.json.encode(manifest), model=model_of(manifest))
    connection.execute(sealed, {"p": project_id, "j": job_id})


def _end(connection: Connection, project_id: str, job_id: str, status: str, reason: str | None, ended_us: int) -> None:
    ended = jobs.update().where(_ONE).values(status=status, reason=reason, ended_us=ended_us)
    connection.execute(ended, {"p": project_id, "j": job_id})


def _add_members(connection: Connection, project_id: str, job_id: str, tasks: Sequence[Task]) -> None:
    count = sa.select(sa.func.count()).where(job_members.c.project_id == project_id, job_members.c.job_id == job_id)
    first = connection.execute(count).scalar_one()
    rows = [
        {"project_id": project_id, "job_id": job_id, "ordinal": ordinal, "task": task.name, "digest": task.digest}
        for ordinal, task in enumerate(tasks, first)
    ]
    connection.execute(job_members.insert(), rows)
