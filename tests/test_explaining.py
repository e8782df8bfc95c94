"""A number taken apart adds up to the number, and names the entries that made it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given as given_that
from hypothesis import settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from ledger.codec import encode
from ledger.database import reading
from ledger.errors import BadInput, NotFound
from ledger.recorder import ProjectRecorder
from projections import job_metrics, jobs
from projections.explaining import Explanation, explain
from projections.following import catch_up
from projections.models import READ_MODELS
from projections.shares import METRICS, metric_named, shown_name
from tests.given import fresh_project, history

pytestmark = pytest.mark.both_databases


def explained(recorder: ProjectRecorder, job_id: str, metric: str, *, task: str | None = None) -> Explanation:
    as_of = catch_up(recorder.engine, recorder.project_id, READ_MODELS)
    with reading(recorder.engine) as connection:
        job = jobs.get_job(connection, recorder.project_id, job_id)
        return explain(connection, recorder, job, metric=metric, as_of=as_of, task=task, limit=1_000)


@settings(max_examples=10)
@given_that(st.integers(0, 2**32))
def test_the_parts_add_up_to_the_number(engine: Engine, seed: int) -> None:
    """Of any legal history: what the counted members add, over the denominator, is the value; all are accounted for."""
    recorder = ProjectRecorder(engine, fresh_project())
    log = history(seed, 150)
    recorder.append_new(encode(log))
    catch_up(engine, recorder.project_id, READ_MODELS)
    with reading(engine) as connection:
        rows = jobs.list_jobs(connection, recorder.project_id)
        measured = {r.job_id: job_metrics.result_of(connection, recorder.project_id, r.job_id).metrics for r in rows}
    for row in rows:
        counts = measured[row.job_id].score_counts
        for metric in METRICS:
            found = explained(recorder, row.job_id, metric)
            adds = [m.adds for m in found.members if m.adds is not None]
            assert found.counted + sum(found.left_out.values()) == counts.total_members == len(found.members)
            assert found.counted == sum(m.counted for m in found.members) == len(adds)
            if found.value is None:
                assert found.why_null
            elif metric in ("pass_at_k", "pass_hat_k"):
                assert found.denominator == found.counted == counts.complete_members
                assert math.isclose(math.fsum(adds) / found.denominator, float(str(found.value)))
            elif metric in ("score", "pass"):
                rewards = [t.reward for m in found.members for t in m.trials if t.reward is not None]
                assert found.denominator == len(rewards) == counts.scored
                assert isinstance(found.value, float)
                assert math.isclose(float(sum(map(Fraction, rewards)) / len(rewards)), found.value)
            elif metric == "missing":
                assert math.fsum(adds) == found.value
            for member in found.members:
                for trial in member.trials:
                    bodies = dict(recorder.bodies_at([made.position for made in trial.made_by]))
                    assert len(bodies) == len(trial.made_by) > 0
                    assert trial.reward is None or any(repr(trial.reward) in made.says for made in trial.made_by)


def test_one_member_and_no_such_thing(engine: Engine, project: str) -> None:
    """One member can be asked for; an unknown metric or member is refused with those there are."""
    recorder = ProjectRecorder(engine, project)
    recorder.append_new(encode(history(3, 100)))
    catch_up(engine, project, READ_MODELS)
    with reading(engine) as connection:
        job = jobs.list_jobs(connection, project)[0]
        task = jobs.list_members(connection, project, job.manifest)[-1]
    assert [member.task for member in explained(recorder, job.job_id, "score", task=task).members] == [task]
    with pytest.raises(BadInput, match="there are score, pass, pass_at_k"):
        explained(recorder, job.job_id, "accuracy")
    with pytest.raises(NotFound, match="has no member"):
        explained(recorder, job.job_id, "score", task="no such task")


def test_a_metric_goes_by_the_name_that_results_show() -> None:
    """pass@2 and pass^2 where k is 2, and the names of the formulas; another k is refused in a sentence with both."""
    for k in (1, 2, 12):
        assert [metric_named(shown_name(metric, k), k) for metric in METRICS] == list(METRICS)
        assert [metric_named(metric, k) for metric in METRICS] == list(METRICS)
        assert metric_named("pass^k", k) == "pass_hat_k"
    assert (shown_name("pass_at_k", 2), shown_name("pass_hat_k", 2)) == ("pass@2", "pass^2")
    for other in ("pass@3", "pass^1", "pass@22"):
        with pytest.raises(BadInput, match=r"k = 2 .* not by pass"):
            metric_named(other, 2)
