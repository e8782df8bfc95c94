"""Promises of the log: dense positions in commit order, all or none, repeats are harmless, projects are apart."""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from sqlalchemy.engine import Connection, Engine

from ledger import leases
from ledger.appending import Appending
from ledger.application import Ledger
from ledger.checking import check_log
from ledger.codec import Row
from ledger.database import create_tables, entries, log_heads, open_database, reading, wal_is_safe, writing
from ledger.errors import ConcurrentWrite, DamagedStore, StoreUnreachable
from ledger.facts.access import ProjectCreated
from ledger.facts.trial import RewardRecorded, TrialDispatched, TrialStarted
from ledger.merkle import EMPTY_ROOT
from ledger.recorder import Outcome, ProjectRecorder
from ledger.rules import access, trial
from tests.given import (
    NOW,
    dispatched,
    entry,
    faults_of_log,
    fresh_project,
    history,
    naive_root,
    rows_of,
    tables_without_the_unique_index,
)

pytestmark = pytest.mark.both_databases


def row(stream: str, version: int = 1, name: str = "x", *, minutes: int = 0) -> Row:
    """One entry ready to be stored."""
    at = NOW + timedelta(minutes=minutes)
    return rows_of(entry(ProjectCreated(name), stream, version, at=at))[0]


def bodies(recorder: ProjectRecorder) -> list[bytes]:
    return [body for _, body in recorder.bodies(after=0, limit=10**6)]


@pytest.fixture
def recorder(engine: Engine, project: str) -> ProjectRecorder:
    return ProjectRecorder(engine, project)


# --- positions, all or none ------------------------------------------------------------------------------------------


def test_positions_count_from_1_without_gaps(recorder: ProjectRecorder) -> None:
    """1, 2, 3, ... and what was refused uses none up."""
    assert recorder.head() == (0, EMPTY_ROOT)
    assert recorder.max_notification_id() is None
    assert recorder.append_new([row("a"), row("b")]) == range(1, 3)
    with pytest.raises(ConcurrentWrite):
        recorder.append_new([row("c"), row("a")])
    assert recorder.append_new([row("c")]) == range(3, 4)
    assert [position for position, _ in recorder.bodies(after=0, limit=9)] == [1, 2, 3]


def test_append_new_writes_all_or_none(recorder: ProjectRecorder) -> None:
    """One taken version keeps the whole batch out, and leaves no trace in head or root."""
    recorder.append_new([row("a")])
    before = recorder.head()
    for batch in ([row("b"), row("a")], [row("b"), row("b")]):
        with pytest.raises(ConcurrentWrite):
            recorder.append_new(batch)
        assert recorder.head() == before
    assert bodies(recorder) == [row("a").body]


def test_nothing_to_append_is_nothing_written(recorder: ProjectRecorder, engine: Engine) -> None:
    """An empty batch is harmless in every way of appending."""
    assert recorder.append([]) == []
    assert list(recorder.append_new([])) == []
    assert recorder.insert_events([]) is None
    assert Ledger(engine, recorder.project_id).record_new([[], []]) == 0
    assert recorder.head().size == 0


def test_each_row_of_a_batch_has_its_own_outcome(recorder: ProjectRecorder) -> None:
    """Appended, repeated whatever the time it was recorded at, or conflicting: none keeps the others out."""
    recorder.append([row("a"), row("b")])
    outcomes = recorder.append(
        [
            row("new"),
            row("a", minutes=5),
            row("b", name="other"),
            row("new", 2),
            row("new", 2, minutes=1),
            row("new", 2, "y"),
        ]
    )
    assert outcomes == [
        (3, "appended"), (1, "repeated"), (2, "conflicting"), (4, "appended"), (4, "repeated"), (4, "conflicting"),
    ]  # fmt: skip
    assert bodies(recorder) == [row("a").body, row("b").body, row("new").body, row("new", 2).body]


