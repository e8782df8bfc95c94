"""A JSON document that a person hands in: one object in a file, read into a pydantic form."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ledger.digests import open_regular
from ledger.errors import BadInput, NotFound
from ledger.facts.catalogue import Scalar
from ledger.rules.catalogue import check_parameter

DOCUMENT_BYTES_MAX = 1024 * 1024
FIELD_CHARS_MAX = 200
WHOLE_NUMBER_BITS_MAX = 63
UTF8_BOM = b"\xef\xbb\xbf"

# What pydantic found, as the end of a sentence that starts with the field. Its own words may repeat the value.
_SENTENCES = {
    "missing": "is missing; give it",
    "extra_forbidden": "is no field of this form; correct its name or take it out",
    "string_type": "must be text; write it in double quotes",
    "string_unicode": "holds a lone surrogate; take it out",
    "string_too_short": "is empty; fill it in",
    "bool_type": "must be true or false",
    "float_type": "must be a number, without quotes",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt:,}",
    "less_than_equal": "must be at most {le:,}",
    "list_type": "must be a list, in square brackets",
    "too_short": "is an empty list; it needs at least {min_length:,}",
    "too_long": "is too long a list; {max_length:,} are the most",
    "dict_type": "must be an object, in curly brackets",
    "model_type": "must be an object, in curly brackets",
    "literal_error": "must be {expected}",
}

FormT = TypeVar("FormT", bound="Form")


class Form(BaseModel):
    """A form: no unknown fields, no conversions, and no value in what it says of itself or of an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return []


class RepeatedKey(ValueError):
    """An object in a JSON text has a key twice; which of the two counts would be a guess."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def read_document(path: Path, form: type[FormT], *, noun: str) -> FormT:
    """The one JSON object in a file, as a form. `noun` says what the file is, such as "runner file".

    Raises:
        NotFound: there is no file at `path`.
        BadInput: not an ordinary file, larger than DOCUMENT_BYTES_MAX, not UTF-8, not one JSON object, a key twice in
            one object, or a field that does not fit the form. The sentence names the field and shows no value.
    """
    what = f"The {noun} {path}"
    fields = json_object(_content(path, what), what=what)
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    # Raised out here so that the refusal does not carry pydantic's error, which holds the input, as its context.
    raise BadInput(f"{what} cannot be taken: {_sentence(first)}.")


def json_object(text: bytes, *, what: str) -> dict[str, Any]:
    """A JSON object from its UTF-8 text. Numbers may still be NaN or infinite: the fields' own checks name those.

    Raises:
        BadInput: `what` (the start of the sentence) is not one JSON object in UTF-8, or has a key twice in one object.
    """
    try:
        found = _JSON.decode(text.decode("utf-8"))
    except UnicodeDecodeError:
        trouble = "is not text in UTF-8; save it as UTF-8"
    except json.JSONDecodeError as error:
        trouble = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except RepeatedKey as error:
        trouble = f"has the key {shown_name(error.key)} twice in one object; keep one of them"
    except RecursionError:
        trouble = "is nested too deeply"
    except ValueError:
        trouble = "holds a number of more digits than can be read"
    else:
        if isinstance(found, dict):
            return found
        trouble = "is not a JSON object; write the fields in curly brackets"
    raise BadInput(f"{what} {trouble}.")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values; raises RepeatedKey. For `object_pairs_hook`."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise RepeatedKey(repeated)
    return found


def checked_scalar(name: str, value: object) -> Scalar:
    """A parameter's value as it is, when it is one that a fact can hold: text, a finite number, true or false.

    Raises:
        BadInput: naming the parameter, never showing the value.
    """
    if not isinstance(value, str | int | float | bool):
        raise BadInput(f"The value of {shown_name(name)} must be text, a number, true or false.")
    if isinstance(value, str) and not is_unicode(value):
        raise BadInput(f"The value of {shown_name(name)} holds a lone surrogate; take it out.")
    if isinstance(value, int) and value.bit_length() > WHOLE_NUMBER_BITS_MAX:
        raise BadInput(f"The value of {shown_name(name)} is a whole number beyond 64 bits; write it as text.")
    check_parameter(name, value)
    return value


def is_unicode(text: str) -> bool:
    """Whether a text has a UTF-8 form; JSON can spell lone surrogates, which have none."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def shown_name(name: str) -> str:
    """A name from somebody's file as it may stand in a sentence: quoted, on one line, not too long."""
    return repr(name) if len(name) <= FIELD_CHARS_MAX else repr(name[:FIELD_CHARS_MAX] + "...")


def _content(path: Path, what: str) -> bytes:
    try:
        with open_regular(Path(os.path.realpath(path))) as file:
            text = file.read(DOCUMENT_BYTES_MAX + 1)
    except NotFound:
        raise NotFound(f"{what} is not there; give the path of an existing file.") from None
    if len(text) > DOCUMENT_BYTES_MAX:
        raise BadInput(f"{what} is larger than {DOCUMENT_BYTES_MAX:,} bytes; is it the right file?")
    return text.removeprefix(UTF8_BOM)


def _sentence(found: Mapping[str, Any]) -> str:
    words = _SENTENCES.get(found["type"], "does not have the right form")
    return f"{_field(found['loc'])} {words.format_map(found.get('ctx', {}))}"


def _field(place: Sequence[int | str]) -> str:
    """Where in the document: spec.params.X, parameters[2].name (counted from 0)."""
    if not place:
        return "the name of a field"
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"`{shown_name(text)[1:-1]}`"


# One decoder for all: making one costs as much as reading a short line.
_JSON = json.JSONDecoder(object_pairs_hook=unique_keys)
