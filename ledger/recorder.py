"""The log of one project: the eventsourcing library's recorder interface on SQLAlchemy Core.

To append is one transaction: take the head row, give the rows the next positions, insert them in bulk, move the head
and the tree's frontier. Positions are dense and rise in commit order: who has seen position n has seen all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from eventsourcing.persistence import ApplicationRecorder, IntegrityError, Notification, StoredEvent
from sqlalchemy.engine import Connection, Engine

from ledger.appending import Appending, Head
from ledger.codec import Row, fact_bytes
from ledger.database import entries, log_heads, reading, writing
from ledger.errors import ConcurrentWrite
from ledger.merkle import EMPTY_ROOT
from ledger.subscription import PollingSubscription, listener_of

# A statement names at most this many streams: SQLite bounds the variables of one statement.
STREAMS_PER_SELECT = 400

Also = Callable[[Connection], None]


class Outcome(NamedTuple):
    """What became of one row: where it stands, and whether it was new, there already, or contradicted."""

    position: int
    kind: Literal["appended", "repeated", "conflicting"]


class ProjectRecorder(ApplicationRecorder):
    """Reads and appends the log of one project. Bodies are stored as given and never re-encoded."""

    def __init__(self, engine: Engine, project_id: str) -> None:
        self.engine = engine
        self.project_id = project_id
        self._listener = listener_of(engine)
        self.guard: Callable[[], None] | None = None  # asked before anything is appended; raises to refuse it
        self._of_project = entries.c.project_id == project_id

    # --- appending -----------------------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row], *, also: Also | None = None) -> list[Outcome]:
        """Append rows in one transaction, each with its own outcome.

        A row whose stream version is taken is a repeat when its fact has the same bytes, else conflicting; neither
        keeps the others out. `also` runs in the same transaction, after the insert.
        """
        if not rows:
            return []
        try:
            return [Outcome(position, "appended") for position in self.append_new(rows, also=also)]
        except ConcurrentWrite:
            return self._append_what_is_new(rows, also)

    def append_new(self, rows: Sequence[Row], *, also: Also | None = None) -> range:
        """Append rows, all or none; their positions.

        Raises:
            ConcurrentWrite: the version of a stream is taken.
        """
        with self.appending() as append:
            first = append(rows)
            if also:
                also(append.connection)
        return range(first, first + len(rows))

    @contextmanager
    def appending(self) -> Iterator[Appending]:
        """One transaction that appends as many batches as it is called with; the head moves once, at its end."""
        if self.guard:
            self.guard()
        with writing(self.engine) as connection:
            appending = Appending(connection, self.project_id)
            yield appending
            appending.move_head()
        if appending.appended:
            self._listener.wake(self.project_id)

    def _append_what_is_new(self, rows: Sequence[Row], also: Also | None) -> list[Outcome]:
        """The careful way: under the head row, so nobody can write in between, tell repeats from conflicts."""
        with self.appending() as append:
            append.take_head()
            taken = self._bodies_at(append.connection, {row.stream for row in rows})
            outcomes: list[Outcome | None] = []
            fresh: list[Row] = []
            fresh_at: dict[tuple[str, int], int] = {}
            for row in rows:
                slot = (row.stream, row.version)
                if slot in taken:
                    position, body = taken[slot]
                    same = fact_bytes(body) == fact_bytes(row.body)
                    outcomes.append(Outcome(position, "repeated" if same else "conflicting"))
                elif slot in fresh_at:
                    position = append.size + 1 + fresh_at[slot]
                    same = fact_bytes(fresh[fresh_at[slot]].body) == fact_bytes(row.body)
                    outcomes.append(Outcome(position, "repeated" if same else "conflicting"))
                else:
                    fresh_at[slot] = len(fresh)
                    fresh.append(row)
                    outcomes.append(None)
            first = append(fresh) if fresh else 0
            if also:
                also(append.connection)
        positions = iter(range(first, first + len(fresh)))
        return [outcome or Outcome(next(positions), "appended") for outcome in outcomes]

    def _bodies_at(self, connection: Connection, streams: set[str]) -> dict[tuple[str, int], tuple[int, bytes]]:
        return {
            (stream, version): (position, body)
            for stream, version, position, body in self._select_streams(connection, sorted(streams))
        }

    def _select_streams(self, connection: Connection, streams: Sequence[str]) -> Iterator[tuple[str, int, int, bytes]]:
        for start in range(0, len(streams), STREAMS_PER_SELECT):
            some = streams[start : start + STREAMS_PER_SELECT]
            sql = _streams_sql(connection.dialect.name, len(some))
            names = (list(some),) if connection.dialect.name == "postgresql" else tuple(some)
            yield from connection.exec_driver_sql(sql, (self.project_id, *names)).cursor.fetchall()

    # --- reading -------------------------------------------------------------------------------------------------

    def head(self) -> Head:
        """How long the log is, and its root."""
        with reading(self.engine) as connection:
            row = connection.execute(
                sa.select(log_heads.c.size, log_heads.c.root).where(log_heads.c.project_id == self.project_id)
            ).first()
        return Head(row[0], bytes(row[1])) if row else Head(0, EMPTY_ROOT)

    def bodies(self, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        """(position, body) of the next entries after a position."""
        query = (
            sa.select(entries.c.position, entries.c.body)
            .where(self._of_project, entries.c.position > after)
            .order_by(entries.c.position)
            .limit(limit)
        )
        with reading(self.engine) as connection:
            result = connection.execute(query)
            # The driver's own rows, plain tuples: what SQLAlchemy would make of each costs more than reading it.
            found = list(result.cursor.fetchall()) if result.cursor else []
            result.close()
        return found

    def rows(self, *, after: int, limit: int) -> list[tuple[int, Row]]:
        """(position, row) of the next entries after a position, as they are stored."""
        columns = (entries.c.position, entries.c.stream_id, entries.c.stream_version, entries.c.tag, entries.c.body)
        query = sa.select(*columns).where(self._of_project, entries.c.position > after)
        with reading(self.engine) as connection:
            found = connection.execute(query.order_by(entries.c.position).limit(limit)).all()
        return [(position, Row(*row)) for position, *row in found]

    def bodies_of(self, streams: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
        """(position, body) of every entry of the given streams, in version order."""
        with reading(self.engine) as connection:
            return self.select_bodies(connection, streams)

    def select_bodies(self, connection: Connection, streams: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
        """The same as `bodies_of`, in a transaction that is open already."""
        found: dict[str, list[tuple[int, bytes]]] = {stream: [] for stream in streams}
        for stream, _, position, body in self._select_streams(connection, sorted(found)):
            found[stream].append((position, body))
        return found

    def positions_of(self, streams: Sequence[str], *, under: str, upto: int) -> list[int]:
        """The positions up to `upto` of the entries of some streams, and of all whose names begin with `under`."""
        stream, beyond = entries.c.stream_id, under[:-1] + chr(ord(under[-1]) + 1)
        found: list[int] = []
        with reading(self.engine) as connection:
            # One range of an index each: with OR between them SQLite would read the whole log.
            for which in (stream.in_(streams), sa.and_(stream >= under, stream < beyond)):
                query = sa.select(entries.c.position).where(self._of_project, which, entries.c.position <= upto)
                found += connection.execute(query).scalars()
        return sorted(found)

    def bodies_at(self, positions: Sequence[int]) -> list[tuple[int, bytes]]:
        """(position, body) of the entries at the given positions, in the order of the log."""
        found: list[tuple[int, bytes]] = []
        with reading(self.engine) as connection:
            for start in range(0, len(positions), STREAMS_PER_SELECT):
                some = positions[start : start + STREAMS_PER_SELECT]
                query = sa.select(entries.c.position, entries.c.body).where(
                    self._of_project, entries.c.position.in_(some)
                )
                found += [(row[0], bytes(row[1])) for row in connection.execute(query.order_by(entries.c.position))]
        return found

    # --- the library's interface ---------------------------------------------------------------------------------

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Insert all or none, as the library asks for it; the positions are its notification ids.

        Raises:
            IntegrityError: the version of a stream is taken.
        """
        if not stored_events:
            return None
        rows = [Row(str(e.originator_id), e.originator_version, e.topic, e.state) for e in stored_events]
        try:
            return list(self.append_new(rows, also=kwargs.get("also")))
        except ConcurrentWrite as error:
            raise IntegrityError(str(error)) from error

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """The entries of one stream, by version."""
        version = entries.c.stream_version
        query = sa.select(version, entries.c.tag, entries.c.body)
        query = query.where(self._of_project, entries.c.stream_id == str(originator_id))
        if gt is not None:
            query = query.where(version > gt)
        if lte is not None:
            query = query.where(version <= lte)
        query = query.order_by(version.desc() if desc else version).limit(limit)
        with reading(self.engine) as connection:
            return [StoredEvent(originator_id, row[0], row[1], bytes(row[2])) for row in connection.execute(query)]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """The entries from a position on, at most `limit`, of the given tags if any are given."""
        position = entries.c.position
        query = sa.select(position, entries.c.stream_id, entries.c.stream_version, entries.c.tag, entries.c.body)
        query = query.where(self._of_project).order_by(position).limit(limit)
        if start is not None:
            query = query.where(position >= start if inclusive_of_start else position > start)
        if stop is not None:
            query = query.where(position <= stop)
        if topics:
            query = query.where(entries.c.tag.in_(topics))
        with reading(self.engine) as connection:
            return [
                Notification(
                    id=row[0], originator_id=row[1], originator_version=row[2], topic=row[3], state=bytes(row[4])
                )
                for row in connection.execute(query)
            ]

    def max_notification_id(self) -> int | None:
        """The last position, None for an empty log."""
        return self.head().size or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> PollingSubscription:
        """Follow the log from after a position, for as long as the subscription is open."""
        return PollingSubscription(self, self._listener, self.project_id, gt=gt, topics=topics)


@cache
def _streams_sql(dialect: str, count: int) -> str:
    """The entries of streams by name, as text: every write reads its stream, and putting a statement together each time
    costs more than running it."""
    mark, named = ("%s", "= ANY(%s)") if dialect == "postgresql" else ("?", f"IN ({', '.join('?' * count)})")
    return (
        "SELECT stream_id, stream_version, position, body FROM entries "  # noqa: S608 - marks only
        f"WHERE project_id = {mark} AND stream_id {named} ORDER BY stream_id, stream_version"
    )
