"""Keys: what one looks like, that it is shown once, and that taking it back works at once everywhere."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from api.http.keyrings import FRESH_S, Keyrings
from api.keys import digest_of, expiry, new_key
from api.serving import has_key
from api.settings import Settings
from api.wiring import Workspace
from ledger.application import Ledger
from ledger.errors import BadInput, Conflict, NotAuthenticated, NotFound
from ledger.facts.access import STREAM, ApiKeyIssued
from tests.test_cli import El, el  # noqa: F401 - a fixture


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """The default project of a store of its own."""
    workspace = Workspace(Settings(home=tmp_path / "home"))
    yield Client(workspace, "default")
    workspace.engine.dispose()


def test_a_key_has_its_form_and_is_never_twice_the_same() -> None:
    """`el_`, 32 random characters, 6 that check them."""
    keys = {new_key() for _ in range(1_000)}
    assert len(keys) == 1_000
    assert all(re.fullmatch(r"el_[0-9A-Za-z]{38}", key) for key in keys)
    assert len({digest_of(key) for key in keys}) == 1_000


def test_a_mistyped_key_is_known_without_looking_it_up() -> None:
    """Any one wrong character, and any two that changed places, are found; nothing is echoed."""
    key = new_key()
    wrong = {key[:at] + ("a" if char != "a" else "b") + key[at + 1 :] for at, char in enumerate(key)}
    wrong |= {key[:at] + key[at + 1] + key[at] + key[at + 2 :] for at in range(len(key) - 1)} - {key}
    for text in [*wrong, key[:-1], key + "0", "", "el_", key.upper(), f" {key}", "é" * 41]:
        with pytest.raises(NotAuthenticated) as refused:
            digest_of(text)
        assert text == "" or text[3:] not in str(refused.value) or len(text) < 10


def test_the_key_itself_is_nowhere_in_the_store(client: Client) -> None:
    """It is in the answer; the log and every file have its digest only."""
    issued = client.issue_key("ci", ["report", "submit"])
    assert issued.scopes == ["submit", "report"]
    assert issued.key not in repr(issued)
    (fact,) = [r.entry.fact for r in client.stream(STREAM) if isinstance(r.entry.fact, ApiKeyIssued)]
    assert fact.sha256 == digest_of(issued.key)
    files = [path for path in client.workspace.home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if issued.key.encode() in path.read_bytes()]


def test_keys_are_listed_without_the_keys(client: Client) -> None:
    """With name, scopes, end and whether they open anything."""
    first = client.issue_key("ci", ["read"], expires_at=datetime.now(UTC) + timedelta(days=1))
    second = client.issue_key("admin", ["admin"])
    client.revoke_key(second.id)
    listed = client.keys().keys
    assert [(key.name, key.status, key.scopes) for key in listed] == [
        ("ci", "valid", ["read"]),
        ("admin", "revoked", ["admin"]),
    ]
    assert listed[0].expires_at == first.expires_at
    assert not any(issued.key in repr(listed) for issued in (first, second))


def test_an_end_needs_a_time_zone_and_lies_within_ten_years(client: Client) -> None:
    """What an end means must not depend on where it is read."""
    for end in (datetime(2027, 1, 1), datetime.now(UTC) + timedelta(days=5_000), datetime.now(UTC)):  # noqa: DTZ001
        with pytest.raises(BadInput):
            client.issue_key("ci", ["read"], expires_at=end)


@pytest.mark.parametrize("text", ["", "0d", "1", "d", "-1d", "1.5h", "1w", "9999999d", "١d"])
def test_a_duration_that_is_not_understood_is_refused(text: str) -> None:
    """It is a whole number and one of s, m, h, d."""
    with pytest.raises(BadInput, match="duration"):
        expiry(text, datetime.now(UTC))


def test_whether_some_key_opens_a_store(client: Client) -> None:
    """A server that nobody could use is not started."""
    assert not has_key(client.workspace)
    issued = client.issue_key("ci", ["read"])
    assert has_key(client.workspace)
    client.revoke_key(issued.id)
    assert not has_key(client.workspace)


def test_a_revoked_key_is_out_within_a_second_on_every_process(client: Client) -> None:
    """Another process has its keys in memory for half a second at the most."""
    issued = client.issue_key("ci", ["read"])
    elsewhere = Keyrings(Workspace(client.workspace.settings))
    digest, now = digest_of(issued.key), datetime.now(UTC)
    assert elsewhere.read("default").key(digest, now)[1]
    client.revoke_key(issued.id)
    revoked_at = time.monotonic()
    while elsewhere.read("default").key(digest, now)[1]:
        assert time.monotonic() - revoked_at < 1
        time.sleep(0.05)


def test_keys_held_too_long_would_keep_a_revoked_one_open(client: Client) -> None:
    """Sabotage: a memory that lasts lets the revoked key in, a second later still."""
    issued = client.issue_key("ci", ["read"])
    elsewhere = Keyrings(Workspace(client.workspace.settings), fresh_s=60)
    digest, now = digest_of(issued.key), datetime.now(UTC)
    assert elsewhere.read("default").key(digest, now)[1]
    client.revoke_key(issued.id)
    time.sleep(FRESH_S)
    assert elsewhere.read("default").key(digest, now)[1]


def test_many_requests_read_the_keys_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within half a second the log is not read again, whoever asks."""
    reads: list[str] = []
    state = Ledger.state
    monkeypatch.setattr(Ledger, "state", lambda ledger, stream: reads.append(stream) or state(ledger, stream))
    rings = Keyrings(client.workspace, fresh_s=60)
    for _ in range(100):
        assert rings.read("default").exists
    assert len(reads) == 1


