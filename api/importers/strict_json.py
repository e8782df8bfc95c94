"""JSON from other people: duplicate keys are refused, and numbers that no float can hold stay what was written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
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
    elements = Elements(text, at)
    yield from elements
    _nothing_after(text, elements.end)


def read_members(text: str, *, lists: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """The members of a JSON object, one at a time: name and value.

    An array under a name in `lists` comes as `Elements`, which read it one element at a time; what the reader leaves
    of them is passed over.

    Raises:
        NotJson: the text ends before the object does; every whole member, and element, was given.
        BadInput: the text is no object, is broken in the middle, or names a member twice.
    """
    at = _after_space(text, 0)
    if at == len(text):
        raise NotJson("it is empty")
    if text[at] != "{":
        raise BadInput("The file holds no JSON object; it must begin with '{'.")
    at = _after_space(text, at + 1)
    if text.startswith("}", at):
        return _nothing_after(text, at + 1)
    names: set[str] = set()
    while True:
        name, at = _element(text, at)
        if not isinstance(name, str):
            raise BadInput(f"The JSON object is broken before character {at:,}: a member's name must stand there.")
        if name in names:
            raise BadInput(f"An object names the key {name!r:.100} twice.")
        names.add(name)
        at = _after_space(text, _past(text, at, ":"))
        if name in lists and text.startswith("[", at):
            elements = Elements(text, at)
            yield name, elements
            for _ in elements:
                pass
            at = _after_space(text, elements.end)
            after = _past(text, at, ",}")
        else:
            value, at = _element(text, at)
            at = _after_space(text, at)
            after = _past(text, at, ",}")  # until something follows it, a number may have been cut
            yield name, value
        if text[at] == "}":
            return _nothing_after(text, after)
        at = _after_space(text, after)


class Elements:
    """The elements of the array that begins at a character; `end` is where it ended, once all were read."""

    def __init__(self, text: str, begin: int) -> None:
        self.end = begin
        self._elements = self._read(text, _after_space(text, begin + 1))

    def __iter__(self) -> Iterator[Any]:
        """Those that were not read yet. Raises as `read_array` does."""
        return self._elements

    def _read(self, text: str, at: int) -> Iterator[Any]:
        if not text.startswith("]", at):
            while True:
                value, at = _element(text, at)
                yield value
                at = _after_space(text, at)
                if text.startswith("]", at):
                    break
                if at < len(text) and text[at] != ",":
                    raise BadInput(f"The JSON array is broken at character {at:,}: a ',' or ']' must follow.")
                at = _after_space(text, at + 1)
        self.end = at + 1


def is_cut(data: bytes) -> bool:
    """Whether a text that is no JSON ends inside the object or array that it begins with, or is empty."""
    text = data.decode(errors="replace")
    at = _after_space(text, 0)
    return at == len(text) or (text[at] in "{[" and _is_cut(text, at))


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
            raise NotJson("it is cut before its end") from error
        raise BadInput(f"A value at character {at:,} is no JSON ({_reason(error)}).") from error
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


def _past(text: str, at: int, marks: str) -> int:
    """The character after one of the marks, which must stand here."""
    if at >= len(text):
        raise NotJson("it is cut before its end")
    if text[at] not in marks:
        raise BadInput(f"The JSON object is broken at character {at:,}: one of {' '.join(marks)} must stand there.")
    return at + 1


def _nothing_after(text: str, at: int) -> None:
    if _after_space(text, at) < len(text):
        raise BadInput("Something follows the JSON value; the file must hold it alone.")


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
