"""Rows of read models into answers: times as text, names as people know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.answers import JobAnswer, LostReward, PolicyAnswer, ResultAnswer, RevisedReward, TaskResult, TrialAnswer
from api.under_policy import remarks
from ledger.codec import TAGS, decode
from ledger.facts.trial import slot_of
from projections.audit_trail import AuditRow
from projections.following import instant, microseconds
from projections.job_metrics import JobResult
from projections.jobs import JobRow
from projections.metrics import Metrics
from projections.trials import TrialRow, structured_result, why_no_reward


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
        position=row.position,
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
    revised: Sequence[TrialRow],
    revised_total: int,
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
        revised=[
            RevisedReward(trial.trial_id, trial.task, trial.attempt, trial.first_reward, trial.reward)
            for trial in revised
            if trial.reward is not None
        ],
        revised_total=revised_total,
        flags=list(origin.flags),
        as_reported=origin.as_reported,
        remarks=remarks(metrics, origin),
        policy=policy,
        as_of=as_of,
    )


def trial_answer(row: TrialRow) -> TrialAnswer:
    """A trial as HTTP answers it."""
    fields = {name: value for name, value in msgspec.structs.asdict(row).items() if not name.endswith("_us")}
    fields |= {
        f"{name}_at": None if at is None else instant(at)
        for name, at in (("dispatched", row.dispatched_us), ("started", row.started_us), ("ended", row.ended_us))
    }
    return TrialAnswer(**fields | {"structured": structured_result(row), "why_no_reward": why_no_reward(row)})


def trial_row(answer: TrialAnswer) -> TrialRow:
    """The row that `trial_answer` was made from."""
    fields: dict[str, Any] = {name: getattr(answer, name, None) for name in TrialRow.__struct_fields__}
    fields |= {
        f"{name}_us": None if at is None else microseconds(at)
        for name, at in (
            ("dispatched", answer.dispatched_at),
            ("started", answer.started_at),
            ("ended", answer.ended_at),
        )
    }
    structured = None if answer.structured is None else msgspec.json.encode(answer.structured)
    return TrialRow(**fields | {"structured": structured})


def audit_row(position: int, body: bytes) -> AuditRow:
    """A row of the audit trail from the entry it is about."""
    entry = decode(position, body).entry
    slot = slot_of(entry.stream) if entry.stream.startswith("trial/") else None
    job_id = slot.job_id if slot else entry.stream.removeprefix("job/") if entry.stream.startswith("job/") else None
    attempt, task = (slot.attempt, slot.task) if slot else (None, None)
    return AuditRow(position, microseconds(entry.at), TAGS[type(entry.fact)], entry.actor, job_id, attempt, task, body)


def metrics_of(answer: ResultAnswer) -> Metrics:
    """The numbers of a result by themselves."""
    return Metrics(**{name: getattr(answer, name) for name in Metrics.__struct_fields__})


def lost_reward(trial: TrialRow) -> LostReward:
    """An ended trial without a reward, by the phase that lost it."""
    phase = {"failed": trial.phase, "canceled": "canceled"}.get(trial.status) or "verifier"
    why = why_no_reward(trial) or ""
    return LostReward(trial.trial_id, trial.task, trial.attempt, trial.status, phase, why, trial.error_type)
