"""The client: one set of methods for whoever submits, reports and reads. `connect()` gives one.

Each method does three things: it takes the words of the caller, makes one call on the ledger or one question to a read
model, and shapes the answer. Every question first brings the read models up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeVar
from uuid import uuid4

from sqlalchemy.engine import Connection

from api.answers import JobAnswer, JobList, Published, ResultAnswer, Submitted, TaskResult
from api.reporting import TrialReport
from api.settings import Settings
from api.shaping import job_answer, result_answer
from api.under_policy import answer_under
from api.wiring import Workspace
from ledger.application import Ledger
from ledger.database import reading, writing
from ledger.digests import members_digest
from ledger.errors import NotFound
from ledger.facts.catalogue import (
    DatasetPublished,
    ProfilePublished,
    RunnerPublished,
    Scalar,
    Task,
    dataset_stream,
    profile_stream,
    runner_stream,
)
from ledger.facts.job import JobSubmitted, Origin, is_job_id, job_id_for, job_stream
from ledger.facts.trial import Slot, TrialDispatched, trial_id_for, trial_stream
from ledger.rules import catalogue as catalogue_rules
from ledger.rules import job as job_rules
from ledger.rules import trial as trial_rules
from ledger.rules.forms import checked_ref
from ledger.vault import fingerprints, put_secrets
from projections import audit_trail, catalogue, job_metrics, jobs, trials, work_queue
from projections.audit_trail import AuditRow
from projections.catalogue import DatasetRow
from projections.following import position_of
from projections.jobs import JobRow
from projections.models import READ_MODELS
from projections.policies import policy_named
from projections.trials import TrialRow

T = TypeVar("T")

TASKS_SHOWN = 20
LOST_SHOWN = 5


def connect(settings: Settings | None = None, *, project: str | None = None) -> Client:
    """A client on the embedded ledger that the environment (or `settings`) names."""
    settings = settings or Settings()
    return Client(Workspace(settings), project or settings.project)


class Client:
    """One project of an embedded ledger."""

    def __init__(self, workspace: Workspace, project: str) -> None:
        self.workspace = workspace
        self.project = project
        self.ledger: Ledger = workspace.ledger(project)
        self.artifacts = workspace.artifacts(project)

    def ask(self, question: Callable[[Connection], T]) -> T:
        """Put a question to the read models, brought up to date first."""
        self.workspace.caught_up(self.project)
        with reading(self.workspace.engine) as connection:
            return question(connection)

    # --- catalogue -----------------------------------------------------------------------------------------------

    def publish_dataset(
        self,
        ref: str,
        tasks: Sequence[Task],
        *,
        runner: str,
        digests: Literal["content", "by-name"] = "content",
    ) -> Published:
        """Publish a dataset revision under a published runner. The same content again writes nothing."""
        if self.ledger.state(runner_stream(checked_ref(runner))) is None:
            raise NotFound(f"There is no runner {runner}; publish it first with `el runner publish FILE`.")
        rule = partial(
            catalogue_rules.publish_dataset,
            ref=ref,
            tasks=tasks,
            runner=runner,
            members_digest=members_digest((task.name, task.digest) for task in tasks),
            digests=digests,
        )
        return self._published(ref, dataset_stream(checked_ref(ref)), rule)

    def publish_runner(self, runner: RunnerPublished) -> Published:
        """Publish a runner revision."""
        rule = partial(catalogue_rules.publish_runner, runner=runner)
        return self._published(runner.ref, runner_stream(checked_ref(runner.ref)), rule)

    def create_profile(self, ref: str, params: Mapping[str, Scalar], secrets: Mapping[str, str]) -> Published:
        """Publish a profile revision; its secret values are sealed outside the log in the same transaction."""
        checked_ref(ref)
        box = self.workspace.secrets if secrets else None
        prints = fingerprints(box, self.project, ref, secrets) if box else {}
        profile = ProfilePublished(ref, dict(params), prints)
        rule = partial(catalogue_rules.publish_profile, profile=profile)

        def seal(connection: Connection) -> None:
            if box:
                put_secrets(connection, box, self.project, ref, secrets)

        written = self.ledger.record(profile_stream(ref), rule, also=seal)
        if not written.facts:
            with writing(self.workspace.engine) as connection:
                seal(connection)
        return Published(ref, "written" if written.facts else "unchanged", written.position)

    def datasets(self) -> list[DatasetRow]:
        """Every dataset revision."""
        return self.ask(partial(catalogue.list_datasets, project_id=self.project))

    def dataset(self, ref: str) -> DatasetRow:
        """One dataset revision."""
        return self.ask(partial(catalogue.get_dataset, project_id=self.project, ref=ref))

    def dataset_tasks(self, ref: str, *, after: int = -1, limit: int | None = None) -> list[tuple[int, Task]]:
        """(ordinal from 0, task) of a dataset revision in its order."""
        return self.ask(partial(catalogue.list_tasks, project_id=self.project, ref=ref, after=after, limit=limit))

    def runners(self) -> list[RunnerPublished]:
        """Every runner revision."""
        return self.ask(partial(catalogue.list_runners, project_id=self.project))

    def runner(self, ref: str) -> RunnerPublished:
        """One runner revision."""
        runner: RunnerPublished | None = self.ledger.state(runner_stream(checked_ref(ref)))
        if runner is None:
            raise NotFound(f"There is no runner {ref}; `el runner list` shows those there are.")
        return runner

    def profiles(self) -> list[ProfilePublished]:
        """Every profile revision; of secrets only names and fingerprints."""
        return self.ask(partial(catalogue.list_profiles, project_id=self.project))

    def profile(self, ref: str) -> ProfilePublished:
        """One profile revision."""
        profile: ProfilePublished | None = self.ledger.state(profile_stream(checked_ref(ref)))
        if profile is None:
            raise NotFound(f"There is no profile {ref}; `el profile list` shows those there are.")
        return profile

    # --- jobs ----------------------------------------------------------------------------------------------------

    def submit_job(
        self,
        dataset: str,
        *,
        attempts: int = 1,
        profile: str | None = None,
        tasks: Collection[str] = (),
        request_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        agent_run: str | None = None,
        agent_round: int | None = None,
        origin: Origin | None = None,
        dry_run: bool = False,
    ) -> Submitted:
        """Freeze and record a job's manifest. The same request id again returns the same job, unchanged."""
        published = self._published_dataset(dataset)
        runner = self.runner(published.runner)
        effective = job_rules.effective_parameters(runner, self.profile(profile) if profile else None)
        selected: Sequence[Task] = ()
        if tasks:
            selected = self.ask(partial(catalogue.find_tasks, project_id=self.project, ref=dataset, names=set(tasks)))
        manifest = JobSubmitted(
            job_id=job_id_for(self.project, request_id) if request_id else str(uuid4()),
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
        rule = partial(job_rules.submit_job, manifest=manifest, selected=selected)
        stream = job_stream(manifest.job_id)
        if dry_run:
            rule(self.ledger.state(stream))
            return Submitted(manifest.job_id, "planned", self.ledger.head().size, manifest)
        written = self.ledger.record(stream, rule, key=request_id)
        return Submitted(manifest.job_id, "written" if written.facts else "unchanged", written.position, manifest)

    def jobs(
        self, *, status: str | None = None, dataset: str | None = None, before: int | None = None, limit: int = 100
    ) -> JobList:
        """Jobs, the newest first, of those submitted before a position."""

        def listed(connection: Connection) -> JobList:
            as_of = position_of(connection, self.project, READ_MODELS)
            rows = jobs.list_jobs(connection, self.project, status=status, dataset=dataset, before=before, limit=limit)
            endings = job_metrics.endings_of(connection, self.project, [row.job_id for row in rows])
            return JobList([job_answer(row, endings[row.job_id], as_of) for row in rows], as_of)

        return self.ask(listed)

    def job(self, job_id: str) -> JobAnswer:
        """A job as it stands."""

        def found(connection: Connection) -> JobAnswer:
            as_of = position_of(connection, self.project, READ_MODELS)
            row = jobs.get_job(connection, self.project, self.job_id(job_id, connection))
            return job_answer(row, job_metrics.endings_of(connection, self.project, [row.job_id])[row.job_id], as_of)

        return self.ask(found)

    def result(
        self, job_id: str, *, tasks_after: int = 0, tasks_limit: int = TASKS_SHOWN, policy: str | None = None
    ) -> ResultAnswer:
        """A job's result with a page of its tasks. With a policy, also the numbers under that rule: reads each member.

        Raises:
            BadInput: there is no such policy; names those there are.
        """
        rule = None if policy is None else policy_named(policy)
        self.workspace.caught_up(self.project)
        with reading(self.workspace.engine) as connection:
            as_of = position_of(connection, self.project, READ_MODELS)
            row = jobs.get_job(connection, self.project, self.job_id(job_id, connection))
            measured = job_metrics.result_of(connection, self.project, row.job_id)
            names = jobs.list_members(connection, self.project, row.manifest, after=tasks_after, limit=tasks_limit + 1)
            shown = names[:tasks_limit]
            attempts = job_metrics.attempts_of(connection, self.project, row.job_id, shown)
            lost = trials.unscored(connection, self.project, row.job_id, limit=LOST_SHOWN) if measured.lost else []
            under = None if rule is None else answer_under(connection, self.project, row, rule)
        page = [TaskResult(task, attempts[task]) for task in shown]
        more = len(names) > tasks_limit
        return result_answer(row, measured, page, lost, under, tasks_after=tasks_after, tasks_more=more, as_of=as_of)

    def cancel_job(self, job_id: str, *, reason: str = "") -> Published:
        """Call a job off; what runs is stopped by its worker, what waits is never dispatched."""
        job_id = self.job_id(job_id)
        written = self.ledger.record(job_stream(job_id), partial(job_rules.cancel_job, reason=reason))
        return Published(job_id, "written" if written.facts else "unchanged", written.position)

    def retry(self, job_id: str, task: str, *, reason: str, request_id: str | None = None) -> Slot:
        """Ask for one more attempt of a member, beyond the k requested; the slot that a worker will run.

        The same request id again asks for no further one and gives the same slot.
        """
        job_id = self.job_id(job_id)

        def find(connection: Connection) -> tuple[Task, int]:
            row = jobs.get_job(connection, self.project, job_id)
            member = jobs.find_member(connection, self.project, row.manifest, task)
            made = job_metrics.attempts_of(connection, self.project, job_id, [task])[task]
            return member, max((attempt.attempt for attempt in made), default=0) + 1

        member, attempt_min = self.ask(find)
        rule = partial(
            job_rules.request_retry, task=member, attempt_min=attempt_min, reason=reason, request_id=request_id
        )
        self.ledger.record(job_stream(job_id), rule, key=request_id)
        state: job_rules.Job = self.ledger.state(job_stream(job_id))
        asked = [r.attempt for r in state.retries if r.task == member and r.request_id == request_id]
        return Slot(job_id, asked[-1], task)

    def finish_job(self, job_id: str) -> bool:
        """End a job if every slot of it has ended; whether it has."""

        def standing(connection: Connection) -> tuple[JobRow, job_metrics.JobResult, int]:
            row = jobs.get_job(connection, self.project, job_id)
            waiting = work_queue.count_open(connection, self.project, job_id)
            return row, job_metrics.result_of(connection, self.project, job_id), waiting

        row, measured, waiting = self.ask(standing)
        if row.ended_us is not None:
            return True
        ended = sum(measured.endings.get(status, 0) for status in ("succeeded", "failed", "canceled"))
        if waiting or ended < measured.metrics.score_counts.total or ended < sum(measured.endings.values()):
            return False
        failed = measured.endings.get("failed", 0)
        self.ledger.record(job_stream(job_id), partial(job_rules.finish_job, failed_trials=failed))
        return True

    def job_id(self, text: str, connection: Connection | None = None) -> str:
        """The id of the one job that a text names: a whole id, or a beginning of at least four characters."""
        if is_job_id(text):
            return text
        if connection is None:
            return self.ask(partial(self.job_id, text))
        return jobs.find_job_id(connection, self.project, text)

    # --- trials --------------------------------------------------------------------------------------------------

    def trials(self, job_id: str, *, after: Slot | None = None, limit: int = 100) -> list[TrialRow]:
        """The trials of a job, by attempt and task."""
        job_id = self.job_id(job_id)
        return self.ask(partial(trials.list_trials, project_id=self.project, job_id=job_id, after=after, limit=limit))

    def get_trial(self, trial_id: str) -> TrialRow:
        """One trial with its six signals."""
        return self.ask(partial(trials.get_trial, project_id=self.project, trial_id=trial_id))

    def events(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        job_id: str | None = None,
        slot: Slot | None = None,
        actor: str | None = None,
        tags: Sequence[str] = (),
        task: str | None = None,
    ) -> list[AuditRow]:
        """The audit trail after a position, of what fits every condition given."""
        return self.ask(
            partial(
                audit_trail.events,
                project_id=self.project,
                after=after,
                limit=limit,
                job_id=slot.job_id if slot else self.job_id(job_id) if job_id else None,
                attempt=slot.attempt if slot else None,
                task=slot.task if slot else task,
                actor=actor,
                tags=tags,
            )
        )

    @contextmanager
    def trial(self, job_id: str, task: str, attempt: int) -> Iterator[TrialReport]:
        """Run an attempt in this block: an exception inside becomes trial-failed, and is raised again.

        Raises:
            NotAllowed: the attempt was dispatched already, is beyond k without a retry, or the job was canceled.
        """
        job_id = self.job_id(job_id)
        member = self.ask(
            lambda c: jobs.find_member(c, self.project, jobs.get_job(c, self.project, job_id).manifest, task)
        )
        job_rules.check_dispatch(self.ledger.state(job_stream(job_id)), task=task, attempt=attempt)
        stream = trial_stream(job_id, task, attempt)
        dispatched = TrialDispatched(trial_id_for(job_id, task, attempt), job_id, task, member.digest, attempt)
        self.ledger.record(stream, partial(trial_rules.dispatch, dispatched=dispatched), trial_rules.start)
        report = TrialReport(self.ledger, self.artifacts, stream)
        try:
            yield report
        except BaseException as error:
            report.failed(error)
            self.finish_job(job_id)
            raise
        report.succeeded()
        self.finish_job(job_id)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _published(self, ref: str, stream: str, rule: Callable[[object], Sequence[object]]) -> Published:
        written = self.ledger.record(stream, rule)  # type: ignore[arg-type]  # a rule of that stream
        return Published(ref, "written" if written.facts else "unchanged", written.position)

    def _published_dataset(self, ref: str) -> DatasetPublished:
        past = self.ledger.stream(dataset_stream(checked_ref(ref)))
        if not past or not isinstance(past[-1].entry.fact, DatasetPublished):
            raise NotFound(f"There is no dataset {ref}; `el dataset list` shows those there are.")
        return past[-1].entry.fact
