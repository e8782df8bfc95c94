"""The client of a server: the methods of `El`, each a request to the route of the same noun.

Requests are repeated where the reply was lost or the server is busy (`api.remote.transport` says when, and why that is
harmless). Answers are the same shapes, refusals the same errors as on the store itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

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
    RevisedReward,
    RevokedKey,
    Submitted,
    TaskPage,
    TaskResult,
    Work,
)
from api.boards import AddedSnapshot, Board, BoardDiff, BoardList, SnapshotAnswer, WithdrawnSnapshot
from api.contents import Content
from api.el import TASKS_SHOWN, Batches, El
from api.pages import (
    ContentPage,
    DatasetPage,
    DatasetTasks,
    EventPage,
    OneDataset,
    OneProfile,
    OneRunner,
    OneTrial,
    ProfilePage,
    Rebuilt,
    RetryAsked,
    RunnerPage,
    SecretValues,
    Standings,
    TrialPage,
)
from api.remote.address import checked_key, checked_url
from api.remote.artifacts import RemoteArtifacts
from api.remote.importing import RemoteStreams, own_key
from api.remote.transport import PAGE_ROWS_MAX, TRIES_MAX, Transport, path_of
from api.replaying import Replayed
from api.revising import NewReward
from api.settings import Settings
from api.shaping import audit_row, trial_row
from ledger.application import Rule, Written, fold
from ledger.errors import NotFound
from ledger.facts.catalogue import ProfilePublished, RunnerPublished, Scalar, Task
from ledger.facts.entry import Recorded
from ledger.facts.job import is_job_id
from ledger.facts.trial import ReportedFact, Slot, trial_id_for
from ledger.rules.access import checked_project
from ledger.rules.forms import checked_ref
from projections.audit_trail import AuditRow
from projections.catalogue import DatasetRow
from projections.explaining import Explanation
from projections.following import Standing
from projections.leaderboard import Order
from projections.trials import TrialRow


class HttpClient(El):
    """One project of a server. Threads may share it; close it, or use it as a block, when it is done with."""

    idle_pause_s_max = 5.0

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        project: str = "default",
        home: Path | None = None,
        tries_max: int = TRIES_MAX,
    ) -> None:
        self.project = checked_project(project)
        self._home = (home or Settings().home).absolute()
        url = checked_url(url, has_key=key is not None)
        self._transport = Transport(url, project, key=key and checked_key(key), tries_max=tries_max)
        self._artifacts = RemoteArtifacts(self._transport)
        self._streams = RemoteStreams(self._transport)

    def __repr__(self) -> str:
        return f"HttpClient({self.where!r}, project={self.project!r})"

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._transport.close()

    @property
    def artifacts(self) -> RemoteArtifacts:
        return self._artifacts

    @property
    def sources(self) -> Path:
        return self._home / "sources" / self.project

    @property
    def where(self) -> str:
        return self._transport.url

    # --- the project ---------------------------------------------------------------------------------------------

    def head(self) -> ProjectHead:
        return self._transport.get("", ProjectHead)

    def standings(self) -> list[Standing]:
        found = self._transport.get("/projections", Standings).projections
        return [Standing(*msgspec.structs.astuple(row)) for row in found]

    def rebuild(self, names: Collection[str] = ()) -> int:
        # Sent once, and waited for: each repeat would drop what the last one is building.
        asked = {"names": list(names)}
        return self._transport.post("/projections/rebuild", Rebuilt, asked, tries_max=1, patient=True).position

    # --- catalogue -----------------------------------------------------------------------------------------------

    def publish_dataset(
        self, ref: str, tasks: Sequence[Task], *, runner: str, digests: Literal["content", "by-name"] = "content"
    ) -> Published:
        body = {"ref": ref, "runner": runner, "digests": digests, "tasks": tasks}
        return self._transport.post("/datasets", Published, body)

    def publish_runner(self, runner: RunnerPublished) -> Published:
        fields = msgspec.to_builtins(runner)
        del fields["fact"]
        return self._transport.post("/runners", Published, fields)

    def create_profile(self, ref: str, params: Mapping[str, Scalar], secrets: Mapping[str, str]) -> Published:
        return self._transport.post("/profiles", Published, {"ref": ref, "params": params, "secrets": secrets})

    def datasets(self, *, after: str = "", limit: int | None = None) -> list[DatasetRow]:
        start = {"after": after or None}
        return self._transport.rows("/datasets", DatasetPage, lambda page: page.datasets, limit=limit, start=start)

    def dataset(self, ref: str) -> DatasetRow:
        return self._transport.get(_ref_path("datasets", ref), OneDataset).dataset

    def dataset_tasks(self, ref: str, *, after: int = -1, limit: int | None = None) -> list[tuple[int, Task]]:
        path, start = _ref_path("dataset-tasks", ref), {"after": after if after >= 0 else None}
        return self._transport.rows(path, DatasetTasks, lambda page: page.tasks, limit=limit, start=start)

    def runners(self, *, after: str = "", limit: int | None = None) -> list[RunnerPublished]:
        start = {"after": after or None}
        return self._transport.rows("/runners", RunnerPage, lambda page: page.runners, limit=limit, start=start)

    def runner(self, ref: str) -> RunnerPublished:
        return self._transport.get(_ref_path("runners", ref), OneRunner).runner

    def profiles(self, *, after: str = "", limit: int | None = None) -> list[ProfilePublished]:
        start = {"after": after or None}
        return self._transport.rows("/profiles", ProfilePage, lambda page: page.profiles, limit=limit, start=start)

    def profile(self, ref: str) -> ProfilePublished:
        return self._transport.get(_ref_path("profiles", ref), OneProfile).profile

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
        dry_run: bool = False,
    ) -> Submitted:
        body = {
            "dataset": dataset,
            "attempts": attempts,
            "profile": profile,
            "tasks": list(tasks),
            # A submission that is sent again must be known for the same one.
            "request_id": request_id or (None if dry_run else own_key()),
            "tags": tags or {},
            "agent_run": agent_run,
            "agent_round": agent_round,
            "dry_run": dry_run,
        }
        done = self._transport.post("/jobs", Submitted, body)
        # Nobody else has a key of our own: what it submitted before, an earlier try of this call did.
        ours = request_id is None and done.outcome == "unchanged"
        return msgspec.structs.replace(done, outcome="written") if ours else done

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
        said = {"status": status, "dataset": dataset, "profile": profile, "model": model, "agent_run": agent_run}
        tag = [f"{name}={value}" for name, value in (tags or {}).items()] or None
        as_of = 0

        def jobs(page: JobList) -> list[JobAnswer]:
            nonlocal as_of
            as_of = page.as_of
            return page.jobs

        found = self._transport.rows("/jobs", JobList, jobs, limit=limit, start={"before": before}, **said, tag=tag)
        return JobList(found, as_of)

    def job(self, job_id: str, *, as_of: int | str | None = None) -> JobAnswer:
        return self._transport.get(path_of("jobs", job_id), JobAnswer, as_of=as_of)

    def result(
        self,
        job_id: str,
        *,
        tasks_after: int = 0,
        tasks_limit: int = TASKS_SHOWN,
        policy: str | None = None,
        as_of: int | str | None = None,
    ) -> ResultAnswer:
        path, tasks, revised = path_of("jobs", job_id, "result"), list[TaskResult](), list[RevisedReward]()
        while True:
            wanted = min(tasks_limit - len(tasks), PAGE_ROWS_MAX)
            page = {"tasks_after": tasks_after + len(tasks), "tasks_limit": wanted}
            answer = self._transport.get(path, ResultAnswer, **page, policy=policy, as_of=as_of)
            tasks += answer.tasks
            revised += answer.revised
            if not answer.tasks_more or len(tasks) >= tasks_limit:
                return msgspec.structs.replace(answer, tasks=tasks, tasks_after=tasks_after, revised=revised)

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
        asked = {"metric": metric, "task": task, "after": after, "limit": limit, "as_of": as_of}
        return self._transport.get(path_of("jobs", job_id, "explain"), Explanation, **asked)

    def replay(
        self,
        job_id: str | None = None,
        *,
        as_of: int | str | None = None,
        definition: str | None = None,
        policy: str | None = None,
    ) -> Replayed:
        asked = {"job_id": job_id, "as_of": as_of, "definition": definition, "policy": policy}
        return self._transport.post("/replays", Replayed, asked)

    def job_tasks(self, job_id: str, *, after: int = 0, limit: int = TASKS_SHOWN) -> TaskPage:
        path = path_of("jobs", job_id, "tasks")
        answer = self._transport.get(path, TaskPage, after=after, limit=min(limit, PAGE_ROWS_MAX))
        while answer.more and len(answer.tasks) < limit:
            shown = len(answer.tasks)
            wanted = min(limit - shown, PAGE_ROWS_MAX)
            page = self._transport.get(path, TaskPage, after=after + shown, limit=wanted)
            answer = msgspec.structs.replace(page, tasks=answer.tasks + page.tasks, after=after)
        return answer

    def cancel_job(self, job_id: str, *, reason: str = "") -> Published:
        return self._transport.post(path_of("jobs", job_id, "cancel"), Published, {"reason": reason})

    def retry(self, job_id: str, task: str, *, reason: str, request_id: str | None = None) -> Slot:
        body = {"task": task, "reason": reason, "request_id": request_id or own_key()}
        asked = self._transport.post(path_of("jobs", job_id, "retries"), RetryAsked, body)
        return Slot(asked.job_id, asked.attempt, asked.task)

    def revise(self, trial_id: str, *, reward: float, verifier: str, reason: str) -> Published:
        body = {"reward": reward, "verifier": verifier, "reason": reason}
        return self._transport.post(path_of("trials", trial_id, "revisions"), Published, body)

    def regrade(self, job_id: str, rewards: Sequence[NewReward], *, verifier: str, reason: str) -> Regraded:
        body = {"rewards": rewards, "verifier": verifier, "reason": reason}
        return self._transport.post(path_of("jobs", job_id, "revisions"), Regraded, body)

    def job_id(self, text: str) -> str:
        return text if is_job_id(text) else self.job(text).id

    # --- trials --------------------------------------------------------------------------------------------------

    def trials(self, job_id: str, *, after: Slot | None = None, limit: int = 100) -> list[TrialRow]:
        start = {"after_attempt": after.attempt, "after_task": after.task} if after else {}
        path = path_of("jobs", job_id, "trials")
        found = self._transport.rows(path, TrialPage, lambda page: page.trials, limit=limit, start=start)
        return [trial_row(answer) for answer in found]

    def get_trial(self, trial_id: str, *, as_of: int | str | None = None) -> TrialRow:
        return trial_row(self._transport.get(path_of("trials", trial_id), OneTrial, as_of=as_of).trial)

    def trial_contents(self, trial_id: str) -> list[Content]:
        return self._transport.get(path_of("trials", trial_id, "artifacts"), ContentPage).artifacts

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
        found = self._transport.rows(
            "/events",
            EventPage,
            lambda page: page.events,
            limit=limit,
            start={"after": after},
            job=None if slot else job_id,
            trial=trial_id_for(slot.job_id, slot.task, slot.attempt) if slot else None,
            task=None if slot else task,
            actor=actor,
            tag=list(tags) or None,
            stream=stream,
            before=before,
            since=since and since.isoformat(),
            until=until and until.isoformat(),
        )
        return [audit_row(event.position, bytes(event.entry)) for event in found]

    # --- work ----------------------------------------------------------------------------------------------------

    def work(self, job_id: str | None = None) -> Work:
        return self._transport.get("/work", Work, job=job_id)

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
        body = {
            "worker": worker,
            "slots": slots,
            "job_id": job_id,
            "runner": runner,
            "lease_s": lease_s,
            "request_id": request_id or own_key(),
        }
        return self._transport.post("/work/claims", Claimed, body)

    def dispatch(self, job_id: str, task: str, attempt: int, *, request_id: str | None = None) -> Claim:
        body = {"job_id": job_id, "task": task, "attempt": attempt, "request_id": request_id or own_key()}
        return self._transport.post("/work/dispatches", Claim, body)

    def heartbeat(self, trial_id: str, token: int, *, lease_s: float = 60.0) -> Heartbeat:
        body = {"token": token, "lease_s": lease_s}
        return self._transport.post(path_of("work", trial_id, "heartbeat"), Heartbeat, body)

    def report(self, trial_id: str, facts: Sequence[ReportedFact], *, token: int) -> Reported:
        body = {"token": token, "facts": list(facts)}
        return self._transport.post(path_of("work", trial_id, "reports"), Reported, body)

    def secrets(self, trial_id: str, *, token: int) -> dict[str, str]:
        return self._transport.post(path_of("work", trial_id, "secrets"), SecretValues, {"token": token}).secrets

    # --- leaderboards --------------------------------------------------------------------------------------------

    def add_snapshot(self, job_id: str) -> AddedSnapshot:
        return self._transport.post("/leaderboards/snapshots", AddedSnapshot, {"job_id": job_id})

    def leaderboards(self, *, as_of: int | str | None = None) -> BoardList:
        return self._transport.get("/leaderboards", BoardList, as_of=as_of)

    def leaderboard(
        self, cohort: str, *, order: Order = "score", min_coverage: float = 0.0, as_of: int | str | None = None
    ) -> Board:
        said = {"order": order, "min_coverage": min_coverage, "as_of": as_of}
        return self._transport.get(path_of("leaderboards", cohort), Board, **said)

    def snapshot(self, snapshot_id: str) -> SnapshotAnswer:
        return self._transport.get(path_of("leaderboards", "snapshots", snapshot_id), SnapshotAnswer)

    def withdraw_snapshot(self, snapshot_id: str, *, reason: str) -> WithdrawnSnapshot:
        path = path_of("leaderboards", "snapshots", snapshot_id, "withdraw")
        return self._transport.post(path, WithdrawnSnapshot, {"reason": reason})

    def leaderboard_diff(self, cohort: str, from_: int | str, to: int | str | None = None) -> BoardDiff:
        said = {"from": from_, "to": to}
        return self._transport.get(path_of("leaderboards", cohort, "diff"), BoardDiff, **said)

    # --- proof ---------------------------------------------------------------------------------------------------

    def checkpoint(self) -> CheckpointAnswer:
        return self._transport.get("/log", CheckpointAnswer)

    def add_cosignatures(self, checkpoint: str) -> CheckpointAnswer:
        return self._transport.post("/log/cosignatures", CheckpointAnswer, {"checkpoint": checkpoint})

    def inclusion_proof(self, position: int, size: int | None = None) -> InclusionAnswer:
        return self._transport.get(path_of("log", "entries", str(position), "proof"), InclusionAnswer, size=size)

    def consistency_proof(self, old_size: int, new_size: int | None = None) -> ConsistencyAnswer:
        said = {"old_size": old_size, "new_size": new_size}
        return self._transport.get("/log/consistency", ConsistencyAnswer, **said)

    def tile(self, path: str) -> bytes:
        return self._transport.send("GET", path_of("log", *path.split("/"))).content

    def evidence(self, target: str, *, whole: bool = False) -> Iterator[bytes]:
        # A snapshot's id and a job's look alike: the server says which of them it knows.
        for noun in (("leaderboards", "snapshots"), ("jobs",)):
            path = path_of(*noun, target, "evidence") + ("?whole=true" if whole else "")
            try:
                file = self._transport.fetch(path)
            except NotFound:
                if noun == ("jobs",):
                    raise
                continue
            with file:
                yield from file
            return

    # --- keys ----------------------------------------------------------------------------------------------------

    def issue_key(self, name: str, scopes: Collection[str], *, expires_at: datetime | None = None) -> IssuedKey:
        body = {"name": name, "scopes": list(scopes), "expires_at": expires_at}
        # Sent once: were the reply lost and the request repeated, a key would stand that nobody has seen.
        return self._transport.post("/keys", IssuedKey, body, tries_max=1)

    def keys(self) -> KeyList:
        return self._transport.get("/keys", KeyList)

    def revoke_key(self, key_id: str) -> RevokedKey:
        return self._transport.decode(self._transport.send("DELETE", path_of("keys", key_id)), RevokedKey)

    # --- streams -------------------------------------------------------------------------------------------------

    def stream(self, stream: str) -> list[Recorded]:
        return self._streams.read([stream])[stream]

    def streams(self, streams: Sequence[str]) -> dict[str, list[Recorded]]:
        return self._streams.read(streams)

    def state(self, stream: str) -> Any:
        return fold(stream, self.stream(stream))

    def record(self, stream: str, *rules: Rule, key: str | None = None) -> Written:
        return self._streams.record(stream, rules, key=key)

    def record_new(self, batches: Batches, *, key: str | None = None) -> int:
        return self._streams.record_new(batches, key=key)


def _ref_path(noun: str, ref: str) -> str:
    name, _, version = checked_ref(ref).rpartition("@")
    return path_of(noun, *name.split("/"), version)
