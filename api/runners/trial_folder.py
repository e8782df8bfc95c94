"""The temporary folder of one trial: its layout, what its processes are told of it, and reading from it safely.

- `<folder>/`: HOME of both processes, mode 0700, removed when the trial has ended
- `task/`: the task's content; made anew for the verifier, so that it sees what was published
- `work/`: where both processes start
- `output/`: reward.txt or reward.json, the structured result, files to keep
- `tmp/`: TMPDIR
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

from ledger.errors import BadInput, NotFound
from ledger.facts.trial import Slot, trial_id_for

FILES_LOOKED_AT_MAX = 100_000

_PLACEHOLDER = re.compile(r"\{(task|work|output|python)\}")


class TrialFolder:
    """The folders of one trial; made by `trial_folder`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.task = root / "task"
        self.work = root / "work"
        self.output = root / "output"
        self.temp = root / "tmp"

    def argv(self, command: Sequence[str]) -> list[str]:
        """A step's arguments with `{task}`, `{work}`, `{output}` and `{python}` (this Python) filled in."""
        places = {"task": self.task, "work": self.work, "output": self.output, "python": sys.executable}
        return [_PLACEHOLDER.sub(lambda found: str(places[found[1]]), argument) for argument in command]

    def environment(self, slot: Slot, values: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of both processes: of the worker's own only PATH is taken over.

        `values` are parameters and secrets. They may replace PATH, HOME and the like, but none of the EL_ names below.
        """
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(self.temp),
            **values,
            "EL_TASK": slot.task,
            "EL_TASK_DIR": str(self.task),
            "EL_ATTEMPT": str(slot.attempt),
            "EL_JOB_ID": slot.job_id,
            "EL_TRIAL_ID": trial_id_for(slot.job_id, slot.task, slot.attempt),
            "EL_WORK_DIR": str(self.work),
            "EL_OUTPUT_DIR": str(self.output),
        }

    def ensure(self) -> None:
        """Make the folders usable again, whatever a process has removed, replaced or locked."""
        for folder in (self.root, self.work, self.output, self.temp):
            if folder.is_symlink() or not folder.is_dir():
                remove(folder)
                folder.mkdir(mode=0o700)
            folder.chmod(0o700)

    def open(self, name: str) -> BinaryIO:
        """Open an ordinary file by its path below the root, following no link at any step; the caller closes it.

        Raises:
            NotFound: there is nothing.
            BadInput: a link, a folder, something special, or a path that leads out.
            PermissionError: it may not be read.
        """
        *folders, last = name.split("/")
        if not {"", ".", ".."}.isdisjoint((*folders, last)):
            raise BadInput(f"{name!r} is not a path inside the trial's folder.")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        at = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                below = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at)
                os.close(at)
                at = below
            file = os.open(last, flags, dir_fd=at)
        except FileNotFoundError:
            raise NotFound(f"There is no file {name!r} in the trial's folder.") from None
        except PermissionError:
            raise
        except (OSError, ValueError) as error:
            raise BadInput(f"{name!r} cannot be read as an ordinary file: {error}.") from error
        finally:
            os.close(at)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise BadInput(f"{name!r} is no ordinary file.")
        return open(file, "rb")

    def matching(self, patterns: Sequence[str]) -> list[str]:
        """Paths below the root of what in output/ and work/ matches a pattern, sorted; folders themselves do not.

        `*`, `?` and `[...]` stay inside one name, `**` stands for any number of folders. At most FILES_LOOKED_AT_MAX
        files are looked at.
        """
        wanted = [pattern.split("/") for pattern in patterns]
        found = []
        for top in ("output", "work"):
            for number, name in enumerate(_files_below(self.root / top)):
                if number >= FILES_LOOKED_AT_MAX:
                    break
                if any(_matches(name.split("/"), pattern) for pattern in wanted):
                    found.append(f"{top}/{name}")
        return sorted(found)


@contextmanager
def trial_folder() -> Iterator[TrialFolder]:
    """A fresh folder, private to this user; removed at the end, whatever its processes left in it."""
    folder = TrialFolder(Path(os.path.realpath(tempfile.mkdtemp(prefix="el-trial-"))))
    try:
        folder.ensure()
        yield folder
    finally:
        remove(folder.root)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all it holds, also when its modes forbid it; what resists is left."""

    def loosen(_function: Callable[..., Any], at: str, _error: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(at), 0o700)
            if os.path.isdir(at) and not os.path.islink(at):
                os.chmod(at, 0o700)
                shutil.rmtree(at, ignore_errors=True)
            else:
                os.unlink(at)

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=loosen)
    else:
        path.unlink(missing_ok=True)


def _files_below(folder: Path) -> Iterator[str]:
    """Paths below a folder of everything that is no folder; no link is followed."""
    if folder.is_symlink():
        return
    for at, folders, files in os.walk(folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        for name in sorted([*files, *links]):
            yield os.path.relpath(os.path.join(at, name), folder)


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        return _matches(names, pattern[1:]) or (bool(names) and _matches(names[1:], pattern))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])
