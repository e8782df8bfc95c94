"""A worker's claims: what it asks of the ledger, and reports to it, through whichever door.

The ledger decides who has a slot: of any number of workers, of a worker that was given up for dead, and of the one that
came after it, exactly one is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from api.answers import Claim, Claimed, Heartbeat, LeftBehind
from api.el import El
from api.runners.patience import Patience
from ledger.errors import ClaimLapsed
from ledger.facts.trial import ReportedFact, TrialReleased, TrialStarted


class Claims:
    """The claims of one worker. `worker` must be unlike any other's, a restarted one's too."""

    def __init__(self, el: El, worker: str, lease_s: float, patience: Patience) -> None:
        self.worker = worker
        self.lease_s = lease_s
        self._el = el
        self._patience = patience

    def take(self, job_id: str, slots: int) -> Claimed:
        """Claim at most so many slots of a job."""
        return self._el.claim(self.worker, slots=slots, job_id=job_id, lease_s=self.lease_s)

    def look_about(self) -> list[LeftBehind]:
        """Look after what other workers left behind, and claim nothing."""
        return self._el.claim(self.worker, slots=0, lease_s=self.lease_s).left_behind

    def secrets(self, claim: Claim) -> dict[str, str]:
        """The values of the secrets that a claimed trial needs."""
        return self._patience(partial(self._el.secrets, claim.trial_id, token=claim.token))

    def start(self, claim: Claim) -> bool:
        """Report that execution begins; False when the slot was taken from us."""
        return self._report(claim, [TrialStarted()])

    def end(self, claim: Claim, facts: Sequence[ReportedFact]) -> bool:
        """Report all that came of a trial, its end included; False when the trial was taken from us."""
        return self._report(claim, facts)

    def release(self, claim: Claim, reason: str) -> bool:
        """Give a slot back that was not started; False when it was taken from us."""
        return self._report(claim, [TrialReleased(reason)])

    def beat(self, claim: Claim) -> Heartbeat:
        """Give a sign of life."""
        return self._el.heartbeat(claim.trial_id, claim.token, lease_s=self.lease_s)

    def _report(self, claim: Claim, facts: Sequence[ReportedFact]) -> bool:
        try:
            self._patience(partial(self._el.report, claim.trial_id, facts, token=claim.token))
        except ClaimLapsed:
            return False
        return True
