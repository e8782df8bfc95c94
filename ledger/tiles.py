"""Tiles: the hashes of the tree in pieces of 256, as C2SP tlog-tiles lays them out (https://c2sp.org/tlog-tiles).

A tile at level l holds hashes of height 8 * l, next to each other; one of level 0 holds leaf hashes. A full tile never
changes; the last of each level is partial and grows. With them any proof costs a few reads, however long the log is.

They are a cache beside the log, written when a checkpoint is made and not when something is recorded, and can be made
anew from the entries at any time. `checking.py` compares them with the entries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.codec import ENTRY_BYTES_MAX
from ledger.database import insert_into, metadata, reading, writing
from ledger.errors import BadInput, DamagedStore, NotFound
from ledger.merkle import HASH_BYTES, Frontier, leaf_hashes
from ledger.recorder import ProjectRecorder

WIDTH = 256
HEIGHT = 8
TILE_BYTES = WIDTH * HASH_BYTES
LEVEL_MAX = 63
EXTEND_ENTRIES = 64 * WIDTH
HELD_MAX = 1_000  # tiles kept in memory while proofs are made: 8 MB

tiles = sa.Table(
    "tiles",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("level", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("tile_index", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("hashes", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

_PATH = re.compile(
    r"tile/(?P<level>entries|0|[1-9][0-9]?)/(?P<index>(?:x[0-9]{3}/)*[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?"
)


class Tile(NamedTuple):
    """Which tile: its level (or the entries themselves), its place in the level from 0, how many hashes of it."""

    level: int | Literal["entries"]
    number: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """Its path, as `tile/1/x001/x234/067.p/8`."""
        digits = f"{self.number:03d}"
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
        name = "/".join([*(f"x{part}" for part in parts[:-1]), parts[-1]])
        return f"tile/{self.level}/{name}" + (f".p/{self.width}" if self.width < WIDTH else "")


def tile_at(path: str) -> Tile:
    """The tile that a path names. Raises BadInput when it is no path of a tile, or not the one way to write it."""
    found = _PATH.fullmatch(path)
    if found:
        level: int | Literal["entries"] = "entries" if found["level"] == "entries" else int(found["level"])
        index = int(found["index"].replace("x", "").replace("/", ""))
        tile = Tile(level, index, int(found["width"] or WIDTH))
        if tile.path == path and index < 2**63 and (tile.level == "entries" or tile.level <= LEVEL_MAX):
            return tile
    raise BadInput(f"{path[:100]!r} is no path of a tile; one is tile/0/000, another tile/1/x001/x234/067.p/8.")


class Tiles:
    """The tiles of one project, as far as they are written. Holds what it has read: take a new one for each use."""

    def __init__(self, recorder: ProjectRecorder) -> None:
        self._recorder = recorder
        self._engine = recorder.engine
        self._held: dict[tuple[int, int], bytes] = {}

    @property
    def _of_project(self) -> sa.ColumnElement[bool]:
        return tiles.c.project_id == self._recorder.project_id

    def reach(self) -> int:
        """How many entries the tiles cover."""
        query = sa.select(tiles.c.tile_index, sa.func.length(tiles.c.hashes))
        query = query.where(self._of_project, tiles.c.level == 0).order_by(tiles.c.tile_index.desc()).limit(1)
        with reading(self._engine) as connection:
            last = connection.execute(query).first()
        return last[0] * WIDTH + last[1] // HASH_BYTES if last else 0

    def extend(self, size: int) -> None:
        """Write what is missing for a tree of `size` leaves. Several may do it at once: they write the same.

        Raises DamagedStore when an entry, or a tile that is to grow, is missing.
        """
        reach = self.reach()
        while reach < size:
            upto = min(size, reach - reach % WIDTH + EXTEND_ENTRIES)
            hashes = leaf_hashes(self._bodies(reach, upto))
            with writing(self._engine) as connection:
                self._append(connection, reach, hashes)
            reach = upto
        self._held.clear()

    def drop(self) -> None:
        """Take all tiles away; `extend` makes them anew."""
        with writing(self._engine) as connection:
            connection.execute(tiles.delete().where(self._of_project))
        self._held.clear()

    def node(self, height: int, index: int) -> bytes:
        """The hash of a complete subtree (`proofs.Node`). Raises DamagedStore when its tile is not there."""
        level, within = divmod(height, HEIGHT)
        first, count = index << within, 1 << within
        held = self._hashes(level, first // WIDTH)
        start = first % WIDTH * HASH_BYTES
        hashes = held[start : start + count * HASH_BYTES]
        if len(hashes) < count * HASH_BYTES:
            raise _cut(level, first // WIDTH)
        return hashes if count == 1 else subtree_root(hashes)

    def read(self, tile: Tile) -> bytes:
        """A tile's hashes, or for a bundle its entries, each after its length in two bytes (big endian).

        Raises NotFound when the tiles do not reach that far.
        """
        if tile.level == "entries":
            return self._bundle(tile)
        hashes = self._hashes(tile.level, tile.number)[: tile.width * HASH_BYTES]
        if len(hashes) < tile.width * HASH_BYTES:
            raise self._not_yet(tile)
        return hashes

    def _bundle(self, tile: Tile) -> bytes:
        first = tile.number * WIDTH
        if first + tile.width > self.reach():
            raise self._not_yet(tile)
        bodies = self._bodies(first, first + tile.width)
        return b"".join(len(body).to_bytes(2, "big") + body for body in bodies)

    def _bodies(self, after: int, upto: int) -> list[bytes]:
        """The entries after a position, up to another one; not less, and nothing that is not an entry's bytes."""
        found = self._recorder.bodies(after=after, limit=upto - after)
        if [position for position, _ in found] != list(range(after + 1, upto + 1)):
            raise DamagedStore(f"Between entry {after + 1} and {upto} some are gone; `el audit verify` says which.")
        if any(not isinstance(body, bytes) or len(body) > ENTRY_BYTES_MAX for _, body in found):
            raise DamagedStore(f"Between entry {after + 1} and {upto} one was changed; `el audit verify` says which.")
        return [body for _, body in found]

    @staticmethod
    def _not_yet(tile: Tile) -> NotFound:
        return NotFound(f"There is no {tile.path} yet; tiles reach as far as the last checkpoint.")

    def _hashes(self, level: int, index: int) -> bytes:
        """What is stored of a tile; nothing where there is none."""
        held = self._held.get((level, index))
        if held is None:
            with reading(self._engine) as connection:
                held = self._stored(connection, level, index)
            if len(self._held) >= HELD_MAX:
                self._held.clear()
            self._held[level, index] = held
        return held

    def _stored(self, connection: Connection, level: int, index: int) -> bytes:
        query = sa.select(tiles.c.hashes).where(self._of_project, tiles.c.level == level, tiles.c.tile_index == index)
        found = connection.execute(query).scalar()
        return found if isinstance(found, bytes) else b""

    def _append(self, connection: Connection, start: int, hashes: Sequence[bytes]) -> None:
        """Write hashes to level 0 from the leaf `start` on, and what becomes complete to the levels above."""
        level = 0
        insert = insert_into(connection, tiles)
        # Whoever has seen more of the log wins: a tile only ever grows.
        longer = sa.func.length(insert.excluded.hashes) > sa.func.length(tiles.c.hashes)
        insert = insert.on_conflict_do_update(
            index_elements=["project_id", "level", "tile_index"],
            set_={"hashes": insert.excluded.hashes},
            where=longer,
        )
        while hashes:
            first, offset = divmod(start, WIDTH)
            before = self._stored(connection, level, first)[: offset * HASH_BYTES]
            if len(before) < offset * HASH_BYTES:  # gone or cut: what comes now would stand in the wrong places
                raise _cut(level, first)
            joined = before + b"".join(hashes)
            pieces = [joined[at : at + TILE_BYTES] for at in range(0, len(joined), TILE_BYTES)]
            rows = [
                {"project_id": self._recorder.project_id, "level": level, "tile_index": index, "hashes": piece}
                for index, piece in enumerate(pieces, first)
            ]
            connection.execute(insert, rows)
            level, start = level + 1, first
            hashes = [subtree_root(piece) for piece in pieces if len(piece) == TILE_BYTES]


def _cut(level: int, number: int) -> DamagedStore:
    where = Tile(level, number).path
    return DamagedStore(f"{where} is missing or cut; `el audit checkpoint --rebuild` makes the tiles anew.")


def subtree_root(hashes: bytes) -> bytes:
    """The root over hashes that stand next to each other in one string of bytes."""
    nodes = [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]
    return Frontier.empty().extend(nodes).root()
