"""Artifacts on a server: put and read by their sha256, going on where a broken connection left off."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from api.pages import Upload
from api.remote.transport import IN_MEMORY_BYTES_MAX, Transport, path_of
from ledger.artifacts import SHA256, Stored
from ledger.digests import CHUNK_BYTES, chunks_of, open_regular
from ledger.errors import BadInput, DamagedStore, ServerAway

RESUMED_BYTES_MIN = 1_000_000  # below that, what is left of an upload costs no more than asking how much is left
AT_ONCE = 8


class Content(NamedTuple):
    """What is to be stored: its name, its size, and how to read it from an offset on, anew each time."""

    stored: Stored
    read: Callable[[int], Iterable[bytes]]


class RemoteArtifacts:
    """The artifacts of one project of a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def put_bytes(self, data: bytes) -> Stored:
        """Store bytes that are in memory already."""
        return self._put(_in_memory(data))

    def put_many(self, items: Iterable[bytes | Path], *, max_bytes: int) -> list[Stored]:
        """Store bytes and files, some at a time, in order. What was stored before one is refused stays stored."""

        def put(item: bytes | Path) -> Stored:
            return self._put(_in_memory(item) if isinstance(item, bytes) else _in_file(item, max_bytes))

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(put, items))

    @contextmanager
    def batch(self) -> Iterator[RemoteBatch]:
        """Store several artifacts, each at once: one that no fact names in the end does no harm."""
        yield RemoteBatch(self)

    def open(self, sha256: str) -> BinaryIO:
        """A copy of an artifact on this machine, checked against its name; it is gone once it is closed."""
        return self._fetch(sha256, None)

    def read_bytes(self, sha256: str, *, max_bytes: int) -> bytes:
        """An artifact's content, checked against its name."""
        with self._fetch(sha256, max_bytes) as file:
            return file.read()

    def put_file(self, path: Path, *, max_bytes: int) -> Stored:
        """Store a copy of a file."""
        return self._put(_in_file(path, max_bytes))

    # --- putting -------------------------------------------------------------------------------------------------

    def _put(self, content: Content) -> Stored:
        """Send a content; from the second try on only what has not arrived yet."""
        tried, path = False, path_of("artifacts", content.stored.sha256)

        def send() -> Upload:
            nonlocal tried
            offset, size = 0, content.stored.size
            if tried and size >= RESUMED_BYTES_MIN:
                there = self._transport.decode(self._transport.once("GET", f"{path}/upload"), Upload)
                if there.stored:
                    return there
                offset = there.offset if there.offset < size else 0
            tried = True
            headers = {"Content-Type": "application/octet-stream"}
            if offset:
                headers["Content-Range"] = f"bytes {offset}-{size - 1}/{size}"
            rest = content.read(offset)
            answer = self._transport.once("PUT", path, headers=headers, body=rest, size=size - offset)
            return self._transport.decode(answer, Upload)

        done = self._transport.again(send)
        if not done.stored:
            raise ServerAway(f"The server took only {done.offset:,} of {content.stored.size:,} bytes; try again later.")
        return content.stored

    # --- fetching ------------------------------------------------------------------------------------------------

    def _fetch(self, sha256: str, bytes_max: int | None) -> BinaryIO:
        if not SHA256.fullmatch(sha256):
            raise BadInput("An artifact is named by its sha256: 64 digits and letters from 0-9 and a-f.")
        file = cast(BinaryIO, tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES_MAX))  # noqa: SIM115 - the caller closes it
        try:
            digest = self._transport.again(lambda: self._fetch_rest(sha256, file, bytes_max))
            if digest != sha256:
                raise DamagedStore(f"The artifact {sha256} is damaged: what came has the sha256 {digest}.")
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file

    def _fetch_rest(self, sha256: str, file: BinaryIO, bytes_max: int | None) -> str:
        """Append what is not in the file yet; the sha256 of all of it."""
        offset = file.seek(0, os.SEEK_END)
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with self._transport.stream(path_of("artifacts", sha256), headers) as response:
            if offset and response.status_code != 206:
                file.seek(0)
                file.truncate()
            for chunk in response.iter_bytes(CHUNK_BYTES):
                file.write(chunk)
                if bytes_max is not None and file.tell() > bytes_max:
                    raise BadInput(f"The artifact {sha256} is larger than {bytes_max:,} bytes, the most to read.")
        file.seek(0)
        digest = hashlib.sha256()
        for chunk in chunks_of(file):
            digest.update(chunk)
        return digest.hexdigest()


class RemoteBatch:
    """Artifacts that belong together."""

    def __init__(self, artifacts: RemoteArtifacts) -> None:
        self._artifacts = artifacts

    def add_bytes(self, data: bytes) -> Stored:
        """Store bytes."""
        return self._artifacts.put_bytes(data)

    def add_file(self, path: Path, *, max_bytes: int) -> Stored:
        """Store a copy of a file."""
        return self._artifacts.put_file(path, max_bytes=max_bytes)


def _in_memory(data: bytes) -> Content:
    stored = Stored(hashlib.sha256(data).hexdigest(), len(data))
    return Content(stored, lambda offset: (data[start : start + CHUNK_BYTES] for start in _starts(offset, len(data))))


def _starts(offset: int, size: int) -> range:
    return range(offset, size, CHUNK_BYTES)


def _in_file(path: Path, bytes_max: int) -> Content:
    """A file as it is now; the server refuses it when it is another one by the time it is sent."""
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as file:
        for chunk in chunks_of(file):
            digest.update(chunk)
            size += len(chunk)
            if size > bytes_max:
                raise BadInput(f"{path} is larger than {bytes_max:,} bytes, the most an artifact may hold.")

    def read(offset: int) -> Iterator[bytes]:
        left = size - offset
        with open_regular(path) as file:
            file.seek(offset)
            for chunk in chunks_of(file):
                yield chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    return
        if left > 0:
            raise BadInput(f"{path} changed while it was sent; try again.")

    return Content(Stored(digest.hexdigest(), size), read)
