"""Checkpoints and evidence on each database; and beside others who append and sign at the same time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api import proving
from api.client import Client
from api.evidence_check import verify
from ledger.checkpoints import Checkpoints
from ledger.database import entries, writing
from ledger.errors import BadInput, ForkedLog
from ledger.notes import VerifierKey
from tests.given_boards import SEED, Bench, client_of
from tests.given_commands import client_at, runner_of
from tests.given_proofs import entries_of, renumbered, rewrite


@pytest.mark.both_databases
def test_a_log_proves_itself_on_each_database(tmp_path: Path, store_url: str) -> None:
    """Checkpoint, proofs, the whole log and the evidence hold; a changed entry is named, a rewritten log is refused."""
    client = client_of(tmp_path / "home", database_url=store_url)
    bench = Bench(client)
    job = bench.job(SEED)
    snapshot = client.add_snapshot(job).snapshot
    found = client.checkpoint()
    assert client.checkpoint() == found
    assert client.inclusion_proof(3).root == client.consistency_proof(5).new_root == found.root
    for target, whole in ((job, False), (job, True), (snapshot.id, False)):
        told = verify(client.evidence(target, whole=whole), key=VerifierKey.parse(found.key))
        assert (told.faults, told.complete, told.numbers.score) == ([], whole, 0.6)
    pin = client.workspace.pin(client.project)
    assert proving.verify_store(client, [pin]).faults == []
    ((_, body),) = client.ledger.recorder.bodies_at([7])
    _put(client, 7, body.replace(b'"actor":"local"', b'"actor":"other"'))
    assert any("entry 7 " in fault.lower() for fault in proving.verify_store(client, [pin]).faults)
    _put(client, 7, body)
    assert proving.verify_store(client, [pin]).faults == []
    rewrite(client, renumbered(entries_of(client)[:-1]))
    with pytest.raises(ForkedLog, match="rolled back"):
        client.checkpoint()


def _put(client: Client, position: int, body: bytes) -> None:
    this = (entries.c.project_id == client.project, entries.c.position == position)
    with writing(client.workspace.engine) as connection:
        connection.execute(entries.update().where(*this).values(body=body))


# --- somebody else at the same time ----------------------------------------------------------------------------------


def moves_on_before(monkeypatch: pytest.MonkeyPatch, home: Path, owner: Any, name: str) -> Client:
    """A client of a store; somebody else appends and signs once, just before the named function runs for the client."""
    client, other = client_at(home), client_at(home)
    client.checkpoint()
    honest: Callable[..., Any] = getattr(owner, name)
    once = [None]

    def later(*arguments: Any) -> Any:
        if once:
            once.pop()
            other.publish_runner(runner_of("true", ref="meanwhile@1"))
            other.checkpoint()
        return honest(*arguments)

    monkeypatch.setattr(owner, name, later)
    return client


@pytest.mark.parametrize(("owner", "name"), [(proving, "read_pin"), (Checkpoints, "last")], ids=["pin", "kept"])
def test_a_log_that_others_sign_meanwhile_is_no_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """What is compared with what was seen was read after it: a log only grows."""
    client = moves_on_before(monkeypatch, tmp_path, owner, name)
    assert client.checkpoint().size == client.head().entries


def test_a_pin_that_others_move_meanwhile_is_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two who look with one pin, as two timers do."""
    pin = tmp_path / "pin.json"
    client, other = client_at(tmp_path / "home"), client_at(tmp_path / "home")
    proving.look(client, pin)
    checkpoint = Client.checkpoint

    def then_others_look(own: Client) -> Any:
        monkeypatch.setattr(Client, "checkpoint", checkpoint)
        found = own.checkpoint()
        other.publish_runner(runner_of("true", ref="meanwhile@1"))
        proving.look(other, pin)
        return found

    monkeypatch.setattr(Client, "checkpoint", then_others_look)
    proving.look(client, pin)


def test_no_epoch_begins_because_others_write_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pin that is newer than what was read of the log gives nothing up."""
    client = moves_on_before(monkeypatch, tmp_path, proving, "read_pin")
    with pytest.raises(BadInput, match="no new epoch"):
        proving.start_epoch(client, reason="thought it was lost")
