"""Checkpoints, pins and epochs; and that every single changed bit of what they rest on is told with its place."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from errno import ENOSPC
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa

from api import proving
from api.client import Client
from ledger import checking
from ledger.checking import check_log
from ledger.checkpoints import Checkpoint, checkpoints, opened
from ledger.database import entries, writing
from ledger.errors import BadInput, BadNote, Conflict, DamagedStore, ForkedLog, NotFound, StoreUnreachable
from ledger.facts.access import STREAM
from ledger.merkle import leaf_hash as hash_of
from ledger.merkle import verify_consistency, verify_inclusion
from ledger.notes import COSIGNATURE, Note, Signature, SigningKey, VerifierKey
from ledger.pins import read_pin, write_pin
from ledger.rules.access import Project, start_epoch
from ledger.tiles import tiles
from tests.given_commands import client_at, runner_of
from tests.given_proofs import client_with_log, entries_of, renumbered, rewrite

ENTRIES = 650  # three tiles of level 0 and the beginning of one of level 1


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A store with a log, a checkpoint in its middle and one at its end."""
    client = client_with_log(tmp_path_factory.mktemp("signed") / "home", ENTRIES)
    client.checkpoint()
    client.publish_runner(runner_of("true"))
    client.checkpoint()
    return client


def runner_at(client: Client, ref: str) -> None:
    client.publish_runner(runner_of("true", ref=ref))


# --- single bits -----------------------------------------------------------------------------------------------------

Flip = Callable[[Client, Random], tuple[Callable[[], None], str]]


def update(client: Client, table: sa.Table, where: list[sa.ColumnElement[bool]], **values: object) -> None:
    with writing(client.workspace.engine) as connection:
        connection.execute(table.update().where(table.c.project_id == client.project, *where).values(**values))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip_body(client: Client, random: Random) -> tuple[Callable[[], None], str]:
    """One bit of one entry."""
    position = random.randint(1, client.ledger.head().size)
    ((_, body),) = client.ledger.recorder.bodies_at([position])
    where = [entries.c.position == position]
    update(client, entries, where, body=flipped(body, random.randrange(8 * len(body))))
    return partial(update, client, entries, where, body=body), rf"\b[Ee]ntry {position}\b"


def flip_tile(client: Client, random: Random) -> tuple[Callable[[], None], str]:
    """One bit of one stored tile."""
    with client.workspace.engine.connect() as connection:
        rows = connection.execute(tiles.select().where(tiles.c.project_id == client.project)).all()
    _, level, number, hashes = random.choice(rows)
    bit = random.randrange(8 * len(hashes))
    where = [tiles.c.level == level, tiles.c.tile_index == number]
    update(client, tiles, where, hashes=flipped(hashes, bit))
    place = number * 256 + bit // 256
    said = f"entry {place + 1}" if level == 0 else f"entries {place * 256**level + 1} to {(place + 1) * 256**level}"
    return partial(update, client, tiles, where, hashes=hashes), rf"tile/{level}/{number:03d} .*\b{said}\b"


def flip_checkpoint(client: Client, random: Random) -> tuple[Callable[[], None], str]:
    """One bit of one kept checkpoint, as far as what comes out can be stored as text."""
    size, note = random.choice(proving.log_of(client).kept())
    data = note.encode()
    changed = flipped(data, random.randrange(8 * len(data))).decode("utf-8", "replace")
    where = [checkpoints.c.size == size]
    update(client, checkpoints, where, note=changed)
    return partial(update, client, checkpoints, where, note=note), f"checkpoint of {size} entries"


FLIPS: tuple[Flip, ...] = (flip_body, flip_tile, flip_checkpoint)


def unnoticed(client: Client, flips: tuple[Flip, ...], count: int, *, seed: int = 1) -> list[str]:
    """Flip bits, one after the other; those that were not told with their place."""
    random, missed = Random(seed), []
    for number in range(count):
        mend, place = flips[number % len(flips)](client, random)
        faults = proving.verify_store(client, []).faults
        if not any(re.search(place, fault) for fault in faults):
            missed.append(f"{place}: {faults}")
        mend()
    assert proving.verify_store(client, []).faults == []
    return missed


