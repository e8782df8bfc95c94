"""Artifacts that come in pieces: what arrived of one is kept, so that a broken upload goes on from there.

What arrived stands in the store's folder for temporary files, under the artifact's name; it is swept away like any
other leftover when nobody goes on within a day.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ledger.artifacts import SHA256, TEMPS, ArtifactStore, Stored, make_private_folder
from ledger.errors import BadInput, Conflict, NotAllowed, StoreUnreachable, TooLarge

ARTIFACT_BYTES_MAX = 2 << 30
UNFINISHED_MAX = 1_000
KEPT_S = 86_400.0

_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")


class WrongOffset(Conflict):
    """A piece does not begin where the last one ended; `offset` bytes are there."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"{offset:,} bytes of the artifact are there; go on from byte {offset}, or begin anew.")
        self.offset = offset


class Span(NamedTuple):
    """Which bytes of how many a piece holds; `end` is the first byte after it."""

    start: int
    end: int
    total: int


def span_of(content_range: str) -> Span:
    """The span that a Content-Range header tells.

    Raises:
        BadInput: it has another form, or contradicts itself.
        TooLarge: the artifact would be larger than one may be.
    """
    match = _RANGE.fullmatch(content_range)
    if match is None or not int(match[1]) <= int(match[2]) < int(match[3]):
        raise BadInput("Content-Range is written `bytes FIRST-LAST/TOTAL`, counted from 0, with all three known.")
    span = Span(int(match[1]), int(match[2]) + 1, int(match[3]))
    if span.total > ARTIFACT_BYTES_MAX:
        raise TooLarge(f"An artifact holds at most {ARTIFACT_BYTES_MAX:,} bytes.")
    return span


class Piece:
    """A part of an artifact that is being written, by nobody else meanwhile."""

    def __init__(self, store: ArtifactStore, path: Path, file: BinaryIO, sha256: str) -> None:
        self._store = store
        self._path = path
        self._file = file
        self._sha256 = sha256

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._file.write(data)

    def finish(self) -> Stored:
        """Check all that arrived against its name and store it. Raises BadInput for another content, and drops it."""
        try:
            return self._store.adopt(self._path, self._sha256)
        except BadInput:
            self._path.unlink(missing_ok=True)
            raise


class Uploads:
    """The unfinished uploads of one project's artifacts."""

    def __init__(self, store: ArtifactStore) -> None:
        self.store = store

    def offset(self, sha256: str) -> int:
        """How many bytes of an unfinished upload are there. Raises BadInput for what is no sha256."""
        with suppress(FileNotFoundError):
            return self._path(sha256).stat().st_size
        return 0

    @contextmanager
    def taking(self, sha256: str, start: int) -> Iterator[Piece]:
        """Take a piece that begins at byte `start`, 0 to begin anew; what was written is kept however the block ends.

        Raises:
            WrongOffset: another number of bytes is there.
            NotAllowed: the same artifact is being sent already, or too many are unfinished.
        """
        path = self._path(sha256)
        try:
            self._make_room(path)
            with _locked(path) as file:
                size = file.seek(0, os.SEEK_END)
                if start == 0:
                    file.truncate(0)
                elif start != size:
                    raise WrongOffset(size)
                file.seek(start)
                yield Piece(self.store, path, file, sha256)
        except OSError as error:
            raise StoreUnreachable(f"{path.parent} cannot be used: {error.strerror or error}.") from error

    def _path(self, sha256: str) -> Path:
        if not SHA256.fullmatch(sha256):
            raise BadInput("An artifact is named by its sha256: 64 digits and letters from 0-9 and a-f.")
        return self.store.root / TEMPS / f"{sha256}.part"

    def _make_room(self, path: Path) -> None:
        if path.exists():
            return
        make_private_folder(path.parent)
        self.store.sweep(before=time.time() - KEPT_S)
        if sum(1 for other in path.parent.iterdir() if other.suffix == ".part") >= UNFINISHED_MAX:
            raise NotAllowed(f"{UNFINISHED_MAX:,} uploads are unfinished already; finish some of them first.")


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file at a path, made if missing, for one writer at a time in any process."""
    while True:
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NotAllowed("The same artifact is being sent already; wait until that is over.") from None
            # Whoever had it before may have moved it into the store: then this is no longer the file at the path.
            if _is_at(file, path):
                yield file
                return


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False