def test_a_batch_of_repeats_writes_nothing(recorder: ProjectRecorder) -> None:
    """Head and root stay as they are."""
    rows = [row(f"s{i}") for i in range(50)]
    recorder.append(rows)
    before = recorder.head()
    assert [outcome.kind for outcome in recorder.append(rows)] == ["repeated"] * 50
    assert recorder.head() == before


@settings(max_examples=40)
@for_all(
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.sampled_from("xy")), max_size=6), max_size=8)
)
def test_the_log_is_what_a_plain_list_would_be(engine: Engine, batches: list[list[tuple[int, int, str]]]) -> None:
    """After any sequence of appends: outcomes and contents as of a list with a dictionary, and the root over them."""
    recorder = ProjectRecorder(engine, fresh_project())
    log: list[bytes] = []
    taken: dict[tuple[str, int], tuple[int, str]] = {}
    for batch in batches:
        expected = []
        for number, version, name in batch:
            key = (f"s{number}", version)
            if key not in taken:
                log.append(row(*key, name).body)
                taken[key] = (len(log), name)
                expected.append(Outcome(len(log), "appended"))
            else:
                position, had = taken[key]
                expected.append(Outcome(position, "repeated" if had == name else "conflicting"))
        assert recorder.append([row(f"s{number}", version, name) for number, version, name in batch]) == expected
        assert recorder.head() == (len(log), naive_root(log))
    assert bodies(recorder) == log


# --- in the same transaction -----------------------------------------------------------------------------------------


def lease_of(stream: str) -> Callable[[Connection], None]:
    return lambda connection: leases.take(connection, "p", stream, worker="w", until=NOW)


def has_lease(engine: Engine, stream: str) -> bool:
    with reading(engine) as connection:
        query = sa.select(leases.leases).where(leases.leases.c.stream_id == stream)
        return connection.execute(query).first() is not None


def test_what_goes_with_an_append_is_written_with_it(recorder: ProjectRecorder, engine: Engine) -> None:
    """Once, on the quick way and on the careful one."""
    recorder.append_new([row("a")], also=lease_of("also-1"))
    recorder.append([row("a"), row("b")], also=lease_of("also-2"))
    assert has_lease(engine, "also-1")
    assert has_lease(engine, "also-2")


def test_what_goes_with_an_append_goes_with_it_when_it_is_undone(recorder: ProjectRecorder, engine: Engine) -> None:
    """Refused rows leave nothing beside the log, and an error beside the log leaves nothing in it."""
    recorder.append_new([row("a")])

    def fails(connection: Connection) -> None:
        lease_of("also-4")(connection)
        raise RuntimeError("after the insert")

    with pytest.raises(ConcurrentWrite):
        recorder.append_new([row("a")], also=lease_of("also-3"))
    for append in (recorder.append_new, recorder.append):
        with pytest.raises(RuntimeError):
            append([row("b")], also=fails)
    assert not has_lease(engine, "also-3")
    assert not has_lease(engine, "also-4")
    assert recorder.head().size == 1
    assert faults_of_log(engine, recorder.project_id) == []


# --- projects --------------------------------------------------------------------------------------------------------


def test_projects_never_see_each_other(engine: Engine) -> None:
    """The same streams, versions and positions in two projects of one database: other entries, other roots."""
    one, two = (ProjectRecorder(engine, fresh_project()) for _ in range(2))
    one.append([row("a", name="one"), row("b")])
    assert two.head() == (0, EMPTY_ROOT)
    assert two.append([row("a", name="two")]) == [(1, "appended")]
    assert bodies(two) == [row("a", name="two").body]
    assert two.bodies_of(["a", "b"]) == {"a": [(1, row("a", name="two").body)], "b": []}
    assert [n.id for n in two.select_notifications(1, 10)] == [1]
    assert len(two.select_events("a")) == 1
    assert two.select_events("b") == []
    assert one.head().size == 2


