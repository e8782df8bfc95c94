"""Rules of a trial. Reports may come in any order and as often as needed: a repeat is nothing new, a contradiction
is refused. The six signals stay apart: no rule derives one from another."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Literal, assert_never

import msgspec

from ledger.errors import BadInput, ClaimLapsed, Conflict, NotAllowed, NotFound
from ledger.facts.trial import (
    ArtifactFailed,
    ArtifactPersisted,
    ArtifactRedacted,
    RewardRecorded,
    RewardRejected,
    RewardRevised,
    StructuredResultRecorded,
    StructuredResultRejected,
    TrialCanceled,
    TrialDispatched,
    TrialFact,
    TrialFailed,
    TrialReleased,
    TrialStarted,
    TrialSucceeded,
)
from ledger.rules.forms import (
    checked_number,
    checked_reason,
    checked_sha256,
    checked_task_name,
    checked_text,
    checked_whole,
)

ARTIFACTS_MAX = 10_000
DIMENSIONS_MAX = 500
ATTEMPT_MAX = 1_000_000
LATE_REWARDS_MAX = 100
LEASE_LAPSED = "LeaseLapsed"
_INT64 = 2**63

Ended = TrialSucceeded | TrialFailed | TrialCanceled


class Trial(msgspec.Struct, frozen=True):
    """A trial as its facts tell it. `graded` is what the verifier said first; `reward` is what holds now.

    `version` is that of the stream's last fact; `claims` are the versions at which the slot was given out, the last of
    them the token of the current claim; `late` names the rewards that came under claims that had lapsed.
    """

    dispatched: TrialDispatched | None = None
    started: bool = False
    graded: RewardRecorded | RewardRejected | None = None
    reward: float | None = None
    structured: StructuredResultRecorded | StructuredResultRejected | None = None
    artifacts: Mapping[str, ArtifactPersisted | ArtifactFailed] = {}
    redacted: frozenset[str] = frozenset()
    ended: Ended | None = None
    version: int = 0
    claims: tuple[int, ...] = ()
    late: frozenset[str] = frozenset()

    @property
    def token(self) -> int:
        """The token of the current claim, which rises with each; 0 while the slot is free or its claim has lapsed."""
        lapsed = isinstance(self.ended, TrialFailed) and self.ended.error_type == LEASE_LAPSED
        return 0 if self.dispatched is None or lapsed else self.claims[-1]


def evolve(state: Trial | None, fact: TrialFact) -> Trial:  # noqa: PLR0911 - one return a fact
    """The trial after one more fact."""
    state = state or Trial()
    version = state.version + 1
    replace = partial(msgspec.structs.replace, state, version=version)
    match fact:
        case TrialDispatched():
            return replace(dispatched=fact, claims=(*state.claims, version))
        case TrialStarted():
            return replace(started=True)
        case RewardRecorded():
            return replace(graded=fact, reward=fact.reward)
        case RewardRejected(why="lapsed-claim"):
            return replace(late=state.late | {fact.raw or ""})
        case RewardRejected():
            return replace(graded=fact)
        case RewardRevised():
            return replace(reward=fact.new)
        case StructuredResultRecorded() | StructuredResultRejected():
            return replace(structured=fact)
        case ArtifactPersisted() | ArtifactFailed():
            return replace(artifacts={**state.artifacts, fact.name: fact})
        case ArtifactRedacted():
            return replace(redacted=state.redacted | {fact.sha256})
        case TrialSucceeded() | TrialFailed() | TrialCanceled():
            return replace(ended=fact)
        case TrialReleased():
            return Trial(version=version, claims=state.claims, late=state.late)
        case _:
            assert_never(fact)


def dispatch(state: Trial | None, *, dispatched: TrialDispatched) -> list[TrialFact]:
    """Give the slot out. To the same worker again, before it started, is nothing new; to another is refused."""
    had = state.dispatched if state else None
    if had is None or state is None:
        checked_task_name(dispatched.task)
        checked_sha256(dispatched.task_digest)
        checked_whole(dispatched.attempt, what="attempt", least=1, most=ATTEMPT_MAX)
        if dispatched.worker is not None:
            checked_text(dispatched.worker, what="worker", chars_max=200)
        return [dispatched]
    if had == dispatched and not state.started and state.ended is None:
        return []
    raise NotAllowed(
        f"Attempt {had.attempt} of {had.task!r} was dispatched already; a slot is dispatched once. "
        "`el job retry` adds an attempt."
    )


def require_claim(state: Trial | None, *, token: int) -> list[TrialFact]:
    """Record nothing, and refuse whoever reports under a claim that is not the slot's current one."""
    if state is None or state.token != token:
        raise ClaimLapsed(
            "The claim has lapsed, so what is reported under it does not count: its worker was not heard of in time, "
            "and the slot was ended, freed or given to another."
        )
    return []


