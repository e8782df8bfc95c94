"""Rules of a leaderboard, as sentences."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.digests import cohort_digest
from ledger.errors import BadInput, Conflict, NotAllowed, NotFound
from ledger.facts.catalogue import Task
from ledger.facts.job import JobCanceled, JobCompleted, JobFailed
from ledger.facts.leaderboard import SnapshotAdded, SnapshotWithdrawn, snapshot_id_for
from ledger.rules import leaderboard
from ledger.rules.job import Job
from projections.metrics import measure_trials
from projections.snapshots import snapshot_numbers
from projections.tally import Trial
from tests.given import JOB, SHA_A, SHA_B, fold, given, manifest

SNAPSHOT = snapshot_id_for(JOB)


def snapshot(*rewards: float | None, **fields: Any) -> SnapshotAdded:
    metrics = measure_trials(len(rewards), 1, {"add-1": [Trial(reward, True) for reward in rewards]})
    named: dict[str, Any] = {"position": 9, "status": "completed", "model": "gpt"} | fields
    return SnapshotAdded(
        snapshot_id=SNAPSHOT,
        job_id=JOB,
        cohort=SHA_B,
        manifest=SHA_A,
        dataset="arith@1",
        runner="shell@1",
        attempts=len(rewards),
        numbers=snapshot_numbers(metrics, []),
        **named,
    )


ADDED = snapshot(1.0, 0.0)
WITHDRAWN = SnapshotWithdrawn(SNAPSHOT, "leaked")


def test_a_result_is_frozen() -> None:
    """The first time it is a fact."""
    given().when(leaderboard.add_snapshot, snapshot=ADDED).then(ADDED)


@pytest.mark.parametrize("after", [(ADDED,), (ADDED, WITHDRAWN)], ids=["standing", "withdrawn"])
def test_the_same_job_again_is_nothing_new(after: tuple[Any, ...]) -> None:
    """Whatever has become of its numbers since, also when it was withdrawn: what was saved stays."""
    again = snapshot(1.0, 1.0, position=99, model="other")
    given(*after).when(leaderboard.add_snapshot, snapshot=ADDED).then()
    given(*after).when(leaderboard.add_snapshot, snapshot=again).then()


def test_nothing_scored_is_no_result() -> None:
    """A job without any reward is refused with the reason; a single zero is a result."""
    given().when(leaderboard.add_snapshot, snapshot=snapshot(None, None)).refused(NotAllowed, "Nothing of the job")
    zero = snapshot(0.0, None)
    given().when(leaderboard.add_snapshot, snapshot=zero).then(zero)


@pytest.mark.parametrize(
    ("ending", "status"),
    [(JobCompleted(), "completed"), (JobFailed(1), "failed"), (JobCanceled("too dear"), "canceled")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_that_ended_may_stand(ending: Any, status: str) -> None:
    """Completed, failed or canceled: the coverage says what is missing."""
    assert leaderboard.ending_of(fold([manifest(), ending])) == status


def test_a_job_that_has_not_ended_may_not() -> None:
    """Nor one that does not exist, or of which only the members were selected."""
    with pytest.raises(NotAllowed, match="has not ended"):
        leaderboard.ending_of(fold([manifest()]))
    for nothing in (None, Job(), Job(selected=(Task("add-1", SHA_A),))):
        with pytest.raises(NotFound, match="no such job"):
            leaderboard.ending_of(nothing)


def test_a_snapshot_is_withdrawn_once() -> None:
    """With a reason; for the same reason again it is nothing new, for another it is refused."""
    withdraw = leaderboard.withdraw_snapshot
    given(ADDED).when(withdraw, snapshot_id=SNAPSHOT, reason="leaked").then(WITHDRAWN)
    given(ADDED, WITHDRAWN).when(withdraw, snapshot_id=SNAPSHOT, reason="leaked").then()
    given(ADDED, WITHDRAWN).when(withdraw, snapshot_id=SNAPSHOT, reason="other").refused(
        Conflict, "withdrawn already", ["reason: 'leaked', now 'other'"]
    )


def test_what_is_not_there_is_not_withdrawn() -> None:
    """Neither on an empty leaderboard nor under another id."""
    given().when(leaderboard.withdraw_snapshot, snapshot_id=SNAPSHOT, reason="x").refused(NotFound, "no snapshot")
    given(ADDED).when(leaderboard.withdraw_snapshot, snapshot_id=JOB, reason="x").refused(NotFound, "no snapshot")


@pytest.mark.parametrize("reason", ["", "a\nb", "x" * 501, "\ud800"])
def test_a_reason_is_one_line_of_text(reason: str) -> None:
    """It is kept for good, so it is bounded."""
    given(ADDED).when(leaderboard.withdraw_snapshot, snapshot_id=SNAPSHOT, reason=reason).refused(BadInput, "reason")


def test_a_cohort_is_dataset_runner_tasks_and_attempts() -> None:
    """The order of the tasks does not count; each of the four parts does."""
    tasks = [("a", SHA_A), ("b", SHA_B)]
    cohort = cohort_digest("d@1", "r@1", 2, tasks)
    assert cohort == cohort_digest("d@1", "r@1", 2, tasks[::-1])
    others = [
        cohort_digest("d@2", "r@1", 2, tasks),
        cohort_digest("d@1", "r@2", 2, tasks),
        cohort_digest("d@1", "r@1", 3, tasks),
        cohort_digest("d@1", "r@1", 2, tasks[:1]),
        cohort_digest("d@1", "r@1", 2, [("a", SHA_B), ("b", SHA_A)]),
        cohort_digest("d@1", "r@1", 2, [("A", SHA_A), ("b", SHA_B)]),
    ]
    assert len({cohort, *others}) == 7
    assert cohort == "c74e3e3f172fee9035ca7456b9f91c484359d599533b75bdf210d53927635618"
