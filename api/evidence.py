"""One file that shows what a job's numbers are made of: the signed statement, a checkpoint, and the entries that count.

The first line is the head: a checkpoint of the log, an in-toto statement in a DSSE envelope signed by the same key,
and the joint proof that the entries are in the log. Each further line is one entry: its position and its exact bytes.
With the whole log in the file nothing can have been left out, and the proof is empty.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import msgspec

from api import proving
from ledger import codec
from ledger.checkpoints import Checkpoint
from ledger.errors import NotFound
from ledger.facts.catalogue import dataset_stream, profile_stream, runner_stream
from ledger.facts.job import JobSubmitted, job_stream
from ledger.facts.leaderboard import FrozenNumbers, leaderboard_stream
from ledger.notes import Note, SigningKey
from ledger.proofs import joint_proof
from ledger.tiles import Tiles
from projections import leaderboard
from projections.leaderboard import SnapshotRow
from projections.snapshots import fold_numbers

if TYPE_CHECKING:
    from api.client import Client

FORMAT: Literal["evalledger/evidence/1"] = "evalledger/evidence/1"
STATEMENT_TYPE: Literal["https://in-toto.io/Statement/v1"] = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Literal["urn:evalledger:evidence:1"] = "urn:evalledger:evidence:1"
PAYLOAD_TYPE: Literal["application/vnd.in-toto+json"] = "application/vnd.in-toto+json"
ENTRIES_PER_READ = 2_000


class Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the statement is about, and the sha256 of its fact as it stands in its entry."""

    name: str
    digest: dict[str, str]


class Predicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is said of it: its numbers as of position `at` of the log that the checkpoint signs.

    `entries` are in the file; `whole` says that they are all of the log up to the checkpoint's size.
    """

    project: str
    job_id: str
    snapshot_id: str | None
    at: int
    numbers: FrozenNumbers
    origin: str
    size: int
    root: str
    entries: int
    whole: bool


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An in-toto statement, version 1."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: tuple[Subject]
    predicate_type: Literal["urn:evalledger:evidence:1"] = msgspec.field(name="predicateType")
    predicate: Predicate


class EnvelopeSignature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signature of a DSSE envelope: the key's name and id, and the signature in base64."""

    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A DSSE envelope: the statement in base64, and who signed it."""

    payload: str
    payload_type: Literal["application/vnd.in-toto+json"] = msgspec.field(name="payloadType")
    signatures: tuple[EnvelopeSignature]


class EvidenceHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of an evidence file. `key` is the verifier key; whoever verifies should know it from elsewhere."""

    format: Literal["evalledger/evidence/1"]
    key: str
    checkpoint: str
    envelope: Envelope
    proof: tuple[str, ...]


def evidence(client: Client, target: str, *, whole: bool = False) -> Iterator[bytes]:
    """The lines of the evidence for a job's numbers as they are now, or for a snapshot's as they were frozen.

    Raises NotFound at the first line.
    """
    snapshot = client.ask(partial(leaderboard.find_snapshot, project_id=client.project, snapshot_id=target))
    job_id = snapshot.fact.job_id if snapshot else client.job_id(target)
    signed = proving.checkpoint(client)
    at = snapshot.fact.position if snapshot else signed.size
    submitted, manifest = _manifest(client, job_id)
    own = _positions(client, submitted, at, snapshot)
    numbers = fold_numbers(codec.decode_each(_bodies(client, own)), job_id)
    if numbers is None:
        raise NotFound(f"There is no job {job_id} in the first {at:,} entries.")
    positions = range(1, signed.size + 1) if whole else own
    subject = (
        Subject(f"snapshot/{snapshot.fact.snapshot_id}", _digest(_body_at(client, snapshot.position)))
        if snapshot
        else Subject(f"job/{job_id}", _digest(manifest))
    )
    predicate = Predicate(
        client.project,
        job_id,
        snapshot.fact.snapshot_id if snapshot else None,
        at,
        numbers,
        signed.origin,
        signed.size,
        signed.root,
        len(positions),
        whole,
    )
    envelope = enveloped(
        Statement(STATEMENT_TYPE, (subject,), PREDICATE_TYPE, predicate), client.workspace.signer.named(signed.origin)
    )
    tiles = Tiles(client.ledger.recorder)
    proof = [] if whole else joint_proof(tiles.node, [position - 1 for position in positions], signed.size)
    head = EvidenceHead(
        FORMAT, signed.key, signed.checkpoint, envelope, tuple(base64.b64encode(hash_).decode() for hash_ in proof)
    )
    yield msgspec.json.encode(head) + b"\n"
    for position, body in _bodies(client, positions):
        yield b'{"position":%d,"entry":%s}\n' % (position, body)


def enveloped(statement: Statement, signer: SigningKey) -> Envelope:
    """A statement, signed."""
    payload = msgspec.json.encode(statement)
    key = signer.verifier()
    signature = EnvelopeSignature(f"{key.name}+{key.id.hex()}", _b64(signer.sign_bytes(pre_authentication(payload))))
    return Envelope(_b64(payload), PAYLOAD_TYPE, (signature,))


def pre_authentication(payload: bytes) -> bytes:
    """What is signed of a payload in a DSSE envelope: it can be taken for no checkpoint, which is text in lines."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def checkpoint_in(head: EvidenceHead) -> tuple[Note, Checkpoint]:
    """The checkpoint of an evidence file, not yet believed. Raises BadNote."""
    note = Note.parse(head.checkpoint)
    return note, Checkpoint.parse(note.text)


def _positions(client: Client, submitted: JobSubmitted, at: int, snapshot: SnapshotRow | None) -> list[int]:
    """Where the entries stand that count: of the job, its trials, and the revisions that its manifest names."""
    recorder, job_id = client.ledger.recorder, submitted.job_id
    streams = [job_stream(job_id), dataset_stream(submitted.dataset), runner_stream(submitted.runner)]
    if submitted.profile:
        streams.append(profile_stream(submitted.profile))
    positions = recorder.positions_of(streams, under=f"trial/{job_id}/", upto=at)
    if snapshot is None:
        return positions
    # The board's stream from its first entry on, so that its versions can be checked like those of the others.
    board = client.stream(leaderboard_stream(snapshot.fact.cohort))
    return sorted({*positions, *(r.position for r in board if r.position <= snapshot.position)})


def _manifest(client: Client, job_id: str) -> tuple[JobSubmitted, bytes]:
    """The job's manifest, and the entry's bytes."""
    bodies = client.ledger.recorder.bodies_of([job_stream(job_id)])[job_stream(job_id)]
    for position, body in bodies:
        fact = codec.decode(position, bytes(body)).entry.fact
        if isinstance(fact, JobSubmitted):
            return fact, bytes(body)
    raise NotFound(f"There is no job {job_id}; `el job list` shows those there are.")


def _body_at(client: Client, position: int) -> bytes:
    ((_, body),) = client.ledger.recorder.bodies_at([position])
    return body


def _bodies(client: Client, positions: range | list[int]) -> Iterator[tuple[int, bytes]]:
    recorder = client.ledger.recorder
    for start in range(0, len(positions), ENTRIES_PER_READ):
        some = positions[start : start + ENTRIES_PER_READ]
        if isinstance(some, range):
            yield from ((at, bytes(body)) for at, body in recorder.bodies(after=some[0] - 1, limit=len(some)))
        else:
            yield from recorder.bodies_at(some)


def _digest(body: bytes) -> dict[str, str]:
    return {"sha256": sha256(codec.fact_bytes(body)).hexdigest()}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
