"""Harbor: a folder with `config.json`, `lock.json` and `result.json`, and a folder for each trial with the same three.

What is read: the lock's tasks and agents, k, each trial's reward, exception, times and steps, and what was printed of
the whole. What is left out: tokens and costs of single trials, the configuration of agents and environments; they
stay in the source files. The verifier's output, the trajectory and the collected artifacts are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from api.importers import harbor_job
from api.importers.harbor_documents import Cut
from api.importers.harbor_files import find_jobs, folders_in, kind_of
from api.importers.harbor_job import Job, runs_of
from api.importers.harbor_trial import read_trial
from api.importers.run import Options, Run
from ledger.errors import NotFound

NAME = harbor_job.TOOL
POLICIES: tuple[str, ...] = harbor_job.POLICIES


def find(path: Path) -> Sequence[Path]:
    """The folder of a job, and those of the jobs below it."""
    return find_jobs(path)


def recognises(path: Path) -> bool:
    """A folder with one of a job's documents."""
    return path.is_dir() and kind_of(path) == "job"


def read(path: Path, options: Options) -> Iterator[Run]:
    """The jobs of ours that one job holds, one for each agent, model and source.

    Every trial's folder is read twice. Memory grows with trials and their files, not with bytes.

    Raises:
        BadInput: a document cannot be read as what it should be, or they contradict each other.
    """
    job = Job(path, options)
    found, flags = [], set()
    for folder in folders_in(path):
        if kind_of(folder) != "trial":
            continue
        try:
            found.append(read_trial(folder, options))
        except NotFound:
            # A run that goes on has trials without a result; in one that ended, the result was lost.
            flags.add("source-incomplete" if job.has_ended else "run-unfinished")
        except Cut:
            if options.strict:
                raise
            flags.add("source-incomplete")
    yield from runs_of(job, found, flags)
