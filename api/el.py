"""What every door of EvalLedger does: one set of methods, on the store itself (`Client`) or over HTTP (`HttpClient`).

Commands, importers, exporters and workers are written against `El`, so each of them runs on either. A method is
described here once; the two classes say only how they do it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

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
from api.boards import AddedSnapshot, Board, BoardDiff, BoardList, SnapshotAnswer, WithdrawnSnapshot
from api.contents import Content
from api.replaying import Replayed
from api.reporting import TrialReport, reporting
from api.revising import NewReward
from ledger.application import Rule, Written
from ledger.artifacts import Stored
from ledger.facts.catalogue import ProfilePublished, RunnerPublished, Scalar, Task
from ledger.facts.entry import Recorded
from ledger.facts.trial import ReportedFact, Slot
from projections.audit_trail import AuditRow
from projections.catalogue import DatasetRow
from projections.explaining import Explanation
from projections.following import Standing
from projections.leaderboard import Order
from projections.trials import TrialRow

TASKS_SHOWN = 20

Batches = Iterable[Iterable[tuple[str, Sequence[Rule]]]]


class ArtifactBatch(Protocol):
    """Several artifacts on their way; they are stored when the block ends."""

    def add_bytes(self, data: bytes) -> Stored:
        """Take bytes."""

    def add_file(self, path: Path, *, max_bytes: int) -> Stored:
        """Take a copy of a file. Raises NotFound, BadInput as `Artifacts.put_many`."""


class Artifacts(Protocol):
    """The artifacts of a project, by sha256. What a method returned as Stored is durable; a repeat is harmless."""

    def put_bytes(self, data: bytes) -> Stored:
        """Store bytes that are in memory already."""

    def put_many(self, items: Iterable[bytes | Path], *, max_bytes: int) -> list[Stored]:
        """Store bytes and files in order.

        Raises NotFound where there is no file, BadInput for one that is no ordinary file or larger than `max_bytes`.
        """

    def batch(self) -> AbstractContextManager[ArtifactBatch]:
        """Store several artifacts when the block ends, or none if it raises."""

    def read_bytes(self, sha256: str, *, max_bytes: int) -> bytes:
        """An artifact's content, checked against its name. Raises NotFound, DamagedStore, BadInput when it is larger
        than `max_bytes`."""

    def open(self, sha256: str) -> BinaryIO:
        """Open an artifact for reading; the caller closes it. Raises NotFound."""


class El(ABC):
    """One project of a ledger, behind whichever door.

    Every question is answered from read models that hold at least what this door wrote before. Any method raises
    StoreUnreachable when the database, or the server, does not answer.
    """

    project: str

    @property
    @abstractmethod
    def artifacts(self) -> Artifacts:
        """The artifacts of the project."""

    @property
    @abstractmethod
    def sources(self) -> Path:
        """The folder that remembers where on this machine the files of the project's datasets lie."""

    idle_pause_s_max: float = 0.5
    """How long whoever has found no work may leave the ledger alone before asking again, in seconds."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Where things are recorded, for people: the home folder, or the server's address."""

    # --- the project ---------------------------------------------------------------------------------------------

    @abstractmethod
    def head(self) -> ProjectHead:
        """How long the project's log is, and the Merkle root over it."""

    @abstractmethod
    def standings(self) -> list[Standing]:
        """How far each read model has come."""

    @abstractmethod
    def rebuild(self, names: Collection[str] = ()) -> int:
        """Drop the rows of the named read models (all by default) and build them again; the position reached.

        Raises:
            NotFound: there is no such read model; names those there are.
        """

    # --- catalogue -----------------------------------------------------------------------------------------------

    @abstractmethod
    def publish_dataset(
        self,
        ref: str,
        tasks: Sequence[Task],
        *,
        runner: str,
        digests: Literal["content", "by-name"] = "content",
    ) -> Published:
        """Publish a dataset revision under a published runner. The same content again writes nothing.

        Raises:
            NotFound: there is no such runner.
            Conflict: the revision stands with other content.
        """

    @abstractmethod
    def publish_runner(self, runner: RunnerPublished) -> Published:
        """Publish a runner revision. Raises Conflict when it stands with other content."""

    @abstractmethod
    def create_profile(self, ref: str, params: Mapping[str, Scalar], secrets: Mapping[str, str]) -> Published:
        """Publish a profile revision; its secret values are sealed outside the log in the same transaction.

        Raises Conflict when it stands with other content.
        """

    @abstractmethod
    def datasets(self, *, after: str = "", limit: int | None = None) -> list[DatasetRow]:
        """Dataset revisions by name, after one of them; all of them by default."""

    @abstractmethod
    def dataset(self, ref: str) -> DatasetRow:
        """One dataset revision. Raises NotFound."""

    @abstractmethod
    def dataset_tasks(self, ref: str, *, after: int = -1, limit: int | None = None) -> list[tuple[int, Task]]:
        """(ordinal from 0, task) of a dataset revision in its order. Raises NotFound."""

    @abstractmethod
    def runners(self, *, after: str = "", limit: int | None = None) -> list[RunnerPublished]:
        """Runner revisions by name, after one of them; all of them by default."""

    @abstractmethod
    def runner(self, ref: str) -> RunnerPublished:
        """One runner revision. Raises NotFound."""

    @abstractmethod
    def profiles(self, *, after: str = "", limit: int | None = None) -> list[ProfilePublished]:
        """Profile revisions by name, after one of them, all by default; of secrets only names and fingerprints."""

    @abstractmethod
    def profile(self, ref: str) -> ProfilePublished:
        """One profile revision. Raises NotFound."""

    # --- jobs ----------------------------------------------------------------------------------------------------

    @abstractmethod
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
        """Freeze and record a job's manifest. The same request id again returns the same job, unchanged.

        Raises:
            NotFound: there is no such dataset, task or profile.
            Conflict: the request id stands for another job.
        """

    @abstractmethod
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
        """Jobs, the newest first, of those submitted before a position that fit every condition given."""

    @abstractmethod
    def job(self, job_id: str, *, as_of: int | str | None = None) -> JobAnswer:
        """A job as it stands, or stood as of a position or a time. Raises NotFound."""

    @abstractmethod
    def result(
        self,
        job_id: str,
        *,
        tasks_after: int = 0,
        tasks_limit: int = TASKS_SHOWN,
        policy: str | None = None,
        as_of: int | str | None = None,
    ) -> ResultAnswer:
        """A job's result with a page of its tasks. With a policy, also the numbers under that rule: reads each member.

        As of a position or a time it is what was answered then; that reads each entry of the job.

        Raises:
            NotFound: there is, or was then, no such job.
            BadInput: there is no such policy; names those there are.
        """

    @abstractmethod
    def job_tasks(self, job_id: str, *, after: int = 0, limit: int = TASKS_SHOWN) -> TaskPage:
        """A page of a job's members in their order with their attempts, after the first `after`. Raises NotFound."""

    @abstractmethod
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
        """Take a number of a job apart: its formula and denominator, a page of the members counted and left out and
        why, their trials, and the entries that made each value. With a `task`, of that member alone.

        Raises:
            NotFound: there is no such job or member.
            BadInput: there is no such metric; names those there are.
        """

    @abstractmethod
    def replay(
        self,
        job_id: str | None = None,
        *,
        as_of: int | str | None = None,
        definition: str | None = None,
        policy: str | None = None,
    ) -> Replayed:
        """Recompute a job, or all of the project, from the log alone, and say what stored number differs.

        Raises:
            NotFound: there is no such job at that position.
            BadInput: there is no such definition or policy.
        """

    @abstractmethod
    def cancel_job(self, job_id: str, *, reason: str = "") -> Published:
        """Call a job off; what runs is stopped by its worker, what waits is never dispatched."""

    @abstractmethod
    def retry(self, job_id: str, task: str, *, reason: str, request_id: str | None = None) -> Slot:
        """Ask for one more attempt of a member, beyond the k requested; the slot that a worker will run.

        The same request id again asks for no further one and gives the same slot.
        """

    @abstractmethod
    def revise(self, trial_id: str, *, reward: float, verifier: str, reason: str) -> Published:
        """Correct a trial's reward by a later grading; the first one stays in the log, and results show both.

        Raises NotFound, and BadInput for what is no finite number.
        """

    @abstractmethod
    def regrade(self, job_id: str, rewards: Sequence[NewReward], *, verifier: str, reason: str) -> Regraded:
        """Correct rewards of a job from a new run of a verifier, all or none. Those that hold already stay as they are.

        Raises:
            NotFound: there is no such job or trial.
            BadInput: a trial is named twice, or a reward is no finite number.
        """

    @abstractmethod
    def job_id(self, text: str) -> str:
        """The id of the one job that a text names: a whole id, or a beginning of at least four characters.

        Raises NotFound.
        """

    # --- trials --------------------------------------------------------------------------------------------------

    @abstractmethod
    def trials(self, job_id: str, *, after: Slot | None = None, limit: int = 100) -> list[TrialRow]:
        """The trials of a job, by attempt and task."""

    @abstractmethod
    def get_trial(self, trial_id: str, *, as_of: int | str | None = None) -> TrialRow:
        """One trial with its six signals, now or as of a position or a time, by its id or a beginning of it of at least
        four characters. Raises NotFound.
        """

    @abstractmethod
    def trial_contents(self, trial_id: str) -> list[Content]:
        """Every content that a trial's facts name, its files first. Raises NotFound."""

    @abstractmethod
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
        """The audit trail after a position, of what fits every condition given.

        `before` is a position too; `since` and `until` are instants, the first included, the last not.
        """

    @contextmanager
    def trial(self, job_id: str, task: str, attempt: int) -> Iterator[TrialReport]:
        """Run an attempt in this block: an exception inside becomes trial-failed, and is raised again.

        Raises:
            NotAllowed: the attempt was dispatched already, is beyond k without a retry, or the job was canceled.
        """
        with reporting(self, self.dispatch(job_id, task, attempt)) as report:
            yield report

    # --- work ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def work(self, job_id: str | None = None) -> Work:
        """What waits to be executed and what is being executed, in all jobs or in one."""

    @abstractmethod
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
        """Give at most `slots` waiting slots, of one job or of the jobs of one runner, to a worker under a lease.

        First the trials of workers that were not heard of in time are ended; with `slots=0` only that. Each claim has
        to be renewed by `heartbeat` before `lease_s` seconds are over. The same `request_id` again gives the same
        claims, as far as they still hold.

        Raises:
            BadInput: neither a job nor a runner is named.
            NotFound: there is no such job, or a secret that its trials need is not in the store.
        """

    @abstractmethod
    def dispatch(self, job_id: str, task: str, attempt: int, *, request_id: str | None = None) -> Claim:
        """Give out one slot by its name, and start it; no lease is kept, so nobody but the caller will ever end it.

        The same `request_id` again gives the same claim.

        Raises:
            NotFound: there is no such job or member.
            NotAllowed: the attempt was dispatched already, is beyond k without a retry, or the job was canceled.
        """

    @abstractmethod
    def heartbeat(self, trial_id: str, token: int, *, lease_s: float = 60.0) -> Heartbeat:
        """Renew the lease of a claim by `lease_s` seconds from now; say whether it holds. Raises NotFound."""

    @abstractmethod
    def report(self, trial_id: str, facts: Sequence[ReportedFact], *, token: int) -> Reported:
        """Record facts about a claimed trial, all or none, in any order and as often as needed.

        When the last slot of a job has ended, so has the job.

        Raises:
            ClaimLapsed: the claim is not the slot's current one; a reward in the report is kept as evidence only.
            Conflict: the trial says something else already; names what differs.
            BadInput: a fact has not the right form, or is none that is reported.
            NotFound: there is no such trial.
        """

    @abstractmethod
    def secrets(self, trial_id: str, *, token: int) -> dict[str, str]:
        """The values of the secrets that a claimed trial needs, by name, until it has ended.

        Raises:
            ClaimLapsed: the claim is not the slot's current one, or the trial has ended.
            NotFound: there is no such trial, or a secret is not in the store.
            DamagedStore: a secret cannot be opened.
        """

    # --- leaderboards --------------------------------------------------------------------------------------------

    @abstractmethod
    def add_snapshot(self, job_id: str) -> AddedSnapshot:
        """Freeze a job's result on the leaderboard of its cohort. The same job again gives the saved one, unchanged.

        Raises:
            NotAllowed: the job has not ended, or nothing of it was scored.
        """

    @abstractmethod
    def leaderboards(self, *, as_of: int | str | None = None) -> BoardList:
        """Every leaderboard; as of a position or a time, where one is given."""

    @abstractmethod
    def leaderboard(
        self, cohort: str, *, order: Order = "score", min_coverage: float = 0.0, as_of: int | str | None = None
    ) -> Board:
        """A leaderboard, named by its cohort, the beginning of one, or a job on it; ranked by the score or its lower
        bound, and only rows that cover at least `min_coverage` (0 to 1) of what was requested."""

    @abstractmethod
    def snapshot(self, snapshot_id: str) -> SnapshotAnswer:
        """A snapshot, named by its id or its job's, and what its job's numbers have become since."""

    @abstractmethod
    def withdraw_snapshot(self, snapshot_id: str, *, reason: str) -> WithdrawnSnapshot:
        """Take a snapshot out of the ranking, for good; it stays readable with the reason.

        Raises:
            Conflict: it was withdrawn already for another reason.
        """

    @abstractmethod
    def leaderboard_diff(self, cohort: str, from_: int | str, to: int | str | None = None) -> BoardDiff:
        """What moved on a leaderboard between two positions or times, and the entries that moved it; `to` the end."""

    # --- proof ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def checkpoint(self) -> CheckpointAnswer:
        """The signed size and root of the log as it stands.

        Raises ForkedLog when the log does not extend the last checkpoint that the store itself has seen of it.
        """

    @abstractmethod
    def add_cosignatures(self, checkpoint: str) -> CheckpointAnswer:
        """Keep what witnesses have signed under a checkpoint of this log.

        Raises:
            BadNote: it is none of this log.
            Conflict: no such checkpoint was made here.
        """

    @abstractmethod
    def inclusion_proof(self, position: int, size: int | None = None) -> InclusionAnswer:
        """An entry with the proof that it is in the log of `size` entries, or of all. Raises NotFound."""

    @abstractmethod
    def consistency_proof(self, old_size: int, new_size: int | None = None) -> ConsistencyAnswer:
        """The proof that the log of `old_size` entries begins that of `new_size`, or of all.

        Raises NotFound, BadInput.
        """

    @abstractmethod
    def tile(self, path: str) -> bytes:
        """A tile of the log, by its path in C2SP tlog-tiles (`tile/0/000`). Raises NotFound, BadInput."""

    @abstractmethod
    def evidence(self, target: str, *, whole: bool = False) -> Iterator[bytes]:
        """The lines of an evidence file for a job's numbers, or a snapshot's; `whole` puts the whole log in.

        Raises NotFound at the first line.
        """

    # --- keys ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def issue_key(self, name: str, scopes: Collection[str], *, expires_at: datetime | None = None) -> IssuedKey:
        """Hand out a key of the project; it is in the answer and never shown again.

        Raises:
            Conflict: a valid key has this name.
        """

    @abstractmethod
    def keys(self) -> KeyList:
        """The keys of the project, also those that open nothing any more; never the keys themselves."""

    @abstractmethod
    def revoke_key(self, key_id: str) -> RevokedKey:
        """Take a key back: within a second it opens nothing any more. Raises NotFound."""

    # --- streams -------------------------------------------------------------------------------------------------

    @abstractmethod
    def stream(self, stream: str) -> list[Recorded]:
        """The entries of one stream, in version order; empty when there is no such stream."""

    @abstractmethod
    def streams(self, streams: Sequence[str]) -> dict[str, list[Recorded]]:
        """The entries of many streams, each in version order."""

    @abstractmethod
    def state(self, stream: str) -> Any:
        """A stream's state, folded from its entries; None when there is no such stream."""

    @abstractmethod
    def record(self, stream: str, *rules: Rule, key: str | None = None) -> Written:
        """For imports: ask the rules, one after the other, and record what they return on one stream.

        Raises Refused, whatever the rules refuse; nothing is written then.
        """

    @abstractmethod
    def record_new(self, batches: Batches, *, key: str | None = None) -> int:
        """For imports: record streams that do not exist yet, all or none; how many entries were written.

        Raises:
            ConcurrentWrite: one of the streams exists; nothing is written then.
        """
