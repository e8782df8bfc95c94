"""Every refusal as `application/problem+json` (RFC 9457).

A problem never repeats what was handed in: it names the place and what is wrong there. Sentences of the ledger may name
datasets, jobs and the like; whatever looks like a key is taken out of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.problems import HTTP_KINDS, KINDS, Kind, kind_of
from ledger.errors import EvalLedgerError, StoreUnreachable

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1

_KEY = re.compile(r"el_[0-9A-Za-z]{16,}")

_HANDLED: tuple[type[Exception], ...] = (
    EvalLedgerError,
    HTTPException,
    RequestValidationError,
    ClientDisconnect,
    OperationalError,
    InterfaceError,
    PoolTimeout,
    Exception,
)

_SENTENCES = {
    404: "There is no such route; /v1/openapi.json lists those there are.",
    405: "This route does not have this method.",
}


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong with the input: the place (`/field/0` in a body, `query limit`) and what is wrong."""

    at: str
    problem: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is answered instead of an answer. `differs` where something conflicts, `errors` where input is wrong."""

    type: str
    title: str
    status: int
    detail: str
    differs: Sequence[str] = ()
    errors: Sequence[Fault] = ()


class BadRequest(HTTPException):
    """A request that is refused for its form as HTTP or JSON; `errors` names places in it."""

    def __init__(self, status: int, sentence: str, errors: Sequence[Fault] = ()) -> None:
        super().__init__(status, sentence)
        self.errors = tuple(errors)


def problem(
    kind: Kind,
    detail: str,
    *,
    differs: Sequence[str] = (),
    errors: Sequence[Fault] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as a response."""
    body = Problem(kind.type, kind.title, kind.status, without_keys(detail), tuple(map(without_keys, differs)), errors)
    sent = {"Cache-Control": "no-store", **(headers or {})}
    if kind.status == 401:
        sent["WWW-Authenticate"] = 'Bearer realm="EvalLedger"'
    if kind.status == 503:
        sent["Retry-After"] = str(RETRY_AFTER_S)
    return Response(_encode(body), kind.status, sent, MEDIA_TYPE)


def problem_of(error: Exception) -> Response:  # noqa: PLR0911 - one line for each kind of error
    """The problem that an error is answered with; what is not known is answered without a word about it."""
    match error:
        case EvalLedgerError() if type(error) is not StoreUnreachable:
            return problem(kind_of(error), str(error), differs=getattr(error, "differs", ()))
        case StoreUnreachable() | OperationalError() | InterfaceError() | PoolTimeout():
            # The sentence of such an error may name a folder or an address on the server.
            return problem(KINDS[StoreUnreachable], "The store cannot be reached at the moment; try again.")
        case BadRequest():
            return problem(_kind_of_status(error.status_code), error.detail, errors=error.errors)
        case RequestValidationError():
            faults = [parameter_fault(found) for found in error.errors()]
            return problem(HTTP_KINDS[400], "The address or a header holds a value that is not taken.", errors=faults)
        case HTTPException():
            kind = _kind_of_status(error.status_code)
            sentence = _SENTENCES.get(error.status_code, f"{kind.title}.")
            return problem(kind, sentence, headers=error.headers)
        case ClientDisconnect():
            return problem(HTTP_KINDS[400], "The body ended before it was whole; send all of it.")
        case _:
            return problem(HTTP_KINDS[500], "Something unexpected went wrong; the server's log has the details.")


def add_handlers(app: FastAPI) -> None:
    """Have every error of an app answered as a problem."""

    async def handle(_request: Request, error: Exception) -> Response:
        return problem_of(error)

    for kind in _HANDLED:
        app.add_exception_handler(kind, handle)


def parameter_fault(found: Mapping[str, Any]) -> Fault:
    """What is wrong with a parameter, in pydantic's words, which do not hold the value."""
    where, *names = [str(part) for part in found["loc"]] or ["request"]
    return Fault(" ".join([where, *names[:1]]), str(found["msg"]))


def without_keys(text: str) -> str:
    """A sentence in which whatever looks like a key is taken out."""
    return _KEY.sub("el_[key]", text)


def _encode(body: Problem) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # a name in the sentence held a lone surrogate
        return msgspec.json.encode(msgspec.structs.replace(body, detail=f"{body.title}.", differs=()))


def _kind_of_status(status: int) -> Kind:
    return HTTP_KINDS.get(status) or HTTP_KINDS[500 if status >= 500 else 400]
