"""The worker: claims slots that wait and runs them, several at a time, until there are none or it is interrupted.

Three kinds of threads. The one that calls `run` claims, collects what has ended and looks after trials that other
workers left behind; a pool runs the trials; a heartbeat renews leases and notices jobs that were canceled. Killed at
any point, it leaves trials whose leases lapse; the next worker looks after them, and nothing that has ended is run
again.
"""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from api.client import Client
from api.runners.claims import LEFT_BEHIND_MAX, Claims
from api.runners.command import Outcome, run_trial
from api.runners.events import Dispatched, Ended, Event, Interrupted, Reaped, Tally, Waiting
from api.runners.heart import LOOK_ABOUT_S, Every, Heart
from api.runners.offers import Offer, Offers
from api.runners.sandbox import Stop
from ledger.errors import BadInput, EvalLedgerError
from ledger.facts.trial import Slot, TrialFailed
from ledger.rules import trial as rules
from ledger.rules.trial import outcome_of
from projections import trials

PAUSE_S = 0.1
TEMPORARIES_S = 86_400.0  # what a crash left half-written is certainly nobody's any more after a day
JOBS_LOOKED_AT_MAX = 1_000

_INTERRUPTING = (signal.SIGINT, signal.SIGTERM)


class _Running(NamedTuple):
    """A claimed trial on its way."""

    stop: Stop
    future: Future[Outcome | None]


