"""The worker: claims slots that wait and runs them, several at a time, until there are none or it is interrupted.

Three kinds of threads. The one that calls `run` claims, collects what has ended and looks after trials that other
workers left behind; a pool runs the trials; a heartbeat renews leases and notices jobs that were canceled. Killed at
any point, it leaves trials whose leases lapse; the next worker looks after them, and nothing that has ended is run
again. It works through whichever door: on the store itself, or over HTTP from anywhere.
"""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import NamedTuple

from api.answers import Claim, LeftBehind
from api.el import El
from api.runners.claims import Claims
from api.runners.command import Outcome, run_trial
from api.runners.events import Away, Dispatched, Ended, Event, Interrupted, Ready, Reaped, Tally, Waiting
from api.runners.guard import Guard
from api.runners.heart import Every, Heart
from api.runners.offers import Offer, Offers
from api.runners.patience import Patience
from api.runners.sandbox import Stop
from api.runners.sources import Source
from ledger.errors import BadInput, EvalLedgerError, ServerAway
from ledger.facts.catalogue import Task
from ledger.facts.trial import Slot, TrialFailed
from ledger.rules.trial import outcome_of

PAUSE_S = 0.1
LOOK_ABOUT_S = 1.0

_INTERRUPTING = (signal.SIGINT, signal.SIGTERM)


class _Running(NamedTuple):
    """A claimed trial on its way."""

    claim: Claim
    stop: Stop
    future: Future[Outcome | None]


