"""Promises of the server's follower: it reaches every position, alone at a time, stops where it must, and says so."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import sqlalchemy as sa

from api import following
from api.following import BackgroundFollower, standings
from api.settings import Settings
from api.telemetry import make_log
from api.wiring import Workspace
from ledger.application import Ledger
from ledger.codec import Row
from ledger.database import open_database, writing
from ledger.facts.access import STREAM
from ledger.rules.access import create_project
from projections.following import positions, rebuild
from projections.models import READ_MODELS
from tests import postgres
from tests.crash_writer import rows_of, submit
from tests.given import dump
from tests.given_commands import until

ROOT = Path(__file__).parent.parent


class Given:
    """A store with a follower that runs, and what it logs."""

    def __init__(self, settings: Settings) -> None:
        self.workspace = Workspace(settings)
        self.said = io.StringIO()
        self.follower = BackgroundFollower(self.workspace, make_log(self.said), poll_s=0.05)

    def ledger(self, project: str = "p", count: int = 2) -> Ledger:
        """A project with entries, written by somebody else: through another engine."""
        ledger = Ledger(open_database(self.workspace.settings.url), project)
        ledger.record(STREAM, partial(create_project, name=project))
        submit(ledger)
        ledger.recorder.append(rows_of([f"t-{number}" for number in range(count)]))
        return ledger

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.getvalue().splitlines()]


@pytest.fixture(params=["sqlite", "postgresql"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Given]:
    url = None if request.param == "sqlite" else postgres.fresh_url()
    given = Given(Settings(home=tmp_path / "home", database_url=url))
    yield given
    given.follower.stop()
    given.workspace.engine.dispose()


def test_what_others_write_is_followed(given: Given) -> None:
    """Entries written by other processes, before and after the start, reach every read model, as a rebuild has them."""
    assert given.workspace.engine
    ledger = given.ledger()
    given.follower.start()
    assert given.follower.wait_until("p", ledger.head().size, 10)
    ledger.recorder.append(rows_of(["t-8", "t-9"]))
    assert given.follower.wait_until("p", ledger.head().size, 10)
    live = dump(given.workspace.engine, "p", READ_MODELS)
    rebuild(given.workspace.engine, "p", READ_MODELS)
    assert dump(given.workspace.engine, "p", READ_MODELS) == live


def test_runs_of_entries_end_at_the_head(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long log is followed in runs, many projects in turn; each ends at its head."""
    monkeypatch.setattr(following, "RUN_ENTRIES", {"sqlite": 7, "postgresql": 7})
    assert given.workspace.engine
    heads = {name: given.ledger(name, count=12).head().size for name in ("a", "b", "c")}
    given.follower.start()
    for name, head in heads.items():
        assert given.follower.wait_until(name, head, 20)
    assert {name: found.reached for name, found in standings(given.workspace.engine).items()} == heads


def test_waiting_for_what_does_not_come_ends(given: Given) -> None:
    """A position that nobody has written is waited for as long as asked, not longer."""
    given.follower.start()
    started = time.monotonic()
    assert not given.follower.wait_until("p", 10**9, 0.2)
    assert 0.2 <= time.monotonic() - started < 2


def test_the_last_own_position_is_remembered(given: Given) -> None:
    """What this process acknowledged last is known for each project, whatever order threads say it in."""
    assert given.follower.acknowledged("p") == 0
    given.follower.acknowledge("p", 7)
    given.follower.acknowledge("p", 5)
    assert (given.follower.acknowledged("p"), given.follower.acknowledged("q")) == (7, 0)


