"""A process of its own for what is measured in memory: `python -m tests.benchmarks.child WHAT FOLDER [COUNT]`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

import msgspec

from projections.following import rebuild
from projections.models import READ_MODELS
from tests.benchmarks.arrivals import tasks_of
from tests.benchmarks.given import client_in, submitted


class Found(msgspec.Struct):
    """How long it took, and the most memory that the process ever held."""

    seconds: float
    peak_mb: float


def in_child(what: str, folder: Path, count: int = 0) -> Found:
    """Run one measurement in a new process and wait for what it found."""
    command = [sys.executable, "-m", "tests.benchmarks.child", what, str(folder), str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Found)


def rebuilt(folder: Path) -> float:
    """Catch up from nothing, then rebuild; how long the rebuild took, in seconds."""
    client = client_in(folder)
    client.workspace.caught_up(client.project)
    start = perf_counter()
    rebuild(client.workspace.engine, client.project, READ_MODELS)
    return perf_counter() - start


def published(folder: Path, count: int) -> float:
    """Publish so many tasks, submit a job with two attempts on them and catch up; in seconds."""
    client, tasks = client_in(folder), tasks_of(count)
    start = perf_counter()
    submitted(client, "many", tasks, attempts=2)
    client.workspace.caught_up(client.project)
    return perf_counter() - start


def peak_mb() -> float:
    """The most memory this process ever held. (ru_maxrss would tell the parent's, if that held more.)"""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def main(what: str, folder: str, count: str) -> None:
    """Measure and print what was found as JSON."""
    took_s = rebuilt(Path(folder)) if what == "rebuild" else published(Path(folder), int(count))
    sys.stdout.write(msgspec.json.encode(Found(took_s, peak_mb())).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
