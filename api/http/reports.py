"""Reports as they come by the hundred: what many requests ask at once is looked up and committed together.

Nothing here blocks the event loop, and no request holds a thread while it waits: a thread looks up, or commits, for all
that wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from api.answers import Reported
from api.client import Client
from api.under_claim import asked_of, finish_job, is_over, keep_late_rewards, reported, rules_of
from ledger.database import reading
from ledger.errors import ClaimLapsed
from ledger.facts.trial import ReportedFact, Slot, trial_stream
from ledger.grouping import GroupCommit
from projections import trials

SLOTS_KEPT_MAX = 100_000
THREADS = 4

A = TypeVar("A")
B = TypeVar("B")


class Reports:
    """The reports of one project on their way in. `client` is any client of it with a group."""

    def __init__(self, client: Client, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._slots: OrderedDict[str, Slot] = OrderedDict()  # a trial's id names the same slot for good
        self._looked_up = GroupCommit[str, Slot | None](lambda ids: self._look_up(client, ids))

    async def take(self, client: Client, trial_id: str, facts: Sequence[ReportedFact], *, token: int) -> Reported:
        """Record a report; see `El.report`."""
        checked = rules_of(facts)
        slot = self._slots.get(trial_id) or await self._together(self._looked_up, trial_id)
        if slot is None or client.ledger.group is None:  # not followed yet: looked for further by itself
            return await run_in_threadpool(lambda: client.report(trial_id, facts, token=token))
        stream = trial_stream(slot.job_id, slot.task, slot.attempt)
        try:
            asked = asked_of(client, stream, facts, checked, token=token)
            written = await self._together(client.ledger.group, asked)
        except ClaimLapsed:
            await run_in_threadpool(lambda: keep_late_rewards(client, stream, facts, token=token))
            raise
        if is_over(facts):
            await run_in_threadpool(finish_job, client, slot.job_id, written)
        return reported(facts, written)

    async def _together(self, group: GroupCommit[A, B], asked: A) -> B:
        future = group.submit(asked)
        if not group.is_driven:
            self._threads.submit(group.drive)
        return await asyncio.wrap_future(future)

    def _look_up(self, client: Client, trial_ids: Sequence[str]) -> list[Slot | None]:
        with reading(client.ledger.engine) as connection:
            found = trials.slots_by_ids(connection, client.project, set(trial_ids))
        self._slots.update(found)
        while len(self._slots) > SLOTS_KEPT_MAX:
            self._slots.popitem(last=False)
        return [found.get(trial_id) for trial_id in trial_ids]
