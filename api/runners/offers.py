"""Which slots a worker may claim next: a run of them from one job, then from the next job, so that none starves."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sqlalchemy.engine import Connection

from api.client import Client
from api.runners.events import Skipped
from api.runners.plans import JobPlan, RunsElsewhere, prepare
from ledger.errors import EvalLedgerError
from ledger.facts.catalogue import Task
from ledger.facts.trial import Slot
from projections import catalogue, work_queue

RUN_MAX = 400
LOOK_AGAIN_S = 0.5
TRY_AGAIN_S = 30.0  # what is missing on this machine may be put there meanwhile


class Offer(NamedTuple):
    """A slot that waited when it was last looked at; somebody else may have claimed it since."""

    plan: JobPlan
    slot: Slot
    task: Task


class Offers:
    """The queue as one worker sees it: of one job, or of every job that can be run here.

    With a `job_id`, what keeps that job from running here is raised; without one such jobs are skipped and told.
    """

    def __init__(
        self, client: Client, job_id: str | None, *, concurrency: int, on_skipped: Callable[[Skipped], None]
    ) -> None:
        self.waiting: frozenset[str] = frozenset()  # the jobs that had an open slot at the last look
        self.drained = False  # the last look found nothing to offer
        self._client = client
        self._job_id = job_id
        self._run = min(4 * concurrency, RUN_MAX)
        self._on_skipped = on_skipped
        self._offers: deque[Offer] = deque()
        self._plans: dict[str, JobPlan] = {}
        self._skip_until: dict[str, float] = {}
        self._last_job = ""
        self._look_at = 0.0

    def take(self) -> Offer | None:
        """The next offer; None when there is none now."""
        if not self._offers and time.monotonic() >= self._look_at:
            self._look()
        return self._offers.popleft() if self._offers else None

    def drop(self, job_id: str) -> None:
        """Offer nothing more of a job that was canceled."""
        self._offers = deque(offer for offer in self._offers if offer.slot.job_id != job_id)

    def _look(self) -> None:
        waiting = self._client.ask(partial(work_queue.jobs_waiting, project_id=self._client.project))
        if self._job_id is not None:
            waiting = [job_id for job_id in waiting if job_id == self._job_id]
        self.waiting = frozenset(waiting)
        self._plans = {job_id: plan for job_id, plan in self._plans.items() if job_id in self.waiting}
        for job_id in sorted(waiting, key=lambda job_id: (job_id <= self._last_job, job_id)):
            if plan := self._plan(job_id):
                self._offers.extend(self._client.ask(partial(self._open, plan)))
            if self._offers:
                self._last_job, self.drained = job_id, False
                return
        self.drained = True
        self._look_at = time.monotonic() + LOOK_AGAIN_S

    def _open(self, plan: JobPlan, connection: Connection) -> list[Offer]:
        project = self._client.project
        slots = work_queue.open_slots(connection, project, job_id=plan.job_id, limit=self._run)
        names = {slot.task for slot in slots}
        # A job's members are tasks of its dataset's frozen revision, so their digests are found there.
        tasks = {task.name: task for task in catalogue.find_tasks(connection, project, plan.dataset, names)}
        return [Offer(plan, slot, tasks[slot.task]) for slot in slots]

    def _plan(self, job_id: str) -> JobPlan | None:
        if job_id in self._plans:
            return self._plans[job_id]
        if time.monotonic() < self._skip_until.get(job_id, 0.0):
            return None
        try:
            self._plans[job_id] = prepare(self._client, job_id)
        except EvalLedgerError as error:
            if self._job_id is not None:
                raise
            if job_id not in self._skip_until:
                self._on_skipped(Skipped(job_id, str(error)))
            again_s = math.inf if isinstance(error, RunsElsewhere) else TRY_AGAIN_S
            self._skip_until[job_id] = time.monotonic() + again_s
            return None
        return self._plans[job_id]
