"""Patience with a server that does not answer: what was asked is asked again, for as long as it can still count."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ledger.errors import ServerAway

T = TypeVar("T")

PAUSE_S = 0.5
PAUSE_S_MAX = 10.0


class Patience:
    """Asks again while the server is away, until it has been away for `seconds` without a break; any thread may ask.

    Longer than a lease there is no use: the trial has been given up for dead by then. `trouble` is what was last heard
    of a server that is away now.
    """

    def __init__(self, seconds: float) -> None:
        self.trouble: ServerAway | None = None
        self._seconds = seconds
        self._away_since = 0.0

    def __call__(self, ask: Callable[[], T]) -> T:
        """What `ask` answers. Raises ServerAway once patience has run out, and at once whatever else it raises."""
        pause_s = PAUSE_S
        while True:
            try:
                answer = ask()
            except ServerAway as error:
                if self.ran_out(error):
                    raise
                time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - so that workers do not all ask at once
                pause_s = min(2 * pause_s, PAUSE_S_MAX, self._seconds / 4)
            else:
                self.answered()
                return answer

    def ran_out(self, error: ServerAway) -> bool:
        """Note that the server is away; whether it has been for too long."""
        now = time.monotonic()
        if self.trouble is None:
            self._away_since = now
        self.trouble = error
        return now - self._away_since >= self._seconds

    def answered(self) -> None:
        """Note that the server answers."""
        self.trouble = None
