"""What the doors answer with: the same shapes for the command line, the client and HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from ledger.facts.job import JobSubmitted
from ledger.facts.trial import StructuredResultRecorded, StructuredResultRejected
from projections.job_metrics import Attempt
from projections.metrics import CurvePoint, Denominators, Interval, ScoreCounts

Outcome = Literal["written", "unchanged"]


class ProjectHead(msgspec.Struct, frozen=True):
    """A project: how many entries its log has, and the Merkle root over them in hex."""

    name: str
    entries: int
    root: str


class KeyAnswer(msgspec.Struct, frozen=True):
    """A key as it stands, without the key itself. `expires_at` is RFC 3339 in UTC; null for never."""

    id: str
    name: str
    scopes: list[str]
    status: Literal["valid", "expired", "revoked"]
    expires_at: str | None


class KeyList(msgspec.Struct, frozen=True):
    """The keys of a project in the order they were issued, as they stood at the position `as_of`."""

    keys: list[KeyAnswer]
    as_of: int


class IssuedKey(msgspec.Struct, frozen=True):
    """A key that was just handed out: `key` is shown here and never again. `position` of its entry."""

    id: str
    name: str
    scopes: list[str]
    expires_at: str | None
    key: str
    position: int

    def __repr__(self) -> str:
        return f"IssuedKey(id={self.id!r}, name={self.name!r}, hidden)"


class RevokedKey(msgspec.Struct, frozen=True):
    """A key that opens nothing any more. `position` of the last entry about the project."""

    key: KeyAnswer
    position: int


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
    """A job as it stands. Times are RFC 3339 in UTC; `endings` counts its trials by status.

    `position` is that of its submission.
    """

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
    origin: dict[str, Any]
    submitted_at: str
    ended_at: str | None
    endings: dict[str, int]
    position: int
    as_of: int


class JobList(msgspec.Struct, frozen=True):
    """Jobs, the newest first, as they stood at the position `as_of`."""

    jobs: list[JobAnswer]
    as_of: int


class TaskResult(msgspec.Struct, frozen=True):
    """A member with its dispatched attempts; slots never dispatched have none."""

    task: str
    attempts: list[Attempt]


class TaskPage(msgspec.Struct, frozen=True):
    """Members of a job from number `after` (from 0) on; `more` says whether there are further ones."""

    tasks: list[TaskResult]
    after: int
    more: bool
    as_of: int


class TrialAnswer(msgspec.Struct, frozen=True):
    """A trial with its signals side by side, as `TrialRow` says; times in UTC, to the microsecond.

    `structured` is the fact about the structured result; `why_no_reward` says it of every ended trial without a reward.
    """

    job_id: str
    attempt: int
    task: str
    trial_id: str
    task_digest: str
    status: str
    worker: str | None
    exit_code: int | None
    error_type: str | None
    phase: str | None
    message: str | None
    reward: float | None
    first_reward: float | None
    no_reward: str | None
    why_no_reward: str | None
    raw_reward: str | None
    structured: StructuredResultRecorded | StructuredResultRejected | None
    artifacts_kept: int
    artifacts_failed: int
    dispatched_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    duration_s: float | None
    position: int


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


class RevisedReward(msgspec.Struct, frozen=True):
    """A reward that a later grading corrected: what the verifier gave first (None: nothing usable), and what holds."""

    trial_id: str
    task: str
    attempt: int
    first: float | None
    now: float


class Regraded(msgspec.Struct, frozen=True):
    """A job's rewards after a later grading: how many changed, how many held already, and how many had been missing."""

    id: str
    changed: int
    unchanged: int
    were_missing: int
    position: int


class ResultAnswer(msgspec.Struct, frozen=True):
    """A job's result: coverage, metrics, a page of its tasks, and where rewards were lost.

    `tasks` starts at member number `tasks_after` (from 0); `tasks_more` says whether there are further ones. `remarks`
    are sentences about what the tool printed; `policy` is there when one was asked for. `revised` are the rewards of
    the tasks shown that were corrected later, out of `revised_total` in the job.
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
    revised: list[RevisedReward]
    revised_total: int
    flags: list[str]
    as_reported: dict[str, str | int | float | bool]
    remarks: list[str]
    policy: PolicyAnswer | None
    as_of: int


class Work(msgspec.Struct, frozen=True):
    """What there is to do: the jobs that have a slot waiting, and how many trials run under leases, by job."""

    waiting: list[str]
    at_work: dict[str, int]
    as_of: int


class Claim(msgspec.Struct, frozen=True):
    """A slot that was given out, with all that is needed to run it but its files and its secrets' values.

    `token` goes with every report on it. `secrets` are names. `lease_until` (RFC 3339) is when its worker has to have
    been heard of again; None where no lease is kept.
    """

    trial_id: str
    job_id: str
    task: str
    task_digest: str
    attempt: int
    token: int
    dataset: str
    runner: str
    profile: str | None
    parameters: dict[str, str | int | float | bool]
    secrets: list[str]
    worker: str | None
    lease_until: str | None


class LeftBehind(msgspec.Struct, frozen=True):
    """A trial whose worker was not heard of in time: it `failed`, or its slot was `released` as it never started."""

    job_id: str
    task: str
    attempt: int
    became: Literal["released", "failed"]


class Claimed(msgspec.Struct, frozen=True):
    """The slots that a claim gave, none when none waited; and what was found left behind by other workers."""

    claims: list[Claim]
    left_behind: list[LeftBehind]


class Heartbeat(msgspec.Struct, frozen=True):
    """Whether the claim is still held, its lease renewed; and whether the job was called off."""

    held: bool
    canceled: bool


class Reported(msgspec.Struct, frozen=True):
    """The last position of the trial's stream, and for each fact handed in whether it was new."""

    position: int
    new: list[bool]


class CheckpointAnswer(msgspec.Struct, frozen=True):
    """A signed checkpoint: the note as it is written, and the key that signs for the log; root in hex."""

    checkpoint: str
    key: str
    origin: str
    size: int
    root: str


class InclusionAnswer(msgspec.Struct, frozen=True):
    """The entry at a position, its exact bytes as JSON, with the hashes (hex) from its leaf to the root of `size`."""

    position: int
    size: int
    root: str
    hashes: list[str]
    entry: msgspec.Raw


class ConsistencyAnswer(msgspec.Struct, frozen=True):
    """The hashes (hex) which show that the first `old_size` entries begin the log of `new_size` entries."""

    old_size: int
    new_size: int
    old_root: str
    new_root: str
    hashes: list[str]
