"""A worker's claims: slots it dispatched to itself under a lease. The trial's stream decides who has a slot.

Nothing here trusts a lease or a read model: they only say where to look. A claim, a start and an end are rules on the
trial's stream, so of any number of workers, of a worker that was given up for dead, and of the one that gave it up,
exactly one is recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Literal

from sqlalchemy.engine import Connection

from api.client import Client
from ledger import leases
from ledger.application import Rule
from ledger.database import reading, writing
from ledger.errors import NotAllowed
from ledger.facts.catalogue import Task
from ledger.facts.trial import Slot, TrialDispatched, TrialFact, TrialFailed, trial_id_for, trial_stream
from ledger.rules import trial as rules
from ledger.rules.trial import Trial
from projections import trials

LEFT_BEHIND_MAX = 10_000

Lapsed = Literal["released", "failed"]


class NoLongerOurs(NotAllowed):
    """The trial was taken from this worker: its lease had lapsed."""


class Claims:
    """The claims of one worker. `worker` must be unlike any other's, a restarted one's too."""

    def __init__(self, client: Client, worker: str, lease_s: float) -> None:
        self.client = client
        self.ledger = client.ledger
        self.worker = worker
        self.lease = timedelta(seconds=lease_s)

    def take(self, slot: Slot, task: Task) -> bool:
        """Dispatch a slot to this worker; False when somebody else has it."""
        stream = _stream(slot)
        trial_id = trial_id_for(slot.job_id, slot.task, slot.attempt)
        fact = TrialDispatched(trial_id, slot.job_id, slot.task, task.digest, slot.attempt, self.worker)

        def lease(connection: Connection) -> None:
            until = self.ledger.clock() + self.lease
            leases.take(connection, self.client.project, stream, worker=self.worker, until=until)

        try:
            return bool(self.ledger.record(stream, partial(rules.dispatch, dispatched=fact), also=lease).facts)
        except NotAllowed:
            return False

    def start(self, slot: Slot) -> bool:
        """Record that execution begins; False when the slot was taken from us."""
        try:
            return bool(self.ledger.record(_stream(slot), self._still_ours, rules.start).facts)
        except NoLongerOurs:
            return False

    def end(self, slot: Slot, outcome: Sequence[Rule]) -> bool:
        """Record all that came of a trial, its end included, and give up the lease, in one transaction.

        False, and nothing is recorded, when the trial was taken from us.
        """
        try:
            self.ledger.record(_stream(slot), self._still_ours, *outcome, also=self._give_up(slot))
        except NoLongerOurs:
            return False
        return True

    def renew(self, slots: Collection[Slot]) -> list[Slot]:
        """Extend the leases of running trials; those that are no longer ours."""
        if not slots:
            return []
        until = self.ledger.clock() + self.lease
        project = self.client.project
        with writing(self.ledger.engine) as connection:
            return [
                slot
                for slot in slots
                if not leases.renew(connection, project, _stream(slot), worker=self.worker, until=until)
            ]

    def reap(self, own: Collection[Slot]) -> list[tuple[Slot, Lapsed]]:
        """Look after trials of workers that were not heard of in time, except our `own`.

        One that never started is released; one that started has failed, in whatever it was doing.
        """
        rows = self.client.ask(partial(trials.running, project_id=self.client.project, limit=LEFT_BEHIND_MAX))
        if not rows:
            return []
        # Read after the rows: a trial dispatched before them had its lease by then.
        with reading(self.ledger.engine) as connection:
            held = leases.held(connection, self.client.project, now=self.ledger.clock())
        found: list[tuple[Slot, Lapsed]] = []
        for row in rows:
            slot = Slot(row.job_id, row.attempt, row.task)
            if slot in own or _stream(slot) in held:
                continue
            rule = partial(lapse, worker=row.worker, started=row.started_us is not None)
            if self.ledger.record(_stream(slot), rule, also=self._give_up(slot)).facts:
                found.append((slot, "failed" if row.started_us is not None else "released"))
        return found

    def _give_up(self, slot: Slot) -> partial[None]:
        return partial(leases.give_up, project_id=self.client.project, stream=_stream(slot))

    def _still_ours(self, state: Trial | None) -> list[TrialFact]:
        """A rule that records nothing, and refuses when another worker has, or has ended, the trial."""
        if state is None or state.dispatched is None or state.dispatched.worker != self.worker or state.ended:
            raise NoLongerOurs("The trial was taken from this worker because its lease had lapsed.")
        return []


def lapse(state: Trial | None, *, worker: str | None, started: bool) -> list[TrialFact]:
    """The rule for a trial whose worker was not heard of in time, as it was last seen.

    Nothing when it has moved on since: then somebody is at work on it.
    """
    if state is None or state.dispatched is None or state.ended or state.dispatched.worker != worker:
        return []
    if state.started != started:
        return []
    if started:
        return rules.end(state, ended=TrialFailed("LeaseLapsed", "agent"))
    return rules.release(state, reason="lease lapsed")


def _stream(slot: Slot) -> str:
    return trial_stream(slot.job_id, slot.task, slot.attempt)
