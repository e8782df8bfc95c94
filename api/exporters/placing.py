"""Files that appear under their names when they are whole, all of them or none, and replace nothing unasked."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from ledger.errors import BadInput, Conflict, NotFound


class Placing:
    """A block that writes files: each is written beside its place, and put there when the block ends well."""

    def __init__(self, *, force: bool) -> None:
        self._force = force
        self._files: list[tuple[Path, Path, IO[bytes]]] = []

    def open(self, path: Path) -> IO[bytes]:
        """A file to write, in a folder that is made where it is missing.

        Raises:
            Conflict: the file is there already, and not `force`.
            BadInput: the place is a folder, or cannot be written to.
        """
        if path.is_dir():
            raise BadInput(f"{path} is a folder; name a file in it.")
        if not self._force and os.path.lexists(path):
            raise _taken(path)
        temp = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = temp.open("xb")
        except OSError as error:
            raise BadInput(f"{path} cannot be written ({error.strerror}).") from error
        self._files.append((path, temp, file))
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            for _, _, file in self._files:
                file.close()
            for path, temp, _ in self._files if kind is None else ():
                self._put(temp, path)
        finally:
            for _, temp, _ in self._files:
                with suppress(OSError):
                    temp.unlink()

    def _put(self, temp: Path, path: Path) -> None:
        if not self._force:
            try:
                os.link(temp, path)  # unlike a rename, it fails when somebody else was faster
            except FileExistsError:
                raise _taken(path) from None
            except OSError:
                pass  # a file system without links
            else:
                return
        os.replace(temp, path)


def folder_at(path: Path) -> Path:
    """A path that is a folder, or can become one. Raises BadInput when a file stands there."""
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path} is a file; this format needs a folder.")
    return path


def parent_of(path: Path) -> Path:
    """A path whose folder is there. Raises NotFound: a mistyped folder is not made without a word."""
    if not path.parent.is_dir():
        raise NotFound(f"There is no folder {path.parent}; make it first.")
    return path


def _taken(path: Path) -> Conflict:
    return Conflict(f"{path} is there already; `--force` writes over it.")
