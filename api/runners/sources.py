"""Where on this machine the files of a published dataset lie. No fact: on another machine they lie elsewhere."""

from __future__ import annotations

import os
import secrets
import threading
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from api.forms.document import UTF8_BOM
from ledger.artifacts import make_private_folder, sync_folder
from ledger.digests import LEFT_OUT, chunks_of, open_regular, task_digest_of_folder, task_digest_of_json
from ledger.errors import DamagedStore, EvalLedgerError, NotAllowed, NotFound
from ledger.facts.catalogue import Task


class Source(msgspec.Struct, frozen=True):
    """The files of a dataset. `path` is absolute.

    A `folder` has one sub-folder for each task, named like the task; a `jsonl` file has one JSON object on each line,
    named by its `task`, or by its `id` when it has no `task`.
    """

    kind: Literal["folder", "jsonl"]
    path: Path


class TaskContentChanged(NotAllowed):
    """What lies on this machine is not the content that was published."""


class _Kept(msgspec.Struct, frozen=True):
    ref: str
    kind: Literal["folder", "jsonl"]
    path: str


class _Line(msgspec.Struct):
    task: str | None = None
    id: str | None = None


def remember(folder: Path, ref: str, source: Source) -> None:
    """Note where the files of the dataset revision `ref` lie; what was noted before is replaced.

    `folder` is the project's (`Workspace.sources`). A crash leaves the old note or the new one. Raises OSError.
    """
    make_private_folder(folder)
    note = _note(folder, ref)
    temp = note.with_name(f"{note.name}.{secrets.token_hex(8)}")
    try:
        with open(temp, "xb") as file:
            file.write(msgspec.json.encode(_Kept(ref, source.kind, os.fspath(source.path.absolute()))))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, note)
    finally:
        temp.unlink(missing_ok=True)
    sync_folder(folder)


def recall(folder: Path, ref: str) -> Source:
    """Where the files of the dataset revision `ref` lie.

    Raises:
        NotFound: it was never noted on this machine, or nothing lies there any more.
        DamagedStore: the note cannot be read.
    """
    note = _note(folder, ref)
    again = "publish it here again with `el dataset publish`."
    try:
        kept = msgspec.json.decode(note.read_bytes(), type=_Kept)
    except FileNotFoundError:
        raise NotFound(f"Where the files of dataset {ref} lie is not known on this machine; {again}") from None
    except msgspec.DecodeError as error:
        raise DamagedStore(f"The note {note} of where dataset {ref} lies is damaged; {again}") from error
    source = Source(kept.kind, Path(kept.path))
    if not source.path.exists():
        raise NotFound(f"The files of dataset {ref} lay at {source.path} and are gone; put them back, or {again}")
    return source


def source_at(path: Path) -> Source:
    """The files of a dataset that lie at a path: of a folder its sub-folders, of a file its lines.

    Raises:
        NotFound: nothing lies there.
    """
    if not path.exists():
        raise NotFound(f"There is nothing at {path}; say where the files of the dataset lie.")
    return Source("folder" if path.is_dir() else "jsonl", path.absolute())


def materialise(source: Source, task: Task, into: Path) -> None:
    """Put the content of a task into the new folder `into`: its files with their run bit, or its line as `task.json`.

    What is checked is the copy: the bytes that run are the bytes whose digest was compared.

    Raises:
        TaskContentChanged: the content has another digest, is gone, or holds a link or a special file.
    """
    into.mkdir(mode=0o700)
    try:
        if source.kind == "folder":
            _copy_folder(_task_folder(source.path, task.name), into)
            found = task_digest_of_folder(into)
        else:
            line = _line_of(source.path, task.name)
            (into / "task.json").write_bytes(line)
            found = task_digest_of_json(line)
    except EvalLedgerError as error:
        raise TaskContentChanged(f"The content of task {task.name!r} is not what was published: {error}") from error
    if found != task.digest:
        raise TaskContentChanged(
            f"The content of task {task.name!r} under {source.path} is not what was published: its sha256 is now "
            f"{found}, not {task.digest}; put the old content back, or publish a new version."
        )


def _note(folder: Path, ref: str) -> Path:
    return folder / f"{sha256(ref.encode()).hexdigest()}.json"


def _task_folder(path: Path, name: str) -> Path:
    if "/" in name or name in {".", ".."}:
        raise NotAllowed(f"{name!r} cannot be the name of a folder.")
    return path / name


def _copy_folder(source: Path, into: Path) -> None:
    """Copy ordinary files only; `open_regular` refuses everything else, links to folders too."""
    try:
        with os.scandir(source) as entries:
            found = [entry for entry in entries if os.fsencode(entry.name) not in LEFT_OUT]
    except OSError as error:
        raise NotFound(f"{source} cannot be read as a folder ({error.strerror}).") from error
    for entry in found:
        target = into / entry.name
        if entry.is_dir(follow_symlinks=False):
            target.mkdir(mode=0o700)
            _copy_folder(Path(entry.path), target)
            continue
        with open_regular(Path(entry.path)) as file, open(target, "xb") as copy:
            may_run = os.fstat(file.fileno()).st_mode & 0o100
            for chunk in chunks_of(file):
                copy.write(chunk)
            os.fchmod(copy.fileno(), 0o700 if may_run else 0o600)


class _LineIndex:
    """Where each task's line of a JSONL file starts; read once in a process, and again when the file changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offsets: dict[Path, tuple[tuple[int, int, int], dict[str, int]]] = {}

    def offsets(self, path: Path) -> dict[str, int]:
        """Byte offset by task name."""
        with self._lock, open_regular(path) as file:
            stat = os.fstat(file.fileno())
            version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            had = self._offsets.get(path)
            if had and had[0] == version:
                return had[1]
            found: dict[str, int] = {}
            offset = 0
            for line in file:
                if name := _name_of(_content_of(line)):
                    found.setdefault(name, offset)
                offset += len(line)
            self._offsets[path] = (version, found)
            return found


_lines = _LineIndex()


def _line_of(path: Path, name: str) -> bytes:
    offset = _lines.offsets(path).get(name)
    if offset is None:
        raise NotFound(f"No line of {path} is named so.")
    with open_regular(path) as file:
        file.seek(offset)
        return _content_of(file.readline())


def _content_of(line: bytes) -> bytes:
    return line.removeprefix(UTF8_BOM).strip()


def _name_of(line: bytes) -> str | None:
    try:
        named = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return named.task if named.task is not None else named.id