class Worker:
    """Runs trials of `command` jobs. `slots` is how many at a time, `lease_s` how long it may go unheard of, in s.

    `name` is what the facts call it, made unlike any other worker's by a few letters at its end. `on_event` is called
    in the thread that called `run`.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str | None = None,
        slots: int,
        lease_s: float = 60.0,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        if slots < 1 or lease_s <= 0:
            raise BadInput("A worker runs at least one trial at a time, under leases of more than 0 seconds.")
        self.client = client
        self.slots = slots
        self.name = f"{(name or socket.gethostname())[:180]}-{secrets.token_hex(3)}"
        self.tally = Tally()
        self._lease_s = lease_s
        self._tell: Callable[[Event], None] = on_event or (lambda _event: None)
        self._claims = Claims(client, self.name, lease_s)
        self._running: dict[Slot, _Running] = {}
        self._unfinished: set[str] = set()  # jobs that may have ended with what was seen last
        self._heart = Heart(self._claims, lease_s)
        self._interruptions = 0
        self._trouble: Exception | None = None
        self._reap_due = Every(lease_s / 3)
        self._others_due = Every(LOOK_ABOUT_S)

    def run(self, job_id: str | None = None, *, forever: bool = False) -> Tally:
        """Run what waits, of one job or of all, and say what was done; call it once.

        With a `job_id` it also waits for trials of the job that other workers run, so the job has ended afterwards
        unless it was interrupted. Without one it ends when nothing waits that can be run here, or, `forever`, only
        when interrupted. In the main thread, SIGINT and SIGTERM interrupt.

        Raises:
            Refused, DamagedStore: the job cannot be run on this machine; none of its slots was used up.
            StoreError, OSError: the store, or the place for trials' folders, failed; what still ran was let finish.
        """
        offers = Offers(self.client, job_id, concurrency=self.slots, on_skipped=self._tell)
        with self._interruptible(), self._heart.beating(), ThreadPoolExecutor(self.slots) as pool:
            try:
                self._unfinished = {job_id} if job_id else self._jobs_running()
                while self._go_on(pool, offers, job_id, forever):
                    self._pause()
            finally:
                for running in self._running.values():  # none, unless something unforeseen was raised
                    running.stop.ask("worker failed")
        if self._trouble:
            raise self._trouble
        for ended_in in self._unfinished:
            self.client.finish_job(ended_in)
        self.client.artifacts.sweep(before=time.time() - TEMPORARIES_S)
        return self.tally

    def interrupt(self) -> None:
        """Claim nothing more and let running trials finish; called again, stop them. For any thread, and signals."""
        self._interruptions += 1

    def reap(self) -> None:
        """Look after trials that other workers left behind; see `Claims.reap`."""
        for slot, became in self._claims.reap(self._running):
            self._unfinished.add(slot.job_id)
            if became == "failed":
                self.tally.reaped_failed += 1
            else:
                self.tally.reaped_released += 1
            self._tell(Reaped(slot, became))

    # --- the thread that called run ------------------------------------------------------------------------------

    def _go_on(self, pool: ThreadPoolExecutor, offers: Offers, job_id: str | None, forever: bool) -> bool:
        """One round; whether there is another."""
        self._collect()
        self._heed_interruptions()
        if self._interruptions or self._trouble:
            return bool(self._running)
        try:
            if self._reap_due():
                self.reap()
            for canceled in tuple(self._heart.canceled):
                offers.drop(canceled)
            while len(self._running) < self.slots and not self._interruptions and (offer := offers.take()):
                self._claim(pool, offer)
            self._finish(offers)
            return bool(self._running or forever or not offers.drained or (job_id and self._others_at_work(job_id)))
        except (EvalLedgerError, OSError) as error:
            self._trouble = error
            return True

    def _claim(self, pool: ThreadPoolExecutor, offer: Offer) -> None:
        if not self._claims.take(offer.slot, offer.task):
            return
        stop = Stop()
        self._heart.watch(offer.slot, stop)
        self._running[offer.slot] = _Running(stop, pool.submit(self._run_one, offer, stop))
        self._tell(Dispatched(offer.slot))

    def _collect(self) -> None:
        for slot, running in list(self._running.items()):
            if not running.future.done():
                continue
            del self._running[slot]
            self._heart.leave(slot)
            self._unfinished.add(slot.job_id)
            error = running.future.exception()
            if isinstance(error, Exception):
                self._trouble = self._trouble or error
                self._count(Ended(slot, "failed", None, type(error).__name__))
            elif outcome := running.future.result():
                ended = outcome.ended
                error_type = ended.error_type if isinstance(ended, TrialFailed) else None
                self._count(Ended(slot, outcome_of(ended), outcome.reward, error_type))
            else:
                self.tally.lost += 1

    def _count(self, ended: Ended) -> None:
        match ended.outcome:
            case "succeeded":
                self.tally.succeeded += 1
            case "failed":
                self.tally.failed += 1
            case "canceled":
                self.tally.canceled += 1
        self._tell(ended)

    def _heed_interruptions(self) -> None:
        if self._interruptions and not self.tally.interrupted:
            self.tally.interrupted = True
            self._tell(Interrupted(len(self._running)))
        if self._interruptions > 1:
            for running in self._running.values():
                running.stop.ask("interrupted")

    def _finish(self, offers: Offers) -> None:
        """End the jobs that have nothing left to run; those with open slots are not even asked about."""
        at_work = {slot.job_id for slot in self._running}
        for job_id in self._unfinished - at_work - offers.waiting:
            self._unfinished.discard(job_id)
            self.client.finish_job(job_id)

    def _others_at_work(self, job_id: str) -> bool:
        """Whether other workers run trials of the job; when they have ended it is looked again."""
        if not self._others_due():
            return True
        rows = self.client.ask(partial(trials.running, project_id=self.client.project, limit=LEFT_BEHIND_MAX))
        elsewhere = sum(row.job_id == job_id for row in rows)
        if elsewhere:
            self._unfinished.add(job_id)
            self._tell(Waiting(elsewhere))
        return elsewhere > 0

    def _jobs_running(self) -> set[str]:
        """Jobs that a worker may have brought to their end without living to say so."""
        return {job.id for job in self.client.jobs(status="running", limit=JOBS_LOOKED_AT_MAX).jobs}

    def _pause(self) -> None:
        if self._running:
            wait([running.future for running in self._running.values()], PAUSE_S, FIRST_COMPLETED)
        else:
            time.sleep(PAUSE_S)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # The handler only counts: it may run in the middle of anything, a lock held too.
        before = {number: signal.signal(number, lambda *_: self.interrupt()) for number in _INTERRUPTING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # --- the pool ------------------------------------------------------------------------------------------------

    def _run_one(self, offer: Offer, stop: Stop) -> Outcome | None:
        """Run a claimed trial and record it; None when it was taken from us."""
        plan, slot, task = offer
        if not self._claims.start(slot):
            return None
        try:
            outcome = run_trial(plan, slot, task, self.client.artifacts, stop)
            return outcome if not stop.lost and self._claims.end(slot, outcome.rules) else None
        except Exception as error:
            failed = TrialFailed(type(error).__name__, "unknown")
            with suppress(EvalLedgerError):
                self._claims.end(slot, [partial(rules.end, ended=failed)])
            raise
