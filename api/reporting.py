"""Reporting on one trial from Python: what happens inside `with el.trial(...) as trial`."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from functools import partial
from typing import Literal

from ledger.application import Ledger
from ledger.artifacts import ArtifactStore
from ledger.facts.trial import (
    ArtifactPersisted,
    RewardRejected,
    StructuredResultRecorded,
    TrialFailed,
    TrialSucceeded,
    WhyNoReward,
)
from ledger.rules import trial as rules


class TrialReport:
    """Reports on one started trial, each call durable once it returns. Repeating a call is harmless."""

    def __init__(self, ledger: Ledger, artifacts: ArtifactStore, stream: str) -> None:
        self.ledger = ledger
        self.artifacts = artifacts
        self.stream = stream

    def reward(self, reward: float, *, source: str | None = None) -> None:
        """The verifier gave a finite number."""
        self.ledger.record(self.stream, partial(rules.record_reward, reward=reward, source=source))

    def no_reward(self, why: WhyNoReward, raw: bytes | None = None) -> None:
        """The verifier gave no usable number; what it wrote is kept as an artifact."""
        kept = self.artifacts.put_bytes(raw).sha256 if raw is not None else None
        self.ledger.record(self.stream, partial(rules.reject_reward, rejected=RewardRejected(why, kept)))

    def structured_result(
        self, *, composite: float | None = None, dimensions: Mapping[str, float] | None = None
    ) -> None:
        """Composite and named dimensions, in their own units."""
        result = StructuredResultRecorded(composite, dict(dimensions or {}))
        self.ledger.record(self.stream, partial(rules.record_structured_result, result=result))

    def artifact(
        self, name: str, data: bytes, *, role: Literal["output", "stdout", "stderr"] = "output"
    ) -> ArtifactPersisted:
        """Keep bytes as an artifact of the trial."""
        stored = self.artifacts.put_bytes(data)
        artifact = ArtifactPersisted(name, stored.sha256, stored.size, role)
        self.ledger.record(self.stream, partial(rules.keep_artifact, artifact=artifact))
        return artifact

    def succeeded(self, *, exit_code: int | None = None) -> None:
        """Execution ended well; the block's end says it by itself."""
        self.ledger.record(self.stream, partial(rules.end, ended=TrialSucceeded(exit_code)))

    def failed(self, error: BaseException) -> None:
        """Execution failed by an exception; its traceback is kept as an artifact."""
        text = "".join(traceback.format_exception(error))
        message = self.artifacts.put_bytes(text.encode(errors="replace")).sha256
        ended = TrialFailed(type(error).__name__, "agent", message=message)
        self.ledger.record(self.stream, partial(rules.end, ended=ended))
