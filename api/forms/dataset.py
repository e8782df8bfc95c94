"""A dataset as it lies on disk: a folder of task folders, a Harbor-style folder, or a JSONL file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from api.forms.document import UTF8_BOM, json_object, shown_name
from ledger.digests import LEFT_OUT, framed, open_regular, task_digest_of_folder, task_digest_of_json
from ledger.errors import BadInput, NotFound
from ledger.facts.catalogue import Task
from ledger.rules.forms import checked_task_name

LINE_BYTES_MAX = 10 * 1024 * 1024
TASKS_MAX = 1_000_000
PROGRESS_EVERY = 500
TASK_FILES = ("task.toml", "instruction.md")
DIGEST_OF_NOTHING = hashlib.sha256(framed("task-folder/1")).hexdigest()

Kind = Literal["folder", "jsonl", "harbor"]
# Called with how many tasks have been read, now and then.
Progress = Callable[[int], None]


class DatasetFile(NamedTuple):
    """A dataset that was read: where it lies (an absolute path), its tasks in order, what was not taken for a task.

    The tasks of a folder stand in the order of their names, those of a JSONL file in the order of their lines.
    `ignored` names the loose files and hidden folders beside the task folders.
    """

    kind: Kind
    path: Path
    tasks: list[Task]
    ignored: tuple[str, ...] = ()


def read_dataset(path: Path, *, progress: Progress | None = None) -> DatasetFile:
    """Read the tasks of a dataset: a name and the digest of the content for each.

    A folder has one sub-folder a task, whose name is the task's; when each of them holds a `task.toml`, it is of kind
    harbor. Anything else is read as JSONL: one JSON object a line, named by its `task`, or by its `id` when it has no
    `task`. Digests depend on content only: see `task_digest_of_folder` and `task_digest_of_json`.

    Raises:
        NotFound: there is nothing at `path`.
        BadInput: there is no task in it, or a task cannot be taken; the sentence names the folder or the line.
    """
    place = Path(os.path.realpath(path))
    if not os.path.exists(place):
        raise NotFound(f"There is no dataset at {path}; give a folder of task folders or a JSONL file.")
    found = _read_folder(place, progress) if os.path.isdir(place) else _read_jsonl(place, progress)
    if not found.tasks:
        what = "blank lines only" if found.kind == "jsonl" else "no sub-folder"
        raise BadInput(f"The dataset {path} holds no task ({what}); write one sub-folder, or one line, for each.")
    if progress:
        progress(len(found.tasks))
    return found


def _read_folder(place: Path, progress: Progress | None) -> DatasetFile:
    names, ignored = _sub_folders(place)
    for file in TASK_FILES:
        if file in ignored:
            raise BadInput(
                f"{place} is itself a task (it holds {file}); give the folder above, with one sub-folder a task."
            )
    plain = [name for name in names if not os.path.isfile(place / name / "task.toml")]
    if plain and len(plain) < len(names):
        raise BadInput(
            f"Some sub-folders of {place} hold a task.toml, but {shown_name(plain[0])} does not; "
            "in a Harbor-style dataset each must, so add one or move that folder elsewhere."
        )
    tasks: list[Task] = []
    for name in names:
        digest = task_digest_of_folder(place / name)
        if digest == DIGEST_OF_NOTHING:
            raise BadInput(f"The task folder {place / name} holds no file; fill it or remove it.")
        tasks.append(Task(checked_task_name(name), digest))
        if progress and len(tasks) % PROGRESS_EVERY == 0:
            progress(len(tasks))
    return DatasetFile("folder" if plain else "harbor", place, tasks, tuple(ignored))


def _sub_folders(place: Path) -> tuple[list[str], list[str]]:
    """The names of the task folders, and of what is no task: loose files, hidden folders, `__pycache__`. Sorted."""
    names: list[str] = []
    ignored: list[str] = []
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                hidden = entry.name.startswith(".") or os.fsencode(entry.name) in LEFT_OUT
                if hidden or not entry.is_dir():
                    ignored.append(entry.name)
                elif entry.is_symlink():
                    raise BadInput(
                        f"{entry.path} is a symbolic link; a task folder must lie in the dataset itself: copy it there."
                    )
                else:
                    names.append(entry.name)
    except OSError as error:
        raise BadInput(f"The folder {place} cannot be read: {error.strerror or error}.") from error
    if len(names) > TASKS_MAX:
        raise BadInput(f"{place} has more than {TASKS_MAX:,} sub-folders; no dataset may.")
    return sorted(names, key=os.fsencode), sorted(ignored)


def _read_jsonl(place: Path, progress: Progress | None) -> DatasetFile:
    tasks: list[Task] = []
    line_of: dict[str, int] = {}
    shown = str(place)
    with open_regular(place) as file:
        for number, line in _lines(file, place):
            task = _task_of_line(line, f"Line {number} of {shown}")
            first = line_of.setdefault(task.name, number)
            if first != number:
                raise BadInput(
                    f"Lines {first} and {number} of {place} both name the task {shown_name(task.name)}; "
                    "task names are unique in a dataset."
                )
            if len(tasks) == TASKS_MAX:
                raise BadInput(f"{place} holds more than {TASKS_MAX:,} tasks; no dataset may.")
            tasks.append(task)
            if progress and len(tasks) % PROGRESS_EVERY == 0:
                progress(len(tasks))
    return DatasetFile("jsonl", place, tasks)


def _lines(file: BinaryIO, place: Path) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line) of each line that is not blank; one line in memory at a time."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise BadInput(f"Line {number} of {place} is larger than {LINE_BYTES_MAX:,} bytes; is it JSONL?")
        if number == 1:
            line = line.removeprefix(UTF8_BOM)
        if line := line.strip():
            yield number, line


def _task_of_line(line: bytes, where: str) -> Task:
    """The task on a line; `where` says which line, as the start of a sentence."""
    fields = json_object(line, what=where)
    key = "task" if "task" in fields else "id"
    if key not in fields:
        raise BadInput(f'{where} has neither `task` nor `id`; name the task, such as {{"task": "add-1", ...}}.')
    name = fields[key]
    if isinstance(name, int | float):
        raise BadInput(f'{where} names its task by a number in `{key}`; write it as text, such as "{key}": "7".')
    if not isinstance(name, str):
        raise BadInput(f"{where} has no text in `{key}`; name the task with a text in double quotes.")
    try:
        return Task(checked_task_name(name), task_digest_of_json(line))
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
