"""An open transaction that appends to one project's log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from ledger.codec import Row
from ledger.database import entries, insert_into, log_heads
from ledger.errors import ConcurrentWrite, DamagedStore
from ledger.merkle import Frontier, leaf_hashes

# Built once: SQLAlchemy compiles a statement object once, and building one costs more than running it.
_OF_PROJECT = log_heads.c.project_id == sa.bindparam("p")
_TAKE_HEAD = sa.select(log_heads.c.size, log_heads.c.frontier).where(_OF_PROJECT).with_for_update()
_MOVE_HEAD = log_heads.update().where(_OF_PROJECT)


class Head(NamedTuple):
    """The end of a project's log: how many entries, and the Merkle root over them (32 bytes)."""

    size: int
    root: bytes


class Appending:
    """An open transaction on a project's log. Call it with rows; it returns the position of the first of them."""

    def __init__(self, connection: Connection, project_id: str) -> None:
        self.connection = connection
        self._project_id = project_id
        self._frontier: Frontier | None = None

    @property
    def size(self) -> int:
        """The last position given out, within this transaction too."""
        return self.take_head().size

    def take_head(self) -> Frontier:
        """Take the head row, so that no other writer of this project comes in between."""
        if self._frontier is None:
            project = {"p": self._project_id}
            row = self.connection.execute(_TAKE_HEAD, project).first()
            if row is None:
                self._insert_head()
                row = self.connection.execute(_TAKE_HEAD, project).one()
            self._frontier = Frontier.from_bytes(row[0], bytes(row[1]))
        return self._frontier

    def __call__(self, rows: Sequence[Row]) -> int:
        """Append rows after the last position; the position of the first.

        Raises:
            ConcurrentWrite: the version of a stream is taken; the transaction cannot go on.
            DamagedStore: the head row is behind the entries.
        """
        frontier = self.take_head()
        first = frontier.size + 1
        if not rows:
            return first
        project_id = self._project_id
        try:
            self.connection.exec_driver_sql(
                _insert_sql(self.connection.dialect),
                [
                    (project_id, position, stream, version, tag, body)
                    for position, (stream, version, tag, body) in enumerate(rows, first)
                ],
            )
        except sa.exc.IntegrityError as error:
            if "stream" not in str(error.orig):
                raise DamagedStore("The log goes on beyond its recorded end; `el db check` says more.") from error
            raise ConcurrentWrite("Somebody else wrote to the same stream first; try again.") from error
        self._frontier = frontier.extend(leaf_hashes([row[3] for row in rows]))
        return first

    def move_head(self) -> None:
        """Write the new end of the log: size, frontier and root."""
        frontier = self._frontier
        if frontier is None:
            return
        moved = {"size": frontier.size, "frontier": frontier.to_bytes(), "root": frontier.root()}
        self.connection.execute(_MOVE_HEAD, {"p": self._project_id, **moved})

    def _insert_head(self) -> None:
        empty = Frontier.empty()
        insert = insert_into(self.connection, log_heads).on_conflict_do_nothing()
        self.connection.execute(
            insert.values(project_id=self._project_id, size=0, frontier=empty.to_bytes(), root=empty.root())
        )


@cache
def _insert_sql(dialect: Dialect) -> str:
    """The INSERT of `entries`. Rows go to the driver as tuples in its column order: no work per row in between."""
    return str(entries.insert().compile(dialect=dialect))
