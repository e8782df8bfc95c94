"""Submitting a job, and changing what is asked of it afterwards: canceled, one attempt more, ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from sqlalchemy.engine import Connection

from api.answers import Published, Submitted
from api.publishing import published, published_dataset
from ledger.digests import members_digest
from ledger.facts.catalogue import Task
from ledger.facts.job import JobSubmitted, Origin, job_id_for, job_stream
from ledger.facts.trial import Slot
from ledger.rules import job as rules
from projections import catalogue, job_metrics, jobs, work_queue
from projections.jobs import JobRow

if TYPE_CHECKING:
    from api.client import Client


def submit_job(
    client: Client,
    dataset: str,
    *,
    attempts: int,
    profile: str | None,
    tasks: Collection[str],
    request_id: str | None,
    tags: Mapping[str, str] | None,
    agent_run: str | None,
    agent_round: int | None,
    origin: Origin | None,
    dry_run: bool,
) -> Submitted:
    """Freeze the manifest from what is published now, and record it."""
    published = published_dataset(client, dataset)
    runner = client.runner(published.runner)
    effective = rules.effective_parameters(runner, client.profile(profile) if profile else None)
    selected: Sequence[Task] = ()
    if tasks:
        selected = client.ask(partial(catalogue.find_tasks, project_id=client.project, ref=dataset, names=set(tasks)))
    manifest = JobSubmitted(
        job_id=job_id_for(client.project, request_id) if request_id else str(uuid4()),
        dataset=dataset,
        runner=published.runner,
        attempts=attempts,
        member_count=len(selected) or published.member_count,
        members_digest=(
            members_digest((task.name, task.digest) for task in selected) if selected else published.members_digest
        ),
        subset=bool(selected),
        profile=profile,
        parameters=effective.parameters,
        secrets=effective.secrets,
        ignored=effective.ignored,
        request_id=request_id,
        tags=dict(tags or {}),
        agent_run=agent_run,
        agent_round=agent_round,
        origin=origin or Origin(),
    )
    rule = partial(rules.submit_job, manifest=manifest, selected=selected)
    stream = job_stream(manifest.job_id)
    if dry_run:
        rule(client.state(stream))
        return Submitted(manifest.job_id, "planned", client.ledger.head().size, manifest)
    written = client.ledger.record(stream, rule, key=request_id)
    return Submitted(manifest.job_id, "written" if written.facts else "unchanged", written.position, manifest)


def cancel_job(client: Client, job_id: str, *, reason: str) -> Published:
    """Call a job off."""
    job_id = client.job_id(job_id)
    written = client.ledger.record(job_stream(job_id), partial(rules.cancel_job, reason=reason))
    return published(job_id, written)


def retry(client: Client, job_id: str, task: str, *, reason: str, request_id: str | None) -> Slot:
    """One more attempt of a member, beyond those that were made."""
    job_id = client.job_id(job_id)

    def find(connection: Connection) -> tuple[Task, int]:
        row = jobs.get_job(connection, client.project, job_id)
        member = jobs.find_member(connection, client.project, row.manifest, task)
        made = job_metrics.attempts_of(connection, client.project, job_id, [task])[task]
        return member, max((attempt.attempt for attempt in made), default=0) + 1

    member, attempt_min = client.ask(find)
    rule = partial(rules.request_retry, task=member, attempt_min=attempt_min, reason=reason, request_id=request_id)
    client.ledger.record(job_stream(job_id), rule, key=request_id)
    state: rules.Job = client.state(job_stream(job_id))
    asked = [r.attempt for r in state.retries if r.task == member and r.request_id == request_id]
    return Slot(job_id, asked[-1], task)


def finish_job(client: Client, job_id: str, *, position: int = 0) -> bool:
    """End a job if every slot of it has ended by a position."""

    def standing(connection: Connection) -> tuple[JobRow, job_metrics.JobResult, int]:
        row = jobs.get_job(connection, client.project, job_id)
        waiting = work_queue.count_open(connection, client.project, job_id)
        return row, job_metrics.result_of(connection, client.project, job_id), waiting

    row, measured, waiting = client.ask(standing, at_least=position)
    if row.ended_us is not None:
        return True
    ended = sum(measured.endings.get(status, 0) for status in ("succeeded", "failed", "canceled"))
    if waiting or ended < measured.metrics.score_counts.total or ended < sum(measured.endings.values()):
        return False
    failed = measured.endings.get("failed", 0)
    client.ledger.record(job_stream(job_id), partial(rules.finish_job, failed_trials=failed))
    return True
