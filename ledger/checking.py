"""Reading a whole log to see that it is what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec
import sqlalchemy as sa

from ledger import codec
from ledger.database import entries, log_heads, reading
from ledger.errors import StoreError
from ledger.merkle import HASH_BYTES, Frontier, leaf_hashes
from ledger.recorder import ProjectRecorder
from ledger.tiles import TILE_BYTES, WIDTH, Tile, Tiles, subtree_root, tiles

BATCH_ENTRIES = 16 * WIDTH
FAULTS_MAX = 100


class Checked(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check found: how many entries, the root over them (hex), and every fault in one sentence each.

    `roots` are those of the sizes asked for, in hex; a size beyond the log has none.
    """

    entries: int
    root: str
    faults: list[str]
    roots: dict[int, str] = {}


def check_log(
    recorder: ProjectRecorder, *, progress: Callable[[int], None] | None = None, sizes: Collection[int] = ()
) -> Checked:
    """Check that positions are dense, that stream versions are, that every body is an entry in its own place, that all
    bodies together have the recorded root, that no entry stands beyond the recorded end, and that the tiles are those
    of the bodies. Where tiles reach, a changed entry is named; beyond, a stretch of entries. Holds one number a stream
    and 32 bytes for 256 entries in memory.
    """
    head = recorder.head()
    faults = _beyond_the_end(recorder)
    versions: dict[str, int] = {}
    frontier = Frontier.empty()
    compared = _Compared(recorder)
    roots: dict[int, str] = {}
    stops = sorted(size for size in set(sizes) if 0 < size <= head.size)
    after = 0
    while after < head.size and len(faults) < FAULTS_MAX:
        stop = min([after - after % WIDTH + BATCH_ENTRIES, head.size, *stops[:1]])
        rows = recorder.rows(after=after, limit=stop - after)
        if not rows:
            break
        expected = after + 1
        for position, row in rows:
            if position != after + 1:
                faults.append(f"entries {after + 1} to {position - 1} are gone")
            after = position
            faults += _faults_of(position, row, versions)
        leaves = leaf_hashes([row.body if _is_bytes(row) else b"" for _, row in rows])
        frontier = frontier.extend(leaves)
        if frontier.size == after:
            compared.take(expected, leaves)
        if stops and after >= stops[0]:
            roots[stops.pop(0)] = frontier.root().hex()
        if progress:
            progress(after)
    if after < head.size and len(faults) < FAULTS_MAX:
        faults.append(f"entries {after + 1} to {head.size} are gone")
    as_recorded = frontier.root() == head.root
    if frontier.size == head.size:
        faults += compared.faults(as_recorded=as_recorded)
    if not as_recorded and not faults:
        faults.append(f"the contents do not add up to the recorded root {head.root.hex()}{_where(recorder, frontier)}")
    return Checked(frontier.size, frontier.root().hex(), faults[:FAULTS_MAX], roots)


