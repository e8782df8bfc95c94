"""A worker's heartbeat: it keeps the leases of running trials, and stops trials that have no reason to go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.engine import Connection

from api.runners.claims import Claims
from api.runners.sandbox import Stop
from ledger.errors import StoreError
from ledger.facts.trial import Slot
from projections import jobs

LOOK_ABOUT_S = 1.0


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
    """Renews leases every `lease_s` / 3 seconds, and looks every LOOK_ABOUT_S for jobs that were canceled."""

    def __init__(self, claims: Claims, lease_s: float) -> None:
        self.canceled: frozenset[str] = frozenset()  # jobs that were seen to be
        self._claims = claims
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._watched: dict[Slot, Stop] = {}
        self._over = threading.Event()

    def watch(self, slot: Slot, stop: Stop) -> None:
        """Look after a claimed trial."""
        with self._lock:
            self._watched[slot] = stop

    def leave(self, slot: Slot) -> None:
        """The trial has ended."""
        with self._lock:
            del self._watched[slot]

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat in a thread of its own until the block ends."""
        thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _beat(self) -> None:
        renew_due, look_due = Every(self._lease_s / 3), Every(LOOK_ABOUT_S)
        while not self._over.wait(min(LOOK_ABOUT_S, self._lease_s / 3)):
            with self._lock:
                watched = dict(self._watched)
            with suppress(StoreError):  # the next beat tries again, and whoever records says it
                if renew_due():
                    for slot in self._claims.renew(watched):
                        watched[slot].lose()
                if watched and look_due():
                    self._stop_canceled(watched)

    def _stop_canceled(self, watched: dict[Slot, Stop]) -> None:
        self.canceled |= self._canceled_of({slot.job_id for slot in watched})
        for slot, stop in watched.items():
            if slot.job_id in self.canceled:
                stop.ask("job canceled")

    def _canceled_of(self, job_ids: Collection[str]) -> set[str]:
        client = self._claims.client

        def canceled(connection: Connection) -> set[str]:
            found = (jobs.get_job(connection, client.project, job_id) for job_id in job_ids)
            return {job.job_id for job in found if job.status == "canceled"}

        return client.ask(canceled)
