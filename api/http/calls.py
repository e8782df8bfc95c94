"""What a handler is given: the client of its project, who is calling, and what every request may carry."""

from __future__ import annotations

import re
from asyncio import Event
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Annotated, TypeVar, cast

import msgspec
from fastapi import Depends, Header, Query, Request

from api.client import Client
from api.http.access import Caller, is_still_admitted
from api.http.bodies import chunks
from api.http.cursors import CURSOR_CHARS_MAX
from api.http.gate import Gate
from api.http.problems import BadRequest, Fault
from api.wiring import Workspace

T = TypeVar("T")

POSITION_MAX = 2**63 - 1
LIMIT_MAX = 1_000

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many at most.")]
PositionQ = Annotated[int, Query(ge=0, le=POSITION_MAX)]

_MinPosition = Annotated[
    int,
    Query(ge=0, le=POSITION_MAX, description="Wait, for a bounded time, until the answer holds this position."),
]
_Cursor = Annotated[
    str | None,
    Query(max_length=CURSOR_CHARS_MAX, description="Where the page begins: `El-Next` of the page before."),
]
_IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=202,
        description="Names the request: the same again is answered alike and writes nothing.",
    ),
]

# What says where a page begins, and how long it is, does not say what is in the list.
_NO_FILTERS = frozenset({"cursor", "limit", "min_position", "after", "before", "after_attempt", "after_task"})

_REQUEST_ID = re.compile(r"[!-~](?:[ -~]{0,198}[!-~])?")


class OpenCall:
    """A call of a route outside any project."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.gate: Gate = request.app.state.gate
        self.caller: Caller = request.state.caller

    @property
    def workspace(self) -> Workspace:
        """The store behind the app."""
        return self.gate.workspace

    @property
    def stopping(self) -> Event:
        """Set when the server is about to stop: answers that go on have to end."""
        return cast(Event, self.request.app.state.stopping)

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece, to the bound of the route. Raises TooLarge, BadRequest."""
        return chunks(self.request)


class Call(OpenCall):
    """A call of a route in a project. Its client waits for `min_position` before it reads."""

    def __init__(self, request: Request, min_position: int) -> None:
        super().__init__(request)
        self.min_position = min_position

    @property
    def project(self) -> str:
        """The project."""
        return cast(str, self.request.path_params["project"])

    @cached_property
    def client(self) -> Client:
        """The client of the project, in the caller's name. Its first use may read the database."""
        return self.gate.client(self.project, self.caller.actor, min_position=self.min_position)

    async def still_allowed(self) -> bool:
        """Whether the key is still valid, for answers that go on; look about twice a second."""
        return await is_still_admitted(self.request, self.request.scope["route"].declared.scope, self.caller)


class ReadCall(Call):
    """A call of a reading route."""


class ListCall(ReadCall):
    """A call of a reading route that answers in pages."""

    def __init__(self, request: Request, min_position: int, cursor: str | None) -> None:
        super().__init__(request, min_position)
        self.cursor = cursor

    def after(self, kind: type[T]) -> T | None:
        """The place where the page begins, as the route gave it to `answer(next=...)`; None for the first page.

        Raises:
            BadRequest: the cursor is not one of this list.
        """
        if self.cursor is None:
            return None
        return msgspec.convert(self.gate.cursors.open(self.cursor, of=self.list_name), kind)

    @property
    def list_name(self) -> str:
        """What a cursor is bound to: the path (so project and route), and the filters."""
        filters = sorted(pair for pair in self.request.query_params.multi_items() if pair[0] not in _NO_FILTERS)
        return msgspec.json.encode([self.request.scope["path"], filters]).decode()


class WriteCall(Call):
    """A call of a route that does something."""

    def __init__(self, request: Request, min_position: int, idempotency_key: str | None) -> None:
        super().__init__(request, min_position)
        self.idempotency_key = idempotency_key

    def request_id(self, in_body: str | None = None) -> str | None:
        """What names the request: the header `Idempotency-Key`, or the field of the body that means the same.

        Raises:
            BadRequest: the header has not the right form, or both are there and differ.
        """
        if self.idempotency_key is None:
            return in_body
        given = self.idempotency_key
        if len(given) > 1 and given[0] == given[-1] == '"':  # a structured field, as the draft standard writes it
            given = given[1:-1]
        if not _REQUEST_ID.fullmatch(given):
            fault = Fault("header Idempotency-Key", "it must be 1 to 200 printable ASCII characters")
            raise BadRequest(400, "The header Idempotency-Key has not the right form.", [fault])
        if in_body is not None and in_body != given:
            raise BadRequest(400, "The header Idempotency-Key and request_id in the body differ; send one of them.")
        return given


# Async, though nothing is awaited: FastAPI would call a class, or a plain function, in a thread of its own.
async def _open(request: Request) -> OpenCall:
    return OpenCall(request)


async def _read(request: Request, min_position: _MinPosition = 0) -> ReadCall:
    return ReadCall(request, min_position)


async def _list(request: Request, min_position: _MinPosition = 0, cursor: _Cursor = None) -> ListCall:
    return ListCall(request, min_position, cursor)


async def _write(
    request: Request, min_position: _MinPosition = 0, idempotency_key: _IdempotencyKey = None
) -> WriteCall:
    return WriteCall(request, min_position, idempotency_key)


Open = Annotated[OpenCall, Depends(_open)]
Read = Annotated[ReadCall, Depends(_read)]
List = Annotated[ListCall, Depends(_list)]
Write = Annotated[WriteCall, Depends(_write)]
