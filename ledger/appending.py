"""An open transaction that appends to one project's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.bulk import insert
from ledger.codec import Row
from ledger.database import CHANNEL, entries, insert_into, log_heads
from ledger.errors import ConcurrentWrite, DamagedStore
from ledger.merkle import Frontier, leaf_hashes

# Built once: SQLAlchemy compiles a statement object once, and building one costs more than running it.
_OF_PROJECT = log_heads.c.project_id == sa.bindparam("p")
_TAKE_HEAD = sa.select(log_heads.c.size, log_heads.c.frontier).where(_OF_PROJECT).with_for_update()
_MOVE_HEAD = log_heads.update().where(_OF_PROJECT)
# One statement moves the head and says so to whoever listens, once the transaction has committed.
_MOVE_HEAD_AND_NOTIFY = _MOVE_HEAD.returning(sa.func.pg_notify(CHANNEL, log_heads.c.project_id))


class Head(NamedTuple):
    """The end of a project's log: how many entries, and the Merkle root over them (32 bytes)."""

    size: int
    root: bytes


class Appending:
    """An open transaction on a project's log. Call it with rows; it returns the position of the first of them.

    `appended` says whether anything was.
    """

    def __init__(self, connection: Connection, project_id: str) -> None:
        self.connection = connection
        self._project_id = project_id
        self._frontier: Frontier | None = None
        self.appended = False

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
        placed = [(self._project_id, position, *row) for position, row in enumerate(rows, first)]

        def take_into_the_tree() -> None:
            self._frontier = frontier.extend(leaf_hashes([row[3] for row in rows]))
            self.appended = True

        try:
            insert(self.connection, entries, placed, meanwhile=take_into_the_tree)
        except sa.exc.IntegrityError as error:
            if not _is_of_a_stream(error):
                raise DamagedStore("The log goes on beyond its recorded end; `el db check` says more.") from error
            raise ConcurrentWrite("Somebody else wrote to the same stream first; try again.") from error
        return first

    def move_head(self) -> None:
        """Write the new end of the log: size, frontier and root. Nothing when nothing was appended."""
        frontier = self._frontier
        if frontier is None or not self.appended:
            return
        moved = {"size": frontier.size, "frontier": frontier.to_bytes(), "root": frontier.root()}
        move = _MOVE_HEAD_AND_NOTIFY if self.connection.dialect.name == "postgresql" else _MOVE_HEAD
        self.connection.execute(move, {"p": self._project_id, **moved})

    def _insert_head(self) -> None:
        empty = Frontier.empty()
        insert = insert_into(self.connection, log_heads).on_conflict_do_nothing()
        self.connection.execute(
            insert.values(project_id=self._project_id, size=0, frontier=empty.to_bytes(), root=empty.root())
        )


def _is_of_a_stream(error: sa.exc.IntegrityError) -> bool:
    """Whether a stream's version was taken, and not a position."""
    told = getattr(error.orig, "diag", None)  # PostgreSQL names the constraint; SQLite the columns
    return "stream" in (str(told.constraint_name) if told else str(error.orig))
