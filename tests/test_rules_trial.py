"""A trial: reports in any order and as often as needed, a contradiction is refused, six signals stay apart."""

import math
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from ledger.errors import BadInput, ClaimLapsed, Conflict, NotAllowed, NotFound
from ledger.facts import trial as t
from ledger.facts.trial import slot_of, trial_id_for, trial_stream
from ledger.rules import trial
from tests.given import JOB, NASTY_FLOATS, NASTY_NAMES, NOW, SHA_A, SHA_B, SHA_C, dispatched, fold, given, texts

D = dispatched()
STARTED = t.TrialStarted()
KEPT = t.ArtifactPersisted("out.log", SHA_A, 10)
RESULT = t.StructuredResultRecorded(0.5, {"cost": 1.5}, SHA_B)


# --- dispatch, start, release ----------------------------------------------------------------------------------------


def test_a_slot_is_dispatched_once() -> None:
    """To the same worker again, before it started, is a repeat; to another, or later, is refused."""
    mine = dispatched(worker="w1")
    given().when(trial.dispatch, dispatched=mine).then(mine)
    given(mine).when(trial.dispatch, dispatched=mine).then()
    given(mine).when(trial.dispatch, dispatched=dispatched(worker="w2")).refused(NotAllowed, "dispatched once")
    given(mine, STARTED).when(trial.dispatch, dispatched=mine).refused(NotAllowed, "dispatched once")
    given(mine, t.TrialCanceled()).when(trial.dispatch, dispatched=mine).refused(NotAllowed, "el job retry")


@pytest.mark.parametrize(
    ("bad", "saying"),
    [
        (dispatched(attempt=0), "attempt"),
        (dispatched(attempt=10**6 + 1), "attempt"),
        (dispatched(attempt=2**63), "attempt"),
        (t.TrialDispatched("id", JOB, "a\0", SHA_A, 1), "control character"),
        (t.TrialDispatched("id", JOB, "a", "sha", 1), "no sha256"),
        (dispatched(worker=""), "worker"),
        (dispatched(worker="w\0"), "control character"),
    ],
)
def test_a_dispatch_has_the_right_form(bad: Any, saying: str) -> None:
    """What no store could keep as it is, is refused before it is a fact."""
    given().when(trial.dispatch, dispatched=bad).refused(BadInput, saying)


def test_a_trial_starts_once() -> None:
    """A second report of the start is nothing new."""
    given(D).when(trial.start).then(STARTED)
    given(D).when(trial.start, started_at=NOW).then(t.TrialStarted(NOW))
    given(D, STARTED).when(trial.start, started_at=NOW).then()


def test_a_released_slot_is_free_again() -> None:
    """It can be dispatched to anybody, and a release again is nothing new."""
    released = t.TrialReleased("worker lost")
    other = dispatched(worker="w2")
    given(D).when(trial.release, reason="worker lost").then(released)
    given(D, released).when(trial.release, reason="worker lost").then()
    given().when(trial.release, reason="worker lost").then()
    given(D, released).when(trial.dispatch, dispatched=other).then(other)
    given(D, released).when(trial.start).refused(NotAllowed, "not dispatched")
    again = fold([D, released, other])
    assert (again.dispatched, again.started, again.token) == (other, False, 3)


@pytest.mark.parametrize(
    "reported",
    [STARTED, t.RewardRecorded(1.0), t.RewardRejected("null"), RESULT, KEPT, t.TrialCanceled(),
     t.RewardRevised(None, 1.0, "v", "r")],
)  # fmt: skip
def test_a_slot_with_anything_reported_is_not_freed(reported: Any) -> None:
    """A release must not make evidence vanish from what counts."""
    given(D, reported).when(trial.release, reason="").refused(NotAllowed, "not free again")


