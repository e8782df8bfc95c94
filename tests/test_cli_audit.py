"""`el audit`: checkpoint, proof, verify, witness, export and epoch as commands, with their exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ledger.checkpoints import checkpoints
from ledger.database import writing
from ledger.facts.catalogue import Task
from ledger.notes import load_or_create_signer
from tests.given import SHA_A
from tests.given_commands import client_at, runner_of
from tests.given_proofs import entries_of, renumbered, rewrite
from tests.test_cli import El, el

__all__ = ["el"]  # the fixture


def job_in(home: Path) -> str:
    client = client_at(home)
    client.publish_runner(runner_of("true", ref="own@1"))
    client.publish_dataset("own@1", [Task("t1", SHA_A)], runner="own@1")
    job = client.submit_job("own@1").id
    with client.trial(job, "t1", 1) as trial:
        trial.reward(0.5)
    client.workspace.engine.dispose()
    return job


def test_a_job_is_exported_and_verified_anywhere(el: El, tmp_path: Path) -> None:
    """The file is checked without the store; a changed byte is a fault with exit 1; without the key that is said."""
    job, file = job_in(tmp_path / "home"), tmp_path / "evidence.jsonl"
    assert el("audit", "export", job, "--out", str(file), "--whole").code == 0
    key = el("audit", "checkpoint", "--key").out.strip()
    shutil.move(tmp_path / "home", tmp_path / "gone")
    good = el("audit", "verify", str(file), "--key", key)
    assert good.code == 0
    assert "score 50%" in good.out
    assert "the evidence holds" in good.out
    assert not (tmp_path / "home").exists()
    assert "the file's own word" in el("audit", "verify", str(file)).out
    file.write_bytes(file.read_bytes().replace(b'"reward":0.5', b'"reward":1.5'))
    bad = el("audit", "verify", str(file), "--key", key, "--json")
    assert bad.code == 1
    assert bad.document["faults"]


def test_the_log_is_verified_and_pinned(el: El, tmp_path: Path) -> None:
    """`verify` reads the log, `proof` prints what docs/trust.md checks by hand, a rolled back log is refused."""
    home, pin = tmp_path / "home", tmp_path / "pin.json"
    job_in(home)
    assert el("audit", "verify", "--pin", str(pin)).code == 0
    shutil.copy(home / "ledger.db", tmp_path / "old.db")
    proof = el("audit", "proof", "2", "--json").document
    assert (proof["position"], proof["entry"]["stream"]) == (2, "runner/own@1")
    job_in(home)
    assert el("audit", "checkpoint", "--pin", str(pin)).code == 0
    shutil.copy(tmp_path / "old.db", home / "ledger.db")
    behind = el("audit", "verify", "--pin", str(pin))
    assert behind.code == 1
    assert "rolled back" in behind.out
    assert el("job", "submit", "--dataset", "own@1").code == 1
    assert el("audit", "epoch", "--reason", "the disk failed").code == 0
    assert el("job", "submit", "--dataset", "own@1").code == 0
    assert "another epoch" in el("audit", "checkpoint", "--pin", str(pin)).err
    assert el("audit", "checkpoint", "--pin", str(pin), "--accept-epoch").code == 0
    assert el("audit", "verify", "--pin", str(pin)).code == 0


def test_a_witness_has_a_home_of_its_own(el: El, tmp_path: Path) -> None:
    """It cosigns with its own key; a store cannot witness itself; the cosignature is kept with the log."""
    job_in(tmp_path / "home")
    note, cosigned = tmp_path / "checkpoint.txt", tmp_path / "cosigned.txt"
    note.write_text(el("audit", "checkpoint").out)
    assert el("audit", "witness", str(note)).code == 1
    assert el("audit", "witness", str(note), "--home", str(tmp_path / "witness"), "--out", str(cosigned)).code == 0
    assert el("audit", "checkpoint", "--add", str(cosigned)).out == cosigned.read_text()
    assert len(cosigned.read_text().splitlines()) == len(note.read_text().splitlines()) + 1


@pytest.mark.parametrize("put_there", [False, True], ids=["missing", "another"])
def test_a_restore_without_its_signing_key_is_told_as_that(el: El, tmp_path: Path, put_there: bool) -> None:
    """A missing or other key is no tampering: both commands say so and what to do, and nothing is signed or made anew
    until somebody asks for it. The right key put back, everything holds as before.
    """
    home = tmp_path / "home"
    key = home / "signing.key"
    job_in(home)
    before = el("audit", "checkpoint").out
    kept = key.rename(tmp_path / "kept.key")
    if put_there:
        load_or_create_signer(home, {})
    for verb in ("checkpoint", "verify"):
        refused = el("audit", verb)
        assert refused.code == 1
        said = refused.out + refused.err
        assert "were signed as evalledger/" in said
        assert "put the signing.key back" in said
        assert "was changed" not in said
    assert key.exists() is put_there
    kept.replace(key)
    assert el("audit", "checkpoint").out == before
    assert el("audit", "verify").code == 0
    key.unlink()
    job_in(home)
    anew = el("audit", "checkpoint", "--new-key")
    assert anew.code == 0
    assert anew.out.partition("\n")[0] != before.partition("\n")[0]
    assert el("audit", "verify").code == 0


def test_a_new_key_does_not_sign_what_was_rolled_back(el: El, tmp_path: Path) -> None:
    """It begins with what the lost key signed, or stays unsigned: the kept checkpoints are asked, not the pins."""
    home = tmp_path / "home"
    client = client_at(home)
    el("audit", "checkpoint")
    rows = renumbered(entries_of(client))
    with writing(client.workspace.engine) as connection:
        kept = connection.execute(checkpoints.select()).one()
    changed = [rows[0]._replace(body=rows[0].body.replace(b'"local"', b'"other"'))]
    rewrite(client, [*changed, *rows[1:]])
    with writing(client.workspace.engine) as connection:
        connection.execute(checkpoints.insert(), dict(kept._mapping))
    client.workspace.engine.dispose()
    (home / "signing.key").unlink()
    (home / "checkpoints" / "default.json").unlink()
    refused = el("audit", "checkpoint", "--new-key")
    assert refused.code == 1
    assert "a fork" in refused.err
