"""Which slots a worker claims next: some of one job, then of the next job, so that none starves."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from api.answers import Claim, LeftBehind
from api.el import El
from api.runners.claims import Claims
from api.runners.events import Skipped
from api.runners.plans import JobPlan, RunsElsewhere, prepare
from api.runners.sources import Source
from ledger.errors import EvalLedgerError, ServerAway

LOOK_AGAIN_S = 0.5
TRY_AGAIN_S = 30.0  # what is missing on this machine may be put there meanwhile


class Offer(NamedTuple):
    """A slot that was claimed for this worker, and how to run it."""

    plan: JobPlan
    claim: Claim


class Offers:
    """The queue as one worker sees it: of one job, or of every job that can be run here.

    With a `job_id`, what keeps that job from running here is raised; without one such jobs are skipped and told.
    """

    def __init__(
        self,
        el: El,
        claims: Claims,
        job_id: str | None,
        files: Mapping[str, Source],
        *,
        on_skipped: Callable[[Skipped], None],
        on_left_behind: Callable[[Sequence[LeftBehind]], None],
    ) -> None:
        self.drained = False  # the last look found nothing to offer
        self._el = el
        self._claims = claims
        self._job_id = job_id
        self._files = files
        self._on_skipped = on_skipped
        self._on_left_behind = on_left_behind
        self._turns: deque[str] = deque()
        self._plans: dict[str, JobPlan] = {}
        self._skip_until: dict[str, float] = {}
        self._look_at = 0.0
        self._pause_s = LOOK_AGAIN_S

    def take(self, slots: int) -> list[Offer]:
        """Claim at most so many slots of the job whose turn it is; none when there is nothing to claim now."""
        if not self._turns and time.monotonic() >= self._look_at:
            self._look()
        while self._turns:
            job_id = self._turns[0]
            plan = self._plan(job_id)
            claimed = self._claims.take(job_id, slots) if plan else None
            if claimed:
                self._on_left_behind(claimed.left_behind)
            if plan and claimed and claimed.claims and self._unlock(plan, claimed.claims):
                self._turns.rotate(-1)
                return [Offer(plan, claim) for claim in claimed.claims]
            self._turns.popleft()
        return []

    def look_again(self) -> bool:
        """Look now, however short ago the last look was; whether there is anything to claim."""
        self._look()
        return not self.drained

    def drop(self, job_id: str) -> None:
        """Claim nothing more of a job that was canceled."""
        if job_id in self._turns:
            self._turns.remove(job_id)

    def _look(self) -> None:
        waiting = self._el.work(self._job_id).waiting
        self._plans = {job_id: plan for job_id, plan in self._plans.items() if job_id in waiting}
        self._turns = deque(job_id for job_id in waiting if self._plan(job_id))
        self.drained = not self._turns
        if not self.drained:
            self._pause_s = LOOK_AGAIN_S
            return
        self._look_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._el.idle_pause_s_max)

    def _plan(self, job_id: str) -> JobPlan | None:
        if job_id in self._plans:
            return self._plans[job_id]
        if time.monotonic() < self._skip_until.get(job_id, 0.0):
            return None
        try:
            self._plans[job_id] = prepare(self._el, job_id, self._files)
        except ServerAway:
            raise
        except EvalLedgerError as error:
            self._skip(job_id, error)
            return None
        return self._plans[job_id]

    def _unlock(self, plan: JobPlan, claims: Sequence[Claim]) -> bool:
        """Get the job's secrets under the first of its claims; when they cannot be used here, give the slots back."""
        if not claims[0].secrets or plan.secrets:
            return True
        try:
            plan.take_secrets(self._claims.secrets(claims[0]))
        except EvalLedgerError as error:
            for claim in claims:
                self._claims.release(claim, "its secrets cannot be used here")
            self._plans.pop(plan.job_id, None)
            self._skip(plan.job_id, error)
            return False
        return True

    def _skip(self, job_id: str, error: EvalLedgerError) -> None:
        """Leave a job alone for a while, and say why the first time; raises the reason when it is the one to run."""
        if self._job_id is not None:
            raise error
        if job_id not in self._skip_until:
            self._on_skipped(Skipped(job_id, str(error)))
        again_s = math.inf if isinstance(error, RunsElsewhere) else TRY_AGAIN_S
        self._skip_until[job_id] = time.monotonic() + again_s
