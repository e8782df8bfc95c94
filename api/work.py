"""Giving slots out: what waits, claims under a lease, and one slot by its name.

Nothing here trusts a lease or a read model: they only say where to look. A claim is a fact on the trial's stream, so of
any number of workers that want a slot, and of one that was given up for dead, exactly one has it. Its token is the
version of that fact in the stream, which rises with each dispatch of the slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from api.answers import Claim, Claimed, Work
from api.left_behind import LEFT_BEHIND_MAX, look_after, tidy, trial_of
from api.shaping import time_text
from ledger import leases
from ledger.application import Asked, Written
from ledger.database import reading
from ledger.errors import BadInput, NotAllowed
from ledger.facts.catalogue import Task
from ledger.facts.entry import Recorded
from ledger.facts.job import JobSubmitted, job_stream
from ledger.facts.trial import Slot, TrialDispatched, slot_of, trial_id_for, trial_stream
from ledger.rules import job as job_rules
from ledger.rules import trial as rules
from ledger.rules.forms import checked_number, checked_text, checked_whole
from ledger.vault import open_secrets, require_secrets
from projections import catalogue, jobs, trials, work_queue
from projections.following import microseconds

if TYPE_CHECKING:  # the client stands on this module
    from api.client import Client

SLOTS_MAX = 1_000
LEASE_S_MAX = 86_400.0
SPARE_SLOTS = 16  # looked at beyond those wanted: others may be claiming the same ones


def work(client: Client, job_id: str | None = None) -> Work:
    """What waits and what runs, in all jobs or in one."""

    def found(connection: Connection, as_of: int) -> Work:
        waiting = work_queue.jobs_waiting(connection, client.project, job_id=job_id)
        rows = trials.running(connection, client.project, limit=LEFT_BEHIND_MAX)
        at_work = Counter(row.job_id for row in rows if job_id in (None, row.job_id))
        return Work(waiting, dict(at_work), as_of)

    return client.answer(found)


def claim(
    client: Client,
    worker: str,
    *,
    slots: int,
    job_id: str | None,
    runner: str | None,
    lease_s: float,
    request_id: str | None,
) -> Claimed:
    """Look after what was left behind, then give slots of one job, or of the jobs of one runner, to a worker."""
    checked_text(worker, what="worker", chars_max=200)
    checked_whole(slots, what="number of slots", least=0, most=SLOTS_MAX)
    lease = checked_lease(lease_s)
    if slots and job_id is None and runner is None:
        raise BadInput("Name the job or the runner whose slots are claimed: not every worker can run every job.")
    if request_id is not None:
        checked_text(request_id, what="request id", chars_max=200)
        if again := _claims_of_request(client, worker, request_id):
            return Claimed(again, [])
    left_behind = look_after(client)
    claims: list[Claim] = []
    for manifest in _jobs_to_claim_from(client, job_id, runner) if slots else ():
        claims += _claim_of_job(client, manifest, worker, slots - len(claims), lease, request_id)
        if len(claims) == slots:
            break
    if not claims:
        tidy(client)
    return Claimed(claims, left_behind)


def dispatch(client: Client, job_id: str, task: str, attempt: int, *, request_id: str | None) -> Claim:
    """Give one named slot out and start it, without a lease. The same request again gives the same claim."""
    job_id = client.job_id(job_id)

    def found(connection: Connection) -> tuple[JobSubmitted, Task]:
        manifest = jobs.get_job(connection, client.project, job_id).manifest
        return manifest, jobs.find_member(connection, client.project, manifest, task)

    manifest, member = client.ask(found)
    job_rules.check_dispatch(client.ledger.state(job_stream(job_id)), task=task, attempt=attempt)
    fact = TrialDispatched(trial_id_for(job_id, task, attempt), job_id, task, member.digest, attempt)
    stream = trial_stream(job_id, task, attempt)
    try:
        client.ledger.record(stream, partial(rules.dispatch, dispatched=fact), rules.start, key=request_id)
    except NotAllowed:
        if request_id is None or _key_of_claim(client.ledger.stream(stream)) != request_id:
            raise
    return _claim(manifest, fact, trial_of(client.ledger.stream(stream)).token, None)


def checked_lease(lease_s: float) -> timedelta:
    """A lease's length, from seconds: more than 0, at most a day."""
    if not 0 < checked_number(lease_s, what="lease") <= LEASE_S_MAX:
        raise BadInput(f"A lease lasts more than 0 and at most {LEASE_S_MAX:,.0f} seconds, not {lease_s:g}.")
    return timedelta(seconds=lease_s)


def secrets_of(client: Client, manifest: JobSubmitted) -> dict[str, str]:
    """The secret values that take effect in a job. Raises NotFound or DamagedStore when this store cannot give one."""
    if not manifest.secrets or manifest.profile is None:
        return {}
    with reading(client.ledger.engine) as connection:
        values = open_secrets(connection, client.workspace.secrets, client.project, manifest.profile)
    return require_secrets(values, manifest.secrets, manifest.profile)


# --- claiming ----------------------------------------------------------------------------------------------------


