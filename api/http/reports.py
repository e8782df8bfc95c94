"""Reports as they come by the hundred: what many requests ask at once is looked up and committed together.

Nothing here blocks the event loop, and no request holds a thread while it waits: a thread looks up, and commits, for
all that wait. Projects take turns on the threads, one group after the other.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from api.answers import Reported
from api.client import Client
from api.under_claim import asked_of, finish_job, is_over, keep_late_rewards, reported, rules_of
from ledger.application import Asked, Ledger, Rule, Written
from ledger.database import reading
from ledger.errors import ClaimLapsed, StoreError
from ledger.facts.trial import ReportedFact, Slot, trial_stream
from ledger.grouping import GroupCommit
from projections import trials

SLOTS_KEPT_MAX = 100_000
THREADS = 4
PAUSE_S = 0.002  # between two requests that come one after the other a loop under load takes less


class _Report(NamedTuple):
    """A report that waits to be recorded."""

    client: Client
    trial_id: str
    facts: Sequence[ReportedFact]
    rules: Sequence[Rule]
    token: int


class _Recorded(NamedTuple):
    """Where a report belongs, and what it came to: written, or refused. Nothing where its trial is not known yet."""

    slot: Slot | None = None
    written: Written | Exception | None = None


class Reports:
    """The reports of one project on their way in; `ledger` is any of it, `commit` writes a group on it."""

    def __init__(
        self,
        commit: Callable[[Sequence[Asked]], list[Written | Exception]],
        ledger: Ledger,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._commit = commit
        self._ledger = ledger
        self._threads = threads
        self._slots: OrderedDict[str, Slot] = OrderedDict()  # a trial's id names the same slot for good
        self._group = GroupCommit(self._record, pause_s=PAUSE_S, hand_on=threads.submit)

    async def take(self, client: Client, trial_id: str, facts: Sequence[ReportedFact], *, token: int) -> Reported:
        """Record a report; see `El.report`."""
        future = self._group.submit(_Report(client, trial_id, facts, rules_of(facts), token))
        if not self._group.is_driven:
            self._threads.submit(self._group.drive)
        recorded: _Recorded = await asyncio.wrap_future(future)
        slot, written = recorded
        if slot is None or written is None:
            return await run_in_threadpool(lambda: client.report(trial_id, facts, token=token))
        if isinstance(written, ClaimLapsed):
            stream = trial_stream(slot.job_id, slot.task, slot.attempt)
            await run_in_threadpool(lambda: keep_late_rewards(client, stream, facts, token=token))
        if isinstance(written, Exception):
            raise written
        if is_over(facts):
            written = await run_in_threadpool(finish_job, client, slot.job_id, written)
        return reported(facts, written)

    def _record(self, group: Sequence[_Report]) -> Sequence[_Recorded | Exception]:
        """Look up what is not known, and commit all in one transaction."""
        try:
            self._look_up({report.trial_id for report in group if report.trial_id not in self._slots})
        except StoreError as error:  # each of the group would only wait for the store once more
            return [error] * len(group)
        slots = [self._slots.get(report.trial_id) for report in group]
        asked = [
            asked_of(r.client, trial_stream(s.job_id, s.task, s.attempt), r.facts, r.rules, token=r.token)
            for r, s in zip(group, slots, strict=True)
            if s
        ]
        outcomes = iter(self._commit(asked) if asked else ())
        found = [_Recorded(slot, next(outcomes)) if slot else _Recorded() for slot in slots]
        while len(self._slots) > SLOTS_KEPT_MAX:
            self._slots.popitem(last=False)
        return found

    def _look_up(self, trial_ids: set[str]) -> None:
        if trial_ids:
            with reading(self._ledger.engine) as connection:
                self._slots.update(trials.slots_by_ids(connection, self._ledger.project_id, trial_ids))
