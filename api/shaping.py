"""Rows of read models into answers: times as text, names as people know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from api.answers import JobAnswer, LostReward, PolicyAnswer, ResultAnswer, TaskResult
from api.under_policy import remarks
from projections.following import instant
from projections.job_metrics import JobResult
from projections.jobs import JobRow
from projections.trials import TrialRow, why_no_reward


def time_text(microseconds: int | None) -> str | None:
    """An instant as RFC 3339 in UTC, to the second."""
    if microseconds is None:
        return None
    return instant(microseconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def job_answer(row: JobRow, endings: Mapping[str, int], as_of: int) -> JobAnswer:
    """A job as it stands."""
    manifest = row.manifest
    return JobAnswer(
        id=row.job_id,
        status=row.status,
        reason=row.reason,
        dataset=manifest.dataset,
        runner=manifest.runner,
        profile=manifest.profile,
        attempts=manifest.attempts,
        members=manifest.member_count,
        subset=manifest.subset,
        parameters=manifest.parameters,
        secrets=sorted(manifest.secrets),
        ignored=list(manifest.ignored),
        request_id=manifest.request_id,
        tags=manifest.tags,
        agent_run=manifest.agent_run,
        agent_round=manifest.agent_round,
        origin=msgspec.to_builtins(manifest.origin),
        submitted_at=time_text(row.submitted_us) or "",
        ended_at=time_text(row.ended_us),
        endings=dict(endings),
        as_of=as_of,
    )


def result_answer(
    row: JobRow,
    measured: JobResult,
    tasks: list[TaskResult],
    lost: Sequence[TrialRow],
    policy: PolicyAnswer | None,
    *,
    tasks_after: int,
    tasks_more: bool,
    as_of: int,
) -> ResultAnswer:
    """A job's result with a page of its tasks."""
    metrics, origin = measured.metrics, row.manifest.origin
    return ResultAnswer(
        id=row.job_id,
        status=row.status,
        dataset=row.manifest.dataset,
        score_counts=metrics.score_counts,
        k=metrics.k,
        score=metrics.score,
        pass_=metrics.pass_,
        pass_at_k=metrics.pass_at_k,
        pass_hat_k=metrics.pass_hat_k,
        curve=metrics.curve,
        score_bounds=metrics.score_bounds,
        interval_95=metrics.interval_95,
        denominators=metrics.denominators,
        definition=metrics.definition,
        endings=measured.endings,
        lost=measured.lost,
        lost_trials=[lost_reward(trial) for trial in lost],
        tasks=tasks,
        tasks_after=tasks_after,
        tasks_more=tasks_more,
        flags=list(origin.flags),
        as_reported=origin.as_reported,
        remarks=remarks(metrics, origin),
        policy=policy,
        as_of=as_of,
    )


def lost_reward(trial: TrialRow) -> LostReward:
    """An ended trial without a reward, by the phase that lost it."""
    phase = {"failed": trial.phase, "canceled": "canceled"}.get(trial.status) or "verifier"
    why = why_no_reward(trial) or ""
    return LostReward(trial.trial_id, trial.task, trial.attempt, trial.status, phase, why, trial.error_type)