def _jobs_to_claim_from(client: Client, job_id: str | None, runner: str | None) -> list[JobSubmitted]:
    def found(connection: Connection) -> list[JobSubmitted]:
        if job_id is not None:
            named = [job_id]
            jobs.get_job(connection, client.project, job_id)
        else:
            named = work_queue.jobs_waiting(connection, client.project)
        manifests = [jobs.get_job(connection, client.project, one).manifest for one in named]
        return [manifest for manifest in manifests if runner in (None, manifest.runner)]

    job_id = None if job_id is None else client.job_id(job_id)
    return client.ask(found)


def _claim_of_job(
    client: Client, manifest: JobSubmitted, worker: str, wanted: int, lease: timedelta, request_id: str | None
) -> list[Claim]:
    """Claim slots of a job, first attempts first; fewer than wanted when no more are open."""
    secrets_of(client, manifest)  # a slot whose secrets cannot be given is not used up
    claims: list[Claim] = []
    tried: set[Slot] = set()
    while len(claims) < wanted:
        some = _open(client, manifest, tried, wanted - len(claims))
        if not some:
            break
        tried |= some.keys()
        until = client.ledger.clock() + lease
        facts = [
            TrialDispatched(
                trial_id_for(slot.job_id, slot.task, slot.attempt), slot.job_id, slot.task, digest, slot.attempt, worker
            )
            for slot, digest in some.items()
        ]
        claims += _dispatch_each(client, manifest, facts, until, request_id)
    return claims


def _open(client: Client, manifest: JobSubmitted, tried: set[Slot], wanted: int) -> Mapping[Slot, str]:
    """The next open slots with the digests of their tasks, without those tried: others have them by now."""

    def found(connection: Connection) -> dict[Slot, str]:
        limit = wanted + (len(tried) + SPARE_SLOTS if tried else 0)
        slots = work_queue.open_slots(connection, client.project, job_id=manifest.job_id, limit=limit)
        slots = [slot for slot in slots if slot not in tried][:wanted]
        names = {slot.task for slot in slots}
        # A job's members are tasks of its dataset's frozen revision, so their digests are found there.
        tasks = catalogue.find_tasks(connection, client.project, manifest.dataset, names) if names else []
        digests = {task.name: task.digest for task in tasks}
        return {slot: digests[slot.task] for slot in slots}

    return client.ask(found)


def _dispatch_each(
    client: Client, manifest: JobSubmitted, facts: Sequence[TrialDispatched], until: datetime, request_id: str | None
) -> list[Claim]:
    """Dispatch in one transaction those slots that are free, each with its lease; the claims they became."""
    asked = []
    for fact in facts:
        stream = trial_stream(fact.job_id, fact.task, fact.attempt)
        lease = partial(leases.take, project_id=client.project, stream=stream, worker=fact.worker or "", until=until)
        rule = partial(rules.dispatch, dispatched=fact)
        asked.append(Asked(stream, [rule], client.ledger.actor, request_id, lease))
    outcomes = client.ledger.record_each(asked)
    for outcome in outcomes:
        if isinstance(outcome, Exception) and not isinstance(outcome, NotAllowed):
            raise outcome
    ours = {
        one.stream: fact
        for one, fact, outcome in zip(asked, facts, outcomes, strict=True)
        if isinstance(outcome, Written) and outcome.facts
    }
    tokens = {stream: trial_of(past) for stream, past in client.streams(list(ours)).items()} if ours else {}
    return [_claim(manifest, fact, tokens[stream].claims[-1], until) for stream, fact in ours.items()]


def _claims_of_request(client: Client, worker: str, request_id: str) -> list[Claim]:
    """What the same request was given before, as far as it still holds: its answer may have been lost."""
    with reading(client.ledger.engine) as connection:
        streams = leases.streams(connection, client.project, worker=worker)
    claims: list[Claim] = []
    for stream, past in client.streams(streams).items() if streams else ():
        trial = trial_of(past)
        if _key_of_claim(past) != request_id or trial.dispatched is None or trial.ended:
            continue
        question = partial(jobs.get_job, project_id=client.project, job_id=slot_of(stream).job_id)
        with reading(client.ledger.engine) as connection:
            expires_s = leases.expiry(connection, client.project, stream, worker=worker) or 0.0
        until = datetime.fromtimestamp(expires_s, client.ledger.clock().tzinfo)
        claims.append(_claim(client.ask(question).manifest, trial.dispatched, trial.token, until))
    return claims


def _key_of_claim(past: Sequence[Recorded]) -> str | None:
    """The request key under which the slot was given out last."""
    keys = [recorded.entry.key for recorded in past if isinstance(recorded.entry.fact, TrialDispatched)]
    return keys[-1] if keys else None


def _claim(manifest: JobSubmitted, fact: TrialDispatched, token: int, until: datetime | None) -> Claim:
    return Claim(
        trial_id=fact.trial_id,
        job_id=fact.job_id,
        task=fact.task,
        task_digest=fact.task_digest,
        attempt=fact.attempt,
        token=token,
        dataset=manifest.dataset,
        runner=manifest.runner,
        profile=manifest.profile,
        parameters=manifest.parameters,
        secrets=sorted(manifest.secrets),
        worker=fact.worker,
        lease_until=time_text(microseconds(until)) if until else None,
    )