# --- reward ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", NASTY_FLOATS)
def test_every_finite_number_is_a_reward(reward: float) -> None:
    """As it is, to the last bit; the same again is nothing new."""
    given(D).when(trial.record_reward, reward=reward).then(t.RewardRecorded(reward))
    given(D, t.RewardRecorded(reward)).when(trial.record_reward, reward=reward).then()


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, True, "1", None, 10**400])
def test_what_is_no_finite_number_is_no_reward(reward: Any) -> None:
    """Not NaN, not infinity, not a truth value, not text: said so, never turned into 0 or 1."""
    given(D).when(trial.record_reward, reward=reward).refused(BadInput, "report that there is none")
    given(D).when(trial.revise_reward, new=reward, verifier="v", reason="r").refused(BadInput)


def test_the_verifier_speaks_once() -> None:
    """Another number, or a number after 'none', is a contradiction; what differs is named."""
    recorded, rejected = t.RewardRecorded(1.0), t.RewardRejected("null", SHA_A)
    given(D, recorded).when(trial.record_reward, reward=0.0).refused(Conflict, "revision", ["reward: 1.0, now 0.0"])
    given(D, rejected).when(trial.record_reward, reward=0.0).refused(
        Conflict, "revision", ["rejected as null, now 0.0"]
    )
    given(D, recorded).when(trial.reject_reward, rejected=rejected).refused(Conflict, "revision", ["reward"])
    given(D, rejected).when(trial.reject_reward, rejected=rejected).then()
    given(D, rejected).when(trial.reject_reward, rejected=t.RewardRejected("null")).refused(Conflict, "revision")
    given(D).when(trial.reject_reward, rejected=rejected).then(rejected)


def test_a_revision_keeps_the_old_value() -> None:
    """Old and new stand in the fact; the value that holds already is nothing new."""
    revised = t.RewardRevised(1.0, 0.0, "v@2", "wrong file")
    given(D, t.RewardRecorded(1.0)).when(trial.revise_reward, new=0.0, verifier="v@2", reason="wrong file").then(
        revised
    )
    given(D, t.RewardRecorded(1.0), revised).when(trial.revise_reward, new=0.0, verifier="v@3", reason="x").then()
    given(D, t.RewardRejected("null")).when(trial.revise_reward, new=1.0, verifier="v", reason="r").then(
        t.RewardRevised(None, 1.0, "v", "r")
    )


def test_a_first_reward_never_overwrites_a_revision() -> None:
    """A verifier's report that comes after its correction is refused, unless it says the same."""
    revised = t.RewardRevised(None, 1.0, "v@2", "regraded")
    given(D, revised).when(trial.record_reward, reward=0.0).refused(Conflict, "too late", ["reward: 1.0, now 0.0"])
    given(D, revised).when(trial.record_reward, reward=1.0).then(t.RewardRecorded(1.0))


def test_a_repeat_of_the_first_report_after_a_revision_is_nothing_new() -> None:
    """A retried report is harmless however late."""
    facts = (D, t.RewardRecorded(0.0), t.RewardRevised(0.0, 1.0, "v@2", "regraded"))
    given(*facts).when(trial.record_reward, reward=0.0).then()
    assert fold(facts).reward == 1.0


@pytest.mark.parametrize(("verifier", "reason"), [("", "r"), ("v", ""), ("v", "x" * 501), ("v\n", "r")])
def test_a_revision_says_who_and_why(verifier: str, reason: str) -> None:
    """A corrected score has to be explained later."""
    given(D).when(trial.revise_reward, new=1.0, verifier=verifier, reason=reason).refused(BadInput)


# --- structured result, artifacts ------------------------------------------------------------------------------------


def test_a_structured_result_comes_once() -> None:
    """The same again is nothing new, another is refused."""
    bad = t.StructuredResultRejected("not-json", SHA_A)
    given(D).when(trial.record_structured_result, result=RESULT).then(RESULT)
    given(D, RESULT).when(trial.record_structured_result, result=RESULT).then()
    given(D).when(trial.record_structured_result, result=bad).then(bad)
    given(D, bad).when(trial.record_structured_result, result=RESULT).refused(Conflict, "another structured result")


