"""Given: routes to try what stands before every route on, and somebody with a key for everything who asks them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from fastapi import Query, Response
from pydantic import Field
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from api.http.answering import answer
from api.http.bodies import Form, strict
from api.http.calls import List, Open, Read, Write
from api.http.routes import Routes
from ledger import errors
from tests.asgi import Answer, Browser
from tests.given_requests import MINE, World

P = f"/v1/projects/{MINE}"
SECRET = "sk-never-repeat-me"
BODY_BYTES_MAX = 1_000_000

things = Routes("things")
outside = Routes("outside", project=False)


class Thing(Form):
    """Something to send."""

    name: str = Field(max_length=10)
    count: int = Field(default=1, ge=1, le=9)
    share: float = 0.5
    secrets: dict[str, Annotated[str, Field(max_length=5)]] = Field(default_factory=dict)


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """The same as a Struct."""

    token: int
    names: list[str] = []


class Said(msgspec.Struct):
    """What is answered."""

    said: Any
    as_of: int


@things.post("/things", scope="submit", answers=Said, body_bytes_max=BODY_BYTES_MAX)
def take(call: Write, body: Annotated[Thing, strict(Thing)]) -> Response:
    """Take a thing."""
    return answer(call, Said([body.name, call.request_id()], 1), status=201, position=7, location="/things/1")


@things.post("/entries", scope="submit", answers=Said)
async def take_entry(call: Write, body: Annotated[Entry, strict(Entry)]) -> Response:
    """Take an entry."""
    return answer(call, Said(body.token, 1))


@things.put("/raw", scope="submit", takes="application/octet-stream", body_bytes_max=1_000)
async def take_raw(call: Write) -> Response:
    """Take bytes."""
    return Response(str(len(b"".join([chunk async for chunk in call.chunks()]))))


@things.get("/things", scope="read", answers=Said, cursor=True)
def give(
    call: List,
    limit: Annotated[int, Query(ge=1, le=10)] = 2,
    tag: Annotated[list[str], Query()] = [],  # noqa: B006
) -> Response:
    """Give a page of numbers."""
    begin = call.after(int) or 0
    return answer(call, Said([*range(begin, begin + limit), *tag], 12), next=begin + limit if begin < 4 else None)


@things.get("/errors/{name}", scope="read")
def fail(call: Read, name: str) -> Response:
    """Raise what is named."""
    kind: Any = getattr(errors, name, None) or {"sql": OperationalError, "http": HTTPException}.get(name, KeyError)
    raise {"sql": lambda _: OperationalError(SECRET, {}, Exception(SECRET)), "http": lambda _: HTTPException(418)}.get(
        name, kind
    )(f"It is wrong with {SECRET}.")


@outside.get("/outside", scope="public", answers=Said)
def open_to_all(call: Open) -> Response:
    """Say something to anybody."""
    return answer(call, Said("hello", 0))


@contextmanager
def asking(world: World) -> Iterator[Browser]:
    """Somebody with a key for everything, before an app with the routes above."""
    browser = Browser(world.app(routes=(things, outside)), key=world.keys["admin"])
    yield browser
    browser.close()


def refused(said: Answer, status: int) -> dict[str, Any]:
    """The problem that was answered; nothing of what was sent is in it."""
    assert (said.status, said.headers["content-type"]) == (status, "application/problem+json"), said
    assert SECRET.encode() not in said.body
    found: dict[str, Any] = said.json()
    assert found["status"] == status
    assert found["detail"]
    return found
