"""Bodies: read to a bound, checked strictly, and turned into the form that a route declares."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from functools import cached_property
from typing import Any

import msgspec
import pydantic
from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from api.http.problems import BadRequest, Fault
from api.http.strict_json import read_json
from ledger.errors import TooLarge

FAULTS_MAX = 20
LONG_BYTES = 65_536

_SCHEMA_REF = "#/components/schemas/{model}"
_MSGSPEC_PLACE = re.compile(r" - at `\$?([^`]*)`$")
_MSGSPEC_PART = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+|\.\.\.)\]")
_NAMED = re.compile(r"(`[^`]*`|'[^']*'|\"[^\"]*\")")


class Form(BaseModel):
    """A JSON body: unknown fields are refused, values are of the declared type without guessing, numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class StrictBody:
    """Reads a request's JSON body as one kind: a `Form`, or a msgspec Struct."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    async def __call__(self, request: Request) -> Any:
        """The body, checked.

        Raises:
            BadRequest: it is no JSON (400) or has not the form (422); names places, never values.
            TooLarge: it is longer than the route takes.
        """
        data = b"".join([chunk async for chunk in chunks(request)])
        # A long text would keep every other request waiting.
        return self._checked(data) if len(data) < LONG_BYTES else await run_in_threadpool(self._checked, data)

    def _checked(self, data: bytes) -> Any:
        read_json(data)
        return self._read(data)

    @cached_property
    def _read(self) -> Callable[[bytes], Any]:
        if issubclass(self.kind, BaseModel):
            return _form_reader(self.kind)
        return _struct_reader(self.kind)

    def schema(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The JSON schema of the body, and the components it names."""
        if issubclass(self.kind, BaseModel):
            schema = self.kind.model_json_schema(ref_template=_SCHEMA_REF)
            components = schema.pop("$defs", {})
            return {"$ref": _SCHEMA_REF.format(model=self.kind.__name__)}, {self.kind.__name__: schema, **components}
        return struct_schema(self.kind)


def struct_schema(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON schema of what msgspec reads and writes as a type, and the components it names."""

    def of_anything(_: type) -> dict[str, Any]:
        return {"description": "Any JSON value."}

    ref = _SCHEMA_REF.format(model="{name}")
    (schema,), components = msgspec.json.schema_components([kind], schema_hook=of_anything, ref_template=ref)
    return schema, components


def strict(kind: type) -> Any:
    """The declaration of a body: `body: Annotated[SubmitJob, strict(SubmitJob)]`."""
    return Depends(StrictBody(kind))


async def chunks(request: Request) -> AsyncIterator[bytes]:
    """A request's body, piece by piece, to the bound of its route.

    Raises:
        TooLarge: there is more than the route takes; also before anything is read, when the headers say so.
        BadRequest: the body is shorter or longer than its Content-Length says.
    """
    most: int = request.scope["body_bytes_max"]
    said = request.headers.get("content-length")
    if said is not None and not (said.isascii() and said.isdigit() and len(said) <= 18):
        raise BadRequest(400, "Content-Length is no number of bytes.")
    if said is not None and int(said) > most:
        raise _too_large(most)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        if chunk:
            yield chunk
    if said is not None and size != int(said):
        raise BadRequest(400, "The body is not as long as Content-Length says; it may have been cut.")


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"The body is longer than {most:,} bytes, which is the most that this route takes.")


def _form_reader(form: type[BaseModel]) -> Callable[[bytes], Any]:
    known = _names_in(form.model_json_schema())

    def read(data: bytes) -> Any:
        try:
            return form.model_validate_json(data)
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            faults = [_pydantic_fault(one["loc"], one["type"], one["msg"], known) for one in found[:FAULTS_MAX]]
            raise BadRequest(422, _sentence(faults), faults) from None

    return read


def _struct_reader(kind: type) -> Callable[[bytes], Any]:
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode

    def read(data: bytes) -> Any:
        try:
            return decode(data)
        except msgspec.ValidationError as error:
            faults = [msgspec_fault(error)]
            raise BadRequest(422, _sentence(faults), faults) from None

    return read


def _sentence(faults: list[Fault]) -> str:
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"The body does not have the right form: at {first.at}, {first.problem}{more}."


def _pydantic_fault(place: tuple[Any, ...], kind: str, message: str, known: set[str]) -> Fault:
    if kind == "extra_forbidden":
        place, message = place[:-1], "there is a field that is not known"
    elif kind in ("value_error", "assertion_error"):
        message = "the value is not taken"
    # Keys of an object are the caller's own and may be anything; only names that the form itself has are repeated.
    parts = [str(part) if isinstance(part, int) or part in known else "*" for part in place]
    return Fault("/" + "/".join(parts), message[:1].lower() + message[1:])


def msgspec_fault(error: msgspec.ValidationError) -> Fault:
    """The place and the fault in msgspec's message, without names and values that were handed in."""
    message = str(error)
    match = _MSGSPEC_PLACE.search(message)
    parts = _MSGSPEC_PART.findall(match[1]) if match else []
    at = "/" + "/".join(name or index.replace("...", "*") for name, index in parts)
    text = message[: match.start()] if match else message
    if not text.startswith(("Expected", "Object missing")):
        text = "there is a field that is not known" if "unknown field" in text else _NAMED.sub("a value", text)
    return Fault(at, text[:1].lower() + text[1:])


def _names_in(schema: Any) -> set[str]:
    """Every name of a field anywhere in a JSON schema."""
    found: set[str] = set()
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        found |= _names_in(value)
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        found |= set(schema["properties"])
    return found