def test_an_outdated_read_model_stops_its_project_only(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged once and told at once to who waits; others go on; after a rebuild it goes on by itself."""
    monkeypatch.setattr(following, "RETRY_S", 0.1)
    engine = given.workspace.engine
    ledger, other = given.ledger("p"), given.ledger("q")
    given.follower.start()
    assert given.follower.wait_until("p", ledger.head().size, 10)
    with writing(engine) as connection:
        ours = sa.and_(positions.c.project_id == "p", positions.c.follower == "trials")
        connection.execute(positions.update().where(ours).values(definition=0))
    ledger.recorder.append(rows_of(["t-8"]))
    other.recorder.append(rows_of(["t-8"]))
    until(lambda: given.follower.trouble("p"))
    assert "el projection rebuild trials" in str(given.follower.trouble("p"))
    started = time.monotonic()
    assert not given.follower.wait_until("p", ledger.head().size, 30)
    assert time.monotonic() - started < 5
    assert given.follower.wait_until("q", other.head().size, 10)
    time.sleep(0.3)
    assert [line["project"] for line in given.lines if line.get("outcome") == "stands still"] == ["p"]
    rebuild(engine, "p", READ_MODELS, ["trials"])
    ledger.recorder.append(rows_of(["t-9"]))
    until(lambda: given.follower.trouble("p") is None)
    assert given.follower.wait_until("p", ledger.head().size, 10)


def test_an_unknown_fact_is_never_skipped(given: Given) -> None:
    """The read models stay before an entry that cannot be read, also when others come after it."""
    assert given.workspace.engine
    ledger = given.ledger()
    known = ledger.head().size
    ledger.recorder.append([Row("trial/x", 1, "not-known-yet", b'{"fact":{"fact":"not-known-yet"}}')])
    ledger.recorder.append(rows_of(["t-9"]))
    given.follower.start()
    until(lambda: given.follower.trouble("p"))
    assert f"{known + 1}" in str(given.follower.trouble("p"))
    assert standings(given.workspace.engine)["p"].reached <= known


def test_a_fault_in_a_read_model_stops_its_project_and_tells_no_values(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw is told by class and place, and the thread lives on."""
    assert given.workspace.engine
    ledger = given.ledger()

    def breaks(*_: Any, **__: Any) -> int:
        raise ValueError("sk-a-secret-of-somebody")

    monkeypatch.setattr(following, "catch_up", breaks)
    given.follower.start()
    until(lambda: given.follower.trouble("p"))
    monkeypatch.undo()
    assert given.follower.is_running
    assert "sk-a-secret" not in given.said.getvalue()
    assert next(line for line in given.lines if line.get("outcome") == "stands still")["error"] == "ValueError"
    assert not given.follower.wait_until("p", ledger.head().size, 1)


def test_a_follower_outlives_its_database(tmp_path: Path) -> None:
    """A database that restarts is waited for, said once, and followed again."""
    server = postgres.Server()
    given = Given(Settings(home=tmp_path / "home", database_url=server.url))
    ledger = given.ledger() if given.workspace.engine else None
    assert ledger
    given.follower.start()
    assert given.follower.wait_until("p", ledger.head().size, 10)
    server.restart()
    given.workspace.engine.dispose()
    ledger = Ledger(open_database(server.url), "p")
    ledger.recorder.append(rows_of(["t-9"]))
    assert given.follower.wait_until("p", ledger.head().size, 20)
    given.follower.stop()
    server.stop()


class Process:
    """A follower of its own, and the times it was at work; an open end where it was killed."""

    def __init__(self, url: str, home: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.follower_process", url, str(home), *options],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.said: list[tuple[str, float]] = []
        assert self.process.stdout
        assert self.process.stdout.readline().startswith("ready")
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            word, at = line.split()
            self.said.append((word, float(at)))

    @property
    def at_work(self) -> bool:
        return bool(self.said) and self.said[-1][0] == "begin"

    @property
    def times(self) -> list[tuple[float, float]]:
        """(begin, end) of each piece of work that ended."""
        return [
            (at, end)
            for (word, at), (after, end) in zip(self.said, self.said[1:], strict=False)
            if (word, after) == ("begin", "end")
        ]

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(20)


def overlaps(one: Process, other: Process) -> int:
    return sum(a < end and begin < b for a, b in one.times for begin, end in other.times)


def two_at_work(tmp_path: Path, *options: str) -> tuple[Process, Process, Ledger]:
    """Two processes that follow one project, which is written to for a while."""
    settings = Settings(home=tmp_path / "home", database_url=postgres.fresh_url())
    ledger = Ledger(Workspace(settings).engine, "p")
    submit(ledger)
    both = [Process(settings.url, settings.home, *options) for _ in range(2)]
    for number in range(15):
        ledger.recorder.append(rows_of([f"t-{number}"]))
        time.sleep(0.1)
    return both[0], both[1], ledger


def test_one_process_follows_at_a_time_and_another_takes_over(tmp_path: Path) -> None:
    """Of two processes never both follow a project. When the one at work is killed, the other goes on to the head."""
    one, other, ledger = two_at_work(tmp_path)
    assert overlaps(one, other) == 0
    assert one.times or other.times
    until(lambda: standings(ledger.engine)["p"].reached == ledger.head().size)
    ledger.recorder.append(rows_of(["t-98"]))
    until(lambda: one.at_work or other.at_work)
    killed, left = (one, other) if one.at_work else (other, one)
    os.kill(killed.process.pid, signal.SIGKILL)
    ledger.recorder.append(rows_of(["t-99"]))
    until(lambda: standings(ledger.engine)["p"].reached == ledger.head().size)
    killed.process.wait()
    left.stop()


def test_without_the_lock_both_are_at_work(tmp_path: Path) -> None:
    """Twin: with a lock that lets everybody in, the same test sees them at work together."""
    one, other, _ = two_at_work(tmp_path, "--no-lock")
    one.stop()
    other.stop()
    assert overlaps(one, other) > 0
