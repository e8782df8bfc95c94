"""POSITION or TIME, as people give it, to a position of the log: what was so when the log was that long."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlalchemy.engine import Connection

from ledger.errors import BadInput
from projections.audit_trail import position_after
from projections.following import microseconds

_POSITION = re.compile(r"[0-9]{1,19}")


def position_asked(connection: Connection, project_id: str, asked: int | str, *, reached: int) -> int:
    """The position that is asked for: itself, or the last one before the log went beyond a time (0 before the first).

    Times are RFC 3339, in UTC where they name no zone; a date alone is its first moment. `reached` is how far the log
    is known here.

    Raises:
        BadInput: it is neither a position nor a time, or lies beyond `reached`.
    """
    text = str(asked).strip()
    if _POSITION.fullmatch(text):
        if int(text) > reached:
            raise BadInput(f"The log ends at position {reached:,}, so nothing can be said of {int(text):,}.")
        return int(text)
    beyond = position_after(connection, project_id, microseconds(instant_asked(text)))
    return reached if beyond is None else min(beyond - 1, reached)


def instant_asked(text: str) -> datetime:
    """A time as people write it. Raises BadInput."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"{text[:80]!r} is neither a position nor a time; write a number, or a time such as 2026-07-01T12:00:00Z."
        ) from error
