"""Where the files of terminal-bench runs lie: which folder is a run, and which files are its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from api.importers.files import FILES_MAX, refuse_folder, shown
from ledger.errors import BadInput, NotFound

METADATA, RESULTS, LOCK = "run_metadata.json", "results.json", "tb.lock"
TRIAL_DEPTH = 2  # a trial lies at <run>/<task>/<trial>


def runs_at(path: Path) -> Sequence[Path]:
    """The folders of all runs at or below a path, of nested ones too; of a file, the folder of its run.

    Raises NotFound when nothing is there, BadInput when there is no run, or more than 10,000.
    """
    path = path.resolve()
    if not os.path.exists(path):
        raise NotFound(f"There is nothing at {shown(path)}.")
    if not os.path.isdir(path):
        if path.name not in (METADATA, RESULTS, LOCK):
            raise BadInput(f"{shown(path)} is no file of a terminal-bench run; name the run's folder.")
        return [path.parent]
    depths: dict[Path, int] = {}  # of folders in a run, counted from the run
    found: list[Path] = []
    for name, folders, files in os.walk(path, onerror=refuse_folder):
        folders.sort()
        folder = Path(name)
        depth = depths.pop(folder, None)
        if _is_run(files, depth):
            found.append(folder)
            depth = 0
        if depth is not None:
            depths |= {folder / below: depth + 1 for below in folders}
        if len(found) > FILES_MAX:
            raise BadInput(f"{shown(path)} holds more than {FILES_MAX:,} runs; import a part of it at a time.")
    if not found:
        raise BadInput(f"{shown(path)} holds no terminal-bench run; a run has a {METADATA} or {RESULTS}.")
    return found


def trial_files(run: Path) -> Iterator[Path]:
    """The `<task>/<trial>/results.json` of a run, in the order of their paths; runs nested in it have their own."""
    for task in _folders(run):
        for trial in _folders(task):
            if os.path.lexists(trial / RESULTS):
                yield trial / RESULTS


def _is_run(files: Sequence[str], depth: int | None) -> bool:
    """Whether a folder with these files is a run. Deeper inside one, only a run's own marks tell it from a trial, or
    from whatever an agent left there."""
    return METADATA in files or LOCK in files or (RESULTS in files and depth in (None, 1))


def _folders(path: Path) -> Sequence[Path]:
    try:
        with os.scandir(path) as entries:
            folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        return sorted(folder for folder in folders if not _is_run(os.listdir(folder), TRIAL_DEPTH))
    except OSError as error:
        refuse_folder(error)
