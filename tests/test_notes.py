"""Signed notes: published vectors, and everything that must not be taken for a signature."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from pathlib import Path

import pytest

from ledger.checkpoints import Checkpoint, opened
from ledger.errors import BadInput, BadNote, DamagedStore
from ledger.notes import COSIGNATURE, Note, SigningKey, VerifierKey, load_or_create_signer

PUBLISHED = json.loads((Path(__file__).parent / "vectors/notes.json").read_text(encoding="utf-8"))
GO = PUBLISHED["go"]
CHECKPOINT = PUBLISHED["checkpoint"]


def test_the_published_note_comes_out_byte_for_byte() -> None:
    """Signing the text of Go's sumdb/note with its key gives its note."""
    signer = SigningKey.parse(GO["signer"])
    assert str(signer.verifier()) == GO["key"]
    assert signer.written() == GO["signer"]
    assert str(Note(GO["text"], (signer.sign(GO["text"]),))) == GO["note"]


def test_published_notes_are_read_and_verify() -> None:
    """The notes of Go and of the specification verify, each by its own key only; an unknown signer is kept."""
    key, other = VerifierKey.parse(GO["key"]), VerifierKey.parse(GO["other"])
    both = Note.parse(GO["note"] + GO["other_line"])
    assert both.signed_by(key, other) == [key, other]
    assert Note.parse(GO["note"]).signed_by(key, other) == [key]
    assert str(both) == GO["note"] + GO["other_line"]
    spec = PUBLISHED["spec"]
    assert Note.parse(spec["note"]).signed_by(VerifierKey.parse(spec["key"]), key) == [VerifierKey.parse(spec["key"])]


def test_a_published_checkpoint_with_its_cosignature_verifies() -> None:
    """A real log's checkpoint, its own signature and a witness's cosignature with its time, beside unknown signers."""
    note = Note.parse(CHECKPOINT["note"])
    log, witness = VerifierKey.parse(CHECKPOINT["log"]), VerifierKey.parse(CHECKPOINT["witness"])
    assert note.signed_by(log, witness) == [log, witness]
    assert witness.kind == COSIGNATURE
    found = opened(note, log)
    assert (found.origin, found.size) == (CHECKPOINT["origin"], CHECKPOINT["size"])
    assert found.text == note.text
    assert str(note) == CHECKPOINT["note"]
    forged = Note(note.text.replace("1432088532", "42"), note.signatures)
    for key in (log, witness):
        with pytest.raises(BadNote, match="changed"):
            forged.signed_by(key)


@pytest.mark.parametrize("text", PUBLISHED["keys"])
def test_published_keys_are_read_and_written_the_same(text: str) -> None:
    """Verifier keys of other implementations."""
    assert str(VerifierKey.parse(text)) == text


@pytest.mark.parametrize("text", [*PUBLISHED["bad_keys"], "", "+", "a+b", GO["signer"]])
def test_what_is_no_key_is_refused(text: str) -> None:
    """A wrong id, wrong base64, an unknown kind: one sentence."""
    with pytest.raises(BadNote):
        VerifierKey.parse(text)


@pytest.mark.parametrize("published", [GO["note"], PUBLISHED["spec"]["note"]])
def test_every_flipped_bit_of_a_note_is_noticed(published: str) -> None:
    """Whatever single bit of a note changes, its key's signature is no longer there, or the note cannot be read."""
    keys = [VerifierKey.parse(GO["key"]), VerifierKey.parse(PUBLISHED["spec"]["key"])]
    data = published.encode()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with suppress(BadNote):
            assert not Note.parse(bytes(flipped)).signed_by(*keys)


def test_a_cosignature_is_no_signature_of_the_log() -> None:
    """The two kinds have other ids and messages: one cannot stand in the place of the other."""
    signer = SigningKey.parse(GO["signer"])
    cosigned = signer.cosign(GO["text"], 1679315147)
    note = Note(GO["text"], (cosigned,))
    assert note.signed_by(signer.verifier(COSIGNATURE)) == [signer.verifier(COSIGNATURE)]
    assert note.signed_by(signer.verifier()) == []
    moved = cosigned._replace(key_id=signer.verifier().id)
    with pytest.raises(BadNote):
        Note(GO["text"], (moved,)).signed_by(signer.verifier())
    later = cosigned._replace(data=(1679315148).to_bytes(8, "big") + cosigned.data[8:])
    with pytest.raises(BadNote):
        Note(GO["text"], (later,)).signed_by(signer.verifier(COSIGNATURE))


def test_a_verifier_that_ignores_who_signed_would_take_any_signature() -> None:
    """Sabotage: told by the name alone, a stranger's signature under the log's name counts; ours does not."""
    signer, stranger = SigningKey.parse(GO["signer"]), SigningKey("PeterNeumann", bytes(32))
    forged = Note(GO["text"], (stranger.sign(GO["text"]),))
    by_name = [
        s for s in forged.signatures if s.name == signer.name and stranger.verifier().accepts(forged.text, s.data)
    ]
    assert by_name
    assert forged.signed_by(signer.verifier()) == []


@pytest.mark.parametrize(
    "text",
    [
        "a\n1\n",
        "\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n01\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n-1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n²\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2J=\n",
        "a\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jx\n",
        "a\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\nx\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    """Too few lines, a size with a leading zero, base64 with spare bits, a short root, an empty line."""
    with pytest.raises(BadNote):
        Checkpoint.parse(text)


def test_extension_lines_are_left_aside() -> None:
    """A checkpoint may carry further lines; they are signed and say nothing to us."""
    three = "a\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    assert Checkpoint.parse(three + "more\n") == Checkpoint.parse(three)


def test_the_signing_key_is_made_once_and_private(tmp_path: Path) -> None:
    """The key file is made with mode 0600 and read again; one that others may read, or that is none, is refused."""
    first = load_or_create_signer(tmp_path, {})
    assert load_or_create_signer(tmp_path, {}).written() == first.written()
    path = tmp_path / "signing.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert first.written() not in repr(first)
    assert load_or_create_signer(tmp_path, {"EL_SIGNING_KEY": GO["signer"]}).name == "PeterNeumann"
    with pytest.raises(BadInput, match="EL_SIGNING_KEY"):
        load_or_create_signer(tmp_path, {"EL_SIGNING_KEY": base64.b64encode(bytes(33)).decode()})
    path.chmod(0o644)
    with pytest.raises(BadInput, match="chmod"):
        load_or_create_signer(tmp_path, {})
    path.chmod(0o600)
    path.write_text("nonsense")
    with pytest.raises(DamagedStore):
        load_or_create_signer(tmp_path, {})
