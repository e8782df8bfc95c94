"""The past can be asked what the present can be asked, and answers what it would have answered then."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given as given_that
from hypothesis import settings
from hypothesis import strategies as st
from sqlalchemy.engine import Connection, Engine

from ledger.codec import encode
from ledger.database import reading
from ledger.errors import NotFound
from ledger.facts.job import JobSubmitted
from ledger.recorder import ProjectRecorder
from projections import job_metrics, jobs, trials
from projections.as_of import job_as_of
from projections.following import catch_up
from projections.models import READ_MODELS
from tests.given import fresh_project, history

pytestmark = pytest.mark.both_databases


def _answers(connection: Connection, project: str, job_id: str) -> tuple[object, ...]:
    row = jobs.get_job(connection, project, job_id)
    members = jobs.list_members(connection, project, row.manifest)
    return (
        row,
        job_metrics.result_of(connection, project, job_id),
        job_metrics.attempts_of(connection, project, job_id, members),
        trials.list_trials(connection, project, job_id, limit=1_000),
    )


@settings(max_examples=8)
@given_that(st.integers(0, 2**32))
def test_as_of_answers_what_was_answered_then(engine: Engine, seed: int) -> None:
    """At every step of a random legal history the live answer is written down; asked again at the end, it is given."""
    project = fresh_project()
    recorder = ProjectRecorder(engine, project)
    rows = encode(history(seed, 120))
    then: list[tuple[int, str, tuple[object, ...]]] = []
    for start in range(0, len(rows), 13):
        at = recorder.append_new(rows[start : start + 13])[-1]
        catch_up(engine, project, READ_MODELS)
        with reading(engine) as connection:
            then += [
                (at, j.job_id, _answers(connection, project, j.job_id)) for j in jobs.list_jobs(connection, project)
            ]
    for at, job_id, answers in Random(seed).sample(then, min(6, len(then))):
        with job_as_of(recorder, job_id, at) as connection:
            assert _answers(connection, project, job_id) == answers


def test_the_past_differs_from_the_present(engine: Engine, project: str) -> None:
    """The sabotage twin: read without its bound, the past is the present, and the promise above would not hold."""
    recorder = ProjectRecorder(engine, project)
    log = history(7, 120)
    recorder.append_new(encode(log))
    job_id = next(entry.fact.job_id for entry in log if isinstance(entry.fact, JobSubmitted))
    with job_as_of(recorder, job_id, len(log) // 2) as connection:
        then = _answers(connection, project, job_id)
    with job_as_of(recorder, job_id, len(log)) as connection:
        assert _answers(connection, project, job_id) != then


def test_a_job_is_not_there_before_it_was_submitted(engine: Engine, project: str) -> None:
    """Before its submission there is no such job, and beyond the log's end nothing is known."""
    recorder = ProjectRecorder(engine, project)
    log = history(1, 60)
    recorder.append_new(encode(log))
    job_id = next(entry.fact.job_id for entry in log if isinstance(entry.fact, JobSubmitted))
    with pytest.raises(NotFound, match="no job"), job_as_of(recorder, job_id, 1):
        pass
    with pytest.raises(NotFound, match="ends at position"), job_as_of(recorder, job_id, len(log) + 1):
        pass