@pytest.mark.parametrize(
    "bad",
    [
        t.StructuredResultRecorded(math.nan),
        t.StructuredResultRecorded(1.0, {"cost": math.inf}),
        t.StructuredResultRecorded(1.0, {"": 1.0}),
        t.StructuredResultRecorded(1.0, {str(i): 1.0 for i in range(501)}),
        t.StructuredResultRecorded(judge="It did well."),
        t.StructuredResultRejected("not-json", raw="{oops"),
    ],
)
def test_a_structured_result_has_the_right_form(bad: Any) -> None:
    """Finite numbers, names, and texts only as artifacts."""
    given(D).when(trial.record_structured_result, result=bad).refused(BadInput)


def test_an_artifact_is_kept_once_by_its_name() -> None:
    """The same content is nothing new, other content under the name is refused, 'could not be kept' included."""
    failed = t.ArtifactFailed("out.log", "missing")
    given(D).when(trial.keep_artifact, artifact=KEPT).then(KEPT)
    given(D, KEPT).when(trial.keep_artifact, artifact=KEPT).then()
    given(D, KEPT).when(trial.keep_artifact, artifact=t.ArtifactPersisted("out.log", SHA_B, 1)).refused(Conflict)
    given(D, KEPT).when(trial.keep_artifact, artifact=failed).refused(Conflict)
    given(D).when(trial.keep_artifact, artifact=failed).then(failed)


@pytest.mark.parametrize(
    "bad",
    [
        t.ArtifactPersisted("", SHA_A, 1),
        t.ArtifactPersisted("a\0", SHA_A, 1),
        t.ArtifactPersisted("a", "sha", 1),
        t.ArtifactPersisted("a", SHA_A, -1),
        t.ArtifactPersisted("a", SHA_A, 2**63),
        t.ArtifactFailed("x" * 1_001, "missing"),
    ],
)
def test_an_artifact_has_the_right_form(bad: Any) -> None:
    """A name that can be shown, a whole digest, a size that can be."""
    given(D).when(trial.keep_artifact, artifact=bad).refused(BadInput)


def test_a_trial_keeps_a_limited_number_of_artifacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a limit on everything."""
    monkeypatch.setattr(trial, "ARTIFACTS_MAX", 1)
    given(D, KEPT).when(trial.keep_artifact, artifact=t.ArtifactPersisted("b", SHA_A, 1)).refused(
        NotAllowed, "the most"
    )


@pytest.mark.parametrize(
    "holder",
    [
        t.ArtifactPersisted("a", SHA_C, 1),
        t.RewardRejected("not-a-number", SHA_C),
        t.StructuredResultRecorded(judge=SHA_C),
        t.StructuredResultRejected("not-json", SHA_C),
        t.TrialFailed("E", message=SHA_C),
    ],
)
def test_every_content_a_trial_names_can_be_erased(holder: Any) -> None:
    """Files, raw rewards, judge summaries, messages; once, with a reason, and nothing that is not the trial's."""
    erased = t.ArtifactRedacted(SHA_C, "personal data")
    given(D, holder).when(trial.redact_artifact, sha256=SHA_C, reason="personal data").then(erased)
    given(D, holder, erased).when(trial.redact_artifact, sha256=SHA_C, reason="again").then()
    given(D, holder).when(trial.redact_artifact, sha256=SHA_C, reason="").refused(BadInput)
    given(D, holder).when(trial.redact_artifact, sha256=SHA_A, reason="x").refused(NotFound)
    given(D, holder).when(trial.redact_artifact, sha256="x", reason="x").refused(BadInput)


# --- the end ---------------------------------------------------------------------------------------------------------

ENDS = (t.TrialSucceeded(0, 1.5, NOW), t.TrialFailed("Timeout", "agent", -9, SHA_A), t.TrialCanceled("called off"))


