"""Times as tools write them: an instant in UTC, or none and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def instant_of(value: Any, flags: set[str]) -> datetime | None:
    """An ISO 8601 text with its offset from UTC as an instant in UTC; None is nothing, and needs no flag.

    A time without an offset is flagged `time-zone-unknown`: it is no instant, and none is guessed. What is no time at
    all is flagged `times-dropped`.
    """
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
        if at.tzinfo is None:
            flags.add("time-zone-unknown")
            return None
        return at.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        flags.add("times-dropped")
        return None
