"""Facts of one job: what was asked for, frozen, and how it ended."""

from __future__ import annotations

from typing import Literal
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from ledger.facts.catalogue import Scalar, Task
from ledger.facts.fact import Fact


def job_stream(job_id: str) -> str:
    """The stream of a job."""
    return f"job/{job_id}"


def job_id_for(project: str, request_id: str) -> str:
    """The job's id when the request carries a key: the same key names the same job, so a repeat is harmless."""
    return str(uuid5(uuid5(NAMESPACE_URL, f"evalledger:{project}"), request_id))


def is_job_id(text: str) -> bool:
    """Whether a text can be a job's id."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


class Origin(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a job came from. For an import: the tool, its version, ours, and what the tool itself had printed.

    `sources` is the sha256 of the artifact that lists every source file with its own digest.
    """

    kind: Literal["local", "api", "import"] = "local"
    tool: str | None = None
    tool_version: str | None = None
    importer: str | None = None
    policy: str | None = None
    sources: str | None = None
    flags: tuple[str, ...] = ()
    as_reported: dict[str, Scalar] = {}


class JobMembersSelected(Fact, frozen=True, tag="job-members-selected"):
    """Members of a job that takes only a part of its dataset, as many as fit one entry, in the dataset's order."""

    tasks: tuple[Task, ...]


class JobSubmitted(Fact, frozen=True, tag="job-submitted"):
    """Seals the manifest of a job; nothing in it ever changes.

    `attempts` is k. `members_digest` is the digest of the ordered (task name, task digest) list. `parameters` are the
    effective ones with their values, `secrets` the effective secret ones with their fingerprints, `ignored` the
    profile's parameters that the runner does not read.
    """

    job_id: str
    dataset: str
    runner: str
    attempts: int
    member_count: int
    members_digest: str
    subset: bool = False
    profile: str | None = None
    parameters: dict[str, Scalar] = {}
    secrets: dict[str, str] = {}
    ignored: tuple[str, ...] = ()
    request_id: str | None = None
    tags: dict[str, str] = {}
    agent_run: str | None = None
    agent_round: int | None = None
    origin: Origin = Origin()


class JobOriginSealed(Fact, frozen=True, tag="job-origin-sealed"):
    """Where a job came from that was recorded while its tool still ran: known in full only at the end.

    `origin` stands in the place of the manifest's. `request_id` names the finished run by its content, as an import of
    it would have.
    """

    request_id: str
    origin: Origin


class JobRetryRequested(Fact, frozen=True, tag="job-retry-requested"):
    """One attempt beyond k was asked for, with a reason. It is counted as extra, never as one of the k.

    The same `request_id` again asks for no further one.
    """

    task: Task
    attempt: int
    reason: str
    request_id: str | None = None


class JobCompleted(Fact, frozen=True, tag="job-completed"):
    """Every slot has ended and no trial failed."""


class JobFailed(Fact, frozen=True, tag="job-failed"):
    """Every slot has ended and some trial failed, or the job itself could not run."""

    failed_trials: int = 0
    error_type: str | None = None


class JobCanceled(Fact, frozen=True, tag="job-canceled"):
    """The job was called off; slots not yet dispatched stay undispatched."""

    reason: str = ""


JobFact = (
    JobMembersSelected | JobSubmitted | JobOriginSealed | JobRetryRequested | JobCompleted | JobFailed | JobCanceled
)
