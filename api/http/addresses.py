"""The layer before all routes: an address or a header that two programs could read differently goes no further.

Refused are paths and queries that are not valid percent-encoded UTF-8, that hold control characters or the segments `.`
and `..` (also encoded), or are too long; a key in an address, where logs and histories keep it; and too many headers.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.problems import BadRequest, problem_of

ADDRESS_BYTES_MAX = 8_192
HEADERS_BYTES_MAX = 32_768
HEADERS_MAX = 100

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_KEY = re.compile(r"el_[0-9A-Za-z]{20,}")


class Addresses:
    """Looks at the address and the headers of each request before a route does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request on, or answer it with a problem."""
        if scope["type"] == "http":
            try:
                check_request(scope)
            except BadRequest as error:
                await problem_of(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def check_request(scope: Scope) -> None:
    """Look at one request.

    Raises:
        BadRequest: it is refused; says why, and not with what.
    """
    headers = scope["headers"]
    if len(headers) > HEADERS_MAX or sum(len(name) + len(value) for name, value in headers) > HEADERS_BYTES_MAX:
        raise BadRequest(
            431, f"There are more than {HEADERS_MAX} headers, or more than {HEADERS_BYTES_MAX:,} bytes of them."
        )
    path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
    query = scope["query_string"]
    if len(path) + len(query) > ADDRESS_BYTES_MAX:
        raise BadRequest(414, f"The address is longer than {ADDRESS_BYTES_MAX:,} bytes.")
    text = _decoded(path, "path")
    if any(segment in (".", "..") for segment in text.replace("\\", "/").split("/")):
        raise BadRequest(400, "The path holds a segment `.` or `..`; write it without.")
    asked = _decoded(query.replace(b"+", b" "), "query")
    if _KEY.search(text) or _KEY.search(asked):
        raise BadRequest(
            400,
            "A key has no place in an address, where logs and histories keep it; send it in the header "
            "`Authorization: Bearer`, and revoke the one that was sent like this.",
        )


def _decoded(part: bytes, what: str) -> str:
    if _BROKEN_ESCAPE.search(part):
        raise BadRequest(400, f"The {what} holds a `%` that begins no escape.")
    try:
        text = unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise BadRequest(400, f"The {what} is not UTF-8.") from None
    if any(char < " " or char == "\x7f" for char in text):
        raise BadRequest(400, f"The {what} holds a control character.")
    return text
