"""The client: one set of methods for whoever submits, reports and reads. `connect()` gives one.

`Client` works on the store itself. Each method makes one call on the ledger, or puts one question to read models that
were brought up to date first; what takes more than a line stands in the module of its noun. `El` says what each
method does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy.engine import Connection

from api import (
    answering,
    board_diff,
    evidence,
    keys,
    leaderboards,
    proving,
    publishing,
    replaying,
    revising,
    submitting,
    under_claim,
    work,
)
from api.answers import (
    CheckpointAnswer,
    Claim,
    Claimed,
    ConsistencyAnswer,
    Heartbeat,
    InclusionAnswer,
    IssuedKey,
    JobAnswer,
    JobList,
    KeyList,
    ProjectHead,
    Published,
    Regraded,
    Reported,
    ResultAnswer,
    RevokedKey,
    Submitted,
    TaskPage,
    Work,
)
from api.asof import position_asked
from api.boards import AddedSnapshot, Board, BoardDiff, BoardList, SnapshotAnswer, WithdrawnSnapshot
from api.contents import Content, contents_of
from api.el import TASKS_SHOWN, Batches, El
from api.replaying import Replayed
from api.revising import NewReward
from api.settings import Settings
from api.wiring import Workspace
from ledger.application import Ledger, Rule, Written
from ledger.artifacts import ArtifactStore
from ledger.codec import decode_all
from ledger.database import reading
from ledger.facts.catalogue import ProfilePublished, RunnerPublished, Scalar, Task
from ledger.facts.entry import Recorded
from ledger.facts.job import Origin, is_job_id
from ledger.facts.trial import ReportedFact, Slot, trial_stream
from ledger.rules.forms import checked_ref
from projections import audit_trail, catalogue, trials
from projections.as_of import job_as_of
from projections.audit_trail import AuditRow
from projections.catalogue import DatasetRow
from projections.explaining import Explanation
from projections.following import Standing, microseconds, position_of, rebuild, standings
from projections.leaderboard import Order
from projections.models import READ_MODELS
from projections.trials import TrialRow

T = TypeVar("T")


def connect(
    url: str | None = None, *, key: str | None = None, project: str | None = None, settings: Settings | None = None
) -> El:
    """A client on the server at a URL, else on the one that EL_API_URL names, else on the embedded ledger.

    `key` stands instead of EL_API_KEY, `project` instead of EL_PROJECT.
    """
    settings = settings or Settings()
    project = project or settings.project
    url = url or settings.api_url
    if url is None:
        return Client(Workspace(settings), project)
    # Here, not above: most commands work on the store, and httpx takes a noticeable time to load.
    from api.http_client import HttpClient  # noqa: PLC0415

    if key is None and settings.api_key is not None:
        key = settings.api_key.get_secret_value()
    return HttpClient(url, key=key, project=project, home=settings.home)


class Client(El):
    """One project of an embedded ledger.

    `actor` stands in what is recorded, instead of the settings'. `fresh` is called before each read, with a position
    that it has to hold, instead of bringing the read models up to date: on a server a follower does that.
    """

    def __init__(
        self,
        workspace: Workspace,
        project: str,
        *,
        actor: str | None = None,
        fresh: Callable[[int], object] | None = None,
    ) -> None:
        self.workspace = workspace
        self.project = project
        self.ledger: Ledger = workspace.ledger(project, actor=actor)
        self._artifacts = workspace.artifacts(project)
        self.fresh: Callable[[int], object] = fresh or (lambda _position: workspace.caught_up(project))
        self.as_of = 0  # the position that the last answer from the read models was read at

    @property
    def artifacts(self) -> ArtifactStore:
        return self._artifacts

    @property
    def sources(self) -> Path:
        return self.workspace.sources(self.project)

    @property
    def where(self) -> str:
        return str(self.workspace.home)

    def ask(self, question: Callable[[Connection], T], *, at_least: int = 0) -> T:
        """Put a question to the read models, brought up to date first, and at least to a position written just now."""
        return self.answer(lambda connection, _as_of: question(connection), at_least=at_least)

    def answer(self, question: Callable[[Connection, int], T], *, at_least: int = 0) -> T:
        """The same for an answer that says what it is as of: the question is told the position it is put at."""
        self.fresh(at_least)
        with reading(self.workspace.engine) as connection:
            self.as_of = as_of = position_of(connection, self.project, READ_MODELS)
            return question(connection, as_of)

    def answer_of(self, job_id: str, as_of: int | str | None, question: Callable[[Connection, int], T]) -> T:
        """The same about one job, as the read models are, or as they stood at a position or a time."""
        if as_of is None:
            return self.answer(question)
        position = self.answer(lambda now, reached: position_asked(now, self.project, as_of, reached=reached))
        with job_as_of(self.ledger.recorder, self.job_id(job_id), position) as connection:
            self.as_of = position
            return question(connection, position)

    # --- the project ---------------------------------------------------------------------------------------------

    def head(self) -> ProjectHead:
        head = self.ledger.head()
        return ProjectHead(self.project, head.size, head.root.hex())

    def standings(self) -> list[Standing]:
        return standings(self.workspace.engine, self.project, READ_MODELS)

    def rebuild(self, names: Collection[str] = ()) -> int:
        return rebuild(self.workspace.engine, self.project, READ_MODELS, names)

    # --- catalogue -----------------------------------------------------------------------------------------------

    def publish_dataset(
        self, ref: str, tasks: Sequence[Task], *, runner: str, digests: Literal["content", "by-name"] = "content"
    ) -> Published:
        return publishing.publish_dataset(self, ref, tasks, runner=runner, digests=digests)

    def publish_runner(self, runner: RunnerPublished) -> Published:
        return publishing.publish_runner(self, runner)

    def create_profile(self, ref: str, params: Mapping[str, Scalar], secrets: Mapping[str, str]) -> Published:
        return publishing.create_profile(self, ref, params, secrets)

    def datasets(self, *, after: str = "", limit: int | None = None) -> list[DatasetRow]:
        return self.ask(partial(catalogue.list_datasets, project_id=self.project, after=after, limit=limit))

    def dataset(self, ref: str) -> DatasetRow:
        return self.ask(partial(catalogue.get_dataset, project_id=self.project, ref=checked_ref(ref)))

    def dataset_tasks(self, ref: str, *, after: int = -1, limit: int | None = None) -> list[tuple[int, Task]]:
        return self.ask(partial(catalogue.list_tasks, project_id=self.project, ref=ref, after=after, limit=limit))

    def runners(self, *, after: str = "", limit: int | None = None) -> list[RunnerPublished]:
        return self.ask(partial(catalogue.list_runners, project_id=self.project, after=after, limit=limit))

    def runner(self, ref: str) -> RunnerPublished:
        return publishing.published_runner(self, ref)

    def profiles(self, *, after: str = "", limit: int | None = None) -> list[ProfilePublished]:
        return self.ask(partial(catalogue.list_profiles, project_id=self.project, after=after, limit=limit))

    def profile(self, ref: str) -> ProfilePublished:
        return publishing.published_profile(self, ref)

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
        return submitting.submit_job(
            self,
            dataset,
            attempts=attempts,
            profile=profile,
            tasks=tasks,
            request_id=request_id,
            tags=tags,
            agent_run=agent_run,
            agent_round=agent_round,
            origin=origin,
            dry_run=dry_run,
        )

    def jobs(
        self,
        *,
        status: str | None = None,
        dataset: str | None = None,
        profile: str | None = None,
        model: str | None = None,
        agent_run: str | None = None,
        tags: Mapping[str, str] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> JobList:
        wanted = {"status": status, "dataset": dataset, "profile": profile, "model": model, "agent_run": agent_run}
        question = partial(answering.list_jobs, wanted=wanted, tags=tags or {}, before=before, limit=limit)
        return self.answer(partial(question, project=self.project))

    def job(self, job_id: str, *, as_of: int | str | None = None) -> JobAnswer:
        return self.answer_of(job_id, as_of, partial(answering.get_job, project=self.project, job_id=job_id))

    def result(
        self,
        job_id: str,
        *,
        tasks_after: int = 0,
        tasks_limit: int = TASKS_SHOWN,
        policy: str | None = None,
        as_of: int | str | None = None,
    ) -> ResultAnswer:
        question = partial(answering.get_result, tasks_after=tasks_after, tasks_limit=tasks_limit, policy=policy)
        return self.answer_of(job_id, as_of, partial(question, project=self.project, job_id=job_id))

    def explain(
        self,
        job_id: str,
        *,
        metric: str = "score",
        task: str | None = None,
        after: int = 0,
        limit: int = TASKS_SHOWN,
        as_of: int | str | None = None,
    ) -> Explanation:
        job_id = self.job_id(job_id)
        question = partial(answering.get_explanation, metric=metric, task=task, after=after, limit=limit)
        return self.answer_of(job_id, as_of, partial(question, recorder=self.ledger.recorder, job_id=job_id))

    def replay(
        self,
        job_id: str | None = None,
        *,
        as_of: int | str | None = None,
        definition: str | None = None,
        policy: str | None = None,
    ) -> Replayed:
        job_id = None if job_id is None else self.job_id(job_id)
        question = partial(replaying.replay, job_id=job_id, as_of=as_of, definition=definition, policy=policy)
        return self.answer(partial(question, recorder=self.ledger.recorder))

    def job_tasks(self, job_id: str, *, after: int = 0, limit: int = TASKS_SHOWN) -> TaskPage:
        return self.answer(partial(answering.get_tasks, project=self.project, job_id=job_id, after=after, limit=limit))

    def cancel_job(self, job_id: str, *, reason: str = "") -> Published:
        return submitting.cancel_job(self, job_id, reason=reason)

    def retry(self, job_id: str, task: str, *, reason: str, request_id: str | None = None) -> Slot:
        return submitting.retry(self, job_id, task, reason=reason, request_id=request_id)

    def finish_job(self, job_id: str, *, position: int = 0) -> bool:
        """End a job if every slot of it has ended by a position; whether it has. Reports and claims ask for it."""
        return submitting.finish_job(self, job_id, position=position)

    def revise(self, trial_id: str, *, reward: float, verifier: str, reason: str) -> Published:
        return revising.revise(self, trial_id, reward=reward, verifier=verifier, reason=reason)

    def regrade(self, job_id: str, rewards: Sequence[NewReward], *, verifier: str, reason: str) -> Regraded:
        return revising.regrade(self, job_id, rewards, verifier=verifier, reason=reason)

    def job_id(self, text: str) -> str:
        return text if is_job_id(text) else self.ask(partial(answering.whole_id, project=self.project, text=text))

    # --- trials --------------------------------------------------------------------------------------------------

    def trials(self, job_id: str, *, after: Slot | None = None, limit: int = 100) -> list[TrialRow]:
        job_id = self.job_id(job_id)
        return self.ask(partial(trials.list_trials, project_id=self.project, job_id=job_id, after=after, limit=limit))

    def get_trial(self, trial_id: str, *, as_of: int | str | None = None) -> TrialRow:
        row = self.ask(partial(trials.find_trial, project_id=self.project, text=trial_id))
        if as_of is None:
            return row
        return self.answer_of(row.job_id, as_of, lambda then, _at: trials.get_trial(then, self.project, row.trial_id))

    def trial_contents(self, trial_id: str) -> list[Content]:
        row = self.get_trial(trial_id)
        return contents_of(self.state(trial_stream(row.job_id, row.task, row.attempt)))

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
        stream: str | None = None,
        before: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[AuditRow]:
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
                stream=stream,
                before=before,
                since_us=None if since is None else microseconds(since),
                until_us=None if until is None else microseconds(until),
            )
        )

    # --- work ----------------------------------------------------------------------------------------------------

    def work(self, job_id: str | None = None) -> Work:
        return work.work(self, job_id)

    def claim(
        self,
        worker: str,
        *,
        slots: int = 1,
        job_id: str | None = None,
        runner: str | None = None,
        lease_s: float = 60.0,
        request_id: str | None = None,
    ) -> Claimed:
        return work.claim(
            self, worker, slots=slots, job_id=job_id, runner=runner, lease_s=lease_s, request_id=request_id
        )

    def dispatch(self, job_id: str, task: str, attempt: int, *, request_id: str | None = None) -> Claim:
        return work.dispatch(self, job_id, task, attempt, request_id=request_id)

    def heartbeat(self, trial_id: str, token: int, *, lease_s: float = 60.0) -> Heartbeat:
        return under_claim.heartbeat(self, trial_id, token, lease_s=lease_s)

    def report(self, trial_id: str, facts: Sequence[ReportedFact], *, token: int) -> Reported:
        return under_claim.report(self, trial_id, facts, token=token)

    def secrets(self, trial_id: str, *, token: int) -> dict[str, str]:
        return under_claim.secrets(self, trial_id, token=token)

    # --- leaderboards --------------------------------------------------------------------------------------------

    def add_snapshot(self, job_id: str) -> AddedSnapshot:
        return leaderboards.add_snapshot(self, job_id)

    def leaderboards(self, *, as_of: int | str | None = None) -> BoardList:
        return self.answer(partial(leaderboards.list_leaderboards, project=self.project, as_of=as_of))

    def leaderboard(
        self, cohort: str, *, order: Order = "score", min_coverage: float = 0.0, as_of: int | str | None = None
    ) -> Board:
        question = partial(leaderboards.get_leaderboard, order=order, min_coverage=min_coverage, as_of=as_of)
        return self.answer(partial(question, project=self.project, cohort=cohort))

    def snapshot(self, snapshot_id: str) -> SnapshotAnswer:
        return leaderboards.get_snapshot(self, snapshot_id)

    def withdraw_snapshot(self, snapshot_id: str, *, reason: str) -> WithdrawnSnapshot:
        return leaderboards.withdraw_snapshot(self, snapshot_id, reason=reason)

    def leaderboard_diff(self, cohort: str, from_: int | str, to: int | str | None = None) -> BoardDiff:
        question = partial(board_diff.diff_leaderboard, project=self.project, cohort=cohort, from_=from_, to=to)
        return self.answer(question)

    # --- proof ---------------------------------------------------------------------------------------------------

    def checkpoint(self) -> CheckpointAnswer:
        return proving.checkpoint(self)

    def add_cosignatures(self, checkpoint: str) -> CheckpointAnswer:
        return proving.add_cosignatures(self, checkpoint)

    def inclusion_proof(self, position: int, size: int | None = None) -> InclusionAnswer:
        return proving.inclusion_proof(self, position, size)

    def consistency_proof(self, old_size: int, new_size: int | None = None) -> ConsistencyAnswer:
        return proving.consistency_proof(self, old_size, new_size)

    def tile(self, path: str) -> bytes:
        return proving.tile(self, path)

    def evidence(self, target: str, *, whole: bool = False) -> Iterator[bytes]:
        return evidence.evidence(self, target, whole=whole)

    # --- keys ----------------------------------------------------------------------------------------------------

    def issue_key(self, name: str, scopes: Collection[str], *, expires_at: datetime | None = None) -> IssuedKey:
        return keys.issue(self, name, scopes, expires_at=expires_at)

    def keys(self) -> KeyList:
        return keys.list_keys(self)

    def revoke_key(self, key_id: str) -> RevokedKey:
        return keys.revoke(self, key_id)

    # --- streams -------------------------------------------------------------------------------------------------

    def stream(self, stream: str) -> list[Recorded]:
        return self.ledger.stream(stream)

    def streams(self, streams: Sequence[str]) -> dict[str, list[Recorded]]:
        return {stream: decode_all(bodies) for stream, bodies in self.ledger.recorder.bodies_of(streams).items()}

    def stream_bodies(self, streams: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
        """(position, stored bytes) of every entry of the streams, in version order."""
        return self.ledger.recorder.bodies_of(streams)

    def state(self, stream: str) -> Any:
        return self.ledger.state(stream)

    def record(self, stream: str, *rules: Rule, key: str | None = None) -> Written:
        return self.ledger.record(stream, *rules, key=key)

    def record_new(self, batches: Batches, *, key: str | None = None) -> int:
        return self.ledger.record_new(batches, key=key)
