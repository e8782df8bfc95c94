"""Corrections: a later grading stands beside the first one, says who, when and why, and is all or nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from api.client import Client
from api.forms.rewards import read_new_rewards
from api.revising import NewReward
from api.settings import Settings
from api.wiring import Workspace
from ledger.errors import BadInput, NotFound
from ledger.facts.catalogue import RunnerPublished, Task
from ledger.facts.trial import RewardRevised
from tests.given import digest_of

revised = {"verifier": "judge@2", "reason": "the rubric was wrong"}


@pytest.fixture
def el(tmp_path: Path) -> Client:
    """A job of two tasks, two attempts each: one attempt has no reward."""
    el = Client(Workspace(Settings(home=tmp_path)), "default", actor="ann")
    el.publish_runner(RunnerPublished("ext@1", "external"))
    el.publish_dataset("d@1", [Task(name, digest_of(name)) for name in ("a", "b")], runner="ext@1")
    job = el.submit_job("d@1", attempts=2, request_id="r").id
    for task, attempt, reward in (("a", 1, 0.0), ("a", 2, 1.0), ("b", 1, 1.0), ("b", 2, None)):
        with el.trial(job, task, attempt) as trial:
            if reward is None:
                trial.no_reward("error")
            else:
                trial.reward(reward)
    return el


@pytest.fixture
def job(el: Client) -> str:
    return el.jobs().jobs[0].id


def test_a_whole_job_is_graded_again_at_once(el: Client, job: str) -> None:
    """What changed is counted, what held stays, a missing reward may be found; the result shows both values."""
    rewards = [NewReward("a", 1, 1.0), NewReward("a", 2, 1.0), NewReward("b", 2, 0.0)]
    done = el.regrade(job, rewards, **revised)
    assert (done.changed, done.unchanged, done.were_missing) == (2, 1, 1)
    result = el.result(job)
    assert result.score == 0.75
    assert result.score_counts.missing == 0
    assert [(row.task, row.attempt, row.first, row.now) for row in result.revised] == [
        ("a", 1, 0.0, 1.0),
        ("b", 2, None, 0.0),
    ]
    assert result.revised_total == 2
    events = el.events(tags=["reward-revised"])
    assert [(row.task, row.attempt, row.actor) for row in events] == [("a", 1, "ann"), ("b", 2, "ann")]
    facts = [entry.entry.fact for entry in el.stream(f"trial/{job}/1/a")]
    assert facts[-1] == RewardRevised(0.0, 1.0, "judge@2", "the rubric was wrong")
    assert el.regrade(job, rewards, **revised).changed == 0
    assert el.replay().differences == []


def test_as_of_before_a_correction_the_first_reward_counts(el: Client, job: str) -> None:
    """The past is not rewritten."""
    before = el.result(job)
    el.regrade(job, [NewReward("a", 1, 1.0)], **revised)
    assert el.result(job, as_of=before.as_of) == before
    assert el.result(job).score != before.score


def test_one_trial_is_corrected(el: Client, job: str) -> None:
    """By its id; the same again is nothing new."""
    trial = el.trials(job)[0]
    revise = partial(el.revise, trial.trial_id, reward=0.5, **revised)
    assert revise().outcome == "written"
    assert revise().outcome == "unchanged"
    row = el.get_trial(trial.trial_id)
    assert (row.first_reward, row.reward) == (trial.reward, 0.5)


@pytest.mark.parametrize(
    ("rewards", "kind", "saying"),
    [
        ([NewReward("a", 1, 1.0), NewReward("c", 1, 1.0)], NotFound, "no trial of task 'c'"),
        ([NewReward("a", 1, 1.0), NewReward("a", 3, 1.0)], NotFound, "attempt 3"),
        ([NewReward("a", 1, 1.0), NewReward("a", 1, 0.0)], BadInput, "there twice"),
        ([NewReward("a", 1, 1.0), NewReward("a", 2, float("nan"))], BadInput, "finite"),
        ([], BadInput, "no reward"),
    ],
)
def test_all_or_nothing(el: Client, job: str, rewards: list[NewReward], kind: type[Exception], saying: str) -> None:
    """One that cannot be corrected keeps all others from being, in a sentence that names it."""
    before = el.head()
    with pytest.raises(kind, match=saying):
        el.regrade(job, rewards, **revised)
    assert el.head() == before


def test_the_file_of_rewards_names_its_bad_line(tmp_path: Path) -> None:
    """One trial a line; what is not is named by its number."""
    path = tmp_path / "r.jsonl"
    path.write_text('{"task": "a", "attempt": 1, "reward": 1}\n\n{"task": "b", "attempt": 2, "reward": 0.5}\n')
    assert read_new_rewards(path) == [NewReward("a", 1, 1.0), NewReward("b", 2, 0.5)]
    for bad in ('{"task": "a", "attempt": 1}', "nonsense", '{"task": "a", "attempt": 1, "reward": NaN}', "\udc80"):
        path.write_bytes(b'{"task": "a", "attempt": 1, "reward": 1}\n' + bad.encode(errors="surrogateescape"))
        with pytest.raises(BadInput, match="Line 2"):
            read_new_rewards(path)
    with pytest.raises(NotFound):
        read_new_rewards(tmp_path / "absent")
