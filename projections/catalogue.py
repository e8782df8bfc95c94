"""What is in the catalogue: datasets with their tasks, runners, profiles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.database import metadata
from ledger.errors import NotFound
from ledger.facts.catalogue import DatasetMembersAdded, DatasetPublished, ProfilePublished, RunnerPublished, Task
from projections.following import Batch, ReadModel, microseconds

NAMES_PER_SELECT = 500

datasets = sa.Table(
    "datasets",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("ref", sa.Text, primary_key=True),
    sa.Column("runner", sa.Text, nullable=False),
    sa.Column("member_count", sa.BigInteger, nullable=False),
    sa.Column("members_digest", sa.Text, nullable=False),
    sa.Column("digests", sa.Text, nullable=False),
    sa.Column("published_us", sa.BigInteger, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
)

dataset_tasks = sa.Table(
    "dataset_tasks",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("ref", sa.Text, primary_key=True),
    sa.Column("ordinal", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.UniqueConstraint("project_id", "ref", "task"),
)

runners = sa.Table(
    "runners",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("ref", sa.Text, primary_key=True),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("published_us", sa.BigInteger, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
)

profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("ref", sa.Text, primary_key=True),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("published_us", sa.BigInteger, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
)


class DatasetRow(msgspec.Struct, frozen=True):
    """A published dataset revision. `published_us` is in microseconds since 1970 UTC."""

    ref: str
    runner: str
    member_count: int
    members_digest: str
    digests: str
    published_us: int
    position: int


def apply(connection: Connection, project_id: str, batch: Batch) -> None:
    """Take over what was published."""
    for position, entry in batch.others:
        placed = {"project_id": project_id, "position": position, "published_us": microseconds(entry.at)}
        match entry.fact:
            case DatasetMembersAdded(tasks):
                _add_tasks(connection, project_id, entry.stream.removeprefix("dataset/"), tasks)
            case DatasetPublished() as fact:
                row = {
                    name: getattr(fact, name) for name in ("ref", "runner", "member_count", "members_digest", "digests")
                }
                connection.execute(datasets.insert(), placed | row)
            case RunnerPublished() as fact:
                connection.execute(runners.insert(), placed | {"ref": fact.ref, "spec": msgspec.json.encode(fact)})
            case ProfilePublished() as fact:
                connection.execute(profiles.insert(), placed | {"ref": fact.ref, "spec": msgspec.json.encode(fact)})
            case _:
                pass


MODEL = ReadModel("catalogue", 1, (datasets, dataset_tasks, runners, profiles), apply)


def list_datasets(
    connection: Connection, project_id: str, *, after: str = "", limit: int | None = None
) -> list[DatasetRow]:
    """Dataset revisions by name, after one of them."""
    query = _dataset_query(project_id).where(datasets.c.ref > after).order_by(datasets.c.ref).limit(limit)
    return [DatasetRow(*row) for row in connection.execute(query)]


def get_dataset(connection: Connection, project_id: str, ref: str) -> DatasetRow:
    """One dataset revision."""
    row = connection.execute(_dataset_query(project_id).where(datasets.c.ref == ref)).first()
    if row is None:
        raise NotFound(f"There is no dataset {ref}; `el dataset list` shows those there are.")
    return DatasetRow(*row)


def list_tasks(
    connection: Connection, project_id: str, ref: str, *, after: int = -1, limit: int | None = None
) -> list[tuple[int, Task]]:
    """(ordinal, task) of a dataset revision in its order, after an ordinal (from 0)."""
    query = (
        sa.select(dataset_tasks.c.ordinal, dataset_tasks.c.task, dataset_tasks.c.digest)
        .where(dataset_tasks.c.project_id == project_id, dataset_tasks.c.ref == ref, dataset_tasks.c.ordinal > after)
        .order_by(dataset_tasks.c.ordinal)
        .limit(limit)
    )
    return [(ordinal, Task(name, digest)) for ordinal, name, digest in connection.execute(query)]


def find_tasks(connection: Connection, project_id: str, ref: str, names: Collection[str]) -> list[Task]:
    """The named tasks of a dataset revision, in its order; refuses a name that it does not have."""
    wanted = sorted(set(names))
    rows: list[tuple[int, str, str]] = []
    for start in range(0, len(wanted), NAMES_PER_SELECT):
        query = sa.select(dataset_tasks.c.ordinal, dataset_tasks.c.task, dataset_tasks.c.digest).where(
            dataset_tasks.c.project_id == project_id,
            dataset_tasks.c.ref == ref,
            dataset_tasks.c.task.in_(wanted[start : start + NAMES_PER_SELECT]),
        )
        rows += [(ordinal, name, digest) for ordinal, name, digest in connection.execute(query)]
    found = [Task(name, digest) for _, name, digest in sorted(rows)]
    if absent := sorted(set(names) - {task.name for task in found}):
        raise NotFound(f"Dataset {ref} has no task {absent[0]!r}; `el dataset show {ref}` lists its tasks.")
    return found


def list_runners(
    connection: Connection, project_id: str, *, after: str = "", limit: int | None = None
) -> list[RunnerPublished]:
    """Runner revisions by name, after one of them."""
    query = _specs(runners, project_id, after, limit)
    return [msgspec.json.decode(spec, type=RunnerPublished) for (spec,) in connection.execute(query)]


def list_profiles(
    connection: Connection, project_id: str, *, after: str = "", limit: int | None = None
) -> list[ProfilePublished]:
    """Profile revisions by name, after one of them; of secrets only names and fingerprints."""
    query = _specs(profiles, project_id, after, limit)
    return [msgspec.json.decode(spec, type=ProfilePublished) for (spec,) in connection.execute(query)]


def _specs(table: sa.Table, project_id: str, after: str, limit: int | None) -> sa.Select[Any]:
    query = sa.select(table.c.spec).where(table.c.project_id == project_id, table.c.ref > after)
    return query.order_by(table.c.ref).limit(limit)


def _dataset_query(project_id: str) -> sa.Select[Any]:
    columns = [datasets.c[name] for name in DatasetRow.__struct_fields__]
    return sa.select(*columns).where(datasets.c.project_id == project_id)


def _add_tasks(connection: Connection, project_id: str, ref: str, tasks: Sequence[Task]) -> None:
    first = connection.execute(
        sa.select(sa.func.coalesce(sa.func.max(dataset_tasks.c.ordinal) + 1, 0)).where(
            dataset_tasks.c.project_id == project_id, dataset_tasks.c.ref == ref
        )
    ).scalar_one()
    connection.execute(
        dataset_tasks.insert(),
        [
            {"project_id": project_id, "ref": ref, "ordinal": ordinal, "task": task.name, "digest": task.digest}
            for ordinal, task in enumerate(tasks, first)
        ],
    )
