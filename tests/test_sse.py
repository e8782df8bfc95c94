"""Promises of live events: each entry that fits once and in order, across any number of broken connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec
import pytest
from httpx_sse import connect_sse
from sqlalchemy.pool import QueuePool

from tests import postgres
from tests.given_commands import until
from tests.given_doors import Door, Served, serving

JOB = {"dataset": "arith@1", "attempts": 1}
FOLLOW = {"Accept": "text/event-stream"}
WRITES = 100
WRITES_OF_TWIN = 30


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = postgres.fresh_url() if request.param == "postgresql" else None
    with serving(tmp_path_factory.mktemp("home"), url) as running:
        yield running


@pytest.fixture
def door(served: Served) -> Door:
    return served.project().with_dataset("add-1")


def follow(
    door: Door, path: str, *, last: str | None = None, most: int, upto: int = 2**62, **params: Any
) -> list[tuple[str, str, Any]]:
    """(id, event, data) of the next `most` events, or of those to a position."""
    headers = FOLLOW | ({"Last-Event-ID": last} if last is not None else {})
    found: list[tuple[str, str, Any]] = []
    with connect_sse(door.http, "GET", path, headers=headers, params=params) as source:
        for event in source.iter_sse():
            found.append((event.id, event.event, event.json()))
            if len(found) == most or int(event.id) >= upto:
                break
    return found


def keep_writing(door: Door, count: int) -> threading.Thread:
    """Jobs submitted over HTTP, one after the other, by another thread."""

    def write() -> None:
        with door.with_key(door.key) as http:
            for _ in range(count):
                assert http.post("/jobs", json=JOB).status_code == 201

    writer = threading.Thread(target=write)
    writer.start()
    return writer


def resumed_at_random(
    door: Door, seed: int, resume: Callable[[int], int] = lambda last: last, *, writes: int = WRITES
) -> list[int]:
    """The positions that a follower sees who hangs up at random points while somebody writes."""
    random, seen = Random(seed), []
    end = door.client.head().entries + writes
    writer = keep_writing(door, writes)
    while len(seen) < 2 * end and (not seen or seen[-1] < end):
        last = str(resume(seen[-1])) if seen else None
        seen += [int(one[0]) for one in follow(door, "/events", last=last, most=random.randint(2, 12), upto=end)]
    writer.join()
    return seen


def test_a_follower_who_comes_back_misses_nothing_and_sees_nothing_twice(door: Door) -> None:
    """Hung up and resumed at random points while a writer writes, every position comes exactly once, in order."""
    end = door.client.head().entries + WRITES
    assert resumed_at_random(door, 1) == list(range(1, end + 1))


@pytest.mark.parametrize("resume", [lambda last: last - 1, lambda last: last + 1], ids=["inclusive", "skipping"])
def test_sabotage_a_resume_off_by_one_is_found(door: Door, resume: Callable[[int], int]) -> None:
    """Twin: a resume that begins with the last event again, or leaves one out, breaks what is asserted above."""
    end = door.client.head().entries + WRITES_OF_TWIN

    def wrongly(last: int) -> int:
        at = min(resume(last), end - 1)
        until(lambda: door.client.head().entries >= at)  # the server refuses what it has not written yet
        return at

    seen = resumed_at_random(door, 1, wrongly, writes=WRITES_OF_TWIN)
    assert seen != list(range(1, end + 1))


def test_an_event_is_the_entry_as_stored(door: Door) -> None:
    """id is the position, event the tag, and data holds the stored bytes."""
    (position, tag, data), *_ = follow(door, "/events", most=1)
    ((stored, body),) = door.client.ledger.recorder.bodies(after=0, limit=1)
    assert (position, tag) == (str(stored), "project-created")
    assert data == {"position": stored, "entry": msgspec.json.decode(body)}


def test_new_entries_come_soon(door: Door) -> None:
    """An entry that is written while one listens arrives within a second or two, not with the next ping."""
    head = door.client.head().entries
    took: list[float] = []

    def listen() -> None:
        follow(door, "/events", last=str(head), most=1)
        took.append(time.monotonic())

    listener = threading.Thread(target=listen)
    listener.start()
    time.sleep(0.5)
    door.post("/jobs", JOB, 201)
    wrote_s = time.monotonic()
    listener.join(10)
    assert took
    assert took[0] - wrote_s < 3


def test_a_job_is_followed_alone(door: Door) -> None:
    """Only the entries about the job come, also those that are written while one listens."""
    job = door.post("/jobs", JOB, 201)["id"]
    door.post("/jobs", JOB, 201)
    writer = threading.Timer(0.3, lambda: door.post(f"/jobs/{job}/cancel", {"reason": ""}, 200))
    writer.start()
    found = follow(door, f"/jobs/{job}/events", most=2)
    writer.join()
    assert [one[1] for one in found] == ["job-submitted", "job-canceled"]


def test_a_stream_ends_when_the_key_is_revoked(door: Door) -> None:
    """Who listens with a key that is revoked hears nothing more within about a second."""
    issued = door.client.issue_key("listener", ["read"])
    with door.with_key(issued.key) as http, connect_sse(http, "GET", "/events", headers=FOLLOW) as source:
        events = source.iter_sse()
        next(events)
        door.client.revoke_key(issued.id)
        began_s = time.monotonic()
        list(events)
        assert time.monotonic() - began_s < 5


def test_who_does_not_read_holds_no_connection(door: Door) -> None:
    """Ten listeners who read nothing leave the store's connections as they are while nothing is written."""
    pool = door.served.workspace.engine.pool
    assert isinstance(pool, QueuePool)
    time.sleep(0.5)
    before = min(pool.checkedout() for _ in range(20) if not time.sleep(0.02))  # type: ignore[func-returns-value]
    streams = []
    http = door.with_key(door.key)
    for _ in range(10):
        stream = http.stream("GET", "/events", headers=FOLLOW)
        stream.__enter__()
        streams.append(stream)
    free = 0
    for _ in range(20):
        time.sleep(0.05)
        free += pool.checkedout() <= before
    for stream in streams:
        stream.__exit__(None, None, None)
    assert free >= 5


def test_what_cannot_be_followed_is_refused(door: Door) -> None:
    """A position beyond the log, one that is no number, an end, an unknown job: a problem, not a stream."""
    for path, params, headers, status in (
        ("/events", {"after": 10**9}, FOLLOW, 422),
        ("/events", {}, FOLLOW | {"Last-Event-ID": "x"}, 400),
        ("/events", {"before": 5}, FOLLOW, 400),
        ("/jobs/6f1c2e5a-1f0e-5a53-9f6e-0d8f2a4b7c11/events", {}, FOLLOW, 404),
    ):
        answer = door.http.get(path, params=params, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_streams_are_bounded(served: Served, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes when there are as many streams as the server keeps is told to come again later."""
    monkeypatch.setattr("api.live.STREAMS_MAX", 0)
    answer = door.http.get("/events", headers=FOLLOW)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    """A server with listeners stops in time, and the listener's stream ends."""
    ended: list[float] = []
    with serving(tmp_path) as running:
        door = running.project()
        started = threading.Event()

        def listen() -> None:
            try:
                with connect_sse(door.http, "GET", "/events", headers=FOLLOW) as source:
                    for _ in source.iter_sse():
                        started.set()
            except httpx.HTTPError:
                pass
            ended.append(time.monotonic())

        listener = threading.Thread(target=listen)
        listener.start()
        assert started.wait(10)
        began_s = time.monotonic()
    listener.join(10)
    assert ended
    assert ended[0] - began_s < 4
