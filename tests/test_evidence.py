"""Evidence: one file that anybody can check without the store, and everything that must not be taken for it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from api import proving
from api.client import Client
from api.evidence import Envelope, EvidenceHead, Statement, enveloped
from api.evidence_check import Verified, verify
from ledger import codec
from ledger.errors import BadInput, NotFound
from ledger.facts.catalogue import Task
from ledger.notes import COSIGNATURE, Note, SigningKey, VerifierKey
from ledger.proofs import joint_proof
from ledger.tiles import Tiles
from projections.snapshots import fold_numbers
from tests.given import SHA_A
from tests.given_commands import runner_of
from tests.given_doors import Door, serving
from tests.given_proofs import client_with_log

REWARDS = {("t1", 1): 1.0, ("t1", 2): 0.0, ("t2", 1): 1.0, ("t2", 2): 1.0, ("t3", 1): 0.25}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A store with the entries of others, two jobs of three tasks, and one of them on a leaderboard."""
    client = client_with_log(tmp_path_factory.mktemp("evidence") / "home", 120)
    client.publish_runner(runner_of("true", ref="own@1"))
    client.publish_dataset("own/eval@1", [Task(name, SHA_A) for name in ("t1", "t2", "t3")], runner="own@1")
    for request, tasks in (("first", ()), ("second", ("t1", "t2"))):
        job = client.submit_job("own/eval@1", attempts=2, request_id=request, tasks=tasks)
        for (task, attempt), reward in REWARDS.items():
            if not tasks or task in tasks:
                with client.trial(job.id, task, attempt) as trial:
                    trial.reward(reward)
    with client.trial(job_named(client, "first"), "t3", 2):
        pass
    client.add_snapshot(job_named(client, "first"))
    return client


def job_named(client: Client, request: str) -> str:
    return next(job.id for job in client.jobs(limit=1_000).jobs if job.request_id == request)


def lines_of(client: Client, target: str, *, whole: bool = False) -> list[bytes]:
    return list(client.evidence(target, whole=whole))


def key_of(client: Client) -> VerifierKey:
    return VerifierKey.parse(client.checkpoint().key)


# --- what holds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("request_id", ["first", "second"])
def test_the_evidence_of_a_job_holds(client: Client, request_id: str, whole: bool) -> None:
    """Its numbers are those of `job result`; with the whole log nothing can have been left out, else that is said."""
    job = job_named(client, request_id)
    found = verify(lines_of(client, job, whole=whole), key=key_of(client))
    assert found.faults == []
    result = client.result(job)
    assert found.numbers.score == result.score
    assert msgspec.to_builtins(found.numbers.score_counts) == msgspec.to_builtins(result.score_counts)
    assert (found.subject, found.key_given, found.complete) == (f"job/{job}", True, whole)
    assert (found.entries == client.head().entries) is whole


@pytest.mark.parametrize("whole", [False, True])
def test_the_evidence_of_a_snapshot_is_of_its_own_position(client: Client, whole: bool) -> None:
    """What is recorded later does not change it."""
    snapshot = client.snapshot(job_named(client, "first")).snapshot
    before = verify(lines_of(client, snapshot.id, whole=whole))
    client.publish_runner(runner_of("true", ref=f"later@{whole:d}"))
    after = verify(lines_of(client, snapshot.id, whole=whole))
    assert before.faults == after.faults == []
    assert after.at == snapshot.position == before.at
    assert msgspec.json.encode(after.numbers) == msgspec.json.encode(before.numbers)
    assert after.size > before.size


def test_a_witness_that_was_asked_for_has_to_have_signed(client: Client) -> None:
    """With its cosignature kept the evidence names it; without, that is a fault."""
    witness = SigningKey("witness.example", bytes(range(32)))
    job = job_named(client, "first")
    missing = verify(lines_of(client, job), witnesses=[witness.verifier(COSIGNATURE)])
    assert missing.faults == [f"the checkpoint is not signed by {witness.verifier(COSIGNATURE)}"]
    note = Note.parse(client.checkpoint().checkpoint)
    client.add_cosignatures(str(note.with_signatures([witness.cosign(note.text, 1_800_000_000)])))
    found = verify(lines_of(client, job), witnesses=[witness.verifier(COSIGNATURE)])
    assert (found.faults, found.witnesses) == ([], [str(witness.verifier(COSIGNATURE))])


