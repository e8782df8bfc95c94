"""Writes that arrive together are committed together, each with its own outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from ledger.appending import Appending
from ledger.application import Asked, Ledger, Written
from ledger.codec import Row
from ledger.errors import BadInput, Conflict, NotAllowed, StoreUnreachable
from ledger.facts.trial import RewardRecorded, TrialFact, trial_stream
from ledger.grouping import GroupCommit
from ledger.rules import trial
from ledger.rules.trial import Trial
from ledger.subscription import Listener
from tests.given import JOB, dispatched

pytestmark = pytest.mark.both_databases


def stream_of(task: str) -> str:
    return trial_stream(JOB, task, 1)


def dispatch(task: str, actor: str = "a") -> Asked:
    return Asked(stream_of(task), [partial(trial.dispatch, dispatched=dispatched(task))], actor)


def reward(task: str, value: float, actor: str = "a") -> Asked:
    return Asked(stream_of(task), [partial(trial.record_reward, reward=value)], actor)


def test_each_write_of_a_group_has_its_own_outcome(engine: Engine, project: str) -> None:
    """In one transaction: what is new stands at its position, a repeat at the first one's, a refusal takes no other."""
    ledger = Ledger(engine, project)
    outcomes = ledger.record_each(
        [
            dispatch("t1"),
            dispatch("t2", "b"),
            reward("t1", 1.0),
            reward("t1", 1.0),  # a repeat of what the same group wrote
            reward("t1", 0.0),  # contradicts it
            reward("t3", 1.0),  # never dispatched
            reward("t2", float("nan")),
            reward("t2", 0.5),
        ]
    )
    positions = [o.position if isinstance(o, Written) else type(o) for o in outcomes]
    assert positions == [1, 2, 3, 3, Conflict, NotAllowed, BadInput, 4]
    assert [e.entry.actor for e in ledger.entries()] == ["a", "b", "a", "a"]
    assert [e.position for e in ledger.entries()] == [1, 2, 3, 4]
    again = ledger.record_each([reward("t2", 0.5), reward("t4", 1.0), dispatch("t4")])
    assert again[0] == Written(4, ())
    assert isinstance(again[1], NotAllowed)
    assert isinstance(again[2], Written)
    assert again[2].position == 5
    assert ledger.head().size == 5


def test_what_belongs_to_a_write_is_in_its_transaction(engine: Engine, project: str) -> None:
    """`also` runs for what was written, and not for a repeat or a refusal."""
    ran: list[str] = []

    def also(name: str) -> Callable[[Connection], None]:
        return lambda _: ran.append(name)

    Ledger(engine, project).record_each(
        [
            dispatch("t1")._replace(also=also("new")),
            dispatch("t1")._replace(also=also("repeat")),
            reward("t9", 1.0)._replace(also=also("refused")),
        ]
    )
    assert ran == ["new"]


