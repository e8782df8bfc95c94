"""The declared result file of a trial: `{"composite": number, "dimensions": {name: number}, "judge": text}`."""

from __future__ import annotations

import json
import math
from typing import Literal

import msgspec

from api.forms.document import RepeatedKey, unique_keys
from api.runners.rewards import is_dimension_name
from ledger.rules.trial import DIMENSIONS_MAX

RESULT_BYTES_MAX = 1024 * 1024
# Leaves room in an entry of 65,535 bytes for the envelope.
DIMENSIONS_JSON_BYTES_MAX = 60_000


class StructuredResult(msgspec.Struct, frozen=True):
    """What the file says. `judge` is free text, for an artifact."""

    composite: float | None = None
    dimensions: dict[str, float] | None = None
    judge: str | None = None


Why = Literal["not-json", "wrong-shape", "too-large"]


def read_structured_result(data: bytes) -> StructuredResult | Why:
    """The structured result in a file's bytes, or why it cannot be used.

    At least one of the three fields is there; others are passed over, they stay readable in the file's artifact.
    """
    if len(data) > RESULT_BYTES_MAX:
        return "too-large"
    try:
        text = data.decode("utf-8-sig")
        fields = json.loads(text, parse_int=float, parse_constant=_refuse, object_pairs_hook=unique_keys)
        result = msgspec.convert(fields, StructuredResult)
    except (RepeatedKey, msgspec.ValidationError):
        return "wrong-shape"
    except (ValueError, RecursionError):
        return "not-json"
    named = result.dimensions or {}
    numbers = [*named.values(), *([] if result.composite is None else [result.composite])]
    if not fields.keys() & set(StructuredResult.__struct_fields__) or not all(map(is_dimension_name, named)):
        return "wrong-shape"
    return result if all(map(math.isfinite, numbers)) and fits(named) else "wrong-shape"


def fits(dimensions: dict[str, float]) -> bool:
    """Whether one fact can hold so many dimensions."""
    return len(dimensions) <= DIMENSIONS_MAX and len(msgspec.json.encode(dimensions)) <= DIMENSIONS_JSON_BYTES_MAX


def _refuse(constant: str) -> float:
    raise ValueError(constant)
