"""Who recorded what, where and when: one row an entry, to be asked by job, task, actor, tag, time and position.

Clocks differ and are set back, so times need not rise with positions. `log_us` does: it is the latest time recorded up
to an entry. The log "at a time" is what stood before `log_us` went beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice
from operator import itemgetter
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.bulk import insert
from ledger.codec import TAGS
from ledger.database import entries, metadata
from projections.following import Batch, ReadModel, microseconds

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
    sa.Column("log_us", sa.BigInteger, nullable=False),
    sa.Index("audit_trail_job", "project_id", "job_id", "position"),
    sa.Index("audit_trail_task", "project_id", "task", "position"),
    sa.Index("audit_trail_actor", "project_id", "actor", "position"),
    sa.Index("audit_trail_tag", "project_id", "tag", "position"),
    sa.Index("audit_trail_time", "project_id", "log_us", "position"),
    sqlite_with_rowid=False,
)


POSITIONS_MAX = 8_000  # looked up at once
ENTRIES_PER_READ = 1_000
_EARLIEST_US = -(2**63)


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
    rows: list[tuple[Any, ...]] = [
        (project_id, position, microseconds(entry.at), TAGS[type(entry.fact)], entry.actor, *slot)
        for slot, position, entry in batch.of_trials
    ]
    for position, entry in batch.others:
        job_id = entry.stream.removeprefix("job/") if entry.stream.startswith("job/") else None
        rows.append(
            (project_id, position, microseconds(entry.at), TAGS[type(entry.fact)], entry.actor, job_id, None, None)
        )
    rows.sort(key=itemgetter(1))
    latest = accumulate((row[2] for row in rows), max, initial=_log_us(connection, project_id))
    insert(connection, audit_trail, [(*row, log_us) for row, log_us in zip(rows, islice(latest, 1, None), strict=True)])


MODEL = ReadModel("audit_trail", 2, (audit_trail,), apply)


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
    stream: str | None = None,
    before: int | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
) -> list[AuditRow]:
    """The entries after a position that fit every condition given, in order, at most `limit`.

    `before` is a position, `since_us` and `until_us` are times of the log (microseconds since 1970 UTC), the first
    included, the last not.
    """
    table = audit_trail.c
    if since_us is not None:
        reached = position_after(connection, project_id, since_us - 1)
        if reached is None:
            return []
        after = max(after, reached - 1)
    if until_us is not None and (reached := position_after(connection, project_id, until_us - 1)) is not None:
        before = reached if before is None else min(before, reached)
    of_project, beyond = table.project_id == project_id, table.position > after
    within = [of_project, *([table.position < before] if before is not None else [])]
    equal = ((table.job_id, job_id), (table.task, task), (table.actor, actor))
    indexed = [[column == value] for column, value in equal if value is not None]
    indexed += [[table.tag == tag for tag in sorted(set(tags))]] if tags else []
    fits = [sa.or_(*alternatives) for alternatives in indexed]
    fits += [table.attempt == attempt] if attempt is not None else []
    if stream is not None:  # never long
        return _rows(connection, [*within, *fits, _few(connection, entries.c.stream_id == stream), beyond], limit)
    if sum(map(len, indexed)) <= 1:
        return _rows(connection, [*within, *(_few(connection, fit) for fit in fits), beyond], limit)
    found: list[AuditRow] = []
    count = limit if len(indexed) == 1 else limit * 3 // 2 + 1  # a few of the rarest do not fit the others
    while len(found) < limit:
        count = min(count, POSITIONS_MAX)
        rarest, some = _rarest(connection, within, indexed, after, count)
        others = fits[:rarest] + fits[rarest + 1 :]
        found += _rows(connection, [of_project, table.position.in_(some), *others], limit - len(found))
        if len(some) < count:
            break
        after, count = some[-1], 2 * count
    return found


def _rarest(
    connection: Connection,
    within: Sequence[sa.ColumnElement[bool]],
    indexed: Sequence[Sequence[sa.ColumnElement[bool]]],
    after: int,
    count: int,
) -> tuple[int, list[int]]:
    """Of several conditions, each a few alternatives that have an index, the number of the one that is the rarest
    after a position, and the first `count` positions that fit it. All that fits them all is among these, as far as
    they reach; to the end when there are fewer.

    A database takes one index and looks up the rest, the rare one or not; and it sorts everything that fits one of
    several alternatives to find the first few. So positions alone are read, alternative by alternative.
    """
    query = sa.select(audit_trail.c.position).where(*within, audit_trail.c.position > after)
    query = query.order_by(audit_trail.c.position).limit(count)
    found = []
    for alternatives in indexed:
        each = (connection.execute(query.where(_few(connection, one))).scalars().all() for one in alternatives)
        found.append(sorted(chain(*each))[:count])
    reach = [(len(positions) < count, -len(positions), positions[-1:]) for positions in found]
    rarest = reach.index(max(reach))
    return rarest, found[rarest]


def _rows(connection: Connection, fits: Sequence[sa.ColumnElement[bool]], limit: int) -> list[AuditRow]:
    table = audit_trail.c
    here = sa.and_(entries.c.project_id == table.project_id, entries.c.position == table.position)
    query = sa.select(*(table[name] for name in AuditRow.__struct_fields__[:-1]), entries.c.body).join(entries, here)
    return [AuditRow(*row) for row in connection.execute(query.where(*fits).order_by(table.position).limit(limit))]


def bodies_of(
    connection: Connection, project_id: str, job_id: str, *, tags: Sequence[str], upto: int
) -> Iterator[tuple[int, bytes]]:
    """(position, body) of a job's and its trials' entries of some kinds up to a position, read as they are taken."""
    table = audit_trail.c
    here = sa.and_(entries.c.project_id == table.project_id, entries.c.position == table.position)
    query = sa.select(table.position, entries.c.body).join(entries, here).order_by(table.position)
    query = query.where(table.project_id == project_id, _few(connection, table.job_id == job_id))
    query = query.where(table.tag.in_(tags), table.position <= upto).execution_options(yield_per=ENTRIES_PER_READ)
    return ((position, bytes(body)) for position, body in connection.execute(query))


def position_after(connection: Connection, project_id: str, log_us: int) -> int | None:
    """The first position at which the log was beyond a time (microseconds since 1970 UTC); None when it never was."""
    table = audit_trail.c
    query = sa.select(table.position).where(table.project_id == project_id, table.log_us > log_us)
    return connection.execute(query.order_by(table.log_us, table.position).limit(1)).scalar_one_or_none()


def _few(connection: Connection, condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Told that few rows fit, SQLite takes the condition's index; else it walks through the trail by position."""
    return sa.func.unlikely(condition) if connection.dialect.name == "sqlite" else condition


def _log_us(connection: Connection, project_id: str) -> int:
    table = audit_trail.c
    query = sa.select(table.log_us).where(table.project_id == project_id).order_by(table.position.desc()).limit(1)
    latest = connection.execute(query).scalar_one_or_none()
    return _EARLIEST_US if latest is None else latest