@pytest.mark.parametrize("ended", ENDS)
def test_a_trial_ends_once(ended: Any) -> None:
    """The same end again is nothing new; any other is refused with what differs."""
    given(D).when(trial.end, ended=ended).then(ended)
    given(D, ended).when(trial.end, ended=ended).then()
    for other in set(ENDS) - {ended}:
        differs = [f"{trial.outcome_of(ended)}, now {trial.outcome_of(other)}"]
        given(D, ended).when(trial.end, ended=other).refused(Conflict, "ends once", differs)


def test_the_same_end_with_another_exit_code_says_so() -> None:
    """A contradiction within one outcome names the field."""
    given(D, t.TrialSucceeded(0)).when(trial.end, ended=t.TrialSucceeded(1)).refused(
        Conflict, "ends once", ["exit_code: 0, now 1"]
    )


@pytest.mark.parametrize(
    "bad",
    [
        t.TrialSucceeded(2**63),
        t.TrialSucceeded(0, math.nan),
        t.TrialFailed("", "agent"),
        t.TrialFailed("a\nb"),
        t.TrialFailed("E", duration_s=math.inf),
        t.TrialFailed("E", exit_code=-(2**63) - 1),
        t.TrialFailed("E", message="Traceback (most recent call last)"),
        t.TrialCanceled("x" * 501),
    ],
)
def test_an_end_has_the_right_form(bad: Any) -> None:
    """Numbers that every store can keep, and free text only as an artifact."""
    given(D).when(trial.end, ended=bad).refused(BadInput)


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        (trial.start, {}),
        (trial.record_reward, {"reward": 1.0}),
        (trial.reject_reward, {"rejected": t.RewardRejected("null")}),
        (trial.revise_reward, {"new": 1.0, "verifier": "v", "reason": "r"}),
        (trial.record_structured_result, {"result": RESULT}),
        (trial.keep_artifact, {"artifact": KEPT}),
        (trial.redact_artifact, {"sha256": SHA_A, "reason": "r"}),
        (trial.end, {"ended": ENDS[0]}),
    ],
)
def test_without_a_dispatch_there_is_nothing_to_report_on(rule: Any, arguments: dict[str, Any]) -> None:
    """A slot never given out, or freed again, has no trial."""
    given().when(rule, **arguments).refused(NotAllowed, "not dispatched")
    given(D, t.TrialReleased()).when(rule, **arguments).refused(NotAllowed, "not dispatched")


# --- six signals -----------------------------------------------------------------------------------------------------


def test_six_signals_stay_apart_in_any_order() -> None:
    """Status, error, reward, structured result, artifacts: every order of reports gives each its own, and the same."""
    asks: list[tuple[Any, dict[str, Any]]] = [
        (trial.start, {}),
        (trial.record_reward, {"reward": 1.0}),
        (trial.record_structured_result, {"result": t.StructuredResultRejected("missing")}),
        (trial.keep_artifact, {"artifact": t.ArtifactFailed("x", "missing")}),
        (trial.end, {"ended": ENDS[1]}),
    ]
    for order in permutations(asks):
        facts: list[Any] = [D]
        for rule, arguments in order:
            facts += rule(fold(facts), **arguments)
        state = fold(facts)
        assert (state.started, state.reward, state.ended) == (True, 1.0, ENDS[1])
        assert state.structured == t.StructuredResultRejected("missing")
        assert set(state.artifacts) == {"x"}
        assert len(facts) == 6


def test_a_failed_trial_may_have_a_reward_and_a_succeeded_one_none() -> None:
    """No rule derives one signal from another."""
    given(D, ENDS[1]).when(trial.record_reward, reward=1.0).then(t.RewardRecorded(1.0))
    assert fold([D, STARTED, ENDS[0]]).reward is None
    assert fold([D, STARTED, t.RewardRecorded(1.0), ENDS[1]]).reward == 1.0


@for_all(texts, st.integers(1, 10**6))
def test_a_stream_names_its_slot(task: str, attempt: int) -> None:
    """Job, attempt and task are read back from a trial's stream, whatever the task is called."""
    assert slot_of(trial_stream(JOB, task, attempt)) == (JOB, attempt, task)


