"""Reading a whole log to see that it is what was recorded."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ledger import codec
from ledger.errors import StoreError
from ledger.merkle import Frontier, leaf_hashes
from ledger.recorder import ProjectRecorder

BATCH_ENTRIES = 5_000
FAULTS_MAX = 100


class Checked(msgspec.Struct, frozen=True):
    """What a check found: how many entries, the root over them (hex), and every fault in one sentence each."""

    entries: int
    root: str
    faults: list[str]


def check_log(recorder: ProjectRecorder, *, progress: Callable[[int], None] | None = None) -> Checked:
    """Check that positions are dense, that stream versions are, that every body is an entry in its own place, and that
    all bodies together have the recorded root. Holds one number a stream in memory.
    """
    head = recorder.head()
    faults: list[str] = []
    versions: dict[str, int] = {}
    frontier = Frontier.empty()
    after = 0
    while after < head.size and len(faults) < FAULTS_MAX:
        rows = recorder.rows(after=after, limit=min(BATCH_ENTRIES, head.size - after))
        if not rows:
            break
        for position, row in rows:
            if position != after + 1:
                faults.append(f"entries {after + 1} to {position - 1} are gone")
            after = position
            faults += _faults_of(position, row, versions)
        frontier = frontier.extend(leaf_hashes([row.body if _is_bytes(row) else b"" for _, row in rows]))
        if progress:
            progress(after)
    if after < head.size and len(faults) < FAULTS_MAX:
        faults.append(f"entries {after + 1} to {head.size} are gone")
    if not faults and frontier.root() != head.root:
        faults.append(f"the contents do not add up to the recorded root {head.root.hex()}")
    return Checked(frontier.size, frontier.root().hex(), faults[:FAULTS_MAX])


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
