"""Who recorded what, where and when: one row an entry, to be asked by job, task, actor, tag and position."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.codec import TAGS
from ledger.database import entries, metadata
from projections.following import Batch, ReadModel, insert, microseconds

audit_trail = sa.Table(
    "audit_trail",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("recorded_us", sa.BigInteger, nullable=False),
    sa.Column("tag", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text),
    sa.Column("attempt", sa.BigInteger),
    sa.Column("task", sa.Text),
    sa.Index("audit_trail_job", "project_id", "job_id", "position"),
    sqlite_with_rowid=False,
)


class AuditRow(msgspec.Struct, frozen=True):
    """An entry of the audit trail with its stored bytes. `recorded_us` is in microseconds since 1970 UTC."""

    position: int
    recorded_us: int
    tag: str
    actor: str
    job_id: str | None
    attempt: int | None
    task: str | None
    body: bytes


def apply(connection: Connection, project_id: str, batch: Batch) -> None:
    """One row an entry."""
    rows: list[tuple[object, ...]] = [
        (project_id, position, microseconds(entry.at), TAGS[type(entry.fact)], entry.actor, *slot)
        for slot, position, entry in batch.of_trials
    ]
    for position, entry in batch.others:
        job_id = entry.stream.removeprefix("job/") if entry.stream.startswith("job/") else None
        rows.append(
            (project_id, position, microseconds(entry.at), TAGS[type(entry.fact)], entry.actor, job_id, None, None)
        )
    insert(connection, audit_trail, rows)


MODEL = ReadModel("audit_trail", 1, (audit_trail,), apply)


def events(
    connection: Connection,
    project_id: str,
    *,
    after: int = 0,
    limit: int = 100,
    job_id: str | None = None,
    attempt: int | None = None,
    task: str | None = None,
    actor: str | None = None,
    tags: Sequence[str] = (),
) -> list[AuditRow]:
    """The entries after a position that fit every condition given, in order, at most `limit`."""
    table = audit_trail.c
    query = (
        sa.select(*(table[name] for name in AuditRow.__struct_fields__[:-1]), entries.c.body)
        .join(entries, sa.and_(entries.c.project_id == table.project_id, entries.c.position == table.position))
        .where(table.project_id == project_id, table.position > after)
        .order_by(table.position)
        .limit(limit)
    )
    for column, value in ((table.job_id, job_id), (table.attempt, attempt), (table.task, task), (table.actor, actor)):
        if value is not None:
            query = query.where(column == value)
    if tags:
        query = query.where(table.tag.in_(tags))
    return [AuditRow(*row) for row in connection.execute(query)]
