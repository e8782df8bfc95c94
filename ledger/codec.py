"""Facts to bytes and back, by tag. Old shapes are raised to new ones here.

The bytes of an entry are what is hashed: they are written once and never re-encoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, get_args

import msgspec

from ledger.errors import BadInput, DamagedStore, UnknownFact
from ledger.facts.entry import AnyFact, Entry, Recorded
from ledger.facts.fact import Fact

ENTRY_BYTES_MAX = 65_535

TAGS: dict[type[Fact], str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyFact)}

# The shape version of a tag that has moved on from 1, and the steps that raise a fact's fields by one version.
SCHEMAS: dict[str, int] = {}
RAISE: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}


class Row(NamedTuple):
    """An entry as stored: where it stands, its tag, and the exact bytes that are hashed."""

    stream: str
    version: int
    tag: str
    body: bytes


class _Envelope(msgspec.Struct, frozen=True):
    """An entry of which only the fact is of interest, as the bytes it stands in."""

    fact: msgspec.Raw
    schema: int = 1


_encoder = msgspec.json.Encoder()
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def encode(entries: Iterable[Entry]) -> list[Row]:
    """Turn entries into rows.

    Raises:
        BadInput: a number is NaN or infinite, a text is not Unicode, a stream or an actor holds a NUL, or an entry is
            over 65,535 bytes.
    """
    entries = list(entries)
    encode_one, tags, new = _encoder.encode, TAGS, tuple.__new__
    try:
        bodies = [encode_one(entry) for entry in entries]
    except UnicodeEncodeError as error:
        raise BadInput("A text holds a lone surrogate and cannot be stored; send valid Unicode.") from error
    # The plain constructor of a tuple: a named tuple's own costs as much as the encoding.
    rows = [new(Row, (e.stream, e.version, tags[type(e.fact)], body)) for e, body in zip(entries, bodies, strict=True)]
    # NaN and infinity come out as null without a word, and an entry with them could not be read again. One search
    # through all bodies tells that there is nothing to look at more closely, which is nearly always so.
    joined = b"".join(bodies)
    if b"null" in joined or b"\\u0000" in joined or max(map(len, bodies), default=0) > ENTRY_BYTES_MAX:
        for row, entry in zip(rows, entries, strict=True):
            _refuse_unreadable(row, entry)
    return rows


def _refuse_unreadable(row: Row, entry: Entry) -> None:
    if not _is_finite(msgspec.to_builtins(entry.fact)):
        raise BadInput(f"A {row.tag} fact on {row.stream[:200]} holds NaN or infinity; only finite numbers are kept.")
    if "\0" in entry.stream or "\0" in entry.actor:
        raise BadInput("The name of a stream or of an actor holds a NUL character; take it out.")
    if len(row.body) > ENTRY_BYTES_MAX:
        raise BadInput(
            f"A {row.tag} fact on {row.stream[:200]} takes {len(row.body):,} bytes; "
            f"an entry holds at most {ENTRY_BYTES_MAX:,}. Send less at once, or keep long content as an artifact."
        )


def schema_of(fact: AnyFact) -> int:
    """The version of a fact's shape as this version of EvalLedger writes it."""
    return SCHEMAS.get(TAGS[type(fact)], 1) if SCHEMAS else 1


def decode(position: int, body: bytes) -> Recorded:
    """Read one stored entry.

    Raises:
        UnknownFact: the tag or its shape is not one this version can read; names position and tag.
        DamagedStore: the bytes are no entry at all.
    """
    try:
        entry = _decode_entry(body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
        return Recorded(position, _raise_shape(position, body))
    if entry.schema != schema_of(entry.fact):
        return Recorded(position, _raise_shape(position, body))
    return Recorded(position, entry)


def decode_each(rows: Iterable[tuple[int, bytes]]) -> Iterator[Recorded]:
    """Read many stored entries, given as (position, body), one at a time."""
    decode_one, new, moved_on = _decode_entry, tuple.__new__, bool(SCHEMAS)
    for position, body in rows:
        try:
            entry = decode_one(body)
        except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
            yield decode(position, body)  # says what is wrong, or raises an older shape
            continue
        if moved_on or entry.schema != 1:
            yield decode(position, body)
        else:
            yield new(Recorded, (position, entry))


def decode_all(rows: Iterable[tuple[int, bytes]]) -> list[Recorded]:
    """Read many stored entries, given as (position, body)."""
    return list(decode_each(rows))


def fact_bytes(body: bytes) -> bytes:
    """The bytes of the fact inside an entry: what a repeat is recognised by, whatever the envelope's time."""
    return bytes(_decode_envelope(body).fact)


def _raise_shape(position: int, body: bytes) -> Entry:
    """Read an entry whose fact has an older shape, step by step; refuse what no step leads from."""
    try:
        fields = msgspec.json.decode(body)
        tag, schema = str(fields["fact"]["fact"]), int(fields.get("schema", 1))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise DamagedStore(
            f"Entry {position} is not an entry: its bytes were changed or cut. Restore the store from a backup."
        ) from error
    while (step := RAISE.get((tag, schema))) is not None:
        fields["fact"], schema = step(fields["fact"]), schema + 1
    fields["schema"] = schema
    try:
        if schema != SCHEMAS.get(tag, 1):
            raise msgspec.ValidationError(f"shape {schema}")
        return msgspec.convert(fields, Entry)
    except msgspec.ValidationError as error:
        raise UnknownFact(
            f"Entry {position} holds a fact {tag!r} (shape {schema}) that this version cannot read ({error}); "
            "use the version of EvalLedger that wrote it, or a newer one."
        ) from error


def _is_finite(value: object) -> bool:
    """Whether no number anywhere in a fact, given as plain values, is NaN or infinite."""
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(_is_finite(part) for part in value.values())
        case list() | tuple():
            return all(_is_finite(part) for part in value)
        case _:
            return True