def test_it_is_signed_in_the_public_forms(client: Client) -> None:
    """An in-toto statement in a DSSE envelope: the signature is one over the published encoding."""
    head = msgspec.json.decode(lines_of(client, job_named(client, "first"))[0])
    payload = base64.b64decode(head["envelope"]["payload"])
    assert head["envelope"]["payloadType"] == "application/vnd.in-toto+json"
    statement = msgspec.json.decode(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    encoded = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    signature = base64.b64decode(head["envelope"]["signatures"][0]["sig"])
    assert key_of(client).verifies(encoded, signature)


def test_what_is_not_there_has_no_evidence(client: Client) -> None:
    """A job that nobody knows is not found before anything is written."""
    with pytest.raises(NotFound):
        next(client.evidence("00000000-0000-0000-0000-000000000000"))


# --- what does not ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_every_flipped_bit_of_the_file_is_noticed(client: Client, whole: bool) -> None:
    """A bit of any line, head and entries: a fault, or no evidence at all; the numbers are never told as sound."""
    client.publish_runner(runner_of("true", ref=f"flip@{whole:d}"))  # a checkpoint that no stranger has signed
    lines = lines_of(client, job_named(client, "second"), whole=whole)
    key = key_of(client)
    data = b"".join(lines)
    head = len(lines[0])
    for bit in [*range(0, 8 * head, 61), *range(8 * head, 8 * len(data), 8 * len(data) // 150 | 1)]:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            assert verify(bytes(changed).splitlines(keepends=True), key=key).faults, (bit // 8, chr(data[bit // 8]))
        except BadInput:
            continue


def resigned(client: Client, lines: list[bytes], change: Callable[[Statement], Statement]) -> list[bytes]:
    """The same file with another statement, signed by the log's own key: an operator who does not tell the truth."""
    head = msgspec.json.decode(lines[0], type=EvidenceHead)
    statement = msgspec.json.decode(base64.b64decode(head.envelope.payload), type=Statement)
    envelope: Envelope = enveloped(change(statement), client.workspace.signer.named(key_of(client).name))
    return [msgspec.json.encode(msgspec.structs.replace(head, envelope=envelope)) + b"\n", *lines[1:]]


def said(statement: Statement, **fields: object) -> Statement:
    return msgspec.structs.replace(statement, predicate=msgspec.structs.replace(statement.predicate, **fields))


def test_numbers_that_are_not_those_of_the_entries_are_noticed(client: Client) -> None:
    """Even when the log's own key signs them."""
    lines = lines_of(client, job_named(client, "first"))

    def better(statement: Statement) -> Statement:
        return said(statement, numbers=msgspec.structs.replace(statement.predicate.numbers, score=1.0))

    assert verify(resigned(client, lines, better)).faults == [
        "the numbers folded from the entries are not those of the statement"
    ]
    assert verify(resigned(client, lines, lambda statement: said(statement, at=1))).faults
    assert verify(resigned(client, lines, lambda statement: said(statement, whole=True))).faults


def without(client: Client, lines: list[bytes], left_out: Callable[[bytes], bool]) -> list[bytes]:
    """The same evidence without some entries, proven and signed anew by the log's operator."""
    kept = [line for line in lines[1:] if not left_out(line)]
    positions = [int(line.partition(b":")[2].partition(b",")[0]) for line in kept]
    tiles = Tiles(client.ledger.recorder)
    head = msgspec.json.decode(lines[0], type=EvidenceHead)
    size = Note.parse(head.checkpoint).text.split("\n")[1]
    proof = joint_proof(tiles.node, [position - 1 for position in positions], int(size))
    head = msgspec.structs.replace(head, proof=tuple(base64.b64encode(one).decode() for one in proof))
    lines = [msgspec.json.encode(head) + b"\n", *kept]
    return resigned(client, lines, lambda statement: said(statement, entries=len(kept)))


def test_an_entry_left_out_before_another_is_noticed(client: Client) -> None:
    """The versions of a stream have no gap, so nothing can be taken out of its middle, whoever signs."""
    lines = lines_of(client, job_named(client, "first"))
    found = verify(without(client, lines, lambda line: b"reward-recorded" in line and b"/t3" in line))
    assert any("comes next" in fault for fault in found.faults)


def test_sabotage_a_trial_left_out_whole_shows_only_against_the_whole_log(client: Client) -> None:
    """What docs/trust.md says is not proven: with the operator's key, a trial can be left out of partial evidence and
    numbers given that fit the rest. The whole log shows it."""
    job = job_named(client, "first")
    lines = lines_of(client, job)
    left = without(client, lines, lambda line: b"/2/t1" in line)
    told = verify(left)
    assert told.faults == ["the numbers folded from the entries are not those of the statement"]
    honest = verify(lines)
    assert isinstance(honest, Verified)
    fitted = resigned(client, left, lambda statement: said(statement, numbers=_folded(left, job)))
    assert verify(fitted).faults == []
    assert not verify(fitted).complete
    whole = without(client, lines_of(client, job, whole=True), lambda line: b"/2/t1" in line)
    assert verify(whole).faults


def _folded(lines: list[bytes], job: str) -> object:
    bodies = [(n, line.partition(b',"entry":')[2][:-2]) for n, line in enumerate(lines[1:], 1)]
    return fold_numbers(codec.decode_all(bodies), job)


def test_another_key_than_the_one_known_is_noticed(client: Client) -> None:
    """A file signed by a stranger holds by its own word, and not by the key that was known beforehand."""
    stranger = SigningKey(key_of(client).name, bytes(32)).verifier()
    found = verify(lines_of(client, job_named(client, "first")), key=stranger)
    assert f"the checkpoint is not signed by {stranger}" in found.faults
    assert f"the statement is not signed by {stranger}" in found.faults


# --- over HTTP -------------------------------------------------------------------------------------------------------


def test_the_same_over_http(tmp_path: Path) -> None:
    """Checkpoint, proofs, tiles, evidence and the pin are the same through the server's door."""
    home = tmp_path / "home"
    store = client_with_log(home, 300)
    store.publish_runner(runner_of("true", ref="own@1"))
    store.publish_dataset("own/eval@1", [Task("t1", SHA_A)], runner="own@1")
    job = store.submit_job("own/eval@1", request_id="one").id
    with store.trial(job, "t1", 1) as trial:
        trial.reward(1.0)
    snapshot = store.add_snapshot(job).snapshot
    store.workspace.engine.dispose()
    with serving(home) as server:
        door = Door(server, "default", ("read", "publish"))
        with door.el(home=tmp_path / "mine") as http:
            pin = tmp_path / "pin.json"
            checked = proving.verify_served(http, pin)
            assert checked.faults == []
            found = http.checkpoint()
            assert (checked.entries, checked.root) == (found.size, found.root)
            assert http.inclusion_proof(7) == door.client.inclusion_proof(7)
            assert http.consistency_proof(100) == door.client.consistency_proof(100)
            witness = SigningKey("witness.example", bytes(range(32)))
            cosigned = proving.witness(http, found.checkpoint, tmp_path / "witness.json", witness)
            assert http.add_cosignatures(str(cosigned)).checkpoint == str(cosigned)
            for target, whole in ((job, False), (job, True), (snapshot.id, False)):
                lines = list(http.evidence(target, whole=whole))
                told = verify(lines, key=VerifierKey.parse(found.key))
                assert (told.faults, told.complete) == ([], whole)
                assert told.subject.startswith("snapshot/" if target == snapshot.id else "job/")
            with pytest.raises(NotFound):
                next(http.evidence("00000000-0000-0000-0000-000000000000"))
            with pytest.raises(NotFound):
                http.tile("tile/5/000")
            with pytest.raises(BadInput):
                http.tile("tile/0/0")
