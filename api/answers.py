"""What the doors answer with: the same shapes for the command line, the client and, later, HTTP."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.facts.job import JobSubmitted
from projections.job_metrics import Attempt
from projections.metrics import CurvePoint, Denominators, Interval, ScoreCounts

Outcome = Literal["written", "unchanged"]


class Published(msgspec.Struct, frozen=True):
    """A revision that stands in the catalogue; `unchanged` when it stood there already. `position` of its entry."""

    ref: str
    outcome: Outcome
    position: int


class Submitted(msgspec.Struct, frozen=True):
    """A job that was submitted. `unchanged` when the same request had submitted it before; `planned` in a dry run."""

    id: str
    outcome: Literal["written", "unchanged", "planned"]
    position: int
    manifest: JobSubmitted


class JobAnswer(msgspec.Struct, frozen=True):
    """A job as it stands. Times are RFC 3339 in UTC; `endings` counts its trials by status."""

    id: str
    status: str
    reason: str | None
    dataset: str
    runner: str
    profile: str | None
    attempts: int
    members: int
    subset: bool
    parameters: dict[str, str | int | float | bool]
    secrets: list[str]
    ignored: list[str]
    request_id: str | None
    tags: dict[str, str]
    agent_run: str | None
    agent_round: int | None
    origin: dict[str, object]
    submitted_at: str
    ended_at: str | None
    endings: dict[str, int]
    as_of: int


class JobList(msgspec.Struct, frozen=True):
    """Jobs, the newest first, as they stood at the position `as_of`."""

    jobs: list[JobAnswer]
    as_of: int


class TaskResult(msgspec.Struct, frozen=True):
    """A member with its dispatched attempts; slots never dispatched have none."""

    task: str
    attempts: list[Attempt]


class LostReward(msgspec.Struct, frozen=True):
    """An ended trial without a reward: the phase that lost it, and why."""

    trial_id: str
    task: str
    attempt: int
    status: str
    phase: str
    why: str
    error_type: str | None


class Compared(msgspec.Struct, frozen=True):
    """A number that the tool printed beside the same one of ours; `difference` is ours less the tool's.

    `equal` leaves room for the last digits of float arithmetic. Ours is None where the policy gives no such number.
    """

    name: str
    reported: int | float
    ours: int | float | None
    difference: float | None
    equal: bool


class PolicyAnswer(msgspec.Struct, frozen=True):
    """A job's numbers under a named policy, with its rule in words; `counts` are what they were made from.

    `compared` is filled where `reported_under`, the policy of the tool's own numbers, is this one.
    """

    name: str
    rule: str
    numbers: dict[str, float | dict[str, float] | None]
    counts: dict[str, int]
    reported_under: str | None
    compared: list[Compared]


class ResultAnswer(msgspec.Struct, frozen=True):
    """A job's result: coverage, metrics, a page of its tasks, and where rewards were lost.

    `tasks` starts at member number `tasks_after` (from 0); `tasks_more` says whether there are further ones. `remarks`
    are sentences about what the tool printed; `policy` is there when one was asked for.
    """

    id: str
    status: str
    dataset: str
    score_counts: ScoreCounts
    k: int
    score: float | None
    pass_: float | None = msgspec.field(name="pass")
    pass_at_k: float | None
    pass_hat_k: float | None
    curve: list[CurvePoint]
    score_bounds: tuple[float, float] | None
    interval_95: Interval | None
    denominators: Denominators
    definition: str
    endings: dict[str, int]
    lost: dict[str, int]
    lost_trials: list[LostReward]
    tasks: list[TaskResult]
    tasks_after: int
    tasks_more: bool
    flags: list[str]
    as_reported: dict[str, str | int | float | bool]
    remarks: list[str]
    policy: PolicyAnswer | None
    as_of: int
