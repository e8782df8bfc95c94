"""Keys: how one looks, and handing out, listing and taking back those of a project.

A key is `el_`, 32 characters of 0-9, A-Z, a-z from a secure source (190 bits), and 6 characters of their CRC-32, so
that a mistyped key is told from an unknown one without looking anywhere. Only its SHA-256 is kept. Hashes are looked up
in a dictionary and not compared in constant time: whoever could learn from the time taken how a hash begins would still
have to find 190 random bits behind it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Literal, Protocol
from uuid import uuid4
from zlib import crc32

from api.answers import IssuedKey, KeyAnswer, KeyList, RevokedKey
from ledger.application import Ledger
from ledger.errors import BadInput, NotAuthenticated
from ledger.facts.access import STREAM, ApiKeyIssued
from ledger.rules.access import Key, Project, checked_scopes, issue_key, revoke_key

PREFIX = "el_"
RANDOM_CHARS = 32
CHECK_CHARS = 6
EXPIRES_MAX = timedelta(days=3_660)

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{RANDOM_CHARS + CHECK_CHARS}}}")
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class _Client(Protocol):
    """What of a client is needed here."""

    ledger: Ledger


def new_key() -> str:
    """A key that nobody has seen."""
    random = "".join(secrets.choice(_BASE62) for _ in range(RANDOM_CHARS))
    return PREFIX + random + _check(random)


def digest_of(key: str) -> str:
    """What is kept of a key.

    Raises:
        NotAuthenticated: it is not one; says nothing of what was handed in.
    """
    random = key[len(PREFIX) : len(PREFIX) + RANDOM_CHARS]
    if not _FORM.fullmatch(key):
        raise NotAuthenticated("This is no key of EvalLedger; one begins with el_ and has 41 characters.")
    if key[len(PREFIX) + RANDOM_CHARS :] != _check(random):
        raise NotAuthenticated("The key is mistyped or cut: its check characters do not fit.")
    return sha256(key.encode()).hexdigest()


def issue(
    client: _Client, name: str, scopes: Collection[str], *, expires_at: datetime | None = None, key: str | None = None
) -> IssuedKey:
    """Hand out a key of the client's project. `key` is for tests.

    Raises:
        BadInput: name, scopes or end have not the right form.
        Conflict: a valid key has this name.
    """
    ledger, key = client.ledger, key or new_key()
    if expires_at is not None and expires_at.tzinfo is None:
        raise BadInput("The end of a key needs a time zone; write it as 2027-01-31T00:00:00Z.")
    now = ledger.clock()
    if expires_at is not None and expires_at > now + EXPIRES_MAX:
        raise BadInput("A key expires within ten years, or never.")
    end = None if expires_at is None else expires_at.astimezone(UTC)
    issued = ApiKeyIssued(str(uuid4()), name, digest_of(key), checked_scopes(scopes), end)
    written = ledger.record(STREAM, partial(issue_key, key=issued, now=now))
    return IssuedKey(issued.key_id, name, list(issued.scopes), _text(issued.expires_at), key, written.position)


def list_keys(client: _Client) -> KeyList:
    """The keys of the client's project, also those that open nothing any more."""
    as_of, now = client.ledger.head().size, client.ledger.clock()
    project: Project = client.ledger.state(STREAM)
    return KeyList([_answer(key, now) for key in project.keys.values()], as_of)


def revoke(client: _Client, key_id: str) -> RevokedKey:
    """Take a key back. It opens nothing any more, on any process, within a second.

    Raises:
        NotFound: the project has no such key.
    """
    written = client.ledger.record(STREAM, partial(revoke_key, key_id=key_id))
    project: Project = client.ledger.state(STREAM)
    return RevokedKey(_answer(project.keys[key_id], client.ledger.clock()), written.position)


def expiry(text: str, now: datetime) -> datetime:
    """The time at which something that lasts for `30d`, `12h`, `90m` or `45s` ends."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadInput("The duration is not understood; write a number and a unit, such as 30d, 12h, 90m or 45s.")
    return now + timedelta(**{_UNITS[match[2]]: int(match[1])})


def _check(random: str) -> str:
    number, digits = crc32(random.encode()), ""
    for _ in range(CHECK_CHARS):
        number, digit = divmod(number, len(_BASE62))
        digits = _BASE62[digit] + digits
    return digits


def _answer(key: Key, now: datetime) -> KeyAnswer:
    status: Literal["valid", "expired", "revoked"]
    status = "revoked" if key.revoked else "valid" if key.is_valid(now) else "expired"
    issued = key.issued
    return KeyAnswer(issued.key_id, issued.name, list(issued.scopes), status, _text(issued.expires_at))


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")