class Worker:
    """Runs trials of `command` jobs. `slots` is how many at a time, `lease_s` how long it may go unheard of, in s.

    `name` is what the facts call it, made unlike any other worker's by a few letters at its end. `files` says where
    datasets lie on this machine, before what it remembers of them. `on_event` is called in the thread that called
    `run`.
    """

    def __init__(
        self,
        el: El,
        *,
        name: str | None = None,
        slots: int,
        lease_s: float = 60.0,
        files: Mapping[str, Source] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        if slots < 1 or lease_s <= 0:
            raise BadInput("A worker runs at least one trial at a time, under leases of more than 0 seconds.")
        self.el = el
        self.slots = slots
        self.name = f"{(name or socket.gethostname())[:180]}-{secrets.token_hex(3)}"
        self.tally = Tally()
        self._lease_s = lease_s
        self._files = files or {}
        self._tell: Callable[[Event], None] = on_event or (lambda _event: None)
        self._patience = Patience(lease_s)
        self._claims = Claims(el, self.name, lease_s, self._patience)
        self._running: dict[Slot, _Running] = {}
        self._heart = Heart(self._claims)
        self._interruptions = 0
        self._trouble: Exception | None = None
        self._told_away = False
        self._told_ready = False
        self._look_about_due = Every(lease_s / 3)
        self._others_due = Every(LOOK_ABOUT_S)

    def run(self, job_id: str | None = None, *, forever: bool = False) -> Tally:
        """Run what waits, of one job or of all, and say what was done; call it once.

        With a `job_id` it also waits for trials of the job that other workers run, so the job has ended afterwards
        unless it was interrupted. Without one it ends when nothing waits that can be run here, or, `forever`, only
        when interrupted. In the main thread, SIGINT and SIGTERM interrupt.

        Raises:
            Refused, DamagedStore: the job cannot be run on this machine; none of its slots was used up.
            StoreError, OSError: the store, or the place for trials' folders, failed; what still ran was let finish.
            ServerAway: the server did not answer for as long as a lease lasts.
        """
        offers = Offers(self.el, self._claims, job_id, self._files, on_skipped=self._tell, on_left_behind=self._reaped)
        self._guard = Guard()
        try:
            with self._interruptible(), self._heart.beating(), ThreadPoolExecutor(self.slots) as pool:
                try:
                    while self._go_on(pool, offers, job_id, forever):
                        self._pause()
                finally:
                    for running in self._running.values():  # none, unless something unforeseen was raised
                        running.stop.ask("worker failed")
        finally:
            self._guard.close()
        if self._trouble:
            raise self._trouble
        self._reaped(self._patience(self._claims.look_about))
        return self.tally

    def interrupt(self) -> None:
        """Claim nothing more and let running trials finish; called again, stop them. For any thread, and signals."""
        self._interruptions += 1

    # --- the thread that called run ------------------------------------------------------------------------------

    def _go_on(self, pool: ThreadPoolExecutor, offers: Offers, job_id: str | None, forever: bool) -> bool:
        """One round; whether there is another."""
        self._collect()
        self._heed_interruptions()
        if self._interruptions or self._trouble:
            return bool(self._running)
        try:
            self._heart.catch_up()
            if self._look_about_due():
                self._reaped(self._claims.look_about())
            for canceled in tuple(self._heart.canceled):
                offers.drop(canceled)
            self._fill(pool, offers)
            more = bool(self._running or forever or not offers.drained or (job_id and self._others_at_work(job_id)))
            more = more or offers.look_again()  # those who were at work may have left something since the last look
        except ServerAway as error:
            self._away(error, forever)
            return True
        except (EvalLedgerError, OSError) as error:
            self._trouble = error
            return True
        self._patience.answered()
        self._told_away = False
        if forever and not self._told_ready:
            self._told_ready = True
            self._tell(Ready())
        return more

    def _fill(self, pool: ThreadPoolExecutor, offers: Offers) -> None:
        """Claim as long as there is room, and something to claim."""
        while (room := self.slots - len(self._running)) and not self._interruptions and (some := offers.take(room)):
            for offer in some:
                stop = Stop()
                self._heart.watch(offer.claim, stop)
                slot = slot_of_claim(offer.claim)
                self._running[slot] = _Running(offer.claim, stop, pool.submit(self._run_one, offer, stop))
                self._tell(Dispatched(slot))

    def _away(self, error: ServerAway, forever: bool) -> None:
        """The server does not answer: say so once, and give up when it has been away for too long."""
        if self._patience.ran_out(error) and not forever:
            self._trouble = error
        elif not self._told_away:
            self._told_away = True
            self._tell(Away(str(error), None if forever else self._lease_s))

    def _reaped(self, left_behind: Sequence[LeftBehind]) -> None:
        for one in left_behind:
            if one.became == "failed":
                self.tally.reaped_failed += 1
            else:
                self.tally.reaped_released += 1
            self._tell(Reaped(Slot(one.job_id, one.attempt, one.task), one.became))

    def _collect(self) -> None:
        for slot, running in list(self._running.items()):
            if not running.future.done():
                continue
            del self._running[slot]
            self._heart.leave(running.claim)
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

    def _others_at_work(self, job_id: str) -> bool:
        """Whether other workers run trials of the job; when they have ended it is looked again."""
        if not self._others_due():
            return True
        elsewhere = self.el.work(job_id).at_work.get(job_id, 0)
        if elsewhere:
            self._tell(Waiting(elsewhere))
        return elsewhere > 0

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
        """Run a claimed trial and report it; None when it was taken from us."""
        plan, claim = offer
        if not self._claims.start(claim):
            return None
        try:
            outcome = run_trial(
                plan,
                slot_of_claim(claim),
                Task(claim.task, claim.task_digest),
                self.el.artifacts,
                stop,
                guard=self._guard,
                patience=self._patience,
            )
            if stop.lost and outcome.reward is None:
                return None
            # With a reward it is reported all the same: what comes too late is refused, and kept as evidence.
            return outcome if self._claims.end(claim, outcome.facts) else None
        except Exception as error:
            with suppress(EvalLedgerError):
                self._claims.end(claim, [TrialFailed(type(error).__name__, "unknown")])
            raise


def slot_of_claim(claim: Claim) -> Slot:
    """The slot that a claim is on."""
    return Slot(claim.job_id, claim.attempt, claim.task)
