"""Parameters that several routes take in their path or query, each with its bounds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from api.http.problems import BadRequest
from ledger.rules.forms import NAME_CHARS_MAX, TASK_NAME_CHARS_MAX

INT64_MAX = 2**63 - 1

Limit = Annotated[int, Query(ge=1, le=1_000, description="How many rows at the most.")]
WideLimit = Annotated[int, Query(ge=1, le=10_000, description="How many rows at the most.")]
AfterPosition = Annotated[int, Query(ge=0, le=INT64_MAX, description="Only after this position.")]
BeforePosition = Annotated[int | None, Query(ge=0, le=INT64_MAX, description="Only before this position.")]
AfterOrdinal = Annotated[int, Query(ge=-1, le=INT64_MAX, description="Only after this ordinal, counted from 0.")]
AfterRef = Annotated[str, Query(max_length=NAME_CHARS_MAX, description="Only after this revision, by name.")]
LeftOut = Annotated[int, Query(ge=0, le=INT64_MAX, description="Leave out so many members first.")]
AsOfQ = Annotated[
    str | None, Query(min_length=1, max_length=40, description="As it was at this position, or time (RFC 3339).")
]
RefQ = Annotated[str | None, Query(min_length=1, max_length=NAME_CHARS_MAX, examples=["arith@1"])]
TextQ = Annotated[str | None, Query(min_length=1, max_length=TASK_NAME_CHARS_MAX)]

Name = Annotated[str, Path(max_length=NAME_CHARS_MAX, description="It may hold one slash.", examples=["team/eval"])]
Version = Annotated[str, Path(max_length=NAME_CHARS_MAX, examples=["1"])]
JobPath = Annotated[
    str, Path(max_length=36, description="A job's id, or a beginning of it of four characters or more.")
]
TrialPath = Annotated[
    str, Path(max_length=36, description="A trial's id, or a beginning of it of four characters or more.")
]
Sha256Path = Annotated[str, Path(max_length=64, description="64 digits and letters from 0-9 and a-f.")]


def tags_of(pairs: list[str]) -> dict[str, str]:
    """`k=v` texts as names and values.

    Raises:
        BadRequest: one is no such pair, or a name is there with two values.
    """
    tags: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals or tags.setdefault(name, value) != value:
            raise BadRequest(400, "A `tag` is written NAME=VALUE, each name with one value.")
    return tags