class _Compared:
    """The tiles against the leaves of the log, as it is read. A tile that is not there has no hashes."""

    def __init__(self, recorder: ProjectRecorder) -> None:
        self._recorder = recorder
        self._differing: list[int] = []  # positions
        self._roots: list[bytes] = []  # of full tiles of level 0, as the log has them
        self._open: list[bytes] = []  # leaves of the tile that is not full yet
        self._faults: list[str] = []
        self._reach = Tiles(recorder).reach()

    def take(self, first: int, leaves: Sequence[bytes]) -> None:
        """Compare the leaves from a position on with level 0, as far as it reaches."""
        index, offset = divmod(first - 1, WIDTH)
        wanted = b"".join([*self._open, *leaves])
        for number, at in enumerate(range(0, len(wanted), TILE_BYTES), index):
            piece = wanted[at : at + TILE_BYTES]
            self._compare(number, piece, offset * HASH_BYTES if number == index else 0)
            if len(piece) == TILE_BYTES:
                self._roots.append(subtree_root(piece))
        whole = len(wanted) // TILE_BYTES * WIDTH
        self._open = [*self._open, *leaves][whole:]

    def _compare(self, number: int, piece: bytes, start: int) -> None:
        stored = self._stored(0, number)
        end = min(len(stored), len(piece))
        if len(stored) < min(WIDTH, self._reach - number * WIDTH) * HASH_BYTES:
            self._faults.append(f"{Tile(0, number).path} is missing or cut")
        if stored[start:end] == piece[start:end]:
            return
        for at in range(start, end, HASH_BYTES):
            if stored[at : at + HASH_BYTES] != piece[at : at + HASH_BYTES]:
                self._differing.append(number * WIDTH + at // HASH_BYTES + 1)

    def faults(self, *, as_recorded: bool) -> list[str]:
        """What differs. When the log adds up to its recorded root, it is the tiles that were changed."""
        faults = []
        for position in self._differing[:FAULTS_MAX]:
            path = Tile(0, (position - 1) // WIDTH).path
            if as_recorded:
                faults.append(f"{path} says otherwise of entry {position} than the log: the tile was changed")
            else:
                faults.append(
                    f"entry {position} is not what {path} recorded of it: its bytes were changed, or the tile"
                )
        return [*self._faults, *faults, *self._faults_above()]

    def _faults_above(self) -> list[str]:
        """Levels 1 and up against the roots of the tiles below them; what follows from a changed entry is left out."""
        faults, level, hashes = [], 1, self._roots[: self._reach // WIDTH]
        while hashes:
            span = WIDTH**level
            for number in range(-(-len(hashes) // WIDTH)):
                expected = hashes[number * WIDTH : (number + 1) * WIDTH]
                stored = self._stored(level, number)
                for place, hash_ in enumerate(expected):
                    first = (number * WIDTH + place) * span
                    if stored[place * HASH_BYTES : (place + 1) * HASH_BYTES] == hash_:
                        continue
                    if not any(first < position <= first + span for position in self._differing):
                        path = Tile(level, number).path
                        faults.append(f"{path} says otherwise of entries {first + 1} to {first + span} than the log")
            full = range(len(hashes) // WIDTH)
            hashes = [subtree_root(b"".join(hashes[at * WIDTH : (at + 1) * WIDTH])) for at in full]
            level += 1
        return faults

    def _stored(self, level: int, number: int) -> bytes:
        query = sa.select(tiles.c.hashes).where(
            tiles.c.project_id == self._recorder.project_id, tiles.c.level == level, tiles.c.tile_index == number
        )
        with reading(self._recorder.engine) as connection:
            found = connection.execute(query).scalar()
        return found if isinstance(found, bytes) else b""


def _beyond_the_end(recorder: ProjectRecorder) -> list[str]:
    """Entries after the recorded end; in one statement, since a writer moves both at the same moment."""
    project = recorder.project_id
    size = sa.select(log_heads.c.size).where(log_heads.c.project_id == project).scalar_subquery()
    beyond = (entries.c.project_id == project, entries.c.position > sa.func.coalesce(size, 0))
    with reading(recorder.engine) as connection:
        count = connection.execute(sa.select(sa.func.count()).select_from(entries).where(*beyond)).scalar_one()
    return [f"entries stand beyond the recorded end of the log: {count}"] if count else []


def _where(recorder: ProjectRecorder, computed: Frontier) -> str:
    """Which part of the log differs from the recorded frontier, when that leads to the recorded root."""
    query = sa.select(log_heads.c.size, log_heads.c.frontier, log_heads.c.root)
    with reading(recorder.engine) as connection:
        row = connection.execute(query.where(log_heads.c.project_id == recorder.project_id)).one()
    try:
        recorded = Frontier.from_bytes(row[0], bytes(row[1]))
    except ValueError:
        return "; the recorded frontier was changed too"
    if recorded.root() != bytes(row[2]) or recorded.size != computed.size:
        return "; the recorded frontier and root do not fit together"
    first, part = 1, 0
    for height in reversed(range(computed.size.bit_length())):
        if computed.size >> height & 1:
            if recorded.hashes[part] != computed.hashes[part]:
                return f": something in entries {first} to {first + 2**height - 1} was changed"
            part += 1
            first += 2**height
    return ""


def _faults_of(position: int, row: codec.Row, versions: dict[str, int]) -> list[str]:
    """What is wrong with one entry; remembers its stream's version."""
    faults = []
    expected = versions.get(row.stream, 0) + 1
    if row.version != expected:
        faults.append(f"entry {position} is version {row.version} of {row.stream}, where {expected} comes next")
    versions[row.stream] = row.version
    if not _is_bytes(row):
        return [*faults, f"entry {position} is not stored as bytes, so it was changed"]
    try:
        entry = codec.decode(position, row.body).entry
    except StoreError as error:
        return [*faults, str(error)]
    if (entry.stream, entry.version, codec.TAGS[type(entry.fact)]) != row[:3]:
        faults.append(f"entry {position} stands as {row.tag} in {row.stream}, but says otherwise itself")
    return faults


def _is_bytes(row: codec.Row) -> bool:
    """SQLite keeps whatever type was last written, so what was tampered with may come back as text."""
    return type(row.body) is bytes
