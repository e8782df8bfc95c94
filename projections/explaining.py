"""Why a number is what it is: from a metric to its formula and denominator, to the members counted and left out and
why, to their trials, and to the entries that made each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from sqlalchemy.engine import Connection

from ledger import codec
from ledger.codec import TAGS
from ledger.facts.trial import (
    RewardRecorded,
    RewardRejected,
    RewardRevised,
    Slot,
    TrialCanceled,
    TrialDispatched,
    TrialFailed,
    TrialReleased,
    TrialSucceeded,
    trial_id_for,
    trial_stream,
)
from ledger.recorder import ProjectRecorder
from projections import job_metrics, jobs
from projections.following import microseconds
from projections.job_metrics import Attempt
from projections.jobs import JobRow
from projections.shares import METRICS, Explained, metric_named, shown_name


class MadeBy(msgspec.Struct, frozen=True):
    """An entry that made a value: where it stands, what it says, who recorded it and when (microseconds, UTC)."""

    position: int
    tag: str
    actor: str
    recorded_us: int
    says: str


class TrialExplained(msgspec.Struct, frozen=True):
    """A trial of a member, whether its reward is counted, and what made it so."""

    trial_id: str
    attempt: int
    status: str
    reward: float | None
    counted: bool
    why_not: str | None
    made_by: list[MadeBy]


class MemberExplained(msgspec.Struct, frozen=True):
    """What a member adds to the numerator; when it is left out, why. `undispatched` counts slots without a trial."""

    task: str
    counted: bool
    why_not: str | None
    adds: float | None
    undispatched: int
    trials: list[TrialExplained]


class Explanation(msgspec.Struct, frozen=True):
    """A metric of a job, taken apart. `name` is what the job's result calls it.

    `denominator` counts `denominator_of`; `left_out` counts members by the reason they are left out for. `members` is a
    page that starts at member number `after` (from 0). `why_null` says why there is no value.
    """

    id: str
    metric: str
    name: str
    value: float | list[float] | None
    why_null: str | None
    formula: str
    denominator: int
    denominator_of: str
    counted: int
    left_out: dict[str, int]
    members: list[MemberExplained]
    after: int
    more: bool
    definition: str
    as_of: int


def explain(
    connection: Connection,
    recorder: ProjectRecorder,
    job: JobRow,
    *,
    metric: str,
    as_of: int,
    task: str | None = None,
    after: int = 0,
    limit: int = 20,
) -> Explanation:
    """Take a metric of a job apart, for all members or for one. Reads each member once to count who is left out.

    Raises:
        BadInput: there is no such metric; names those there are.
        NotFound: the job has no such member.
    """
    k = job.manifest.attempts
    metric = metric_named(metric, k)
    kind = METRICS[metric]
    measured = job_metrics.result_of(connection, recorder.project_id, job.job_id).metrics
    counted, left_out = _count(connection, recorder.project_id, job, kind)
    if task is None:
        names = jobs.list_members(connection, recorder.project_id, job.manifest, after=after, limit=limit + 1)
    else:
        names, after = [jobs.find_member(connection, recorder.project_id, job.manifest, task).name], 0
    shown = names[:limit] if task is None else names
    attempts = job_metrics.attempts_of(connection, recorder.project_id, job.job_id, shown)
    made_by = _made_by(recorder, job.job_id, attempts, as_of)
    value = kind.value(measured)
    return Explanation(
        id=job.job_id,
        metric=metric,
        name=shown_name(metric, k),
        value=list(value) if isinstance(value, tuple) else value,
        why_null=kind.why_null(measured) if value is None else None,
        formula=kind.formula,
        denominator=kind.denominator(measured),
        denominator_of=kind.denominator_of,
        counted=counted,
        left_out=left_out,
        members=[_member(job.job_id, name, attempts[name], k, kind, made_by) for name in shown],
        after=after,
        more=len(names) > len(shown),
        definition=measured.definition,
        as_of=as_of,
    )


def _count(connection: Connection, project_id: str, job: JobRow, kind: Explained) -> tuple[int, dict[str, int]]:
    """How many members are counted; and of those left out, how many for which reason."""
    k, reasons, seen, counted = job.manifest.attempts, Counter[str](), 0, 0
    for _, attempts in job_metrics.members_of(connection, project_id, job.job_id):
        why_not = kind.share(attempts, k).why_not
        seen += 1
        if why_not is None:
            counted += 1
        else:
            reasons[why_not] += 1
    if never := job.manifest.member_count - seen:
        why_not = kind.share([], k).why_not
        if why_not is None:
            counted += never
        else:
            reasons[why_not] += never
    return counted, dict(sorted(reasons.items()))


def _member(
    job_id: str,
    task: str,
    attempts: Sequence[Attempt],
    k: int,
    kind: Explained,
    made_by: dict[Slot, list[MadeBy]],
) -> MemberExplained:
    adds, why_not = kind.share(attempts, k)
    trials = [
        TrialExplained(
            trial_id_for(job_id, task, attempt.attempt),
            attempt.attempt,
            attempt.status,
            attempt.reward,
            why_not is None and attempt.reward is not None,
            _why_no_reward(attempt) or why_not,
            made_by[Slot(job_id, attempt.attempt, task)],
        )
        for attempt in attempts
    ]
    dispatched = sum(attempt.attempt <= k for attempt in attempts)
    return MemberExplained(task, why_not is None, why_not, adds, max(0, k - dispatched), trials)


def _why_no_reward(attempt: Attempt) -> str | None:
    if attempt.reward is not None:
        return None
    if attempt.lost is None:
        return "no reward yet"
    return f"its reward was lost in {'an unknown phase' if attempt.lost == 'unknown' else attempt.lost}"


def _made_by(
    recorder: ProjectRecorder, job_id: str, attempts: dict[str, list[Attempt]], as_of: int
) -> dict[Slot, list[MadeBy]]:
    """The entries that say what each trial's reward and end are, in the order of the log."""
    slots = [Slot(job_id, attempt.attempt, task) for task, made in attempts.items() for attempt in made]
    bodies = recorder.bodies_of([trial_stream(slot.job_id, slot.task, slot.attempt) for slot in slots])
    found: dict[Slot, list[MadeBy]] = {}
    for slot in slots:
        past = codec.decode_all(bodies[trial_stream(slot.job_id, slot.task, slot.attempt)])
        found[slot] = [
            MadeBy(at, TAGS[type(entry.fact)], entry.actor, microseconds(entry.at), says)
            for at, entry in past
            if at <= as_of and (says := _says(entry.fact)) is not None
        ]
    return found


def _says(fact: object) -> str | None:  # noqa: PLR0911 - one return a fact
    """What a fact says of a trial's reward or end beyond its kind, in a few words; None when it is about neither."""
    match fact:
        case TrialDispatched(worker=worker):
            return f"to {worker}" if worker else ""
        case RewardRecorded(reward, source):
            return f"{reward!r}" + (f" from {source}" if source else "")
        case RewardRejected(why):
            return why
        case RewardRevised(old, new, verifier, reason):
            before = "none" if old is None else f"{old!r}"
            return f"from {before} to {new!r}, by {verifier}: {reason}"
        case TrialSucceeded() | TrialCanceled():
            return ""
        case TrialFailed(error_type, phase):
            return f"{error_type} in {phase}"
        case TrialReleased(reason):
            return reason
        case _:
            return None
