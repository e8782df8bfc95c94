"""Artifacts: files named by the sha256 of their content, written so that a crash leaves none half there."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec

from ledger.digests import CHUNK_BYTES, chunks_of, open_regular
from ledger.errors import BadInput, DamagedStore, NotFound, StoreUnreachable

SHA256 = re.compile(r"[0-9a-f]{64}")
TEMPS = "temp"  # cannot be a shelf: those have two characters


class Stored(msgspec.Struct, frozen=True):
    """An artifact that is durably in the store: sha256 in lower-case hex, size in bytes."""

    sha256: str
    size: int


class ArtifactStore:
    """A folder of artifacts, one project's: `<root>/<first 2 hex>/<other 62 hex>`, files 0600, folders 0700.

    A file is written under `<root>/temp`, synced, renamed to its name, and the folders are synced: what a
    method returned as Stored survives a power cut, and a name never holds part of a content. The same content
    may be put any number of times, by any number of processes; putting it again also mends a damaged copy.

    Every method that takes a sha256 raises BadInput when it is not 64 lower-case hex digits. Every method
    raises StoreUnreachable when the folder cannot be used (no space, no permission).
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put_bytes(self, data: bytes) -> Stored:
        """Store bytes that are in memory already."""
        with self.batch() as batch:
            return batch.add_bytes(data)

    def put_file(self, path: Path, *, max_bytes: int) -> Stored:
        """Store a copy of a file, hashed while it is copied, in constant memory.

        Raises NotFound when there is no file, BadInput when it is not an ordinary file (links are not
        followed) or is larger than `max_bytes`, also when it grows past that while it is read.
        """
        with self.batch() as batch:
            return batch.add_file(path, max_bytes=max_bytes)

    def put_many(self, items: Iterable[bytes | Path], *, max_bytes: int) -> list[Stored]:
        """Store bytes and files, all or none, in order, with one sync per folder. Raises as `put_file`."""
        with self.batch() as batch:
            add = partial(batch.add_file, max_bytes=max_bytes)
            return [batch.add_bytes(item) if isinstance(item, bytes) else add(item) for item in items]

    @contextmanager
    def batch(self) -> Iterator["Batch"]:
        """Store several artifacts with one sync per folder: when the block ends, or none if it raises.

        What `add_bytes` and `add_file` return inside the block counts only from then on. A caller that
        catches the refusal of one `add_file` inside the block keeps the others.
        """
        with _unreachable_on_os_error(self.root):
            make_private_folder(self.root / TEMPS)
        batch = Batch(self.root)
        try:
            yield batch
            batch.publish()
        finally:
            batch.discard()

    def adopt(self, path: Path, sha256: str) -> Stored:
        """Move a finished file of this file system into the store, once its content is checked against its name.

        Raises BadInput when the content is another; the file stays where it is then.
        """
        target = _path_in(self.root, sha256)
        with _unreachable_on_os_error(self.root), open(path, "rb") as file:
            found, size = hashlib.sha256(), 0
            while chunk := file.read(CHUNK_BYTES):
                found.update(chunk)
                size += len(chunk)
            if found.hexdigest() != sha256:
                raise BadInput(f"The content's sha256 is {found.hexdigest()}, not {sha256}; send what the name says.")
            os.fsync(file.fileno())
            make_private_folder(target.parent)
            os.replace(path, target)
            sync_folder(target.parent)
            sync_folder(self.root)
        return Stored(sha256, size)

    def open(self, sha256: str) -> BinaryIO:
        """Open an artifact for reading; the caller closes it. Raises NotFound.

        Not checked: that the content still has this sha256 (`verify` and `read_bytes` check).
        """
        with _unreachable_on_os_error(self.root):
            try:
                return open(_path_in(self.root, sha256), "rb")
            except FileNotFoundError:
                raise NotFound(f"There is no artifact {sha256} in the store.") from None

    def read_bytes(self, sha256: str, *, max_bytes: int) -> bytes:
        """An artifact's content, checked against its name.

        Raises NotFound, BadInput when it is larger than `max_bytes`, DamagedStore when it is not what it was.
        """
        with self.open(sha256) as file, _unreachable_on_os_error(self.root):
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise BadInput(f"The artifact {sha256} is larger than {max_bytes:,} bytes, the most to read.")
        _refuse_damage(sha256, hashlib.sha256(data).hexdigest())
        return data

    def has(self, sha256: str) -> bool:
        """Whether an artifact of this name is there. Not checked: its content."""
        with _unreachable_on_os_error(self.root):
            return _path_in(self.root, sha256).is_file()

    def verify(self, sha256: str) -> Stored:
        """Read an artifact to its end and check it against its name. Raises NotFound, DamagedStore."""
        found, size = hashlib.sha256(), 0
        with self.open(sha256) as file, _unreachable_on_os_error(self.root):
            while chunk := file.read(CHUNK_BYTES):
                found.update(chunk)
                size += len(chunk)
        _refuse_damage(sha256, found.hexdigest())
        return Stored(sha256, size)

    def remove(self, sha256: str) -> bool:
        """Erase an artifact, durably; False when it was not there, so that a repeat is harmless.

        One content is one file: the caller makes sure that no other trial still needs it.
        """
        path = _path_in(self.root, sha256)
        with _unreachable_on_os_error(self.root):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            sync_folder(path.parent)
            return True

    def sweep(self, *, before: float) -> int:
        """Delete temporary files that a crash left, last written before an instant (Unix seconds); how many.

        Choose an instant well before now (a day): a file that is being written also stands there.
        """
        swept = 0
        with _unreachable_on_os_error(self.root), suppress(FileNotFoundError):
            for temp in (self.root / TEMPS).iterdir():
                with suppress(FileNotFoundError):  # another process swept it, or has just published it
                    if temp.lstat().st_mtime < before:
                        temp.unlink()
                        swept += 1
        return swept


