"""The forms that names, references and numbers must have before a rule looks at them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping

from ledger.errors import BadInput

NAME_CHARS_MAX = 200
TASK_NAME_CHARS_MAX = 512
REASON_CHARS_MAX = 500
SHORT_TEXT_CHARS_MAX = 4_000

_PART = r"\w[\w.+-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})?")
_VERSION = re.compile(_PART)
_SHA256 = re.compile(r"[0-9a-f]{64}")


def checked_ref(ref: str) -> str:
    """`ref` as it is, when it is `name@version`; the name may hold one slash (`team/eval@1`)."""
    name, at, version = ref.rpartition("@")
    fits = len(ref) <= NAME_CHARS_MAX and at and _NAME.fullmatch(name) and _VERSION.fullmatch(version)
    if not fits:
        raise BadInput(
            f"{ref[:NAME_CHARS_MAX]!r} is no reference; write NAME@VERSION, such as arith@1 or team/eval@1 "
            f"(letters, digits, '.', '_', '+', '-'; one '/' in the name; {NAME_CHARS_MAX} characters at most)."
        )
    return ref


def checked_text(text: str, *, what: str, chars_max: int, empty: bool = False) -> str:
    """`text` as it is, when it is Unicode on one line, not empty (unless allowed) and not too long."""
    if not text and not empty:
        raise BadInput(f"The {what} is empty; give one.")
    if len(text) > chars_max:
        raise BadInput(f"The {what} has {len(text):,} characters; {chars_max:,} are the most.")
    if not text.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in text):
        raise BadInput(f"The {what} {text!r:.200} holds a control character or a lone surrogate; take it out.")
    return text


def checked_task_name(name: str) -> str:
    """A task's name as it is: any Unicode text of 1 to 512 characters without control characters."""
    return checked_text(name, what="task name", chars_max=TASK_NAME_CHARS_MAX)


def checked_reason(reason: str, *, empty: bool = False) -> str:
    """A reason that a person gives: one line of at most 500 characters."""
    return checked_text(reason, what="reason", chars_max=REASON_CHARS_MAX, empty=empty)


def checked_number(number: float, *, what: str) -> float:
    """A number as a float, when it is finite and no truth value."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise BadInput(f"The {what} is no number; send a finite number, or report that there is none.")
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise BadInput(f"The {what} is not finite; send a finite number, or report that there is none.")
    return value


def checked_whole(number: int, *, what: str, least: int, most: int) -> int:
    """A whole number as it is, when it lies within bounds that every store can keep."""
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise BadInput(f"The {what} is not a whole number from {least:,} to {most:,}.")
    return number


def same_values(had: Mapping[str, object], has: Mapping[str, object]) -> bool:
    """Whether two sets of named values are the same; to Python 1, 1.0 and True are equal, to a runner they are not."""
    return had == has and all(type(had[name]) is type(has[name]) for name in had)


def checked_sha256(digest: str) -> str:
    """A sha256 in 64 lower-case hexadecimal digits."""
    if not _SHA256.fullmatch(digest):
        raise BadInput(f"{digest[:80]!r} is no sha256; write 64 lower-case hexadecimal digits.")
    return digest
