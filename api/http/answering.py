"""Answers: bytes of JSON with an ETag, the position they were read at or written to, and where the next page is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from fastapi import Response

from api.http.calls import Call, ListCall, OpenCall

AS_OF = "El-As-Of"
POSITION = "El-Position"
NEXT = "El-Next"

_AS_OF_AT_END = re.compile(rb',?"as_of":(\d+)\}$')

_encode = msgspec.json.Encoder().encode


def answer(
    call: OpenCall,
    said: Any,
    *,
    status: int = 200,
    position: int | None = None,
    as_of: int | None = None,
    location: str | None = None,
    next: Any = None,  # noqa: A002 - the word of the header
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A Struct as a response.

    `position` is the one that a write came to: what is read from here on holds it. `as_of` is the one that a read was
    made at, where the Struct does not end with it. `location` is the address, below the project, of what stands there
    now. `next` is the place where the next page begins, None after the last.

    A read whose `If-None-Match` names what it would get is answered 304. The ETag is weak: it leaves out `as_of`,
    which moves on with every entry of the project.
    """
    body = _encode(said)
    sent = dict(headers or {})
    if position is not None:
        sent[POSITION] = str(position)
        call.request.state.position = position
        if isinstance(call, Call):
            call.gate.acknowledge(call.project, position)
    if location is not None and isinstance(call, Call):
        sent["Location"] = f"/v1/projects/{call.project}{location}"
    if next is not None and isinstance(call, ListCall):
        sent[NEXT] = cursor = call.gate.cursors.seal(next, of=call.list_name)
        sent["Link"] = f'<{call.request.url.include_query_params(cursor=cursor)}>; rel="next"'
    if call.request.method in ("GET", "HEAD") and status == 200:
        said_at = _AS_OF_AT_END.search(body)
        if said_at or as_of is not None:
            sent[AS_OF] = said_at[1].decode() if said_at else str(as_of)
        sent["ETag"] = tag = f'W/"{sha256(body[: said_at.start()] if said_at else body).hexdigest()[:32]}"'
        sent.setdefault("Cache-Control", "no-cache")  # kept by whoever asks, and asked for again each time
        if _names(call.request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=sent)
    return Response(body, status, sent, "application/json")


def _names(condition: str, tag: str) -> bool:
    """Whether an If-None-Match header names a tag; weak and strong spellings are the same to it."""
    tags = (one.strip().removeprefix("W/") for one in condition.split(","))
    return any(one in ("*", tag.removeprefix("W/")) for one in tags)
