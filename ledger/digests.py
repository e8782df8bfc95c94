"""Digests of tasks and of lists of tasks: SHA-256 in lower-case hex over bytes that no other content gives.

Every format below starts with a label that names it and its version, and every part of varying length is
preceded by its length, so no two contents give the same bytes. A digest is kept in facts for good: a changed
format needs a new label, and the old one stays.
"""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ledger.errors import BadInput, NotFound

LEFT_OUT = frozenset({b".git", b"__pycache__", b".DS_Store"})
MAX_TASK_FILES = 100_000
CHUNK_BYTES = 1024 * 1024


def framed(*parts: str | bytes) -> bytes:
    """Join parts so that no other list of parts gives the same bytes.

    Each part (text as UTF-8) is written as its length in bytes, 8 bytes big-endian, and then its bytes.
    Raises BadInput for text that has no UTF-8 form (a lone surrogate); the message does not repeat the text.
    """
    raw = [part if isinstance(part, bytes) else _utf8(part) for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in raw)


def digest_of_names(*parts: str) -> str:
    """The digest of a task known by its names only, not its content: sha256(framed("by-name/1", *parts)).

    For imports whose task content was not kept. It says which task was meant, and nothing about what the task
    held.
    """
    return hashlib.sha256(framed("by-name/1", *parts)).hexdigest()


def members_digest(pairs: Iterable[tuple[str, str]]) -> str:
    """The digest of an ordered list of (task name, task digest); the order counts.

    sha256(framed("members/1", name, digest, name, digest, ...)), in constant memory, so `pairs` may be a long
    stream.
    """
    digest = hashlib.sha256(framed("members/1"))
    for name, task_digest in pairs:
        digest.update(framed(name, task_digest))
    return digest.hexdigest()


def cohort_digest(dataset: str, runner: str, attempts: int, tasks: Iterable[tuple[str, str]]) -> str:
    """The digest of what makes jobs comparable: dataset revision, runner, k, and (task name, task digest) sorted.

    sha256(framed("cohort/1", dataset, runner, attempts in decimal, name, digest, name, digest, ...)). Model and
    profile are not in it, nor is the order of the tasks.
    """
    digest = hashlib.sha256(framed("cohort/1", dataset, runner, str(attempts)))
    for name, task_digest in sorted(tasks):
        digest.update(framed(name, task_digest))
    return digest.hexdigest()


def task_digest_of_json(line: bytes) -> str:
    """The digest of a task that is one JSON object, as in one line of a JSONL dataset.

    sha256(framed("task-json/1", canonical)), where canonical is the decoded object written again as ASCII
    JSON: keys sorted by code point at every depth, no spaces, other characters as \\u escapes, whole numbers
    in full, other numbers in the shortest form that reads back the same (Python's repr).

    So order of keys, spaces and escapes do not count. Numbers are compared after decoding, not as written:
    1e2 and 100.0 are the same, 100 and 100.0 are not, and digits beyond a double's precision are lost. Of a
    repeated key the last one counts. Raises BadInput when the line is not one JSON object in UTF-8.
    """
    try:
        task = msgspec.json.decode(line)
        if not isinstance(task, dict):
            raise BadInput("A task in a JSONL dataset must be a JSON object, one per line.")
        canonical = json.dumps(task, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"A task in a JSONL dataset cannot be read as JSON: {error}.") from error
    return hashlib.sha256(framed("task-json/1", canonical)).hexdigest()


def task_digest_of_folder(path: Path) -> str:
    """The digest of a task that is a folder: the same on every machine that holds the same files.

    Format "task-folder/1", hashed with SHA-256: framed("task-folder/1"), then for each file, sorted by the
    bytes of its path:
      1. framed(path): the path below the folder, with "/" between the names, in UTF-8, names exactly as they
      are
         (not normalised: a file system that changes the names of files changes the digest);
      2. one byte: "x" when the owner may run the file, else "-";
      3. the SHA-256 of the file's bytes, 32 bytes.

    What does not count: times, owners, every other mode bit, empty folders, and whatever is called `.git`,
    `__pycache__` or `.DS_Store`, at any depth. `path` itself may be a symbolic link to the folder.

    Raises NotFound when there is nothing at `path`. Raises BadInput when it is not a folder, when it holds
    more than MAX_TASK_FILES files, or when something inside is a symbolic link, a fifo, a socket or a device,
    cannot be read, or has a name that is not UTF-8. Not checked: that nobody changes the folder meanwhile.
    """
    if not path.exists():
        raise NotFound(f"There is no task folder at {path}.")
    root = os.fsencode(path)
    digest = hashlib.sha256(framed("task-folder/1"))
    for name in sorted(_files_below(root)):
        content = hashlib.sha256()
        with open_regular(os.path.join(root, name)) as file:
            may_run = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
            for chunk in chunks_of(file):
                content.update(chunk)
        digest.update(framed(name))
        digest.update(b"x" if may_run else b"-")
        digest.update(content.digest())
    return digest.hexdigest()


def open_regular(path: Path | bytes) -> BinaryIO:
    """Open an ordinary file for reading; the caller closes it.

    Raises NotFound when nothing is there, BadInput when it is a symbolic link, a folder, a fifo, a socket or
    a device, or may not be read. Only the last part of the path is kept from being a link.
    """
    shown = _shown(os.fsencode(path))
    try:
        # Without O_NONBLOCK a fifo blocks for ever; a check before the open could be overtaken by a change.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file at {shown}.") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise BadInput(f"{shown} is a symbolic link; only ordinary files are taken.") from error
        raise BadInput(f"{shown} cannot be read as an ordinary file: {_reason(error)}.") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BadInput(f"{shown} is a folder, fifo or device; only ordinary files are taken.")
    return open(fd, "rb")


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file in chunks of at most CHUNK_BYTES. Raises BadInput when reading fails."""
    try:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise BadInput(f"A file could not be read to its end: {_reason(error)}.") from error


def _files_below(root: bytes) -> list[bytes]:
    """Paths below `root` of everything that is not a folder and not left out, in no order."""
    files: list[bytes] = []
    folders = [b""]
    while folders:
        folder = folders.pop()
        for entry in _entries(os.path.join(root, folder)):
            if entry.name in LEFT_OUT:
                continue
            name = os.path.join(folder, entry.name)
            _refuse_other_than_utf8(name)
            (folders if entry.is_dir(follow_symlinks=False) else files).append(name)
        if len(files) > MAX_TASK_FILES:
            raise BadInput(f"{_shown(root)} holds more than {MAX_TASK_FILES:,} files; no task may.")
    return files


def _entries(folder: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise BadInput(f"{_shown(folder)} cannot be read as a folder: {_reason(error)}.") from error


def _refuse_other_than_utf8(name: bytes) -> None:
    try:
        name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{_shown(name)} has a name that is not UTF-8; rename it.") from error


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # The codec's own error holds the whole text, which may be a secret: it must not travel along.
        raise BadInput("A text holds a lone surrogate, which has no UTF-8 form.") from None


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