def lapse(state: Trial | None, *, token: int, started: bool) -> list[TrialFact]:
    """End a claim whose worker was not heard of in time, as it was last seen: a started trial failed, else it is free.

    Nothing when the trial has moved on since: then somebody is at work on it.
    """
    if state is None or state.token != token or state.ended or state.started != started:
        return []
    if started:
        return end(state, ended=TrialFailed(LEASE_LAPSED, "agent"))
    return release(state, reason="lease lapsed")


def keep_late_reward(state: Trial | None, *, token: int, raw: str) -> list[TrialFact]:
    """Keep a reward that came under a claim that had lapsed, as evidence only: `raw` names the number's text.

    Nothing for a number kept already, under a claim that never was, or beyond the most that a trial keeps.
    """
    checked_sha256(raw)
    if state is None or token not in state.claims or raw in state.late or len(state.late) >= LATE_REWARDS_MAX:
        return []
    return [RewardRejected("lapsed-claim", raw)]


def start(state: Trial | None, *, started_at: datetime | None = None) -> list[TrialFact]:
    """Execution began."""
    return [] if _dispatched(state).started else [TrialStarted(started_at)]


def record_reward(state: Trial | None, *, reward: float, source: str | None = None) -> list[TrialFact]:
    """The verifier gave a number."""
    fact = RewardRecorded(checked_number(reward, what="reward"), source)
    if source is not None:
        checked_text(source, what="source of the reward", chars_max=1_000)
    trial = _dispatched(state)
    match trial.graded:
        case None if trial.reward is None or trial.reward == fact.reward:
            return [fact]
        case None:
            raise Conflict(
                "The trial's reward was revised already; what the verifier said first comes too late.",
                [f"reward: {trial.reward!r}, now {fact.reward!r}"],
            )
        case RewardRecorded(had) if had == fact.reward:
            return []
        case RewardRecorded(had):
            raise Conflict(
                "The trial has another reward already; a correction is a revision with its reason.",
                [f"reward: {had!r}, now {fact.reward!r}"],
            )
        case RewardRejected(why):
            raise Conflict(
                "The trial's reward was rejected already; a correction is a revision with its reason.",
                [f"rejected as {why}, now {fact.reward!r}"],
            )


def reject_reward(state: Trial | None, *, rejected: RewardRejected) -> list[TrialFact]:
    """The verifier gave no usable number."""
    if rejected.why == "lapsed-claim":
        raise BadInput("Only the ledger itself says that a claim has lapsed; give another reason for the reward.")
    graded = _dispatched(state).graded
    if graded == rejected:
        return []
    if graded is not None:
        raise Conflict(
            "The trial's reward was settled already; a correction is a revision with its reason.", ["reward"]
        )
    if rejected.raw is not None:
        checked_sha256(rejected.raw)
    return [rejected]


def revise_reward(state: Trial | None, *, new: float, verifier: str, reason: str) -> list[TrialFact]:
    """Correct a reward by a later grading; the value that holds already is nothing new."""
    trial = _dispatched(state)
    value = checked_number(new, what="reward")
    checked_text(verifier, what="verifier", chars_max=200)
    checked_reason(reason)
    return [] if trial.reward == value else [RewardRevised(trial.reward, value, verifier, reason)]


def record_structured_result(
    state: Trial | None, *, result: StructuredResultRecorded | StructuredResultRejected
) -> list[TrialFact]:
    """What the declared result file gave, or why it could not be used."""
    had = _dispatched(state).structured
    if had == result:
        return []
    if had is not None:
        raise Conflict("The trial has another structured result already.", ["structured result"])
    if isinstance(result, StructuredResultRecorded):
        if result.composite is not None:
            checked_number(result.composite, what="composite")
        if len(result.dimensions) > DIMENSIONS_MAX:
            raise BadInput(f"A structured result names at most {DIMENSIONS_MAX} dimensions.")
        for name, value in result.dimensions.items():
            checked_text(name, what="dimension name", chars_max=200)
            checked_number(value, what=f"dimension {name}")
    content = result.judge if isinstance(result, StructuredResultRecorded) else result.raw
    if content is not None:
        checked_sha256(content)
    return [result]