def test_keys_that_changed_while_they_were_read_are_read_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was handed out here meanwhile opens the project at once: what was read before it is not kept."""
    rings = Keyrings(client.workspace, fresh_s=60)
    issued: list[str] = []
    state = Ledger.state

    def late(ledger: Ledger, stream: str) -> Any:
        found = state(ledger, stream)
        monkeypatch.undo()
        issued.append(client.issue_key("ci", ["read"]).key)
        rings.forget("default")
        return found

    monkeypatch.setattr(Ledger, "state", late)
    assert not rings.read("default").keys
    assert rings.held("default") is None
    assert rings.read("default").key(digest_of(issued[0]), datetime.now(UTC))[1]


def test_what_cannot_be_a_project_is_none(client: Client) -> None:
    """A name that no project can have is answered like one that no project has, and takes no memory."""
    rings = Keyrings(client.workspace)
    assert not rings.read("..").exists
    assert not rings.read("nobody").exists
    assert rings.held("..") is None


def test_a_name_in_use_and_an_unknown_id_are_refused(client: Client) -> None:
    """Each with its own error."""
    client.issue_key("ci", ["read"])
    with pytest.raises(Conflict):
        client.issue_key("ci", ["read"])
    with pytest.raises(NotFound):
        client.revoke_key("nothing")


def test_the_commands(el: El) -> None:  # noqa: F811
    """`el key issue > file` saves the key and nothing else, `list` never shows it, `revoke` takes a name or an id; the
    same again is harmless, and writes nothing.
    """
    issued = el("key", "issue", "--name", "ci", "--scope", "submit", "--scope", "report", "--expires", "30d")
    (key,) = issued.out.splitlines()
    assert digest_of(key)
    assert "keep it now" in issued.err
    assert key not in issued.err
    listed = el("key", "list")
    assert "ci" in listed.out
    assert "valid" in listed.out
    assert key not in listed.out + listed.err
    assert el("key", "issue", "--name", "ci", "--scope", "read").code == 4
    assert el("key", "issue", "--name", "x", "--scope", "root").code == 1
    assert el("key", "revoke", "ci").code == 0
    entries = len(el("audit", "events", "--json").document["events"])
    again = el("key", "revoke", "ci")
    assert (again.code, again.out) == (0, "key ci opens nothing any more\n")
    assert len(el("audit", "events", "--json").document["events"]) == entries
    assert el("key", "revoke", "nobody").code == 3
    assert "revoked" in el("key", "list").out
    el("key", "issue", "--name", "ci", "--scope", "read")
    el("key", "revoke", "ci")
    assert "valid" not in el("key", "list").out