def test_reading_many_streams_at_once(recorder: ProjectRecorder) -> None:
    """More streams than one statement may name come back in version order, absent ones empty."""
    rows = [row(f"s{i}", version) for version in (1, 2) for i in range(450)]
    recorder.append_new(rows)
    found = recorder.bodies_of([f"s{i}" for i in range(500)])
    assert [found[f"s{i}"] for i in (0, 449)] == [
        [(1, rows[0].body), (451, rows[450].body)],
        [(450, rows[449].body), (900, rows[899].body)],
    ]
    assert found["s499"] == []


# --- at the same time ------------------------------------------------------------------------------------------------


def append_some(url: str, project: str, writer: str, batches: int) -> list[Outcome]:
    """One of several writers: batches that hold rows of its own and a row that all of them write."""
    engine = open_database(url)
    recorder = ProjectRecorder(engine, project)
    outcomes = []
    for number in range(batches):
        rows = [row(f"{writer}/{number}/{i}") for i in range(number % 5)] + [row(f"shared/{number}")]
        outcomes += recorder.append(rows)
    engine.dispose()
    return outcomes


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_writers_at_the_same_time_leave_no_gap_and_no_duplicate(kind: str, store_url: str) -> None:
    """Whoever comes first wins a version, the others are told it is a repeat; every position is given out once."""
    engine = open_database(store_url)
    create_tables(engine)
    work = [(store_url, "p", f"w{n}", 15) for n in range(4)]
    if kind == "threads":
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(append_some, *zip(*work, strict=True)))
    else:
        engine.dispose()
        with multiprocessing.get_context("fork").Pool(4) as pool:
            results = pool.starmap(append_some, work)
    appended = [o.position for outcomes in results for o in outcomes if o.kind == "appended"]
    assert sorted(appended) == list(range(1, 4 * 30 + 15 + 1))
    assert sum(o.kind == "repeated" for outcomes in results for o in outcomes) == 3 * 15
    assert faults_of_log(engine, "p") == []
    engine.dispose()


def test_deciding_at_the_same_time_ends_in_one_decision(store_url: str) -> None:
    """Many ask the same rule on the same stream: one fact, and everybody is told where it stands."""
    engine = open_database(store_url)
    create_tables(engine)
    given_out = dispatched()
    with ThreadPoolExecutor(6) as pool:
        ask = partial(trial.dispatch, dispatched=given_out)
        written = list(pool.map(lambda _: Ledger(engine, "p").record("trial/j/1/add-1", ask), range(12)))
    assert sorted(len(w.facts) for w in written) == [0] * 11 + [1]
    assert {w.position for w in written} == {1}
    engine.dispose()


# --- after an ambiguous commit ---------------------------------------------------------------------------------------


class LosesReplies(ProjectRecorder):
    """Commits, and then the connection is gone before the caller hears of it."""

    lost = 1

    @contextmanager
    def appending(self) -> Iterator[Appending]:
        with super().appending() as append:
            yield append
        if self.lost:
            self.lost -= 1
            raise StoreUnreachable("the reply was lost")


def test_a_retry_after_a_lost_reply_finds_its_own_entries(engine: Engine, project: str) -> None:
    """The commit succeeded, the caller saw an error: the same batch again is a repeat at the same positions."""
    recorder = LosesReplies(engine, project)
    with pytest.raises(StoreUnreachable):
        recorder.append([row("a"), row("b")])
    assert recorder.append([row("a", minutes=1), row("b", minutes=1), row("c")]) == [
        (1, "repeated"), (2, "repeated"), (3, "appended"),
    ]  # fmt: skip
    assert faults_of_log(engine, project) == []


def test_a_decision_after_a_lost_reply_is_not_taken_twice(engine: Engine, project: str) -> None:
    """The rule sees the fact that its first attempt had recorded, and says there is nothing new."""
    ledger = Ledger(engine, project)
    ledger.log.recorder = ledger.log.events.recorder = LosesReplies(engine, project)
    ask = partial(access.create_project, name="default")
    with pytest.raises(StoreUnreachable):
        ledger.record("project", ask)
    assert ledger.record("project", ask) == (1, ())


