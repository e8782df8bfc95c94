"""Rules of a job: the manifest is frozen at submission, and it ends once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, assert_never

import msgspec

from ledger.errors import BadInput, Conflict, NotAllowed, NotFound
from ledger.facts.catalogue import ProfilePublished, RunnerPublished, Scalar, Task
from ledger.facts.job import (
    JobCanceled,
    JobCompleted,
    JobFact,
    JobFailed,
    JobMembersSelected,
    JobOriginSealed,
    JobRetryRequested,
    JobSubmitted,
    Origin,
)
from ledger.rules.catalogue import tasks_in_entries
from ledger.rules.forms import checked_number, checked_reason, checked_text, same_values

ATTEMPTS_MAX = 1_000
TAGS_MAX = 100

Ending = Literal["completed", "failed", "canceled"]


class Job(msgspec.Struct, frozen=True):
    """A job: its selected members (none when it takes the whole dataset), its manifest, how it ended.

    `sealed` is where it came from, of a job that was recorded while its tool still ran.
    """

    selected: tuple[Task, ...] = ()
    manifest: JobSubmitted | None = None
    sealed: JobOriginSealed | None = None
    retries: tuple[JobRetryRequested, ...] = ()
    ended: Ending | None = None
    could_not_run: bool = False


def evolve(state: Job | None, fact: JobFact) -> Job:  # noqa: PLR0911 - one return a fact
    """The job after one more fact."""
    state = state or Job()
    match fact:
        case JobMembersSelected():
            return msgspec.structs.replace(state, selected=state.selected + fact.tasks)
        case JobSubmitted():
            return msgspec.structs.replace(state, manifest=fact)
        case JobOriginSealed():
            return msgspec.structs.replace(state, sealed=fact)
        case JobRetryRequested():
            return msgspec.structs.replace(state, retries=(*state.retries, fact))
        case JobCompleted():
            return msgspec.structs.replace(state, ended="completed")
        case JobFailed():
            return msgspec.structs.replace(state, ended="failed", could_not_run=fact.error_type is not None)
        case JobCanceled():
            return msgspec.structs.replace(state, ended="canceled")
        case _:
            assert_never(fact)


class Effective(NamedTuple):
    """What of a profile takes effect under a runner: plain values, secret fingerprints, and names not read."""

    parameters: dict[str, Scalar]
    secrets: dict[str, str]
    ignored: tuple[str, ...]


def effective_parameters(runner: RunnerPublished, profile: ProfilePublished | None) -> Effective:
    """Keep only what the runner reads; fill in defaults; refuse when a required parameter has no value."""
    params: Mapping[str, Scalar] = profile.params if profile else {}
    secrets: Mapping[str, str] = profile.secrets if profile else {}
    plain: dict[str, Scalar] = {}
    sealed: dict[str, str] = {}
    absent: list[str] = []
    for parameter in runner.parameters:
        if parameter.name in secrets:
            sealed[parameter.name] = secrets[parameter.name]
        elif parameter.name in params:
            plain[parameter.name] = params[parameter.name]
        elif parameter.default is not None:
            plain[parameter.name] = parameter.default
        elif parameter.required:
            absent.append(parameter.name)
    if absent:
        raise BadInput(
            f"Runner {runner.ref} requires {', '.join(absent)}; give a profile that sets "
            + ("it." if len(absent) == 1 else "them.")
        )
    read = {parameter.name for parameter in runner.parameters}
    return Effective(plain, sealed, tuple(sorted(({*params} | {*secrets}) - read)))


def submit_job(state: Job | None, *, manifest: JobSubmitted, selected: Sequence[Task] = ()) -> list[JobFact]:
    """Freeze a job's manifest. The same request again is nothing new; the same key with other content is refused."""
    if state and state.manifest:
        same = state.manifest == manifest and same_values(state.manifest.parameters, manifest.parameters)
        if same and (not manifest.subset or state.selected == tuple(selected)):
            return []
        before, after = msgspec.structs.asdict(state.manifest), msgspec.structs.asdict(manifest)
        differs = [field for field in before if before[field] != after[field]]
        if not differs:
            differs = ["members"] if same else ["parameters"]
        raise Conflict(
            f"The request id {manifest.request_id!r} was used already for job {manifest.job_id} with other content; "
            "use a new request id.",
            differs,
        )
    if not 1 <= manifest.attempts <= ATTEMPTS_MAX:
        raise BadInput(f"A job takes 1 to {ATTEMPTS_MAX:,} attempts for each task, not {manifest.attempts:,}.")
    if manifest.member_count < 1:
        raise BadInput("A job needs at least one member; pick a task that the dataset has.")
    if manifest.request_id is not None:
        checked_text(manifest.request_id, what="request id", chars_max=200)
    if manifest.agent_run is not None:
        checked_text(manifest.agent_run, what="agent run", chars_max=200)
    if len(manifest.tags) > TAGS_MAX:
        raise BadInput(f"A job carries at most {TAGS_MAX} tags, not {len(manifest.tags)}.")
    for name, value in manifest.tags.items():
        checked_text(name, what="tag name", chars_max=100)
        checked_text(value, what=f"value of tag {name}", chars_max=500, empty=True)
    for values in (manifest.parameters, manifest.origin.as_reported):
        _check_finite(values)
    return [*(JobMembersSelected(run) for run in tasks_in_entries(selected)), manifest]


