"""Cursors: where the next page begins, sealed, so that one is good only for the list that it came from.

A cursor is the place (any JSON) and an HMAC over it, the project, the route and its filters. The key is derived from
the store's own, so every process on a store reads the cursors of the others.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from functools import cached_property
from typing import Any

import msgspec

from api.http.problems import BadRequest, Fault
from api.wiring import Workspace

MAC_BYTES = 16
CURSOR_CHARS_MAX = 4_096


class Cursors:
    """Seals and opens cursors of one store."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def seal(self, place: Any, *, of: str) -> str:
        """The cursor of a place in a list; `of` names the list: project, route and filters."""
        data = msgspec.json.encode(place)
        return urlsafe_b64encode(self._mac(data, of) + data).rstrip(b"=").decode()

    def open(self, cursor: str, *, of: str) -> Any:
        """The place in a cursor.

        Raises:
            BadRequest: it is not one that was given out for this list.
        """
        try:
            sealed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except (Error, UnicodeEncodeError):
            raise _no_cursor() from None
        mac, data = sealed[:MAC_BYTES], sealed[MAC_BYTES:]
        # Base64 has several spellings of the same bytes; only ours was given out.
        if urlsafe_b64encode(sealed).rstrip(b"=").decode() != cursor or not hmac.compare_digest(
            mac, self._mac(data, of)
        ):
            raise _no_cursor()
        return msgspec.json.decode(data)

    def _mac(self, data: bytes, of: str) -> bytes:
        name = of.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, len(name).to_bytes(8, "big") + name + data, "sha256")[:MAC_BYTES]

    @cached_property
    def _key(self) -> bytes:
        # A fingerprint under the store's key is a key that nobody can have without it.
        box = self._workspace.secrets
        return box.fingerprint(project="", profile="", name="evalledger/cursors/1", value="cursors").encode()


def _no_cursor() -> BadRequest:
    fault = Fault("query cursor", "it was not given out for this list, or was changed")
    return BadRequest(400, "The cursor is not one of this list; start again without it.", [fault])
