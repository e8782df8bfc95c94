"""Following a run of Harbor: what is new in its folder is recorded, look by look, until Harbor says that it has ended.

A trial is taken once its files were the same at two looks. Attempts are numbered by start, and a result may be followed
by that of a trial that began before it: trials of a task wait while another of the same task goes on. What Harbor may
still delete and run again waits for the end: canceled trials, and failed ones where it retries.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from api.el import El
from api.importers import harbor
from api.importers.files import real_path, shown
from api.importers.growing import record_so_far
from api.importers.harbor_documents import RESULT, Cut
from api.importers.harbor_files import find_jobs, folders_in, kind_of
from api.importers.harbor_job import Job, runs_of
from api.importers.harbor_trial import Found, read_trial, unfinished_task
from api.importers.importing import Report, import_path
from api.importers.recording import Imported
from api.importers.run import Options
from ledger.errors import BadInput, NotFound

PAUSE_S = 2.0

Signature = tuple[tuple[str, int, int], ...]
Tell = Callable[[str], None]


def _in_silence(_line: str) -> None:
    pass


def follow_path(
    client: El,
    tool: str,
    path: Path,
    options: Options | None = None,
    *,
    pause_s: float = PAUSE_S,
    wait: Callable[[float], None] = time.sleep,
    tell: Tell = _in_silence,
) -> Report:
    """Record the run in a job's folder until it ends; what then stands is what an import of the folder gives.

    Stopped at any moment, it goes on where it was when it is called again. `tell` hears what happens, line by line.

    Raises:
        BadInput: it is no run of Harbor, or a file of it cannot be read as what it should be.
        Conflict: the run was imported or followed on other terms, or a recorded trial is not what it was.
    """
    options = options or Options()
    place = _folder(tool, path, options)
    follower = Follower(client, place, options, tell)
    while not follower.look():
        wait(pause_s)
    report = import_path(client, tool, place, options)
    return Report([_with_earlier(job, follower.entries[job.id]) for job in report.jobs], report.refused)


class Follower:
    """One folder that is looked at again and again. `entries` counts those written so far, by job."""

    def __init__(self, client: El, path: Path, options: Options, tell: Tell) -> None:
        self.entries: Counter[str] = Counter()
        self._client = client
        self._path = path
        self._options = msgspec.structs.replace(options, strict=False)  # what is cut now is being written
        self._tell = tell
        self._told = ""
        self._submitted = False
        self._read: dict[Path, tuple[Signature, Found]] = {}
        self._taken: dict[Path, Found] = {}

    def look(self) -> bool:
        """Record what is new. Returns whether Harbor says that the run has ended; nothing is recorded then."""
        job = Job(self._path, self._options)
        if job.has_ended:
            return True
        if job.cut or job.result is None:
            self._say(f"waiting for Harbor to write in {shown(self._path)}")
        elif job.lock is None:
            self._say("the run has no lock.json, so its tasks are known at its end only; it is recorded then")
        else:
            self._record(job)
        return False

    def _record(self, job: Job) -> None:
        before = len(self._taken)
        new = self._take(job)
        if not new and self._submitted:
            return
        trials = [found for found in self._taken.values() if found.task in new]
        for run in runs_of(job, trials, set(), own_names=False):
            written = record_so_far(self._client, run, self._options)
            self.entries[written.job_id] += written.entries
            if not self._submitted:
                self._tell(f"job {written.job_id}: {len(run.members):,} members x {run.attempts} attempts")
        self._submitted = True
        if len(self._taken) > before:
            self._tell(f"{len(self._taken):,} trials recorded")

    def _take(self, job: Job) -> set[str]:
        """Take the trials whose turn it is; the tasks of those that are new."""
        ready: dict[Path, Found] = {}
        busy: set[str | None] = set()
        for folder in folders_in(self._path):
            if folder in self._taken or kind_of(folder) != "trial":
                continue
            found = self._settled(folder)
            if found and not _may_run_again(found, job):
                ready[folder] = found
            else:
                busy.add(found.task_in_lock if found else unfinished_task(folder, self._options))
        if job.config.n_attempts != 1:
            ready = {folder: found for folder, found in ready.items() if found.task_in_lock not in busy}
        self._taken |= ready
        return {found.task for found in ready.values()}

    def _settled(self, folder: Path) -> Found | None:
        """The trial in a folder, when it has a result and no file changed since the last look."""
        if not (folder / RESULT).exists():
            return None
        signature = _signature(folder)
        if folder in self._read and self._read[folder][0] == signature:
            return self._read[folder][1]
        try:
            found = read_trial(folder, self._options)
        except (NotFound, Cut):
            return None
        self._read[folder] = (signature, found)
        return None

    def _say(self, line: str) -> None:
        if line != self._told:
            self._told = line
            self._tell(line)


def _folder(tool: str, path: Path, options: Options) -> Path:
    """The folder to follow; it may be one that Harbor has only just made."""
    if tool != harbor.NAME:
        raise BadInput(f"`--follow` is of {harbor.NAME}, not of {tool[:80]!r}.")
    if options.dry_run:
        raise BadInput("`--follow` records what it sees; leave out `--dry-run`.")
    place = real_path(path)
    if not place.is_dir() or kind_of(place) == "trial":
        raise BadInput(f"{shown(place)} is no job of Harbor; give the folder of the job.")
    if kind_of(place) is None and any(kind_of(folder) == "job" for folder in folders_in(place)):
        below = ", ".join(shown(Path(job.name)) for job in find_jobs(place)[:3])
        raise BadInput(f"{shown(place)} holds jobs ({below}); follow one of them at a time.")
    return place


def _may_run_again(found: Found, job: Job) -> bool:
    return found.status == "canceled" or (found.status == "failed" and job.config.retry.max_retries > 0)


def _signature(folder: Path) -> Signature:
    """Name, size and time of change of every file below a folder; a file that vanishes meanwhile is not there."""
    seen = []
    for below, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(below, name)
            try:
                found = os.lstat(path)
            except OSError:
                continue
            seen.append((path, found.st_size, found.st_mtime_ns))
    return tuple(seen)


def _with_earlier(job: Imported, entries: int) -> Imported:
    """A job with the entries that were written of it before its end."""
    return msgspec.structs.replace(job, entries_written=job.entries_written + entries)