def test_every_flipped_bit_is_told_with_its_place(signed: Client, pytestconfig: pytest.Config) -> None:
    """A single changed bit of an entry, a tile or a checkpoint: which entry, tile and hash, or checkpoint it is."""
    count: int = pytestconfig.getoption("--bit-flips")
    assert unnoticed(signed, FLIPS, count) == []


def test_sabotage_without_the_leaves_changed_entries_go_unseen(signed: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that reads entries but does not hash them misses what can still be read."""
    leaves = checking.leaf_hashes([body for _, body in signed.ledger.recorder.bodies(after=0, limit=10_000)])
    honest = cycle(leaves)  # each check takes all of them
    monkeypatch.setattr(checking, "leaf_hashes", lambda bodies: [next(honest) for _ in bodies])
    assert unnoticed(signed, (flip_body,), 40)


def test_sabotage_without_the_comparison_changed_tiles_go_unseen(
    signed: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that only adds entries up does not look at tiles."""
    monkeypatch.setattr(checking._Compared, "faults", lambda _self, **_: [])
    assert unnoticed(signed, (flip_tile,), 5)


def test_sabotage_without_the_signature_changed_checkpoints_go_unseen(
    signed: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that believes any signature misses bits of it."""
    monkeypatch.setattr(VerifierKey, "accepts", lambda _self, _text, _signature: True)
    assert unnoticed(signed, (flip_checkpoint,), 60)


def test_beyond_the_last_checkpoint_a_stretch_is_named(tmp_path: Path) -> None:
    """Without tiles the recorded frontier tells in which part of the log a change lies."""
    client = client_with_log(tmp_path, 300)
    assert proving.verify_store(client, []).faults == []
    (_, body), *_ = client.ledger.recorder.bodies(after=269, limit=1)
    update(client, entries, [entries.c.position == 270], body=body.replace(b'"actor":"', b'"actor":"x', 1))
    (fault,) = check_log(client.ledger.recorder).faults
    found = re.search(r"entries (\d+) to (\d+) was changed", fault)
    assert found
    assert int(found[1]) <= 270 <= int(found[2])
    assert int(found[1]) > 1


# --- checkpoints and proofs ------------------------------------------------------------------------------------------


def test_a_checkpoint_signs_the_log_and_is_kept(signed: Client) -> None:
    """It says origin, size and root, is signed by the store's key, and the same again for the same log."""
    found = signed.checkpoint()
    assert opened(Note.parse(found.checkpoint), VerifierKey.parse(found.key)) == Checkpoint(
        found.origin, found.size, bytes.fromhex(found.root)
    )
    assert (found.size, found.root) == (signed.head().entries, signed.head().root)
    assert signed.checkpoint() == found
    kept = proving.log_of(signed).kept()
    assert kept[-1] == (found.size, found.checkpoint)
    assert len(kept) == 2


def test_proofs_lead_to_the_signed_root(signed: Client) -> None:
    """An entry's own bytes, and an older size, are proven to belong to the checkpoint by the merkle verifier."""
    found = signed.checkpoint()
    root = bytes.fromhex(found.root)
    for position in (1, 256, 257, found.size):
        proof = signed.inclusion_proof(position)
        hashes = [bytes.fromhex(hash_) for hash_ in proof.hashes]
        leaf = hash_of(bytes(proof.entry))
        verify_inclusion(leaf=leaf, index=position - 1, size=found.size, proof=hashes, root=root)
    old = signed.consistency_proof(300)
    verify_consistency(
        old_size=300,
        new_size=found.size,
        old_root=bytes.fromhex(old.old_root),
        new_root=root,
        proof=[bytes.fromhex(hash_) for hash_ in old.hashes],
    )
    for position, size in ((0, None), (found.size + 1, None), (5, 4), (1, found.size + 1)):
        with pytest.raises(NotFound):
            signed.inclusion_proof(position, size)
    with pytest.raises(BadInput):
        signed.consistency_proof(10, 5)


def test_a_witness_cosigns_what_extends_what_it_saw(tmp_path: Path) -> None:
    """It cosigns a log as it grows, and the log keeps that; what does not extend what the witness saw is refused."""
    client, pin = client_with_log(tmp_path / "home", 20), tmp_path / "witness.json"
    key = SigningKey("witness.example", bytes(range(32)))
    early = client.checkpoint().checkpoint
    cosigned = proving.witness(client, early, pin, key)
    assert cosigned.signed_by(key.verifier(COSIGNATURE))
    assert client.add_cosignatures(str(cosigned)).checkpoint == str(cosigned)
    assert client.checkpoint().checkpoint == str(cosigned)
    runner_at(client, "b@1")
    late = client.checkpoint().checkpoint
    proving.witness(client, late, pin, key)
    with pytest.raises(ForkedLog, match="rolled back"):
        proving.witness(client, early, pin, key)
    changed = late.replace("\n22\n", "\n23\n", 1) if "\n22\n" in late else late.replace("\n", "x\n", 1)
    with pytest.raises(BadNote):
        proving.witness(client, changed, pin, key)
    stranger = Note(Note.parse(early).text.replace("default", "other"), Note.parse(early).signatures)
    with pytest.raises(BadNote):
        client.add_cosignatures(str(stranger))
    never = proving.log_of(client)
    text = Checkpoint(never.origin, 5, bytes(32)).text
    with pytest.raises(Conflict):
        client.add_cosignatures(str(Note(text, (client.workspace.signer.named(never.origin).sign(text),))))


def test_more_signatures_than_can_be_read_are_not_kept(tmp_path: Path) -> None:
    """However many notes are handed in, the kept one stays one that can be read, so the log can go on being signed."""
    client = client_with_log(tmp_path / "home", 20)
    made = Note.parse(client.checkpoint().checkpoint)
    for beginning in (0, 60):
        others = [Signature("w.example", bytes([beginning + n] * 4), bytes(64)) for n in range(60)]
        with nullcontext() if beginning == 0 else pytest.raises(BadNote, match="100 signatures"):
            client.add_cosignatures(str(made.with_signatures(others)))
    assert len(Note.parse(client.checkpoint().checkpoint).signatures) == 61


# --- pins, old backups, epochs ---------------------------------------------------------------------------------------


def backed_up(tmp_path: Path) -> Client:
    """A store whose database was put back to an older copy after a later checkpoint had been signed."""
    home = tmp_path / "home"
    client = client_with_log(home, 40)
    client.checkpoint()
    shutil.copy(home / "ledger.db", tmp_path / "old.db")
    runner_at(client, "late@1")
    client.checkpoint()
    client.workspace.engine.dispose()
    shutil.copy(tmp_path / "old.db", home / "ledger.db")
    return client_at(home)


def test_an_old_backup_is_read_only_until_an_epoch_names_what_is_lost(tmp_path: Path) -> None:
    """Nothing is recorded in a log that is behind its pin; after `epoch` it goes on under another name."""
    client = backed_up(tmp_path)
    pin = read_pin(client.workspace.pin(client.project))
    assert pin
    with pytest.raises(ForkedLog, match=r"rolled back.*el audit epoch"):
        runner_at(client, "new@1")
    with pytest.raises(ForkedLog, match="rolled back"):
        client.checkpoint()
    assert client.runners() is not None  # reading goes on
    assert [fault for fault in proving.verify_store(client, [client.workspace.pin("default")]).faults if "pin" in fault]
    begun = proving.start_epoch(client, reason="the disk failed")
    assert begun.origin == f"{pin.seen.origin}~2"
    project = client.ledger.state(STREAM)
    assert (project.epochs[0].size, project.epochs[0].root) == (pin.seen.size, pin.seen.root.hex())
    again = client_at(tmp_path / "home")
    runner_at(again, "new@1")
    assert again.checkpoint().origin == begun.origin
    assert proving.verify_store(again, [again.workspace.pin("default")]).faults == []
    with pytest.raises(BadInput, match="no new epoch"):
        proving.start_epoch(again, reason="once more")


def test_sabotage_without_the_guard_an_old_backup_is_written_to(tmp_path: Path) -> None:
    """What refuses is the guard: without it the lost entries' positions are given out again."""
    client = backed_up(tmp_path)
    client.ledger.recorder.guard = None
    before = client.head().entries
    runner_at(client, "new@1")
    assert client.head().entries == before + 1


def test_others_refuse_a_new_epoch_until_they_accept_it(tmp_path: Path) -> None:
    """A pin elsewhere is not moved by the operator's word alone."""
    home, pin = tmp_path / "home", tmp_path / "elsewhere.json"
    client = client_with_log(home, 40)
    client.checkpoint()
    shutil.copy(home / "ledger.db", tmp_path / "old.db")
    runner_at(client, "late@1")
    proving.look(client, pin)
    client.workspace.engine.dispose()
    shutil.copy(tmp_path / "old.db", home / "ledger.db")
    client = client_at(home)
    proving.start_epoch(client, reason="restored")
    with pytest.raises(ForkedLog, match="another epoch"):
        proving.look(client, pin)
    found = proving.look(client, pin, accept_epoch=True)
    assert proving.look(client, pin) == found


def test_another_key_or_a_changed_pin_is_refused(tmp_path: Path) -> None:
    """The pinned key has to sign; a pin whose own bits changed says so."""
    home, pin = tmp_path / "home", tmp_path / "pin.json"
    client = client_with_log(home, 20)
    proving.look(client, pin)
    name = client.workspace.signer.name
    client.workspace.__dict__["signer"] = SigningKey(name, bytes(32))
    (home / "checkpoints" / "default.json").unlink()
    with writing(client.workspace.engine) as connection:
        connection.execute(checkpoints.delete())
    with pytest.raises(ForkedLog, match="Another key"):
        proving.look(client, pin)
    kept = pin.read_bytes()
    for bit in range(0, 8 * len(kept), 7):
        pin.write_bytes(flipped(kept, bit))
        if pin.read_bytes().split() != kept.split():  # else only the space between was changed
            with pytest.raises(DamagedStore):
                read_pin(pin)


def test_a_pin_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is told, and no half a pin stays beside the one from before, which holds."""
    client, pin = client_with_log(tmp_path / "home", 20), tmp_path / "pins" / "pin.json"
    proving.look(client, pin)
    kept = read_pin(pin)
    assert kept

    def full(_file: int) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnreachable, match="No space left"):
        write_pin(pin, kept)
    assert [path.name for path in pin.parent.iterdir()] == ["pin.json"]
    assert read_pin(pin) == kept


def test_a_log_that_was_changed_is_not_signed_again(tmp_path: Path) -> None:
    """A log never signs what does not extend what it signed before, even without a pin."""
    client = client_with_log(tmp_path, 40)
    client.checkpoint()
    client.workspace.pin("default").unlink()
    kept = proving.log_of(client).kept()
    log = entries_of(client)
    rewrite(client, renumbered(log[:-3]))
    with writing(client.workspace.engine) as connection:
        connection.execute(
            checkpoints.insert(), [{"project_id": "default", "size": size, "note": note} for size, note in kept]
        )
    with pytest.raises(ForkedLog, match="rolled back"):
        client.checkpoint()


def test_start_epoch_wants_a_reason() -> None:
    """An epoch without a reason tells nobody anything."""

    with pytest.raises(BadInput, match="why"):
        start_epoch(Project("p"), size=3, root="a" * 64, reason="  ")
    (fact,) = start_epoch(Project("p"), size=3, root="a" * 64, reason="disk")
    assert start_epoch(Project("p", epochs=(fact,)), size=3, root="a" * 64, reason="other") == []
