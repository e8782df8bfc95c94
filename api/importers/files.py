"""Reading the files of a run: never through a link, never past the cap, hashed as they are read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from api.importers.run import Source
from ledger.digests import open_regular
from ledger.errors import BadInput, NotFound, Refused

LINE_BYTES_MAX = 16_000_000
FILES_MAX = 10_000
HEAD_BYTES = 4_096


def find_files(path: Path, suffix: str, *, leave_out: str | None = None) -> Sequence[Path]:
    """The file itself, or every file below a folder whose name ends so, in the order of their paths.

    Folders whose path ends in `leave_out` are not looked into.

    Raises NotFound when nothing is there, BadInput when the folder holds none or more than 10,000.
    """
    path = path.resolve()
    if not path.is_dir():
        if not path.exists():
            raise NotFound(f"There is nothing at {shown(path)}.")
        return [path]
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not (leave_out and Path(folder, name).match(leave_out)))
        found += [Path(folder, name) for name in names if name.endswith(suffix)]
        if len(found) > FILES_MAX:
            raise BadInput(f"{shown(path)} holds more than {FILES_MAX:,} runs; import a part of it at a time.")
    if not found:
        raise BadInput(f"{shown(path)} holds no file that ends in {suffix}.")
    return sorted(found)


class Lines:
    """The lines of a file with their numbers from 1, line ends kept; `source` is known once all were read."""

    def __init__(self, path: Path, *, bytes_max: int) -> None:
        self.path = path
        self.bytes_max = bytes_max
        self.source: Source | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Raises BadInput past the cap, or for a line of more than 16 MB."""
        digest, size, number = hashlib.sha256(), 0, 0
        with open_regular(self.path) as file:
            refuse_larger(self.path, os.fstat(file.fileno()).st_size, self.bytes_max)
            while line := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                size += len(line)
                if len(line) > LINE_BYTES_MAX:
                    raise BadInput(f"Line {number:,} of {shown(self.path)} is longer than {LINE_BYTES_MAX:,} bytes.")
                refuse_larger(self.path, size, self.bytes_max)
                digest.update(line)
                yield number, line
        self.source = Source(shown(Path(self.path.name)), self.path, digest.hexdigest(), size)


def read_whole(path: Path, *, bytes_max: int) -> tuple[bytes, Source]:
    """A whole file in memory. Raises NotFound, BadInput past the cap."""
    with open_regular(path) as file:
        refuse_larger(path, os.fstat(file.fileno()).st_size, bytes_max)
        data = file.read(bytes_max + 1)
    refuse_larger(path, len(data), bytes_max)
    return data, Source(shown(Path(path.name)), path, hashlib.sha256(data).hexdigest(), len(data))


def head_of(path: Path) -> bytes:
    """The first 4 kB of an ordinary file, to see whose it is; nothing when it is none or cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(HEAD_BYTES)
    except (Refused, OSError):
        return b""


def refuse_larger(path: Path, size: int, bytes_max: int) -> None:
    """Raises BadInput when a file has more bytes than allowed."""
    if size > bytes_max:
        raise BadInput(f"{shown(path)} is larger than {bytes_max:,} bytes; `--max-file-bytes` raises the limit.")


def shown(path: Path) -> str:
    """A path as text that can be printed and stored, whatever bytes its name holds."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
