"""A PostgreSQL that goes away under its writers: restarted at once, sessions cut. Synced, on a server of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import count, islice
from random import Random
from threading import Event
from typing import Any, NamedTuple

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger import database
from ledger.codec import Row
from ledger.database import create_tables, log_heads, open_database, reading, writing
from ledger.errors import BadInput, StoreUnreachable
from ledger.facts.access import ProjectCreated
from ledger.recorder import ProjectRecorder
from projections.following import catch_up, rebuild
from projections.models import READ_MODELS
from tests import postgres
from tests.given import dump, entry, faults_of_log, fresh_project, history, rows_of

WRITERS = 4
FAILURES = 6  # every second one restarts the server, the others cut all sessions
BETWEEN_S = 0.4
# A server that acknowledges what it has not written out, and then takes its time.
LAZY = ("synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=64MB")


@pytest.fixture
def url() -> str:
    """A database of its own on the durable server."""
    return postgres.fresh_url(postgres.durable_server().url)


class Acknowledged(NamedTuple):
    """What a writer was told: positions, and what it had sent for them."""

    first: int
    last: int
    sha: str


def restart(server: postgres.Server) -> None:
    """As `pg_ctl restart -m immediate`."""
    server.restart()


def cut_sessions(server: postgres.Server) -> None:
    """Every session but our own."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def insisting(do: Any) -> Any:
    """Do it again until the store answers: the same content each time, so a lost reply makes no second entry."""
    for _ in range(1_000):
        try:
            return do()
        except StoreUnreachable:
            time.sleep(0.02)
    raise AssertionError("the store never came back")


def batches(project: str, writer: int) -> Iterator[list[Row]]:
    """Single entries and bulk, in turns."""
    for number in count():
        size = (1, 5, 60)[number % 3]
        yield rows_of(*(entry(ProjectCreated(project), f"w{writer}/{number}/{i}") for i in range(size)))


def load(url: str, project: str, writer: int, stop: Event) -> list[Acknowledged]:
    """One writer, over its own connections."""
    engine = open_database(url)
    recorder = ProjectRecorder(engine, project)
    told: list[Acknowledged] = []
    for rows in batches(project, writer):
        if stop.is_set():
            break
        told.append(insisting(partial(acknowledged, recorder, rows)))
    engine.dispose()
    return told


def acknowledged(recorder: ProjectRecorder, rows: list[Row]) -> Acknowledged:
    """Append, and take down what it says."""
    positions = [outcome.position for outcome in recorder.append(rows)]
    assert positions == list(range(positions[0], positions[0] + len(rows)))
    return Acknowledged(positions[0], positions[-1], digest([row.body for row in rows]))


def digest(bodies: list[bytes]) -> str:
    return sha256(b"\n".join(bodies)).hexdigest()


def faults(engine: Engine, project: str, told: list[Acknowledged]) -> list[str]:
    """What is wrong with the log, or with what had been acknowledged."""
    found = faults_of_log(engine, project)
    bodies = [body for _, body in ProjectRecorder(engine, project).bodies(after=0, limit=10**9)]
    found += [
        f"{one.first} to {one.last} are not there"
        for one in told
        if digest(bodies[one.first - 1 : one.last]) != one.sha
    ]
    if len(bodies) != sum(one.last - one.first + 1 for one in told):
        found.append("there is something that nobody was told of, or something twice")
    return found


def test_nothing_acknowledged_is_lost_or_doubled_when_the_server_goes_away(url: str) -> None:
    """Restarted and cut off under load, writers that send again what they heard nothing of end with each entry once;
    the read models go on, and equal rebuilt ones.
    """
    server, project, stop, random = postgres.durable_server(), fresh_project(), Event(), Random(3)
    engine = open_database(url)
    create_tables(engine)
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        writers = [pool.submit(load, url, project, writer, stop) for writer in range(WRITERS)]
        follower = pool.submit(follow, url, project, stop)
        for number in range(FAILURES):
            time.sleep(BETWEEN_S * (0.5 + random.random()))
            (restart, cut_sessions)[number % 2](server)
        time.sleep(BETWEEN_S)
        stop.set()
        told = [one for writer in writers for one in writer.result(60)]
        follower.result(60)
    assert len(told) > FAILURES * WRITERS
    assert insisting(lambda: faults(engine, project, told)) == []
    catch_up(engine, project, READ_MODELS)
    live = dump(engine, project, READ_MODELS)
    rebuild(engine, project, READ_MODELS)
    assert dump(engine, project, READ_MODELS) == live
    engine.dispose()


def follow(url: str, project: str, stop: Event) -> None:
    engine = open_database(url)
    while not stop.is_set():
        insisting(lambda: catch_up(engine, project, READ_MODELS, batch_entries=50))
    engine.dispose()


