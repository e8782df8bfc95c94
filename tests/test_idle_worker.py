"""A worker without work: it asks a server ever less often, says when it is ready, and promises nothing at its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.answers import Claimed, LeftBehind, Work
from api.cli.work import _tell
from api.client import Client
from api.el import El
from api.http_client import HttpClient
from api.runners import offers
from api.runners.claims import Claims
from api.runners.events import Event, Interrupted, Ready, Skipped
from api.runners.offers import Offers
from api.runners.worker import Worker
from tests.given_commands import client_at

TICK_S = 0.125  # in binary exact: sums of it are too


class Queue:
    """A ledger that notes when it was asked for work, and a clock that only a test moves."""

    def __init__(self, idle_pause_s_max: float) -> None:
        self.idle_pause_s_max = idle_pause_s_max
        self.now_s = 100.0
        self.waiting: list[str] = []
        self.asked_at: list[float] = []

    def work(self, _job_id: str | None) -> Work:
        self.asked_at.append(self.now_s)
        return Work(self.waiting, {}, 0)

    def take(self, _job_id: str, _slots: int) -> Claimed:
        self.waiting = []  # another worker was faster
        return Claimed([], [])

    def monotonic(self) -> float:
        return self.now_s

    def idle_for(self, taking: Offers, seconds: float) -> list[float]:
        """How long it was left alone each time."""
        self.asked_at = [self.now_s]
        for _ in range(round(seconds / TICK_S)):
            self.now_s += TICK_S
            taking.take(1)
        return [b - a for a, b in zip(self.asked_at, self.asked_at[1:], strict=False)]


def none_said(_event: Skipped | Sequence[LeftBehind]) -> None:
    """Nobody listens."""


def offers_of(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Offers:
    monkeypatch.setattr(offers, "time", queue)
    monkeypatch.setattr(offers, "prepare", lambda *_: SimpleNamespace(secrets={}))
    el, claims = cast(El, queue), cast(Claims, queue)
    return Offers(el, claims, None, {}, on_skipped=none_said, on_left_behind=none_said)


def test_a_server_is_asked_less_often_while_there_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as rarely each time up to five seconds; once there was something, as often as at first."""
    queue = Queue(HttpClient.idle_pause_s_max)
    taking = offers_of(queue, monkeypatch)
    assert queue.idle_for(taking, 30)[1:6] == [0.5, 1.0, 2.0, 4.0, 5.0]
    assert queue.idle_for(taking, 60)[1:] == [5.0] * 11
    queue.waiting = ["j"]
    assert max(queue.idle_for(taking, 5 + TICK_S)) <= 5.0
    queue.idle_for(taking, 30)
    queue.waiting = ["j"]
    while queue.waiting:
        queue.idle_for(taking, TICK_S)
    assert queue.idle_for(taking, 4)[1:3] == [0.5, 1.0]


def test_the_store_itself_is_asked_as_often_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """That costs nobody anything, and a job that is submitted beside the worker starts at once."""
    queue = Queue(Client.idle_pause_s_max)
    assert set(queue.idle_for(offers_of(queue, monkeypatch), 20)[1:]) == {0.5}


def test_before_it_ends_it_looks_however_short_ago_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another worker has just left behind is seen; a look that is not due yet would miss it."""
    queue = Queue(HttpClient.idle_pause_s_max)
    taking = offers_of(queue, monkeypatch)
    assert taking.take(1) == []
    queue.waiting = ["j"]
    assert taking.take(1) == []
    assert taking.drained
    assert taking.look_again()
    assert not taking.drained


def test_ready_then_interrupted_with_nothing_to_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ready is said once; Ctrl-C on an idle worker promises to finish nothing and asks for no second one."""
    said: list[Event] = []

    def on_event(event: Event) -> None:
        said.append(event)
        _tell(event)
        if isinstance(event, Ready):
            os.kill(os.getpid(), signal.SIGINT)

    client = client_at(tmp_path / "home")
    tally = Worker(client, slots=1, on_event=on_event).run(forever=True)
    assert said == [Ready(), Interrupted(0)]
    assert tally.interrupted
    printed: Any = capsys.readouterr()
    assert (printed.out, printed.err) == ("waiting for jobs; Ctrl-C ends\n", "")