def seal_origin(state: Job | None, *, request_id: str, origin: Origin) -> list[JobFact]:
    """Say in full where an import came from that was recorded while its tool still ran; it is said once."""
    job = _submitted(state)
    sealed = JobOriginSealed(request_id, origin)
    if job.sealed == sealed:
        return []
    if job.sealed is not None:
        raise Conflict("The run that the job came from was sealed already, with other content.", ["origin"])
    if job.manifest.origin.kind != "import":
        raise NotAllowed("The job was not imported, so there is no run to seal.")
    checked_text(request_id, what="request id", chars_max=200)
    _check_finite(origin.as_reported)
    return [sealed]


def request_retry(
    state: Job | None, *, task: Task, attempt_min: int, reason: str, request_id: str | None = None
) -> list[JobFact]:
    """Ask for one more attempt of a member, the first free one that is beyond k and not below `attempt_min`."""
    job = _submitted(state)
    for had in job.retries if request_id is not None else ():
        if had.request_id == request_id:
            if (had.task, had.reason) == (task, reason):
                return []
            raise Conflict(f"The request id {request_id!r} was used already for another retry.", ["task or reason"])
    if job.ended == "canceled":
        raise NotAllowed("The job was canceled; submit it again under a new request id instead.")
    if job.could_not_run:
        raise NotAllowed("The job could not run at all; submit it again under a new request id instead.")
    if job.manifest.origin.kind == "import":
        raise NotAllowed("The job was imported and is not run here, so there is nothing to retry.")
    checked_reason(reason)
    if request_id is not None:
        checked_text(request_id, what="request id", chars_max=200)
    taken = [retry.attempt for retry in job.retries if retry.task.name == task.name]
    attempt = max([attempt_min, job.manifest.attempts + 1, *(number + 1 for number in taken)])
    return [JobRetryRequested(task, attempt, reason, request_id)]


def check_dispatch(state: Job | None, *, task: str, attempt: int) -> None:
    """Refuse to dispatch a slot that the job did not ask for, or of a job that was called off."""
    job = _submitted(state)
    if job.ended == "canceled":
        raise NotAllowed("The job was canceled, so none of its slots is dispatched any more.")
    asked = attempt <= job.manifest.attempts or (task, attempt) in {(r.task.name, r.attempt) for r in job.retries}
    if not asked:
        raise NotAllowed(
            f"Attempt {attempt} is beyond the {job.manifest.attempts} that the job asked for; `el job retry` adds one."
        )


def finish_job(state: Job | None, *, failed_trials: int) -> list[JobFact]:
    """End a job whose slots have all ended; one that has ended stays as it is."""
    if _submitted(state).ended:
        return []
    return [JobFailed(failed_trials)] if failed_trials else [JobCompleted()]


def fail_job(state: Job | None, *, error_type: str) -> list[JobFact]:
    """End a job that could not run at all."""
    return [] if _submitted(state).ended else [JobFailed(error_type=error_type)]


def cancel_job(state: Job | None, *, reason: str) -> list[JobFact]:
    """Call a job off."""
    ended = _submitted(state).ended
    if ended == "canceled":
        return []
    if ended:
        raise NotAllowed(f"The job has {ended} already; what has ended cannot be canceled.")
    return [JobCanceled(checked_reason(reason, empty=True))]


class _Submitted(NamedTuple):
    """A job that has a manifest, as the rules below need it."""

    manifest: JobSubmitted
    sealed: JobOriginSealed | None
    retries: tuple[JobRetryRequested, ...]
    ended: Ending | None
    could_not_run: bool


def _submitted(state: Job | None) -> _Submitted:
    if state is None or state.manifest is None:
        raise NotFound("There is no such job; `el job list` shows those there are.")
    return _Submitted(state.manifest, state.sealed, state.retries, state.ended, state.could_not_run)


def _check_finite(values: Mapping[str, Scalar]) -> None:
    for name, number in values.items():
        if isinstance(number, float):
            checked_number(number, what=f"value of {name}")