class Batch:
    """Artifacts on their way into the store; made by `ArtifactStore.batch`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._temps: list[tuple[Path, Stored]] = []

    def add_bytes(self, data: bytes) -> Stored:
        """Write bytes to a temporary file; they are stored when the batch ends."""
        return self._write([data])

    def add_file(self, path: Path, *, max_bytes: int) -> Stored:
        """Copy a file likewise. Raises as `ArtifactStore.put_file`."""
        return self._write(_bounded_chunks(path, max_bytes))

    def publish(self) -> None:
        """Rename every temporary file to its name, then sync each folder once."""
        with _unreachable_on_os_error(self._root):
            shelves = {_path_in(self._root, stored.sha256).parent for _, stored in self._temps}
            for shelf in shelves:
                make_private_folder(shelf)
            for temp, stored in self._temps:
                os.replace(temp, _path_in(self._root, stored.sha256))
            for shelf in shelves:
                sync_folder(shelf)
            # Always: another process may have made a shelf and not have synced the root yet.
            sync_folder(self._root)
            self._temps.clear()

    def discard(self) -> None:
        """Delete the temporary files that were not published."""
        for temp, _ in self._temps:
            with suppress(OSError):
                temp.unlink()

    def _write(self, chunks: Iterable[bytes]) -> Stored:
        temp = self._root / TEMPS / secrets.token_hex(16)
        digest, size = hashlib.sha256(), 0
        try:
            with _unreachable_on_os_error(self._root), open(temp, "xb", opener=_open_private) as file:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        stored = Stored(digest.hexdigest(), size)
        self._temps.append((temp, stored))
        return stored


def make_private_folder(path: Path) -> None:
    """Make a folder and its missing parents, 0700, durably; leave one that is there. Raises OSError."""
    if path.is_dir():
        return
    make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _path_in(root: Path, sha256: str) -> Path:
    if not SHA256.fullmatch(sha256):
        raise BadInput("An artifact is named by its sha256: 64 digits and letters from 0-9 and a-f.")
    return root / sha256[:2] / sha256[2:]


def _bounded_chunks(path: Path, max_bytes: int) -> Iterator[bytes]:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size  # a file far too large is refused before anything is copied
        read = 0
        for chunk in chain([b""], chunks_of(file)):
            read += len(chunk)
            if max(size, read) > max_bytes:
                raise BadInput(f"{path} is larger than {max_bytes:,} bytes, the most an artifact may hold.")
            yield chunk


def _refuse_damage(sha256: str, found: str) -> None:
    if found != sha256:
        raise DamagedStore(f"The artifact {sha256} is damaged: its content now has the sha256 {found}.")


@contextmanager
def _unreachable_on_os_error(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnreachable(f"{root} cannot be used: {error.strerror or error}.") from error
