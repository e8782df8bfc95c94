"""Checking an evidence file with nothing but the file: no store, no network, no read model.

The steps, in order; each says on its own what it found:

1. The file has the form of one: a head, then entries in the order of the log.
2. The checkpoint is signed by the key, and by every witness asked for.
3. The statement is signed by the same key, and speaks of that checkpoint and of as many entries as there are.
4. The entries' bytes, with the proof, lead to the root of the checkpoint: each stands at its position in that log.
5. The entries of each stream are all there from the first on: none was left out before another.
6. The job's members are those whose digest its manifest gives, and every trial is of one of them.
7. The numbers, folded from the entries, are those of the statement; and of the snapshot, if it is about one.

Not checked: whose the key is, unless it is given; that nothing was left out after the last entry of a stream, nor
whole trials, unless the file holds the whole log; that what was recorded is true.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import msgspec

from api.evidence import EvidenceHead, Statement, checkpoint_in, pre_authentication
from api.evidence_entries import Batch, Leaves, batches
from ledger import codec
from ledger.checkpoints import Checkpoint
from ledger.digests import members_digest
from ledger.errors import BadInput, BadNote, StoreError
from ledger.facts.catalogue import DatasetMembersAdded, DatasetPublished, Task, dataset_stream
from ledger.facts.entry import Recorded
from ledger.facts.job import JobMembersSelected, JobSubmitted, job_stream
from ledger.facts.leaderboard import FrozenNumbers, SnapshotAdded
from ledger.facts.trial import slot_of
from ledger.notes import Note, VerifierKey
from projections.snapshots import JobFold

FAULTS_MAX = 100


class Verified(msgspec.Struct, frozen=True):
    """What a check of an evidence file came to; without faults it holds. `key_given`: the key was known beforehand.

    `complete`: the file holds the whole log up to the checkpoint, so nothing that counts was left out.
    """

    subject: str
    project: str
    at: int
    numbers: FrozenNumbers
    entries: int
    complete: bool
    origin: str
    size: int
    root: str
    key: str
    key_given: bool
    witnesses: list[str]
    faults: list[str]


def verify(
    lines: Iterable[bytes], *, key: VerifierKey | None = None, witnesses: Sequence[VerifierKey] = ()
) -> Verified:
    """Check the lines of an evidence file. Raises BadInput when they have not the form of one."""
    lines = iter(lines)
    head, statement, note, checkpoint = _opened(next(lines, b""))
    said = statement.predicate
    trusted = key or VerifierKey.parse(head.key)
    faults = [*_signatures(head, note, trusted, witnesses), *_about(head, statement, checkpoint, trusted)]
    reading = _Reading(said.job_id, said.at, said.snapshot_id)
    leaves = Leaves(whole=said.whole)
    for batch in batches(lines):
        leaves.take(batch)
        faults += reading.take(batch, room=FAULTS_MAX - len(faults))
        if len(faults) >= FAULTS_MAX:
            break
    if leaves.count != said.entries:
        faults.append(f"the statement speaks of {said.entries:,} entries, and {leaves.count:,} are there")
    faults += leaves.faults(checkpoint, head.proof)
    faults += reading.faults(statement)
    return Verified(
        statement.subject[0].name,
        said.project,
        said.at,
        said.numbers,
        leaves.count,
        said.whole and not faults,
        checkpoint.origin,
        checkpoint.size,
        checkpoint.root.hex(),
        str(trusted),
        key is not None,
        [str(one) for one in witnesses],
        faults[:FAULTS_MAX],
    )


def _opened(line: bytes) -> tuple[EvidenceHead, Statement, Note, Checkpoint]:
    """Step 1, of the head."""
    try:
        head = msgspec.json.decode(line, type=EvidenceHead)
        payload = base64.b64decode(head.envelope.payload, validate=True)
        statement = msgspec.json.decode(payload, type=Statement)
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error, ValueError) as error:
        raise BadInput(f"This is no evidence file: its first line is not the head of one ({error}).") from error
    return head, statement, *checkpoint_in(head)


def _signatures(head: EvidenceHead, note: Note, key: VerifierKey, witnesses: Sequence[VerifierKey]) -> Iterator[str]:
    """Steps 2 and 3, the signatures."""
    try:
        signed = note.signed_by(key, *witnesses)
        yield from (f"the checkpoint is not signed by {one}" for one in (key, *witnesses) if one not in signed)
    except BadNote as error:
        yield str(error)
    (signature,) = head.envelope.signatures
    try:
        payload, signed_bytes = (
            base64.b64decode(text, validate=True) for text in (head.envelope.payload, signature.sig)
        )
    except (binascii.Error, ValueError):
        payload = signed_bytes = b""
    written = [base64.b64encode(data).decode() for data in (payload, signed_bytes)]
    if written != [head.envelope.payload, signature.sig] or not key.verifies(pre_authentication(payload), signed_bytes):
        yield f"the statement is not signed by {key}"
    if signature.keyid != f"{key.name}+{key.id.hex()}":
        yield f"the statement names another key, {signature.keyid}"


def _about(head: EvidenceHead, statement: Statement, checkpoint: Checkpoint, key: VerifierKey) -> Iterator[str]:
    """Step 3, what the statement speaks of."""
    said = statement.predicate
    if (said.origin, said.size, said.root) != (checkpoint.origin, checkpoint.size, checkpoint.root.hex()):
        yield "the statement speaks of another checkpoint than the one in the file"
    if not 0 < said.at <= checkpoint.size:
        yield f"the numbers are said to be those of position {said.at:,}, beyond the checkpoint"
    if head.key != str(key):
        yield f"the file names another key, {head.key}"


class _Reading:
    """Steps 5 to 7: what the entries say."""

    def __init__(self, job_id: str, at: int, snapshot_id: str | None) -> None:
        self._at, self._snapshot_id, self._job_id = at, snapshot_id, job_id
        self._versions: dict[str, int] = {}
        self._fold = JobFold(job_id)
        self._of_trials = f"trial/{job_id}/"
        self._tasks: dict[str, list[Task]] = {}  # by stream: of each dataset in the file, and of the job
        self._datasets: dict[str, DatasetPublished] = {}
        self._manifest: tuple[JobSubmitted, str] | None = None
        self._snapshot: tuple[SnapshotAdded, str] | None = None
        self._dispatched: set[str] = set()

    def take(self, batch: Batch, *, room: int) -> list[str]:
        """Take entries in; what is wrong with the places of them, at most `room` faults."""
        faults: list[str] = []
        versions, last, own = self._versions, self._versions.get, self._of_trials
        for number, place in enumerate(batch.places):
            stream, version = place.stream, place.version
            if version - 1 != last(stream, 0):
                faults.append(
                    f"entry {batch.positions[number]} is version {version} of {stream}, "
                    f"where {last(stream, 0) + 1} comes next"
                )
            versions[stream] = version
            if stream[:6] == "trial/" and not stream.startswith(own):
                continue  # of another job
            try:
                body = batch.body(number)
                self._apply(codec.decode(batch.positions[number], body), body)
            except StoreError as error:
                faults.append(f"entry {batch.positions[number]} cannot be read: {error}")
            if len(faults) > room:
                break
        return faults

    def _apply(self, recorded: Recorded, body: bytes) -> None:
        position, entry = recorded
        match entry.fact:
            case DatasetMembersAdded(tasks=tasks) | JobMembersSelected(tasks=tasks):
                self._tasks.setdefault(entry.stream, []).extend(tasks)
            case DatasetPublished():
                self._datasets[entry.stream] = entry.fact
            case JobSubmitted() if entry.stream == job_stream(self._job_id):
                self._manifest = entry.fact, sha256(codec.fact_bytes(body)).hexdigest()
            case SnapshotAdded() if entry.fact.snapshot_id == self._snapshot_id:
                self._snapshot = entry.fact, sha256(codec.fact_bytes(body)).hexdigest()
            case _:
                pass
        if position <= self._at:
            self._fold.apply(entry)
            if entry.stream.startswith(self._of_trials):
                self._dispatched.add(slot_of(entry.stream).task)

    def faults(self, statement: Statement) -> Iterator[str]:
        """What the entries together contradict."""
        said = statement.predicate
        if self._manifest is None:
            yield f"the manifest of job {said.job_id} is not there"
            return
        yield from self._members(self._manifest[0])
        numbers = self._fold.numbers()
        if msgspec.json.encode(numbers) != msgspec.json.encode(said.numbers):
            yield "the numbers folded from the entries are not those of the statement"
        subject = (f"job/{said.job_id}", self._manifest[1])
        if self._snapshot_id is not None:
            if self._snapshot is None:
                yield f"snapshot {self._snapshot_id} is not there"
                return
            snapshot, digest = self._snapshot
            subject = (f"snapshot/{self._snapshot_id}", digest)
            if (snapshot.job_id, snapshot.position) != (said.job_id, said.at):
                yield "the snapshot is of another job, or of another position"
            if msgspec.json.encode(snapshot.numbers) != msgspec.json.encode(numbers):
                yield "the numbers folded from the entries are not those of the snapshot"
            if snapshot.manifest != self._manifest[1]:
                yield "the snapshot was made of another manifest"
        found = statement.subject[0]
        if (found.name, found.digest) != (subject[0], {"sha256": subject[1]}):
            yield f"the statement is about {found.name} with another digest than that of {subject[0]} in the file"

    def _members(self, manifest: JobSubmitted) -> Iterator[str]:
        """Step 6."""
        stream = job_stream(self._job_id) if manifest.subset else dataset_stream(manifest.dataset)
        tasks = self._tasks.get(stream, [])
        published = self._datasets.get(dataset_stream(manifest.dataset))
        whole = self._tasks.get(dataset_stream(manifest.dataset), [])
        if published is None or _digest(whole) != (published.member_count, published.members_digest):
            yield f"the tasks of {manifest.dataset} are not those that its revision was published with"
        if _digest(tasks) != (manifest.member_count, manifest.members_digest):
            yield "the members are not those that the manifest gives the digest of"
        if strangers := sorted(self._dispatched - {task.name for task in tasks}):
            yield f"a trial is of {strangers[0][:200]}, which is no member of the job"


def _digest(tasks: Sequence[Task]) -> tuple[int, str]:
    return len(tasks), members_digest((task.name, task.digest) for task in tasks)
