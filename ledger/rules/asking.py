"""From facts back to the rules that return them: how what was handed in as facts is asked about all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ledger.errors import BadInput
from ledger.facts.catalogue import DatasetMembersAdded, DatasetPublished, ProfilePublished, RunnerPublished, Task
from ledger.facts.job import (
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobMembersSelected,
    JobOriginSealed,
    JobRetryRequested,
    JobSubmitted,
)
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
    TrialFailed,
    TrialReleased,
    TrialStarted,
    TrialSucceeded,
)
from ledger.rules import catalogue, job, trial

AskedRule = Callable[[Any], Sequence[Any]]


def rules_returning(facts: Iterable[Any]) -> list[AskedRule]:
    """The rules that return the facts of one stream, in their order, where the stream does not have them yet.

    Facts about members belong to the one that seals them, and are returned by its rule.

    Raises:
        BadInput: no rule returns such a fact when it is handed in, or members are not sealed.
    """
    asked: list[AskedRule] = []
    members: list[Task] = []
    for fact in facts:
        match fact:
            case DatasetMembersAdded(tasks) | JobMembersSelected(tasks):
                members += tasks
            case DatasetPublished():
                asked.append(_publish_dataset(fact, members))
                members = []
            case JobSubmitted():
                asked.append(partial(job.submit_job, manifest=fact, selected=members))
                members = []
            case _:
                asked.append(rule_of(fact))
    if members:
        raise BadInput("Members are handed in without the fact that seals them; hand both in together.")
    return asked


def rule_of(fact: Any) -> AskedRule:
    """The rule that returns this one fact. Raises BadInput when there is none that is asked from outside."""
    rule = _rule_of_trial(fact) or _rule_of_others(fact)
    if rule is None:
        raise BadInput(f"A fact of this kind cannot be handed in: {type(fact).__struct_config__.tag}.")
    return rule


def _rule_of_trial(fact: Any) -> AskedRule | None:  # noqa: PLR0911 - one return a fact
    match fact:
        case TrialDispatched():
            return partial(trial.dispatch, dispatched=fact)
        case TrialStarted(started_at):
            return partial(trial.start, started_at=started_at)
        case RewardRecorded(reward, source):
            return partial(trial.record_reward, reward=reward, source=source)
        case RewardRejected():
            return partial(trial.reject_reward, rejected=fact)
        case StructuredResultRecorded() | StructuredResultRejected():
            return partial(trial.record_structured_result, result=fact)
        case ArtifactPersisted() | ArtifactFailed():
            return partial(trial.keep_artifact, artifact=fact)
        case TrialSucceeded() | TrialFailed() | TrialCanceled():
            return partial(trial.end, ended=fact)
        case TrialReleased(reason):
            return partial(trial.release, reason=reason)
        case RewardRevised():
            return partial(trial.revise_reward, new=fact.new, verifier=fact.verifier, reason=fact.reason)
        case ArtifactRedacted(sha256, reason):
            return partial(trial.redact_artifact, sha256=sha256, reason=reason)
        case _:
            return None


def _rule_of_others(fact: Any) -> AskedRule | None:  # noqa: PLR0911 - one return a fact
    match fact:
        case RunnerPublished():
            return partial(catalogue.publish_runner, runner=fact)
        case ProfilePublished():
            return partial(catalogue.publish_profile, profile=fact)
        case JobOriginSealed(request_id, origin):
            return partial(job.seal_origin, request_id=request_id, origin=origin)
        case JobRetryRequested():
            return partial(
                job.request_retry,
                task=fact.task,
                attempt_min=fact.attempt,
                reason=fact.reason,
                request_id=fact.request_id,
            )
        case JobCompleted():
            return partial(job.finish_job, failed_trials=0)
        case JobFailed(failed_trials, None):
            return partial(job.finish_job, failed_trials=failed_trials)
        case JobFailed(_, str(error_type)):
            return partial(job.fail_job, error_type=error_type)
        case JobCanceled(reason):
            return partial(job.cancel_job, reason=reason)
        case _:
            return None


def _publish_dataset(seal: DatasetPublished, members: Sequence[Task]) -> AskedRule:
    return partial(
        catalogue.publish_dataset,
        ref=seal.ref,
        tasks=members,
        runner=seal.runner,
        members_digest=seal.members_digest,
        digests=seal.digests,
    )
