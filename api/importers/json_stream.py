"""The parts of a large JSON object that an importer wants, read from pieces of bytes: memory grows with those parts.

Tools write conversations of any length beside the few fields that matter. Those are passed over token by token, not
decoded; yet no key may stand twice in an object, however deep, and nothing but JSON's own tokens may stand there. Not
checked in what is passed over: that commas and values take turns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from api.importers.strict_json import DEPTH_MAX, NotJson, read_value
from ledger.errors import BadInput

_SPACE = b" \t\r\n"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# A number or text at the end of what is there may go on, or be a key: it is not taken yet.
_PLAIN = (
    rb"(?:[ \t\r\n,]+|true|false|null|NaN|-?Infinity|-?[0-9][0-9.eE+\-]*+(?=[^0-9.eE+\-])|"
    + _STRING
    + rb"(?=[ \t\r\n]*+[^ \t\r\n:]))*+"
)
_FILL = re.compile(_PLAIN, re.DOTALL)
_TOKEN = re.compile(_PLAIN + rb"((" + _STRING + rb")[ \t\r\n]*+:|[{}\[\]])", re.DOTALL)
_UNFINISHED = re.compile(rb'".*|-?[0-9.eE+\-]*', re.DOTALL)
_LITERALS = (b"true", b"false", b"null", b"NaN", b"-Infinity", b"Infinity")

# What stands before it (commas, spaces, plain values), itself (a bracket, or a key with its colon), the key in quotes.
Token = tuple[bytes, bytes, bytes | None]


class Picked(NamedTuple):
    """The wanted keys of one object as a JSON object again; `at` is the list that it stood in, "" for the whole.

    Objects have the same `content` when they were written alike to the byte; the whole has none beside lists. `cut`
    says that the text ended before the object: it has those of its keys whose values are whole.
    """

    at: str
    text: bytes
    content: bytes
    cut: bool = False


def pick(
    pieces: Iterable[bytes], keys: Collection[str], lists: Mapping[str, Collection[str]] | None = None
) -> Iterator[Picked]:
    """The wanted keys of the object that the pieces hold; before it, those of each object in its `lists`.

    Raises:
        NotJson: the pieces hold no JSON object.
        BadInput: an object names a key twice, is nested deeper than 200 or is broken in the middle.
    """
    scan = _Scan(keys, lists or {})
    for token in _tokens(pieces):
        if found := scan.take(*token):
            yield found
    yield scan.end()


class _Object:
    """An object whose wanted keys are being picked; its own keys stand `depth` objects and lists deep."""

    def __init__(self, at: str, depth: int, keys: Collection[str], *, hashed: bool) -> None:
        self.at = at
        self.depth = depth
        self._keys = {f'"{key}"'.encode() for key in keys}
        self._hash = hashlib.sha256() if hashed else None
        self._parts: list[bytes] = []
        self.key: bytes | None = None
        self._value = bytearray()

    def see(self, before: bytes, token: bytes, key: bytes | None, *, ends: bool) -> None:
        """One token inside the object: `key` when it is one of its own, `ends` when it is its last."""
        if self._hash:
            self._hash.update(before)
            self._hash.update(token)
        if self.key is not None:
            self._value += before if key or ends else before + token
        if key or ends:
            self._keep()
            self.key = key if key in self._keys else None

    def picked(self, *, cut: bool) -> Picked:
        """What was picked so far."""
        content = self._hash.digest() if self._hash else b""
        return Picked(self.at, b"{" + b",".join(self._parts) + b"}", content, cut)

    def _keep(self) -> None:
        if self.key is not None:
            value = self._value.strip(_SPACE).removesuffix(b",").strip(_SPACE)
            self._parts.append(self.key + b":" + value)
            self._value.clear()


class _Scan:
    """What is open where the reading stands, and which objects are being picked."""

    def __init__(self, keys: Collection[str], lists: Mapping[str, Collection[str]]) -> None:
        self._lists = {f'"{name}"'.encode(): name for name in lists}
        self._keys_in = lists
        self._open: list[set[bytes] | None] = []  # the keys of each open object; None is a list
        self._whole = _Object("", 1, keys, hashed=not lists)
        self._inner: _Object | None = None
        self._list: str | None = None
        self._ended = False

    def take(self, before: bytes, token: bytes, key: bytes | None) -> Picked | None:
        """Take one token; an object of a list, when it is whole."""
        depth, whole, inner = len(self._open), self._whole, self._inner
        if depth == 0:
            self._begin(before, token)
            return None
        if key:
            self._add_key(key)
        ends = token in (b"}", b"]")
        if depth == 1:
            whole.see(before, token, key, ends=ends)
            if key:
                self._list = self._lists.get(key)
            elif self._list and token == b"{":
                raise BadInput(f"Its {self._list!r} is an object where a list belongs.")
        elif whole.key or not self._lists:
            whole.see(before, token, None, ends=False)
        if inner:
            at_it = depth == inner.depth
            inner.see(before, token, key if at_it else None, ends=ends and at_it)
        elif depth == 2 and self._list and self._open[1] is None:
            self._in_list(self._list, before, token)
        if ends:
            return self._leave(token)
        if not key and token:
            self._enter(token)
        return None

    def end(self) -> Picked:
        """The whole, as far as it was there. Raises NotJson when it was no object."""
        if not (self._open or self._ended):
            raise NotJson("it holds no JSON object")
        return self._whole.picked(cut=bool(self._open))

    def _begin(self, before: bytes, token: bytes) -> None:
        if self._ended and (before.strip(_SPACE) or token):
            raise BadInput("Something follows the JSON object; the file must hold the object alone.")
        if not self._ended and (before.strip(_SPACE) or token not in (b"{", b"")):
            raise NotJson("it holds no JSON object")
        if token:
            self._enter(token)

    def _in_list(self, name: str, before: bytes, token: bytes) -> None:
        """A token that stands in a list whose objects are wanted."""
        if before.strip(_SPACE + b",") or token not in (b"{", b"]", b""):
            raise BadInput(f"Its list {name!r} holds something that is no object.")
        if token == b"{":
            self._inner = _Object(name, 3, self._keys_in[name], hashed=True)

    def _enter(self, token: bytes) -> None:
        self._open.append(set() if token == b"{" else None)
        if len(self._open) > DEPTH_MAX:
            raise BadInput(f"The JSON object is nested deeper than {DEPTH_MAX}.")

    def _leave(self, token: bytes) -> Picked | None:
        keys = self._open.pop()
        if (keys is None) != (token == b"]"):
            raise BadInput("The JSON object is broken: a bracket closes what it did not open.")
        self._ended = not self._open
        inner = self._inner
        if inner and len(self._open) < inner.depth:
            self._inner = None
            return inner.picked(cut=False)
        return None

    def _add_key(self, key: bytes) -> None:
        """Note a key of the innermost object, as it is written in quotes."""
        keys = self._open[-1]
        if keys is None:
            raise BadInput("The JSON object is broken: a list holds a key.")
        name = msgspec.json.encode(read_value(key)) if b"\\" in key else key
        if name in keys:
            raise BadInput(f"An object names the key {name.decode('utf-8', 'backslashreplace'):.100} twice.")
        keys.add(name)


def _tokens(pieces: Iterable[bytes]) -> Iterator[Token]:
    """The tokens as far as they are whole; one without text comes of plain values alone."""
    buffer, at, more = b"", 0, iter(pieces)
    while True:
        match = _TOKEN.match(buffer, at)
        if match:
            yield buffer[at : match.start(1)], match[1], match[2]
            at = match.end()
            continue
        fill = _FILL.match(buffer, at)
        if fill and fill[0]:
            yield fill[0], b"", None
            at = fill.end()
        rest = buffer[at : at + 10]
        if not _UNFINISHED.fullmatch(rest) and not any(literal.startswith(rest) for literal in _LITERALS):
            raise BadInput("The JSON object is broken: what stands in it is no JSON.")
        left, at = buffer[at:], 0
        buffer = left + _next(more, len(left))
        if len(buffer) == len(left):
            if left:
                yield left, b"", None  # a value that was cut
            return


def _next(pieces: Iterator[bytes], size: int) -> bytes:
    """At least so many further bytes, if there are: a text of any length is then looked at a few times only."""
    found, length = [], 0
    for piece in pieces:
        found.append(piece)
        length += len(piece)
        if length > size:
            break
    return b"".join(found)
