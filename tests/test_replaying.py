"""What is stored is what the log gives; what was changed behind its back is found, and each kind told apart."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import given as given_that
from hypothesis import settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from api.replaying import Replayed, replay
from ledger.application import Ledger
from ledger.codec import encode
from ledger.database import entries as entries_table
from ledger.database import reading, writing
from ledger.errors import BadInput, NotFound
from ledger.facts.leaderboard import SnapshotAdded
from ledger.recorder import ProjectRecorder
from projections import job_metrics, snapshots, trials
from projections.comparing import POSITIONS_MAX
from projections.following import catch_up, position_of, rebuild
from projections.metrics import Metrics, measure
from projections.models import READ_MODELS
from projections.policies import POLICIES
from projections.tally import JobTally
from tests.given import fresh_project, history

pytestmark = pytest.mark.both_databases


def replayed(recorder: ProjectRecorder, **asked: Any) -> Replayed:
    catch_up(recorder.engine, recorder.project_id, READ_MODELS)
    with reading(recorder.engine) as connection:
        reached = position_of(connection, recorder.project_id, READ_MODELS)
        return replay(connection, reached, recorder=recorder, **asked)


def kinds(found: Replayed) -> set[str]:
    return {difference.kind for difference in found.differences}


@pytest.fixture
def recorder(engine: Engine, project: str) -> ProjectRecorder:
    """A project with a history in which some jobs were frozen on a leaderboard."""
    recorder = ProjectRecorder(engine, project)
    for seed in range(100):
        log = history(seed, 160)
        added = [e.fact for e in log if isinstance(e.fact, SnapshotAdded)]
        if any(fact.numbers.score not in (None, 0.0) for fact in added):
            break
    else:
        raise AssertionError("no history with a snapshot")
    recorder.append_new(encode(log))
    return recorder


@settings(max_examples=5)
@given_that(st.integers(0, 2**32))
def test_what_is_stored_is_what_the_log_gives(engine: Engine, seed: int) -> None:
    """Of any legal history, all of it and each job by itself, now and at an earlier position."""
    recorder = ProjectRecorder(engine, fresh_project())
    recorder.append_new(encode(history(seed, 150)))
    everything = replayed(recorder)
    assert everything.differences == []
    assert everything.compared.read_models
    for job_id, numbers in everything.numbers.items():
        alone = replayed(recorder, job_id=job_id, policy=next(iter(POLICIES)))
        assert alone.differences == []
        assert alone.numbers == {job_id: numbers}
    earlier = replayed(recorder, as_of=everything.as_of - 20)
    assert earlier.differences == []
    assert not earlier.compared.read_models


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("job_metrics", "tally", None),
        ("trials", "reward", 0.123),
        ("job_tasks", "attempts", b"[]"),
        ("jobs", "status", "completed?"),
        ("snapshots", "reason", "planted"),
        ("audit_trail", "actor", "somebody else"),
    ],
)
def test_a_planted_row_is_found(recorder: ProjectRecorder, table: str, column: str, value: object) -> None:
    """A wrong row in any read model is told as that, with the table and the column; a rebuild mends it."""
    assert replayed(recorder).differences == []
    of = next(t for model in READ_MODELS for t in model.tables if t.name == table)
    with writing(recorder.engine) as connection:
        row = connection.execute(sa.select(of).where(of.c.project_id == recorder.project_id).limit(1)).one()
        this = [of.c[key.name] == row._mapping[key.name] for key in of.primary_key]
        if value is None:
            tally = JobTally.from_json(row.tally)
            tally.scored += 1
            value = tally.to_json()
        connection.execute(of.update().where(*this).values({column: value}))
    found = replayed(recorder)
    assert kinds(found) == {"read-model"}
    assert any(table in d.what and column in d.what for d in found.differences)
    rebuild(recorder.engine, recorder.project_id, READ_MODELS)
    assert replayed(recorder).differences == []


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("job_metrics", None),
        ("jobs", None),
        ("job_metrics", {"tally": "{"}),
        ("job_metrics", {"endings": "[]"}),
        ("job_tasks", {"attempts": b"\xff\x00"}),
        ("trials", {"structured": b"\xff"}),
    ],
)
def test_a_row_that_is_gone_or_unreadable_is_found(
    recorder: ProjectRecorder, table: str, values: dict[str, object] | None
) -> None:
    """Whatever became of the rows of a read model, replay says which they are and what the log gives in their place."""
    assert replayed(recorder).differences == []
    of = next(t for model in READ_MODELS for t in model.tables if t.name == table)
    harm = of.delete() if values is None else of.update().values(values)
    with writing(recorder.engine) as connection:
        connection.execute(harm.where(of.c.project_id == recorder.project_id))
    found = replayed(recorder)
    assert kinds(found) == {"read-model"}
    rows = [d for d in found.differences if re.match(rf"{table}\b", d.what)]
    assert rows
    assert all(d.positions for d in rows)


def test_the_entries_behind_a_row_are_those_of_its_trial_or_member(recorder: ProjectRecorder) -> None:
    """A trial's row names the entries of its stream, a member's those of all its attempts, a job's those of the job."""
    assert replayed(recorder).differences == []
    for table in (trials.trials, job_metrics.job_tasks, job_metrics.job_metrics):
        with writing(recorder.engine) as connection:
            connection.execute(table.delete().where(table.c.project_id == recorder.project_id))
    of_stream: dict[str, list[int]] = defaultdict(list)
    of_member: dict[str, list[int]] = defaultdict(list)
    of_job: dict[str, list[int]] = defaultdict(list)
    for position, entry in Ledger(recorder.engine, recorder.project_id).entries():
        kind, _, rest = entry.stream.partition("/")
        if kind == "trial":
            job_id, attempt, task = rest.split("/", 2)
            of_stream[f"{job_id} trials {attempt} {task}"].append(position)
            of_member[f"{job_id} job_tasks {task}"].append(position)
        if kind in ("trial", "job"):
            of_job[f"{rest.split('/')[0]} job_metrics"].append(position)
    expected = {**of_stream, **of_member, **of_job}
    found = [d for d in replayed(recorder).differences if d.stored == "no such row"]
    assert {d.what.split(" ")[0] for d in found} == {"trials", "job_tasks", "job_metrics"}
    assert all(d.positions == expected[f"{d.about} {d.what}"][:POSITIONS_MAX] for d in found)