def test_sabotage_a_commit_that_waits_for_no_disk_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same check goes red: with `synchronous_commit=off` a restart takes acknowledged entries with it."""
    server = postgres.Server(fsync=True, settings=LAZY)
    try:
        assert lost_by_a_restart(server) == []  # ours insists on it, whatever the server's default is
        monkeypatch.setattr(database, "_prepare_postgresql", lambda connection, _record: None)
        assert lost_by_a_restart(server)
    finally:
        server.stop()


def lost_by_a_restart(server: postgres.Server) -> list[str]:
    """What had been acknowledged before a restart and is not there after it."""
    engine, project = open_database(postgres.fresh_url(server.url)), fresh_project()
    create_tables(engine)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")  # the tables, at least, are there in either case
    told = [acknowledged(ProjectRecorder(engine, project), rows) for rows in islice(batches(project, 0), 9)]
    engine.dispose()
    server.restart()
    return faults(engine, project, told)


# --- what a person is told, and connections that were cut ------------------------------------------------------------


def test_a_pool_of_cut_connections_is_no_trouble(url: str) -> None:
    """After a restart at rest, the next reading and the next writing simply work: nobody sees an error."""
    engine, project = open_database(url), fresh_project()
    create_tables(engine)
    recorder = ProjectRecorder(engine, project)
    for end in (restart, cut_sessions):
        with reading(engine), reading(engine), reading(engine):
            pass
        before = recorder.head().size
        end(postgres.durable_server())
        time.sleep(0.1)
        recorder.append(rows_of(entry(ProjectCreated("x"), f"s{before}")))
        assert recorder.head().size == before + 1
    engine.dispose()


def test_who_waits_is_woken_again_after_a_restart(url: str) -> None:
    """The listener's connection comes back by itself, and what was appended meanwhile is looked for."""
    engine, other = open_database(url), open_database(url)
    create_tables(engine)
    recorder, waker = ProjectRecorder(engine, "p"), Event()
    recorder._listener.add("p", waker)
    assert waker.wait(10)
    restart(postgres.durable_server())
    waker.clear()
    assert waker.wait(10)
    until = time.monotonic() + 10
    while recorder._listener.poll_s < 1 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    waker.clear()
    ProjectRecorder(other, "p").append(rows_of(entry(ProjectCreated("x"), "s")))
    assert waker.wait(5)
    recorder._listener.close()
    engine.dispose()
    other.dispose()


@pytest.mark.parametrize("rest", ["hunter2@{host}:1/el", "{host}:1/el?password=hunter2"])
def test_a_server_that_is_away_is_said_in_one_line_without_the_password(rest: str) -> None:
    """Where it should be, what the driver says, what to check; nothing that gives access."""
    url = f"postgres://somebody{':' if '@' in rest else '@'}{rest.format(host='127.0.0.1')}"
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1.*EL_DATABASE_URL") as told:
        ProjectRecorder(open_database(url), "p").head()
    assert "hunter2" not in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("url", ["", "ledger.db", "mysql://u:hunter2@h/d", "postgresql://u:hunter2@h:port/d"])
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    """It may hold a password."""
    with pytest.raises(BadInput, match="EL_DATABASE_URL") as told:
        open_database(url)
    assert "hunter2" not in str(told.value)


@pytest.mark.both_databases
@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_database_takes_finds_nothing_or_is_refused(engine: Engine, text: str) -> None:
    """A name with a NUL or a lone surrogate is bad input, never trouble of the store."""
    with suppress(BadInput):
        assert ProjectRecorder(engine, text).head().size == 0


def test_a_transaction_reads_one_moment_and_writes_nothing(url: str) -> None:
    """What is committed while a reading goes on is not seen in it; writing in it is refused."""
    engine = open_database(url)
    create_tables(engine)
    size = sa.select(sa.func.count()).select_from(log_heads)
    with reading(engine) as connection:
        assert connection.execute(size).scalar_one() == 0
        ProjectRecorder(engine, "p").append(rows_of(entry(ProjectCreated("x"), "s")))
        assert connection.execute(size).scalar_one() == 0
        with pytest.raises(sa.exc.InternalError):
            connection.execute(log_heads.delete())
    with writing(engine) as connection:
        assert connection.execute(size).scalar_one() == 1
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
    engine.dispose()


def test_text_is_ordered_by_code_point(url: str) -> None:
    """Whatever the database was created with: as SQLite and Python order it."""
    engine = open_database(url)
    create_tables(engine)
    with reading(engine) as connection:
        found = connection.exec_driver_sql(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema() "
            "AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"
        ).all()
    assert found == []
    engine.dispose()


def test_many_processes_may_make_the_tables_at_once(url: str) -> None:
    """One makes them, the others find them."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: create_tables(open_database(url)), range(8)))
    engine = open_database(url)
    project = fresh_project()
    ProjectRecorder(engine, project).append_new(rows_of(*history(1, 40)))
    assert faults_of_log(engine, project) == []
