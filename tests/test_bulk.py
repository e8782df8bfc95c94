"""Many rows at once, by their keys: whole rows come back, each key looked up by itself, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger import bulk
from ledger.database import create_tables, open_database, reading, writing
from projections.trials import trials
from tests.given import NASTY_NAMES

pytestmark = pytest.mark.both_databases

ROWS = 3_000


def row(project: str, task: str, attempt: int = 1) -> tuple[Any, ...]:
    """A trial's row, with a value of every type in it."""
    named = {
        "project_id": project, "job_id": "j", "attempt": attempt, "task": task, "trial_id": f"{task} {attempt}",
        "task_digest": "d", "status": "running", "reward": 0.1, "structured": b"\x00\xff", "artifacts_kept": 2**40,
        "artifacts_failed": 0, "dispatched_us": -1, "position": 1,
    }  # fmt: skip
    return tuple(named.get(column.name) for column in trials.c)


@pytest.fixture
def store(store_url: str) -> Iterator[Engine]:
    """Trials of one project, in a database that has not looked at them yet."""
    engine = open_database(store_url)
    create_tables(engine)
    with writing(engine) as connection:
        bulk.insert(connection, trials, [row("p", f"t{number:05}") for number in range(ROWS)])
    yield engine
    engine.dispose()


def count(connection: Connection) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(trials)).scalar_one()


def test_what_is_there_comes_back_whole(store: Engine) -> None:
    """Also under names that quoting might break; what is not there is passed over."""
    nasty = [row("p'\"$%s", name, attempt) for name in NASTY_NAMES for attempt in (1, 2)]
    with writing(store) as connection:
        bulk.insert(connection, trials, nasty)
    with reading(store) as connection:
        found = bulk.find(connection, trials, [one[:4] for one in nasty] + [("p", "j", 1, "nowhere"), ("", "", 0, "")])
        assert sorted(map(tuple, found)) == sorted(nasty)
        assert bulk.find(connection, trials, []) == []


def test_what_is_removed_is_gone_and_nothing_else(store: Engine) -> None:
    """Keys without a row are passed over."""
    with writing(store) as connection:
        bulk.remove(connection, trials, [("p", "j", 1, "t00007"), ("p", "j", 2, "t00008"), ("q", "j", 1, "t00009")])
    with reading(store) as connection:
        assert count(connection) == ROWS - 1
        assert bulk.find(connection, trials, [("p", "j", 1, "t00007")]) == []


@pytest.mark.parametrize("ask", [bulk.find, bulk.remove])
def test_each_key_is_looked_up_in_the_index_of_the_whole_key(store: Engine, ask: Any) -> None:
    """However many rows of the project there are: not one of another key is read, with or without statistics."""
    said: list[tuple[str, Any]] = []
    explained = "EXPLAIN" if store.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
    keys = [("p", "j", 1, f"t{number:05}") for number in range(0, ROWS, 100)]
    with writing(store) as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda *seen: said.append((seen[2], seen[3])))
        ask(connection, trials, keys)
        statement, parameters = said[0]
        some = parameters[0] if isinstance(parameters, list) else parameters
        plan = str(connection.exec_driver_sql(f"{explained} {statement}", some).all())
    whole_key = {
        "sqlite": "(project_id=? AND job_id=? AND attempt=? AND task=?)",
        "postgresql": "Index Cond: ((project_id = wanted.project_id) AND (job_id = wanted.job_id)"
        " AND (attempt = wanted.attempt) AND (task = wanted.task))",
    }
    assert whole_key[store.dialect.name] in plan
