"""JSON bodies, read strictly: what two readers could understand differently is refused.

Refused are NaN, infinities and numbers that no float holds, whole numbers beyond 64 bits, keys named twice, lone
surrogates, the character NUL, nesting deeper than 64, bytes that are not UTF-8, and a text that ends early.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from api.http.problems import BadRequest, Fault

DEPTH_MAX = 64
WHOLE_MIN = -(2**63)
WHOLE_MAX = 2**63 - 1

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(data: bytes, *, what: str = "The body") -> Any:
    """The value of one JSON text.

    Raises:
        BadRequest: it is no JSON, or one of the things that are refused; names the place, never the value.
    """
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise _too_deep(what) from None
    except msgspec.ValidationError as error:
        raise BadRequest(400, f"{what} holds a number that is out of range.") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise BadRequest(400, _no_json(data, what)) from error
    # Every key has a colon, and texts may hold further ones: as many colons as keys means that none is there twice.
    if data.count(b":") != _checked(value, "", DEPTH_MAX, what):
        _refuse_keys_named_twice(data, what)
    return value


def pointer(place: str, part: object) -> str:
    """A JSON pointer (RFC 6901) one step on."""
    return f"{place}/{part}"


def _checked(value: Any, place: str, depth: int, what: str) -> int:
    """How many keys all objects in a value have; refuses what a decoder lets through."""
    kind = type(value)
    if kind is dict:
        if depth == 0:
            raise _too_deep(what)
        # A key may be anything, a secret too: the place says only that it is in an object.
        for key in value:
            if "\0" in key:
                raise _bad(place, "a key holds the character NUL", what)
        return len(value) + sum(_checked(part, pointer(place, "*"), depth - 1, what) for part in value.values())
    if kind is list:
        if depth == 0:
            raise _too_deep(what)
        return sum(_checked(part, pointer(place, at), depth - 1, what) for at, part in enumerate(value))
    if kind is str:
        if "\0" in value:
            raise _bad(place, "the text holds the character NUL", what)
    elif kind is int and not WHOLE_MIN <= value <= WHOLE_MAX:
        raise _bad(place, "the whole number does not fit 64 bits", what)
    return 0


class _Twice(Exception):
    """An object names a key twice."""


def _refuse_keys_named_twice(data: bytes, what: str) -> None:
    def unique(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            raise _Twice

    try:
        json.loads(data.decode(), object_pairs_hook=unique)
    except _Twice:
        raise BadRequest(400, f"{what} holds an object that names a key twice.") from None


def _bad(place: str, fault: str, what: str) -> BadRequest:
    return BadRequest(400, f"{what} holds something that is not taken.", [Fault(place or "/", fault)])


def _too_deep(what: str) -> BadRequest:
    return BadRequest(400, f"{what} is nested more than {DEPTH_MAX} deep.")


def _no_json(data: bytes, what: str) -> str:
    if not data.strip():
        return f"{what} is empty; JSON is expected."
    try:
        data.decode()
    except UnicodeDecodeError:
        return f"{what} is not UTF-8."
    if _SURROGATE.search(data):
        return f"{what} is no JSON, or a text in it holds a lone surrogate."
    return f"{what} is no JSON; NaN and Infinity are not, and it may have been cut."
