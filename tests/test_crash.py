"""Promises under kill -9: what was acknowledged is there, nothing is there twice, and everything goes on from there.

A killed process does not test what a power cut does to the disk: the kernel still writes out what it was handed. For
that we rely on SQLite's `synchronous=FULL`, whose setting is tested in test_recorder.py, and on its own tests. What
becomes of a PostgreSQL that goes away under its writers is in test_postgres_failures.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from sqlalchemy.engine import Engine

from ledger.application import Ledger
from ledger.database import create_tables, open_database
from ledger.recorder import ProjectRecorder
from projections.following import catch_up, rebuild
from projections.models import READ_MODELS
from tests import postgres
from tests.crash_writer import digest, submit
from tests.given import dump, faults_of_log, tables_without_the_unique_index

ROOT = Path(__file__).parent.parent
PROJECT = "crash"
CYCLES_PER_STORE = 20  # a fresh store now and then, so that checking the whole log each time stays cheap
RUN_MS_MAX = 90
# Kills on PostgreSQL for each on SQLite. It has one process more to lose, but not the one that holds the data.
SHARE = {"sqlite": 1.0, "postgresql": 0.2}


on_each = pytest.mark.parametrize("kind", list(SHARE))


class Run(NamedTuple):
    """What a killed writer had said: (first, last, digest) of each acknowledged batch, and how it died."""

    acknowledged: list[tuple[int, int, str]]
    status: int


class Server:
    """The process that forks writers."""

    def __init__(self, url: str, options: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash_writer", url, PROJECT, *options],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
        )  # fmt: skip

    def run(self, cycle: int, resend: int, run_s: float) -> Run:
        """Start a writer and kill it some time after it acknowledged its first batch."""
        assert self._process.stdin
        self._process.stdin.write(f"{cycle} {resend}\n")
        acknowledged: list[tuple[int, int, str]] = []
        pid = 0
        for line in self._lines():
            match line.split():
                case ["start", number]:
                    pid = int(number)
                case ["ack", first, last, sha]:
                    acknowledged.append((int(first), int(last), sha))
                    if len(acknowledged) == 1:
                        time.sleep(run_s)
                        with suppress(ProcessLookupError):  # a sabotaged writer may have died by itself
                            os.kill(pid, signal.SIGKILL)
                case ["dead", status]:
                    return Run(acknowledged, int(status))
        raise AssertionError("the server of writers died")

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout
        while line := self._process.stdout.readline():
            yield line

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


class Store:
    """A store that is written, killed and checked over and over."""

    def __init__(self, url: str, *options: str) -> None:
        self.url = url
        self.engine: Engine = open_database(self.url)
        create_tables(self.engine)
        if "--no-index" in options:
            tables_without_the_unique_index(self.engine)
        submit(Ledger(self.engine, PROJECT))
        self.server = Server(self.url, list(options))
        self.acknowledged: list[tuple[int, int, str]] = []
        self.last = 1
        self.batches = 0

    def crash(self, cycle: int, run_s: float) -> Run:
        """One life of a writer. The next one sends again the last batch whose fate this one did not tell."""
        run = self.server.run(cycle, max(0, self.batches - 1), run_s)
        self.batches = len(run.acknowledged) - (cycle > 0)
        self.acknowledged += run.acknowledged
        return run

    def faults(self) -> list[str]:
        """What is wrong after a crash: in the log, or with what had been acknowledged."""
        recorder = ProjectRecorder(self.engine, PROJECT)
        found = faults_of_log(self.engine, PROJECT)
        bodies = [body for _, body in recorder.bodies(after=0, limit=10**9)]
        for first, last, sha in self.acknowledged:
            if digest(bodies[first - 1 : last]) != sha:
                found.append(f"{first} to {last} were acknowledged and are not there as they were")
        return found

    def read_model_faults(self) -> list[str]:
        """What differs between read models that went on after a crash and those built anew."""
        catch_up(self.engine, PROJECT, READ_MODELS)
        live = dump(self.engine, PROJECT, READ_MODELS)
        rebuild(self.engine, PROJECT, READ_MODELS)
        return [name for name, rows in dump(self.engine, PROJECT, READ_MODELS).items() if rows != live[name]]


@contextmanager
def store(kind: str, folder: Path, *options: str) -> Iterator[Store]:
    folder.mkdir()
    one = Store(f"sqlite:///{folder / 'el.db'}" if kind == "sqlite" else postgres.fresh_url(), *options)
    try:
        yield one
    finally:
        one.server.stop()
        one.engine.dispose()


@on_each
def test_a_killed_writer_loses_nothing_it_had_acknowledged(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Killed at any moment: acknowledged entries are there with their bytes, positions dense, no duplicate, head and
    root as recomputed; the read models go on, and equal rebuilt ones.
    """
    random, cycles = Random(1), max(5, int(request.config.getoption("--crash-cycles") * SHARE[kind]))
    acknowledged = unacknowledged = 0
    for start in range(0, cycles, CYCLES_PER_STORE):
        with store(kind, tmp_path / str(start)) as crashing:
            for cycle in range(min(CYCLES_PER_STORE, cycles - start)):
                before = ProjectRecorder(crashing.engine, PROJECT).head().size
                run = crashing.crash(cycle, random.random() * RUN_MS_MAX / 1000)
                assert run.status == signal.SIGKILL
                assert run.acknowledged
                assert crashing.faults() == [], f"after cycle {start + cycle}"
                acknowledged += len(run.acknowledged)
                size = ProjectRecorder(crashing.engine, PROJECT).head().size
                unacknowledged += size > max(before, *(last for _, last, _ in run.acknowledged))
                if cycle % 5 == 4:
                    assert crashing.read_model_faults() == []
            assert crashing.read_model_faults() == []
    print(f"{cycles} kills, {acknowledged} batches acknowledged, {unacknowledged} committed but not acknowledged")
    assert acknowledged > cycles, "every kill came before a second batch: the test proved little"


@on_each
@pytest.mark.parametrize(
    ("option", "fault"), [("--no-index", "a stream has a version twice"), ("--no-head", "the head says")]
)
def test_sabotage_is_noticed_after_a_crash(kind: str, tmp_path: Path, option: str, fault: str) -> None:
    """The same check goes red: a batch sent again is there twice, or the head does not fit."""
    with store(kind, tmp_path / "store", option) as crashing:
        found: list[str] = []
        for cycle in range(20):
            crashing.crash(cycle, 0.03) if option == "--no-index" else no_head(crashing)
            found += crashing.faults()
            if any(fault in one for one in found):
                break
        assert any(fault in one for one in found), found


def no_head(crashing: Store) -> Any:
    """A writer whose head never moves finds its next position taken, and dies of it by itself."""
    return crashing.server.run(0, 0, 0.03)
