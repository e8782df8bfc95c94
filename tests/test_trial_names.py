"""A trial is named by its id or a beginning of it, found through an index and never guessed."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.bulk import upsert
from ledger.database import reading, writing
from ledger.errors import NotFound
from projections.trials import find_trial, trials

IDS = (
    "0d9c7a52-3b0e-5d0a-9a53-2f1f6c8f3a11",
    "0d9c7a52-3b0f-5d0a-9a53-2f1f6c8f3a11",
    "ffffffff-3b0f-5d0a-9a53-2f1f6c8f3a11",
)


@pytest.fixture
def filled(engine: Engine, project: str) -> Engine:
    """Trials of a project, two of which begin alike, and one of another project that begins like the third."""
    rows = [(project, id_) for id_ in IDS] + [(f"{project}-other", "ffffffff-0000-5d0a-9a53-2f1f6c8f3a11")]
    with writing(engine) as connection:
        upsert(connection, trials, [_row(*row) for row in rows])
    return engine


def _row(project: str, trial_id: str) -> tuple[object, ...]:
    told = {
        "project_id": project, "job_id": "j", "attempt": 1, "task": trial_id, "trial_id": trial_id,
        "task_digest": "d", "status": "running", "artifacts_kept": 0, "artifacts_failed": 0, "dispatched_us": 0,
        "position": 1,
    }  # fmt: skip
    return tuple(told.get(column.name) for column in trials.columns)


@pytest.mark.both_databases
def test_a_beginning_of_four_characters_names_a_trial(filled: Engine, project: str) -> None:
    """Of the project alone; one that several have, one too short and what no id can hold are refused."""
    with reading(filled) as connection:
        for text in ("ffff", "ffffffff", "ffffffff-", "ffffffff-3b0f-5d0a-9a53-2f1f6c8f3a1", IDS[2]):
            assert find_trial(connection, project, text).trial_id == IDS[2]
        assert find_trial(connection, project, "0d9c7a52-3b0f").trial_id == IDS[1]
        for text in ("0d9c", "0d9c7a52-3b0"):
            with pytest.raises(NotFound, match=f"Several trials begin with {text}"):
                find_trial(connection, project, text)
        for text in ("", "fff", "FFFF", "ff%f", "ff_f", "0000", "ffffffff-4", "fffg", "f" * 37, "ffff\0"):
            with pytest.raises(NotFound, match="There is no trial"):
                find_trial(connection, project, text)


def test_it_is_found_through_its_index(filled: Engine, project: str) -> None:
    """However many trials there are (the plan of SQLite, as it says it)."""
    plans: list[str] = []

    def explain(connection: sa.Connection, _c: object, statement: str, parameters: object, *_: object) -> None:
        raw = connection.connection.cursor()
        raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)  # type: ignore[arg-type]
        plans.append(str(raw.fetchall()))

    with reading(filled) as connection:
        sa.event.listen(connection, "before_cursor_execute", explain)
        find_trial(connection, project, "ffff")
    (plan,) = plans
    assert "trials_id (project_id=? AND trial_id>? AND trial_id<?)" in plan