# --- the ledger over it ----------------------------------------------------------------------------------------------


def test_rules_asked_together_see_what_the_ones_before_returned(engine: Engine, project: str) -> None:
    """Dispatch, start and reward in one transaction, one version after the other."""
    ledger = Ledger(engine, project, actor="worker-1", clock=lambda: NOW)
    rules = [partial(trial.dispatch, dispatched=dispatched()), trial.start, partial(trial.record_reward, reward=1)]
    written = ledger.record("trial/j/1/add-1", *rules, key="k1")
    assert written == (3, (dispatched(), TrialStarted(), RewardRecorded(1.0)))
    assert [(r.position, r.entry.version, r.entry.actor, r.entry.key) for r in ledger.stream("trial/j/1/add-1")] == [
        (1, 1, "worker-1", "k1"), (2, 2, "worker-1", "k1"), (3, 3, "worker-1", "k1"),
    ]  # fmt: skip
    assert ledger.state("trial/j/1/add-1").reward == 1.0
    assert ledger.state("trial/j/2/add-1") is None


def test_many_streams_in_one_transaction_say_where_each_stands(engine: Engine, project: str) -> None:
    """New facts, several on one stream, and a repeat: each has the last position of its own stream."""
    ledger = Ledger(engine, project)
    streams = [f"trial/j/{n}/add-1" for n in (1, 2, 3)]
    give = [partial(trial.dispatch, dispatched=dispatched(attempt=n)) for n in (1, 2, 3)]
    ledger.record(streams[1], give[1])
    written = ledger.record_all(
        [(streams[0], [give[0], trial.start]), (streams[1], [give[1]]), (streams[2], [give[2]])]
    )
    assert [w.position for w in written] == [3, 1, 4]
    assert [len(w.facts) for w in written] == [2, 0, 1]
    for stream, w in zip(streams, written, strict=True):
        assert ledger.stream(stream)[-1].position == w.position
    assert [w.position for w in ledger.record_all([(streams[0], [give_again]), (streams[2], [give[2]])])] == [3, 4]


def give_again(_state: Any) -> list[TrialDispatched]:
    return []


def test_many_streams_are_recorded_or_none(engine: Engine, project: str) -> None:
    """One refusal keeps them all out; a stream named twice is a mistake that is said at once."""
    ledger = Ledger(engine, project)
    ask = partial(trial.dispatch, dispatched=dispatched())
    with pytest.raises(Exception, match="not dispatched"):
        ledger.record_all([("trial/j/1/a", [ask]), ("trial/j/2/a", [trial.start])])
    with pytest.raises(ValueError, match="named twice"):
        ledger.record_all([("trial/j/1/a", [ask]), ("trial/j/1/a", [trial.start])])
    assert ledger.head().size == 0


def test_record_new_is_one_transaction(engine: Engine, project: str) -> None:
    """Batches of an import come in together or not at all, and an existing stream is refused."""
    ledger = Ledger(engine, project)
    ask = partial(trial.dispatch, dispatched=dispatched())
    batches = [[(f"trial/j/{b}/{i}", [ask, trial.start]) for i in range(3)] for b in (1, 2)]
    assert ledger.record_new(batches) == 12
    with pytest.raises(ConcurrentWrite):
        ledger.record_new([[("trial/j/9/new", [ask])], *batches])
    assert ledger.head().size == 12
    assert faults_of_log(engine, project) == []


def test_reading_a_log_in_order_and_up_to_a_position(engine: Engine, project: str, monkeypatch: Any) -> None:
    """In batches of any size, from after a position, to a position and no further."""
    monkeypatch.setattr("ledger.application.READ_BATCH", 3)
    ledger = Ledger(engine, project)
    ledger.recorder.append_new([row(f"dataset/{i}") for i in range(10)])
    assert [r.position for r in ledger.entries()] == list(range(1, 11))
    assert [r.position for r in ledger.entries(after=2, upto=7)] == [3, 4, 5, 6, 7]
    assert list(ledger.entries(after=10)) == []


