"""Sixteen writers, some of which give up, and one that is slow to commit: a follower sees every position, in order."""

from __future__ import annotations

import fcntl
import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread
from typing import Any, NamedTuple, Protocol

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger import subscription
from ledger.database import create_tables, open_database, reading, writing
from ledger.facts.access import ProjectCreated
from ledger.recorder import ProjectRecorder
from tests import postgres
from tests.given import entry, faults_of_log, rows_of

WRITERS = 16
TRANSACTIONS = 12  # of each writer; every fourth is given up
LEFT_OPEN_S = 2.0


class Log(Protocol):
    """A log under test: a transaction that adds entries and ends with `then`, and a follower's next look."""

    def add(self, writer: int, number: int, then: Callable[[], None]) -> list[int]: ...

    def after(self, last: int) -> list[int]: ...


class Followed(NamedTuple):
    """What was committed, and what a follower saw meanwhile, in the order of its seeing."""

    committed: list[int]
    seen: list[int]


class GivenUp(Exception):
    """A writer changes its mind before it commits."""


def give_up() -> None:
    raise GivenUp


def followed(open_log: Callable[[], Log]) -> Followed:
    """Let all of them write, each over connections of its own, and follow until there is nothing more."""
    done, slow_holds = Event(), Event()
    committed: list[int] = []
    seen: list[int] = []

    def follow() -> None:
        log = open_log()
        while True:
            was_done = done.is_set()
            new = log.after(max(seen, default=0))
            seen.extend(new)
            if was_done and not new:
                return
            time.sleep(0.002)

    def write(writer: int) -> None:
        log = open_log()
        if writer:
            slow_holds.wait(10)
        for number in range(TRANSACTIONS):
            if writer == 0 and number == 0:
                committed.extend(log.add(writer, number, lambda: slow_holds.set() or time.sleep(LEFT_OPEN_S)))
            elif number % 4 == 3:
                with pytest.raises(GivenUp):
                    log.add(writer, number, give_up)
            else:
                committed.extend(log.add(writer, number, lambda: None))

    follower = Thread(target=follow)
    follower.start()
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, range(WRITERS)))
    finally:
        done.set()
        follower.join(30)
    assert not follower.is_alive()
    return Followed(committed, seen)


class Ours(NamedTuple):
    """Positions under the head row."""

    recorder: ProjectRecorder

    def add(self, writer: int, number: int, then: Callable[[], None]) -> list[int]:
        rows = rows_of(*(entry(ProjectCreated("x"), f"w{writer}/{number}/{i}") for i in range(number * 3 + 1)))
        with self.recorder.appending() as append:
            first = append(rows)
            then()
        return list(range(first, first + len(rows)))

    def after(self, last: int) -> list[int]:
        return [position for position, _ in self.recorder.bodies(after=last, limit=1_000)]


@contextmanager
def engines_of(url: str) -> Iterator[Callable[[], Engine]]:
    """Engines of one's own for each writer, closed at the end."""
    made: list[Engine] = []

    def make() -> Engine:
        made.append(open_database(url))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


@pytest.mark.both_databases
def test_a_follower_sees_every_position_in_order_and_none_twice(store_url: str) -> None:
    """While 16 write, every fourth transaction is undone and one stays open for seconds: 1, 2, 3, ... without a gap."""
    with engines_of(store_url) as make:
        engine = make()
        create_tables(engine)
        found = followed(lambda: Ours(ProjectRecorder(make(), "p")))
        assert len(found.committed) > WRITERS * TRANSACTIONS
        assert sorted(found.committed) == list(range(1, len(found.committed) + 1))
        assert found.seen == sorted(found.committed)
        assert faults_of_log(engine, "p") == []


naive = sa.Table("naive_log", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("x", sa.Text))


class Naive(NamedTuple):
    """What most event stores do: ids from a sequence, and a follower that asks for those above its last one."""

    engine: Engine

    def add(self, writer: int, number: int, then: Callable[[], None]) -> list[int]:
        with writing(self.engine) as connection:
            ids = [
                connection.execute(
                    naive.insert().values(x=f"w{writer}/{number}/{i}").returning(naive.c.id)
                ).scalar_one()
                for i in range(number * 3 + 1)
            ]
            then()
        return ids

    def after(self, last: int) -> list[int]:
        with reading(self.engine) as connection:
            query = sa.select(naive.c.id).where(naive.c.id > last).order_by(naive.c.id).limit(1_000)
            return list(connection.execute(query).scalars())


def test_sabotage_ids_from_a_sequence_are_missed() -> None:
    """The same writers and the same follower over a table with a sequence: some of what was committed is never seen."""
    with engines_of(postgres.fresh_url()) as make:
        naive.create(make())
        found = followed(lambda: Naive(make()))
        assert set(found.seen) < set(found.committed)


def test_a_follower_is_woken_by_other_processes() -> None:
    """LISTEN and NOTIFY: what others append is seen at once, not only at the next look; of other projects, nothing."""
    with engines_of(postgres.fresh_url()) as make:
        create_tables(make())
        # An engine of its own stands for another process: it shares nothing with the follower's but the server.
        follower, other = ProjectRecorder(make(), "p"), ProjectRecorder(make(), "p")
        with follower.subscribe() as subscription:
            arrived: list[float] = []
            thread = Thread(target=lambda: arrived.extend(time.monotonic() for _ in subscription), daemon=True)
            thread.start()
            left: list[float] = []
            for number in count():
                if number == 10:
                    break
                time.sleep(0.05)
                left.append(time.monotonic())
                other.append(rows_of(entry(ProjectCreated("x"), f"s{number}")))
            until = time.monotonic() + 10
            while len(arrived) < 10 and time.monotonic() < until:
                time.sleep(0.01)
            subscription.stop()
            thread.join(5)
        assert len(arrived) == 10
        delays = sorted(at - sent for at, sent in zip(arrived, left, strict=True))
        assert delays[5] < 0.5, "as slow as looking once a second"


def test_nobody_is_woken_for_another_project() -> None:
    """A wake names its project; whoever asked for any project hears of each."""
    with engines_of(postgres.fresh_url()) as make:
        create_tables(make())
        listener: Any = ProjectRecorder(make(), "mine")._listener
        mine, any_project = Event(), Event()
        listener.add("mine", mine)
        listener.add(None, any_project)
        until = time.monotonic() + 10
        while listener.poll_s < 1 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)  # the wakes of its beginning
        mine.clear()
        any_project.clear()
        ProjectRecorder(make(), "other").append(rows_of(entry(ProjectCreated("x"), "s")))
        assert any_project.wait(5)
        assert not mine.is_set()
        ProjectRecorder(make(), "mine").append(rows_of(entry(ProjectCreated("x"), "s")))
        assert mine.wait(5)
        listener.close()


def test_a_listener_waits_on_files_of_any_number() -> None:
    """A server with many open connections has files numbered beyond 1,023, where `select` gives up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2_048)), hard))
    ended, end = os.pipe()
    try:
        high = fcntl.fcntl(ended, fcntl.F_DUPFD, 1_024)
        assert not subscription._has_ended(high, 0.01)
        os.close(end)
        assert subscription._has_ended(high, 5)
        os.close(high)
    finally:
        os.close(ended)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
