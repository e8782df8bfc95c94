"""A project's keys: handed out under a name of their own, good until they expire or are revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ledger.errors import BadInput, Conflict, NotFound
from ledger.facts.access import ApiKeyIssued, ApiKeyRevoked, ProjectCreated
from ledger.rules.access import KEYS_MAX, checked_scopes, issue_key, revoke_key
from tests.given import NOW, SHA_A, SHA_B, fold, given

PROJECT = ProjectCreated("default")
CI = ApiKeyIssued("id-1", "ci", SHA_A, ("submit", "report"))
DAY = timedelta(days=1)


def another(**changes: Any) -> ApiKeyIssued:
    """A second key."""
    return ApiKeyIssued(**({"key_id": "id-2", "name": "worker", "sha256": SHA_B, "scopes": ("report",)} | changes))


def test_a_key_is_issued() -> None:
    """Of a key its digest, name and scopes are recorded."""
    given(PROJECT).when(issue_key, key=CI, now=NOW).then(CI)


def test_two_valid_keys_never_share_a_name() -> None:
    """The name stands as actor in the log: it says which key it was."""
    given(PROJECT, CI).when(issue_key, key=another(name="ci"), now=NOW).refused(Conflict, "named ci already")


@pytest.mark.parametrize("before", [(CI, ApiKeyRevoked("id-1")), (another(key_id="id-1", name="ci", expires_at=NOW),)])
def test_a_name_is_free_again_once_its_key_opens_nothing(before: tuple[Any, ...]) -> None:
    """A revoked or expired key leaves its name to the next one."""
    new = another(name="ci")
    given(PROJECT, *before).when(issue_key, key=new, now=NOW).then(new)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": ""}, "no name of a key"),
        ({"name": "A b"}, "no name of a key"),
        ({"name": "x" * 64}, "no name of a key"),
        ({"sha256": "el_secret"}, "no sha256"),
        ({"scopes": ()}, "needs scopes"),
        ({"scopes": ("root",)}, "needs scopes"),
        ({"expires_at": NOW}, "expired already"),
    ],
)
def test_a_key_of_another_form_is_refused(changes: dict[str, Any], why: str) -> None:
    """Names are plain, scopes known, and a key is good for some time at least."""
    given(PROJECT).when(issue_key, key=another(**changes), now=NOW).refused(BadInput, why)


def test_a_project_has_so_many_valid_keys_at_the_most() -> None:
    """What every request looks through has a bound."""
    many = [another(key_id=str(n), name=f"k{n}") for n in range(KEYS_MAX)]
    given(PROJECT, *many).when(issue_key, key=CI, now=NOW).refused(BadInput, "revoke some")


def test_there_are_no_keys_without_a_project() -> None:
    """A key opens a project that exists."""
    given().when(issue_key, key=CI, now=NOW).refused(NotFound, "no such project")


def test_a_key_is_revoked_once() -> None:
    """Revoking again is harmless; what never was cannot be revoked."""
    given(PROJECT, CI).when(revoke_key, key_id="id-1").then(ApiKeyRevoked("id-1"))
    given(PROJECT, CI, ApiKeyRevoked("id-1")).when(revoke_key, key_id="id-1").then()
    given(PROJECT, CI).when(revoke_key, key_id="id-2").refused(NotFound, "no key with this id")


def test_a_key_is_valid_until_it_expires_or_is_revoked() -> None:
    """The instant of expiry is no longer in."""
    key = fold([PROJECT, another(expires_at=NOW + DAY)]).keys["id-2"]
    assert key.is_valid(NOW + DAY - timedelta(microseconds=1))
    assert not key.is_valid(NOW + DAY)
    assert not fold([PROJECT, CI, ApiKeyRevoked("id-1")]).keys["id-1"].is_valid(NOW)


def test_scopes_stand_in_one_order_each_once() -> None:
    """The same scopes are the same fact, however they were written."""
    assert checked_scopes(["admin", "submit", "admin"]) == ("submit", "admin")