def keep_artifact(state: Trial | None, *, artifact: ArtifactPersisted | ArtifactFailed) -> list[TrialFact]:
    """A file was kept, or could not be."""
    trial = _dispatched(state)
    had = trial.artifacts.get(artifact.name)
    if had == artifact:
        return []
    if had is not None:
        raise Conflict(f"The trial has another artifact named {artifact.name!r} already.", ["artifact"])
    checked_text(artifact.name, what="artifact name", chars_max=1_000)
    if isinstance(artifact, ArtifactPersisted):
        checked_sha256(artifact.sha256)
        checked_whole(artifact.size, what="size of an artifact", least=0, most=_INT64 - 1)
    if len(trial.artifacts) >= ARTIFACTS_MAX:
        raise NotAllowed(f"The trial has {ARTIFACTS_MAX:,} artifacts already, the most a trial may have.")
    return [artifact]


def redact_artifact(state: Trial | None, *, sha256: str, reason: str) -> list[TrialFact]:
    """An artifact of this trial was erased on purpose."""
    trial = _dispatched(state)
    if checked_sha256(sha256) in trial.redacted:
        return []
    if sha256 not in known_contents(trial):
        raise NotFound(f"The trial has no artifact {sha256}; `el trial artifacts` lists those it has.")
    return [ArtifactRedacted(sha256, checked_reason(reason))]


def end(state: Trial | None, *, ended: Ended) -> list[TrialFact]:
    """Execution ended: well, badly, or called off. It ends once."""
    trial = _dispatched(state)
    if trial.ended == ended:
        return []
    if trial.ended is not None:
        raise Conflict(
            f"The trial has {outcome_of(trial.ended)} already; a trial ends once.",
            _differences(trial.ended, ended),
        )
    if isinstance(ended, TrialCanceled):
        checked_reason(ended.reason, empty=True)
        return [ended]
    if isinstance(ended, TrialFailed):
        checked_text(ended.error_type, what="error type", chars_max=200)
        if ended.message is not None:
            checked_sha256(ended.message)
    if ended.duration_s is not None:
        checked_number(ended.duration_s, what="duration")
    if ended.exit_code is not None:
        checked_whole(ended.exit_code, what="exit code", least=-_INT64, most=_INT64 - 1)
    return [ended]


def release(state: Trial | None, *, reason: str) -> list[TrialFact]:
    """Free a slot that was dispatched but never started; a free slot stays free."""
    if state is None or state.dispatched is None:
        return []
    reported = state.ended or state.graded or state.structured or state.artifacts or state.reward is not None
    if state.started or reported:
        raise NotAllowed("The trial has started, so its slot is not free again; it ends instead.")
    return [TrialReleased(checked_reason(reason, empty=True))]


def outcome_of(ended: Ended) -> Literal["succeeded", "failed", "canceled"]:
    """The word for how a trial ended."""
    match ended:
        case TrialSucceeded():
            return "succeeded"
        case TrialFailed():
            return "failed"
        case TrialCanceled():
            return "canceled"
        case _:
            assert_never(ended)


def known_contents(trial: Trial) -> set[str]:
    """The sha256 of every content that the trial's facts name: files, raw rewards, messages, judge summaries."""
    found = {kept.sha256 for kept in trial.artifacts.values() if isinstance(kept, ArtifactPersisted)}
    if isinstance(trial.graded, RewardRejected) and trial.graded.raw:
        found.add(trial.graded.raw)
    match trial.structured:
        case StructuredResultRecorded(judge=str(judge)):
            found.add(judge)
        case StructuredResultRejected(raw=str(raw)):
            found.add(raw)
        case _:
            pass
    if isinstance(trial.ended, TrialFailed) and trial.ended.message:
        found.add(trial.ended.message)
    return found | trial.late


def _differences(had: Ended, has: Ended) -> list[str]:
    """What differs between two endings: the outcome, or else the fields, each as it was and is now."""
    if type(had) is not type(has):
        return [f"{outcome_of(had)}, now {outcome_of(has)}"]
    before, after = msgspec.structs.asdict(had), msgspec.structs.asdict(has)
    return [f"{name}: {before[name]!r}, now {after[name]!r}" for name in before if before[name] != after[name]]


def _dispatched(state: Trial | None) -> Trial:
    if state is None or state.dispatched is None:
        raise NotAllowed("The slot was not dispatched, so there is no trial to report on; dispatch it first.")
    return state