def test_a_subscription_is_woken_and_ends(recorder: ProjectRecorder) -> None:
    """A follower that waits hears of an append of this process, and of being stopped, without being asked."""
    subscription = recorder.subscribe()
    seen: list[int] = []
    thread = Thread(target=lambda: seen.extend(n.id for n in subscription))
    thread.start()
    for i in range(20):
        recorder.append_new([row(f"s{i}")])
    while len(seen) < 20 and thread.is_alive():
        thread.join(0.01)
    subscription.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert seen == list(range(1, 21))


# --- sabotage: what these tests must notice --------------------------------------------------------------------------


class Store(NamedTuple):
    """A log as the schedule below sees it: a writer that has its position but not committed, another, a reader."""

    hold: Callable[[Event, Event], None]
    write: Callable[[], None]
    after: Callable[[int], list[int]]


def followed_across_an_uncommitted_write(store: Store) -> list[int]:
    """What a follower sees that asks for `position > last` while one writer is slow to commit and another is not."""
    seen: list[int] = []
    holding, go_on = Event(), Event()
    slow = Thread(target=store.hold, args=(holding, go_on))
    quick = Thread(target=store.write)
    slow.start()
    holding.wait(5)
    quick.start()
    quick.join(0.2)  # with positions under the head row it waits for the slow one
    seen += store.after(seen[-1] if seen else 0)
    go_on.set()
    slow.join(5)
    quick.join(5)
    return seen + store.after(seen[-1] if seen else 0)


def test_a_follower_never_passes_an_uncommitted_entry(store_url: str) -> None:
    """Who has seen position n has seen all before it, however slow the commits."""
    engine = open_database(store_url)
    create_tables(engine)
    recorder = ProjectRecorder(engine, "p")

    def hold(holding: Event, go_on: Event) -> None:
        with recorder.appending() as append:
            append([row("slow")])
            holding.set()
            go_on.wait(5)

    def after(last: int) -> list[int]:
        # SQLite's rollback journal lets nobody read while a commit is under way: that is a wait, not a gap.
        return [position for position, _ in recorder.bodies(after=last, limit=9)]

    store = Store(hold, lambda: recorder.append([row("quick")]) and None, after)
    assert followed_across_an_uncommitted_write(store) == [1, 2]
    engine.dispose()


def test_sabotage_positions_given_out_before_the_commit_lose_entries() -> None:
    """The same schedule on a log that takes positions from a sequence: the slow entry is never seen."""
    committed: list[int] = []
    sequence = iter([1, 2])

    def hold(holding: Event, go_on: Event) -> None:
        position = next(sequence)
        holding.set()
        go_on.wait(5)
        committed.append(position)

    store = Store(hold, lambda: committed.append(next(sequence)), lambda last: sorted(p for p in committed if p > last))
    assert followed_across_an_uncommitted_write(store) == [2]
    assert sorted(committed) == [1, 2]


def test_sabotage_without_the_unique_index_duplicates_get_in(store_url: str) -> None:
    """The index is what refuses a second version; without it the checks of this suite go red."""
    engine = open_database(store_url)
    create_tables(engine)
    tables_without_the_unique_index(engine)
    recorder = ProjectRecorder(engine, "p")
    recorder.append([row("a")])
    assert recorder.append([row("a")]) == [(2, "appended")]
    assert "a stream has a version twice" in faults_of_log(engine, "p")
    assert check_log(recorder).faults
    engine.dispose()


