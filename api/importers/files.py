"""Reading the files of a run: never through a link, never past the cap, hashed as they are read."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from api.importers.run import Source
from ledger.digests import chunks_of, open_regular
from ledger.errors import BadInput, NotFound, Refused

LINE_BYTES_MAX = 16_000_000
FILES_MAX = 10_000
HEAD_BYTES = 4_096
PATH_SHOWN_MAX = 500

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def real_path(path: Path) -> Path:
    """Where a path that a person gave leads, through links. Raises NotFound, BadInput when it leads nowhere."""
    try:
        return path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"There is nothing at {shown(path)[:PATH_SHOWN_MAX]}.") from error
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "its links go in a circle"
        raise BadInput(f"{shown(path)[:PATH_SHOWN_MAX]} leads nowhere: {reason}.") from error


def find_files(path: Path, suffix: str | tuple[str, ...], *, leave_out: str | None = None) -> Sequence[Path]:
    """The file itself, or every file below a folder whose name ends so, in the order of their paths.

    Folders whose path ends in `leave_out` are not looked into.

    Raises NotFound when nothing is there, BadInput when a folder cannot be read, or holds none or more than 10,000.
    """
    path = path.resolve()
    if not path.is_dir():
        if not path.exists():
            raise NotFound(f"There is nothing at {shown(path)}.")
        return [path]
    found: list[Path] = []
    for folder, folders, names in os.walk(path, onerror=refuse_folder):
        folders[:] = sorted(name for name in folders if not (leave_out and Path(folder, name).match(leave_out)))
        found += [Path(folder, name) for name in names if name.endswith(suffix)]
        if len(found) > FILES_MAX:
            raise BadInput(f"{shown(path)} holds more than {FILES_MAX:,} runs; import a part of it at a time.")
    if not found:
        ends = suffix if isinstance(suffix, str) else " or ".join(suffix)
        raise BadInput(f"{shown(path)} holds no file that ends in {ends}.")
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


class Pieces:
    """The bytes of a file in pieces of at most 1 MB; `source` is known once all were read."""

    def __init__(self, path: Path, *, bytes_max: int) -> None:
        self.path = path
        self.bytes_max = bytes_max
        self.source: Source | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Raises BadInput past the cap."""
        digest, size = hashlib.sha256(), 0
        with open_regular(self.path) as file:
            refuse_larger(self.path, os.fstat(file.fileno()).st_size, self.bytes_max)
            for piece in chunks_of(file):
                size += len(piece)
                refuse_larger(self.path, size, self.bytes_max)
                digest.update(piece)
                yield piece
        self.source = Source(shown(Path(self.path.name)), self.path, digest.hexdigest(), size)


def read_whole(path: Path, *, bytes_max: int) -> tuple[bytes, Source]:
    """A whole file in memory. Raises NotFound, BadInput past the cap."""
    with open_regular(path) as file:
        refuse_larger(path, os.fstat(file.fileno()).st_size, bytes_max)
        data = file.read(bytes_max + 1)
    refuse_larger(path, len(data), bytes_max)
    return data, Source(shown(Path(path.name)), path, hashlib.sha256(data).hexdigest(), len(data))


def read_text(path: Path, *, bytes_max: int) -> tuple[str, Source]:
    """A whole file of text in UTF-8. Raises NotFound, BadInput past the cap or for other bytes."""
    data, source = read_whole(path, bytes_max=bytes_max)
    try:
        return data.decode(), source
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown(path)} is not UTF-8.") from error


def head_of(path: Path) -> bytes:
    """The first 4 kB of an ordinary file, to see whose it is; nothing when it is none or cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(HEAD_BYTES)
    except (Refused, OSError):
        return b""


def refuse_folder(error: OSError) -> NoReturn:
    """What `os.walk` is to do with a folder that it cannot list: BadInput, for runs may lie in it."""
    raise BadInput(f"The folder {shown(Path(error.filename))} cannot be read: {error.strerror}.") from error


def refuse_larger(path: Path, size: int, bytes_max: int) -> None:
    """Raises BadInput when a file has more bytes than allowed."""
    if size > bytes_max:
        raise BadInput(f"{shown(path)} is larger than {bytes_max:,} bytes; `--max-file-bytes` raises the limit.")


def shown(path: Path) -> str:
    """A path as text that can be printed in a line and stored, whatever bytes its name holds."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