def test_a_group_of_repeats_writes_nothing(engine: Engine, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known already costs no write: the head stays, and nobody is woken; what is new moves it once."""
    ledger = Ledger(engine, project)
    ledger.record_each([dispatch("t1"), reward("t1", 1.0)])
    moved: list[str] = []
    woken: list[str] = []
    writer = threading.current_thread()

    def wake(_listener: Listener, project_id: str) -> None:
        if threading.current_thread() is writer:  # not who hears of a write from the database, and perhaps late
            woken.append(project_id)

    monkeypatch.setattr(Listener, "wake", wake)

    def note(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE log_heads"):
            moved.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    assert ledger.record_each([dispatch("t1"), reward("t1", 1.0)]) == [Written(2, ()), Written(2, ())]
    assert ledger.recorder.append(row_of(ledger, 2)) == [(2, "repeated")]
    assert (moved, woken) == ([], [])
    ledger.record_each([reward("t1", 1.0), dispatch("t2")])
    assert (len(moved), woken) == (1, [project])
    event.remove(engine, "before_cursor_execute", note)


def row_of(ledger: Ledger, position: int) -> list[Row]:
    """An entry as it is stored."""
    return [row for _, row in ledger.recorder.rows(after=position - 1, limit=1)]


def test_many_threads_write_every_fact_once(engine: Engine, project: str) -> None:
    """32 threads through one group: dense positions, nothing lost, nothing twice, and fewer commits than writes."""
    commits: list[int] = []
    base = Ledger(engine, project)

    def commit(asked: Sequence[Asked]) -> Sequence[Written | Exception]:
        commits.append(len(asked))
        return base.record_each(asked)

    group = GroupCommit(commit)
    gate = threading.Barrier(32)

    def write(number: int) -> list[Written]:
        ledger = Ledger(engine, project, actor=f"w{number}", group=group)
        gate.wait()
        done = []
        for n in range(8):
            task = f"{number}-{n}"
            ledger.record(stream_of(task), partial(trial.dispatch, dispatched=dispatched(task)))
            done.append(ledger.record(stream_of(task), partial(trial.record_reward, reward=1.0)))
        return done

    with ThreadPoolExecutor(32) as pool:
        written = [one for some in pool.map(write, range(32)) for one in some]
    entries = list(base.entries())
    assert [e.position for e in entries] == list(range(1, 513))
    by_position = {e.position: e.entry.fact for e in entries}
    assert all(isinstance(by_position[w.position], RewardRecorded) for w in written)
    assert len({w.position for w in written}) == 256
    assert sum(commits) == 512
    assert len(commits) < 400


def test_a_bad_write_takes_no_other_with_it(engine: Engine, project: str) -> None:
    """A rule that fails unforeseen fails alone; the others of its group are written."""

    def broken(_state: Trial | None) -> list[TrialFact]:
        raise ZeroDivisionError

    group = GroupCommit(Ledger(engine, project).record_each)
    futures = [group.submit(a) for a in (dispatch("t1"), Asked(stream_of("t2"), [broken], "a"), dispatch("t3"))]
    group.drive()
    assert futures[0].result().position == 1
    with pytest.raises(ZeroDivisionError):
        futures[1].result()
    assert futures[2].result().position == 2


def test_a_store_that_fails_is_told_to_everybody(engine: Engine, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is acknowledged when the commit fails, and nobody waits for ever."""
    ledger = Ledger(engine, project)
    group = GroupCommit(ledger.record_each)

    @contextmanager
    def failing() -> Iterator[Appending]:
        raise StoreUnreachable("The database does not answer.")
        yield

    monkeypatch.setattr(ledger.recorder, "appending", failing)
    futures = [group.submit(dispatch(task)) for task in ("t1", "t2")]
    group.drive()
    for future in futures:
        with pytest.raises(StoreUnreachable):
            future.result(timeout=1)
    monkeypatch.undo()
    assert group(dispatch("t1")).position == 1


def test_who_went_away_before_the_commit_is_left_out(engine: Engine, project: str) -> None:
    """A cancelled write is not written; those beside it are."""
    group = GroupCommit(Ledger(engine, project).record_each)
    gone, stays = group.submit(dispatch("t1")), group.submit(dispatch("t2"))
    assert gone.cancel()
    group.drive()
    assert stays.result().position == 1
    assert Ledger(engine, project).head().size == 1


def test_without_the_group_every_write_pays_its_own_commit(engine: Engine, project: str) -> None:
    """The sabotage twin of grouping: a group of at most one commits as often as it is asked."""
    commits = 0
    base = Ledger(engine, project)

    def commit(asked: Sequence[Asked]) -> Sequence[Written | Exception]:
        nonlocal commits
        commits += 1
        return base.record_each(asked)

    alone, together = GroupCommit(commit), GroupCommit(commit)
    for n in range(20):
        alone(dispatch(f"a{n}"))
    assert commits == 20
    futures = [together.submit(dispatch(f"b{n}")) for n in range(20)]
    together.drive()
    assert [f.result().position for f in futures] == list(range(21, 41))
    assert commits == 21