def test_sabotage_without_moving_the_head_positions_repeat(
    recorder: ProjectRecorder, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head row is what makes positions dense; without its update the next append takes a taken position."""
    monkeypatch.setattr(Appending, "move_head", lambda self: None)
    assert recorder.append_new([row("a")]) == range(1, 2)
    with pytest.raises(DamagedStore, match="beyond its recorded end"):
        recorder.append_new([row("b")])
    assert "the head says 0, there are 1" in faults_of_log(engine, recorder.project_id)
    assert "entries stand beyond the recorded end of the log: 1" in check_log(recorder).faults


def test_sabotage_changed_bytes_are_noticed(engine: Engine, project: str) -> None:
    """One byte of one body, one entry gone, one root: each is a fault that our own check and this suite's both see."""
    recorder = ProjectRecorder(engine, project)
    recorder.append_new(rows_of(*history(1, 40)))
    assert check_log(recorder).faults == faults_of_log(engine, project) == []
    of_project = entries.c.project_id == project
    for harm in (
        entries.update().where(of_project, entries.c.position == 3).values(body=bodies(recorder)[2] + b" "),
        entries.delete().where(of_project, entries.c.position > 20),
        entries.delete().where(of_project, entries.c.position == 2),
        log_heads.update().where(log_heads.c.project_id == project).values(root=bytes(32)),
        log_heads.update().where(log_heads.c.project_id == project).values(size=0, root=EMPTY_ROOT),
        log_heads.delete().where(log_heads.c.project_id == project),
    ):
        with writing(engine) as connection:
            connection.execute(harm)
        assert check_log(recorder).faults, harm
        assert faults_of_log(engine, project), harm


# --- the database ----------------------------------------------------------------------------------------------------


def test_sqlite_syncs_every_commit(tmp_path: Path) -> None:
    """Every connection: synchronous=FULL, and a journal that is safe on this SQLite."""
    engine = open_database(f"sqlite:///{tmp_path / 'el.db'}")
    with engine.connect() as first, engine.connect() as second:
        for connection in (first, second):
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
            journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
            assert journal == ("wal" if wal_is_safe(sqlite3.sqlite_version_info) else "truncate")
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    engine.dispose()


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 7, 0), False), ((3, 40, 1), False), ((3, 44, 5), False), ((3, 44, 6), True), ((3, 44, 10), True),
        ((3, 45, 0), False), ((3, 49, 9), False), ((3, 50, 6), False), ((3, 50, 7), True), ((3, 51, 2), False),
        ((3, 51, 3), True), ((3, 52, 0), True), ((4, 0, 0), True),
    ],
)  # fmt: skip
def test_wal_only_without_the_bug(version: tuple[int, int, int], safe: bool) -> None:
    """The WAL-reset bug is fixed in 3.44.6, 3.50.7 and 3.51.3, and not in the releases between."""
    assert wal_is_safe(version) is safe


def test_a_writer_waits_for_its_turn_instead_of_failing(store_url: str) -> None:
    """A write transaction takes the lock at its beginning: two of them queue, none ends in 'locked'."""
    engine = open_database(store_url)
    create_tables(engine)
    started = Event()

    def second() -> None:
        started.set()
        with writing(engine) as connection:
            leases.take(connection, "p", "second", worker="w", until=NOW)

    with writing(engine) as connection:
        thread = Thread(target=second)
        thread.start()
        started.wait(5)
        leases.take(connection, "p", "first", worker="w", until=NOW)
    thread.join(10)
    assert has_lease(engine, "first")
    assert has_lease(engine, "second")
    engine.dispose()


def test_a_file_that_is_no_database_is_said_to_be_damaged(tmp_path: Path) -> None:
    """A sentence that names the file, not the driver's traceback."""
    (tmp_path / "el.db").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(DamagedStore, match=r"el\.db"):
        ProjectRecorder(open_database(f"sqlite:///{tmp_path / 'el.db'}"), "p").head()


def test_a_database_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    """The sentence names what to check."""
    engine = open_database(f"sqlite:///{tmp_path / 'no' / 'such' / 'el.db'}")
    with pytest.raises(StoreUnreachable, match="EL_HOME"):
        ProjectRecorder(engine, "p").head()
