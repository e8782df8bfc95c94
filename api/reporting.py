"""Reporting on one trial from Python: what happens inside `with el.trial(...) as trial`."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from api.answers import Claim
from ledger.facts.trial import (
    ArtifactPersisted,
    ReportedFact,
    RewardRecorded,
    RewardRejected,
    StructuredResultRecorded,
    TrialFailed,
    TrialSucceeded,
    WhyNoReward,
)

if TYPE_CHECKING:  # which has this as one of its answers
    from api.el import El


class TrialReport:
    """Reports on one claimed trial, each call durable once it returns. Repeating a call is harmless."""

    def __init__(self, el: El, claim: Claim) -> None:
        self.el = el
        self.claim = claim
        self.ended = False

    def reward(self, reward: float, *, source: str | None = None) -> None:
        """The verifier gave a finite number."""
        self._report(RewardRecorded(reward, source))

    def no_reward(self, why: WhyNoReward, raw: bytes | None = None) -> None:
        """The verifier gave no usable number; what it wrote is kept as an artifact."""
        kept = self.el.artifacts.put_bytes(raw).sha256 if raw is not None else None
        self._report(RewardRejected(why, kept))

    def structured_result(
        self, *, composite: float | None = None, dimensions: Mapping[str, float] | None = None
    ) -> None:
        """Composite and named dimensions, in their own units."""
        self._report(StructuredResultRecorded(composite, dict(dimensions or {})))

    def artifact(
        self, name: str, data: bytes, *, role: Literal["output", "stdout", "stderr"] = "output"
    ) -> ArtifactPersisted:
        """Keep bytes as an artifact of the trial."""
        stored = self.el.artifacts.put_bytes(data)
        artifact = ArtifactPersisted(name, stored.sha256, stored.size, role)
        self._report(artifact)
        return artifact

    def succeeded(self, *, exit_code: int | None = None) -> None:
        """Execution ended well; the block's end says it by itself."""
        self._report(TrialSucceeded(exit_code))
        self.ended = True

    def failed(self, error: BaseException) -> None:
        """Execution failed by an exception; its traceback is kept as an artifact."""
        text = "".join(traceback.format_exception(error))
        message = self.el.artifacts.put_bytes(text.encode(errors="replace")).sha256
        self._report(TrialFailed(type(error).__name__, "agent", message=message))
        self.ended = True

    def _report(self, fact: ReportedFact) -> None:
        self.el.report(self.claim.trial_id, [fact], token=self.claim.token)


@contextmanager
def reporting(el: El, claim: Claim) -> Iterator[TrialReport]:
    """Report on a claimed and started trial in this block, whose end, however it comes, ends the trial.

    When the block itself has said how it ended, that stands.
    """
    report = TrialReport(el, claim)
    try:
        yield report
    except BaseException as error:
        if not report.ended:
            report.failed(error)
        raise
    if not report.ended:
        report.succeeded()
