"""A trial of the neutral stream as the rules that record it. Free text goes to the artifacts, never into a fact."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from api.el import Artifacts
from api.importers.run import File, NoReward, Trial
from ledger.application import Rule
from ledger.digests import chunks_of, open_regular
from ledger.errors import Refused
from ledger.facts.trial import (
    ArtifactFailed,
    ArtifactPersisted,
    RewardRejected,
    StructuredResultRecorded,
    StructuredResultRejected,
    TrialCanceled,
    TrialDispatched,
    TrialFailed,
    TrialSucceeded,
    trial_id_for,
)
from ledger.rules import trial as rules

TEXT_BYTES_MAX = 1_000_000_000  # whatever fitted into a source file fits here


class Texts:
    """Texts on their way to the artifacts, many at once: stored by `flush`, each content once."""

    def __init__(self, store: Artifacts) -> None:
        self._store = store
        self._waiting: dict[str, bytes | Path] = {}

    def keep(self, data: bytes) -> str:
        """The sha256 that names the text once it is stored."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._waiting[sha256] = data
        return sha256

    def keep_file(self, file: File) -> ArtifactPersisted | ArtifactFailed:
        """What a fact says of a file that is copied with the texts, or could not be read."""
        try:
            with open_regular(file.path) as content:
                digest, size = hashlib.sha256(), 0
                for chunk in chunks_of(content):
                    digest.update(chunk)
                    size += len(chunk)
        except Refused:
            return ArtifactFailed(file.name, "unreadable")
        self._waiting[digest.hexdigest()] = file.path
        return ArtifactPersisted(file.name, digest.hexdigest(), size, file.role)

    def flush(self) -> None:
        """Store what waits, durably; call it before the facts that name the texts are recorded."""
        if self._waiting:
            self._store.put_many(self._waiting.values(), max_bytes=TEXT_BYTES_MAX)
            self._waiting.clear()


def rules_of(trial: Trial, job_id: str, task_digest: str, texts: Texts) -> list[Rule]:
    """What a new trial's stream is asked, in order: the six signals, each by its own rule."""
    dispatched = TrialDispatched(
        trial_id_for(job_id, trial.task, trial.attempt), job_id, trial.task, task_digest, trial.attempt
    )
    asked: list[Rule] = [partial(rules.dispatch, dispatched=dispatched)]
    if trial.status != "queued":
        asked.append(partial(rules.start, started_at=trial.started_at) if trial.started_at else rules.start)
    reward = trial.reward
    if isinstance(reward, NoReward):
        raw = None if reward.raw is None else texts.keep(reward.raw)
        asked.append(partial(rules.reject_reward, rejected=RewardRejected(reward.why, raw)))
    elif reward is not None:
        asked.append(partial(rules.record_reward, reward=reward))
    if trial.dimensions is not None or trial.composite is not None:
        result = _structured(trial.composite, trial.dimensions, texts)
        asked.append(partial(rules.record_structured_result, result=result))
    kept = [*trial.artifacts, *(texts.keep_file(file) for file in trial.files)]
    asked += [partial(rules.keep_artifact, artifact=artifact) for artifact in kept]
    if ended := _ended(trial, texts):
        asked.append(partial(rules.end, ended=ended))
    return asked


def _structured(
    composite: float | None, dimensions: dict[str, float] | bytes | None, texts: Texts
) -> StructuredResultRecorded | StructuredResultRejected:
    if isinstance(dimensions, bytes):
        return StructuredResultRejected("wrong-shape", texts.keep(dimensions))
    return StructuredResultRecorded(composite, dimensions or {})


def _ended(trial: Trial, texts: Texts) -> TrialSucceeded | TrialFailed | TrialCanceled | None:
    match trial.status:
        case "succeeded":
            return TrialSucceeded(None, _duration_s(trial), trial.ended_at)
        case "canceled":
            return TrialCanceled(ended_at=trial.ended_at)
        case "failed":
            failure = trial.failure
            assert failure is not None  # noqa: S101 - told to mypy; every importer gives one with `failed`
            message = None if failure.message is None else texts.keep(failure.message.encode())
            return TrialFailed(
                failure.error_type, failure.phase, failure.exit_code, message, _duration_s(trial), trial.ended_at
            )
        case _:
            return None


def _duration_s(trial: Trial) -> float | None:
    """How long a trial ran by the tool's own clock; None when that clock ran backwards."""
    if trial.duration_s is not None:
        return trial.duration_s
    if trial.started_at is None or trial.ended_at is None or trial.ended_at < trial.started_at:
        return None
    return (trial.ended_at - trial.started_at).total_seconds()
