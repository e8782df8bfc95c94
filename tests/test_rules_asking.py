"""Promises of handing facts in: the rule that returns a fact is asked again, so nothing comes in that no rule gives."""

from typing import Any

import pytest

from ledger.errors import BadInput, Conflict
from ledger.facts import trial as t
from ledger.facts.access import ProjectCreated
from ledger.facts.catalogue import DatasetMembersAdded, DatasetPublished, ProfilePublished, RunnerPublished, Task
from ledger.facts.job import (
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobMembersSelected,
    JobOriginSealed,
    JobRetryRequested,
    Origin,
)
from ledger.rules import catalogue, job, trial
from ledger.rules.asking import rule_of, rules_returning
from tests.given import NOW, SHA_A, SHA_B, SHA_C, dispatched, manifest

TASKS = (Task("add-1", SHA_A), Task("add-2", SHA_B))
D = dispatched()


def state_of(evolve: Any, facts: list[Any]) -> Any:
    state = None
    for fact in facts:
        state = evolve(state, fact)
    return state


@pytest.mark.parametrize(
    ("before", "fact"),
    [
        ([], D),
        ([D], t.TrialStarted(NOW)),
        ([D], t.RewardRecorded(0.5, "reward.txt")),
        ([D], t.RewardRejected("null", SHA_A)),
        ([D], t.StructuredResultRecorded(0.5, {"cost": 1.0}, SHA_B)),
        ([D], t.StructuredResultRejected("not-json", SHA_A)),
        ([D], t.ArtifactPersisted("out.log", SHA_A, 10, "stdout")),
        ([D], t.ArtifactFailed("out.log", "missing")),
        ([D, t.ArtifactPersisted("a", SHA_A, 1)], t.ArtifactRedacted(SHA_A, "personal data")),
        ([D], t.TrialSucceeded(0, 1.5, NOW)),
        ([D], t.TrialFailed("Timeout", "agent", None, SHA_A, 1.5, NOW)),
        ([D], t.TrialCanceled("called off", NOW)),
        ([D], t.TrialReleased("never started")),
        ([D, t.RewardRecorded(0.0)], t.RewardRevised(0.0, 1.0, "v@2", "regraded")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_fact_of_a_trial_comes_from_its_rule(before: list[Any], fact: Any) -> None:
    """Where the stream has it not, the rule gives that very fact; where it has it, nothing."""
    rule = rule_of(fact)
    assert rule(state_of(trial.evolve, before)) == [fact]
    if not isinstance(fact, t.TrialReleased):
        assert rule(state_of(trial.evolve, [*before, fact])) == []


SUBMITTED = manifest(TASKS, subset=True, request_id="r1")
IMPORTED = manifest(TASKS, subset=True, request_id="r1", origin=Origin(kind="import"))


@pytest.mark.parametrize(
    ("before", "facts"),
    [
        ([], [JobMembersSelected(TASKS), SUBMITTED]),
        ([], [JobMembersSelected(TASKS), SUBMITTED, JobCompleted()]),
        ([SUBMITTED], [JobFailed(3)]),
        ([SUBMITTED], [JobFailed(error_type="NoSuchImage")]),
        ([SUBMITTED], [JobCanceled("wrong model")]),
        ([SUBMITTED], [JobRetryRequested(TASKS[0], 4, "network", "again")]),
        ([IMPORTED], [JobOriginSealed("run", Origin(kind="import", tool="harbor"))]),
    ],
    ids=lambda value: "-".join(type(fact).__name__ for fact in value),
)
def test_facts_of_a_job_come_from_their_rules(before: list[Any], facts: list[Any]) -> None:
    """Members belong to the manifest that seals them."""
    state, given = state_of(job.evolve, before), []
    for rule in rules_returning(facts):
        new = list(rule(state))
        given += new
        for fact in new:
            state = job.evolve(state, fact)
    assert given == facts


def test_facts_of_the_catalogue_come_from_their_rules() -> None:
    """A dataset with its members, however many entries they fill; a runner; a profile."""
    many = [Task(f"task-{number}", SHA_A) for number in range(2_000)]
    facts = catalogue.publish_dataset(None, ref="big@1", tasks=many, runner="sh@1", members_digest=SHA_C)
    assert len(facts) > 3
    (rule,) = rules_returning(facts)
    assert rule(None) == facts
    for fact in (RunnerPublished("sh@1", "external"), ProfilePublished("p@1", {"a": 1}, {"KEY": "hmac:1"})):
        assert rule_of(fact)(None) == [fact]


def test_what_no_rule_gives_is_refused() -> None:
    """Projects are not handed in, members not without their seal, late rewards not at all; contradictions conflict."""
    with pytest.raises(BadInput, match="cannot be handed in: project-created"):
        rule_of(ProjectCreated("p"))
    with pytest.raises(BadInput, match="without the fact that seals them"):
        rules_returning([DatasetMembersAdded(TASKS)])
    with pytest.raises(BadInput, match="Only the ledger itself"):
        rule_of(t.RewardRejected("lapsed-claim", SHA_A))(state_of(trial.evolve, [D]))
    seal = DatasetPublished("arith@1", "sh@1", 2, SHA_C)
    had = state_of(catalogue.evolve_dataset, [DatasetMembersAdded(TASKS), seal])
    (rule,) = rules_returning([DatasetMembersAdded(TASKS[:1]), DatasetPublished("arith@1", "sh@1", 1, SHA_B)])
    with pytest.raises(Conflict):
        rule(had)