def test_a_changed_formula_is_found(recorder: ProjectRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """When `metrics/1` gives another number than it gave a snapshot, the snapshot says so; no row is blamed."""

    def other(tally: JobTally) -> Metrics:
        found = measure(tally)
        return msgspec.structs.replace(found, score=None if found.score is None else found.score * 1.01 + 1e-9)

    assert replayed(recorder).differences == []
    monkeypatch.setattr(snapshots, "measure", other)
    monkeypatch.setattr("projections.job_metrics.measure", other)
    found = replayed(recorder)
    assert kinds(found) == {"formula"}
    assert {d.what for d in found.differences} == {"score"}
    assert all(d.positions for d in found.differences)


def test_a_changed_byte_of_the_log_is_found(recorder: ProjectRecorder) -> None:
    """One changed character in a body is told as a change of the log."""
    assert replayed(recorder).differences == []
    with writing(recorder.engine) as connection:
        mine = entries_table.c.project_id == recorder.project_id
        query = sa.select(entries_table.c.position, entries_table.c.body).where(
            mine, entries_table.c.tag == "reward-recorded"
        )
        position, body = connection.execute(query.limit(1)).one()
        changed = bytes(body).replace(b'"actor":"', b'"actor":"x', 1)
        connection.execute(
            entries_table.update().where(mine, entries_table.c.position == position).values(body=changed)
        )
    assert "log" in kinds(replayed(recorder))


def test_what_cannot_be_replayed_is_refused(recorder: ProjectRecorder) -> None:
    """Unknown formulas, an unknown job, and a position beyond the end are refused in a sentence."""
    with pytest.raises(BadInput, match="there is metrics/1"):
        replayed(recorder, definition="metrics/9")
    with pytest.raises(NotFound, match="no job"):
        replayed(recorder, job_id="00000000-0000-4000-8000-000000000000")
    with pytest.raises(BadInput, match="ends at position"):
        replayed(recorder, as_of=10**9)
