"""A worker's heartbeat: it keeps the leases of running trials, and stops trials that have no reason to go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from api.answers import Claim
from api.runners.claims import Claims
from api.runners.sandbox import Stop
from ledger.errors import EvalLedgerError, ServerAway

BEAT_S_MAX = 2.0  # so soon a job that was canceled is noticed


class Every:
    """Says yes at most once in so many seconds; the first time at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class Heart:
    """Gives a sign of life for each running trial, three times a lease or more often."""

    def __init__(self, claims: Claims) -> None:
        self.canceled: frozenset[str] = frozenset()  # jobs that were seen to be
        self._claims = claims
        self._pause_s = min(BEAT_S_MAX, claims.lease_s / 3)
        self._lock = threading.Lock()
        self._watched: dict[str, tuple[Claim, Stop]] = {}
        self._beaten_at = time.monotonic()
        self._over = threading.Event()

    def watch(self, claim: Claim, stop: Stop) -> None:
        """Look after a claimed trial."""
        with self._lock:
            self._watched[claim.trial_id] = (claim, stop)

    def leave(self, claim: Claim) -> None:
        """The trial has ended."""
        with self._lock:
            del self._watched[claim.trial_id]

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat in a thread of its own until the block ends."""
        thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def catch_up(self) -> None:
        """Beat now when that is overdue, as after this process was suspended: before we count as dead to ourselves."""
        if time.monotonic() - self._beaten_at > self._claims.lease_s * 2 / 3:
            self.beat()

    def beat(self) -> None:
        """Give a sign of life for each trial; stop those that were taken from us or whose job was canceled."""
        with self._lock:
            watched = list(self._watched.values())
        self._beaten_at = time.monotonic()
        for claim, stop in watched:
            try:
                beat = self._claims.beat(claim)
            except ServerAway:
                return  # the next beat tries again, and whoever reports says it
            except EvalLedgerError:
                continue
            if not beat.held:
                stop.lose()
            elif beat.canceled:
                self.canceled |= {claim.job_id}
                stop.ask("job canceled")

    def _beat_on(self) -> None:
        while not self._over.wait(self._pause_s):
            self.beat()