def test_a_trial_has_the_same_id_at_every_dispatch() -> None:
    """And no two slots share one."""
    ids = {trial_id_for(JOB, name, attempt) for name in NASTY_NAMES for attempt in (1, 2)}
    assert len(ids) == 2 * len(NASTY_NAMES)
    assert trial_id_for(JOB, "a", 1) == trial_id_for(JOB, "a", 1)


# --- claims ----------------------------------------------------------------------------------------------------------

RELEASED = t.TrialReleased("lease lapsed")
LAPSED = t.TrialFailed("LeaseLapsed", "agent")
EVIDENCE = t.RewardRejected("lapsed-claim", SHA_A)


def test_a_claim_is_current_until_its_slot_is_freed_given_out_again_or_ended_as_lapsed() -> None:
    """The token is the version at which the slot was given out; an ordinary end leaves it, so a repeat is harmless."""
    given(D).when(trial.require_claim, token=1).then()
    given(D, STARTED, ENDS[0]).when(trial.require_claim, token=1).then()
    for facts in ((D, RELEASED), (D, RELEASED, D), (D, STARTED, LAPSED)):
        given(*facts).when(trial.require_claim, token=1).refused(ClaimLapsed, "does not count")
    given(D, RELEASED, D).when(trial.require_claim, token=3).then()
    given(D).when(trial.require_claim, token=2).refused(ClaimLapsed)
    given().when(trial.require_claim, token=0).refused(ClaimLapsed)


def test_what_has_moved_on_is_not_lapsed() -> None:
    """The rule looks at the stream as it is now: a trial that started, ended or changed hands since is left alone."""
    given(D).when(trial.lapse, token=1, started=False).then(RELEASED)
    given(D, STARTED).when(trial.lapse, token=1, started=True).then(LAPSED)
    given(D, STARTED).when(trial.lapse, token=1, started=False).then()
    given(D, STARTED, ENDS[0]).when(trial.lapse, token=1, started=True).then()
    given(D, STARTED, LAPSED).when(trial.lapse, token=1, started=True).then()
    given(D, RELEASED, D).when(trial.lapse, token=1, started=False).then()
    given().when(trial.lapse, token=1, started=False).then()


def test_a_reward_that_comes_too_late_is_evidence_and_no_grading() -> None:
    """It is kept once, also on a slot that is free by then, and changes neither what was graded nor what may be."""
    given(D, STARTED, LAPSED).when(trial.keep_late_reward, token=1, raw=SHA_A).then(EVIDENCE)
    given(D, RELEASED).when(trial.keep_late_reward, token=1, raw=SHA_A).then(EVIDENCE)
    given(D, RELEASED, EVIDENCE, D).when(trial.keep_late_reward, token=1, raw=SHA_A).then()
    given(D).when(trial.keep_late_reward, token=7, raw=SHA_A).then()
    given().when(trial.keep_late_reward, token=1, raw=SHA_A).then()
    state = fold([D, RELEASED, D, STARTED, EVIDENCE])
    assert (state.graded, state.reward, state.token) == (None, None, 3)
    given(D, STARTED, EVIDENCE).when(trial.record_reward, reward=1.0).then(t.RewardRecorded(1.0))
    graded = fold([D, STARTED, t.RewardRecorded(0.0), EVIDENCE])
    assert (graded.graded, graded.reward) == (t.RewardRecorded(0.0), 0.0)
    given(D, EVIDENCE).when(trial.redact_artifact, sha256=SHA_A, reason="x").then(t.ArtifactRedacted(SHA_A, "x"))


def test_evidence_is_limited_and_only_the_ledger_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that never gives up cannot fill the log, and none can call its own reward late."""
    monkeypatch.setattr(trial, "LATE_REWARDS_MAX", 1)
    given(D, EVIDENCE).when(trial.keep_late_reward, token=1, raw=SHA_B).then()
    given(D).when(trial.reject_reward, rejected=EVIDENCE).refused(BadInput, "Only the ledger itself")
