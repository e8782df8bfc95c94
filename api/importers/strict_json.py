"""JSON from other people: duplicate keys are refused, and numbers that no float can hold stay what was written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ledger.errors import BadInput

INTEGER_DIGITS_MAX = 400  # a float ends at 309
DEPTH_MAX = 200

_SPACE = re.compile(r"[ \t\r\n]*")
_STRUCTURE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)


class NotJson(BadInput):
    """The text is no JSON; it may have been cut."""


class NotFinite:
    """A number that no float can hold (`NaN`, `-Infinity`, `1e309`), as it was written."""

    def __init__(self, text: str) -> None:
        self.text = text


def read_value(line: bytes) -> Any:
    """The value of one JSON text in UTF-8. Numbers that are not finite come as `NotFinite`.

    Raises:
        NotJson: it is no JSON.
        BadInput: an object names a key twice, or a text holds a lone surrogate.
    """
    try:
        value = msgspec.json.decode(line)
        # Every key has a colon and texts may hold further ones: as many colons as keys means that none is there twice.
        if line.count(b":") == _count_keys(value, DEPTH_MAX):
            return value
    except (ValueError, RecursionError):
        pass  # the careful way says what is wrong, or reads what only it can
    return _read_carefully(line)


def read_array(text: str) -> Iterator[Any]:
    """The elements of a JSON array, one at a time, as `read_value` gives them.

    Raises:
        NotJson: the text ends before the array does; every whole element was given.
        BadInput: the text is no array, or is broken in the middle.
    """
    at = _after_space(text, 0)
    if not text.startswith("[", at):
        raise BadInput("The file holds no JSON array; it must begin with '['.")
    at = _after_space(text, at + 1)
    if text.startswith("]", at):
        return _nothing_after(text, at + 1)
    while True:
        value, at = _element(text, at)
        yield value
        at = _after_space(text, at)
        if text.startswith("]", at):
            return _nothing_after(text, at + 1)
        if at < len(text) and text[at] != ",":
            raise BadInput(f"The JSON array is broken at character {at:,}: a ',' or ']' must follow.")
        at = _after_space(text, at + 1)


def to_text(value: Any) -> bytes:
    """A value as JSON again, to be kept as what stood there."""
    return json.dumps(value, ensure_ascii=False, default=lambda number: number.text).encode()


def digest_of_value(value: Any) -> int:
    """A number that values of the same content share, whatever the order of their keys; it holds in this process."""
    return hash(json.dumps(value, sort_keys=True, default=lambda number: number.text))


def _read_carefully(line: bytes) -> Any:
    try:
        value = _decoder.decode(line.decode())
        _check(value)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"it is no JSON ({_reason(error)})") from error
    return value


def _element(text: str, at: int) -> tuple[Any, int]:
    try:
        value, after = _decoder.raw_decode(text, at)
        _check(value)
    except (ValueError, RecursionError) as error:
        if _is_cut(text, at):
            raise NotJson("the array is cut before its end") from error
        raise BadInput(f"The JSON array holds an element that is no JSON ({_reason(error)}).") from error
    return value, after


def _is_cut(text: str, at: int) -> bool:
    """Whether the text ends inside the element that begins here."""
    depth = 0
    for token in _STRUCTURE.finditer(text, at):
        if token[0] == '"':
            return True
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth <= 0 and token[0] in "]}":
            return False
    return True


def _nothing_after(text: str, at: int) -> None:
    if _after_space(text, at) < len(text):
        raise BadInput("Something follows the JSON array; the file must hold the array alone.")


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _count_keys(value: Any, depth: int) -> int:
    """How many keys all objects in a value have. Raises RecursionError when it is nested deeper than allowed."""
    if depth == 0:
        raise RecursionError
    kind = type(value)
    count = len(value) if kind is dict else 0
    for part in value.values() if kind is dict else value if kind is list else ():
        if type(part) is dict or type(part) is list:
            count += _count_keys(part, depth - 1)
    return count


def _check(value: Any) -> None:
    """Raises RecursionError when a value is nested too deeply, BadInput when a text in it is no Unicode."""
    _count_keys(value, DEPTH_MAX)
    try:
        to_text(value)
    except UnicodeEncodeError:
        raise BadInput("A text holds a lone surrogate, which is no Unicode.") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"An object names the key {twice!r:.100} twice.")
    return found


def _float(text: str) -> float | NotFinite:
    value = float(text)
    return value if math.isfinite(value) else NotFinite(text)


def _integer(text: str) -> int | NotFinite:
    return int(text) if len(text) <= INTEGER_DIGITS_MAX else NotFinite(text)


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else f"{error}"


_decoder = json.JSONDecoder(
    object_pairs_hook=_without_duplicates, parse_float=_float, parse_int=_integer, parse_constant=NotFinite
)
