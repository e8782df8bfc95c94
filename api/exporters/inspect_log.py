"""An Inspect log (`.json`, version 2): one sample an ended trial, its epoch the attempt, its scores the numbers."""

from __future__ import annotations

from importlib.metadata import version
from typing import IO, Any

import msgspec

from api.exporters.reading import Job, JobReading, Trial
from api.exporters.summary import model_of, named_metrics, summary
from api.exporters.table import artifacts_of

NAME = "inspect"
SUFFIX = ".json"
IS_TEXT = True

REWARD = "reward"
CANCELED = "CancelledError"  # what Inspect itself writes of a sample that was called off
STATUSES = {"completed": "success", "failed": "success", "canceled": "cancelled"}  # failed: some trial failed

_encode = msgspec.json.Encoder().encode


def write(reading: JobReading, file: IO[bytes]) -> None:
    """The head of the log, then its samples one by one. Inspect knows no sample that has not ended: left out."""
    head = _encode(_head(reading.job, reading.tasks()))
    file.write(head.removesuffix(b"}") + b',"samples":[')
    first = True
    for member in reading.members():
        for trial in member.trials:
            if trial.status in ("dispatched", "running"):
                reading.left_out["trials that have not ended"] += 1
                continue
            file.write((b"\n" if first else b",\n") + _encode(_sample(reading, trial)))
            first = False
    file.write(b"\n]}\n")


def _head(job: Job, members: list[str]) -> dict[str, Any]:
    manifest = job.manifest
    model = model_of(job) or manifest.profile or "unknown"
    began = job.submitted_at.isoformat()
    return {
        "version": 2,
        "status": STATUSES.get(job.status, "started"),
        "eval": {
            "eval_id": job.id,
            "run_id": job.id,
            "task_id": job.id,
            "created": began,
            "task": manifest.dataset,
            "task_version": 0,
            "dataset": {"name": manifest.dataset, "samples": len(members), "sample_ids": members, "shuffled": False},
            "model": model,
            "model_args": {},
            "config": {"epochs": manifest.attempts, "fail_on_error": False},
            "packages": {"evalledger": version("evalledger")},
            "scorers": [{"name": REWARD, "options": {}, "metrics": [], "metadata": {}}],
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": _results(job),
        "stats": {
            "started_at": began,
            "completed_at": job.ended_at.isoformat() if job.ended_at else "",
            "model_usage": {},
        },
        "tags": [f"{name}={value}" for name, value in manifest.tags.items()],
        "metadata": {"evalledger": summary(job)},
    }


def _results(job: Job) -> dict[str, Any]:
    """Our numbers, under a scorer of their own: they are not what Inspect's reducers would give."""
    counts = job.metrics.score_counts
    metrics = {name: {"name": name, "value": value, "params": {}} for name, value in named_metrics(job.metrics).items()}
    return {
        "total_samples": counts.total,
        "completed_samples": sum(job.endings.get(status, 0) for status in ("succeeded", "failed", "canceled")),
        "scores": [
            {
                "name": "evalledger",
                "scorer": REWARD,
                "scored_samples": counts.scored,
                "unscored_samples": counts.missing,
                "params": {},
                "metrics": metrics,
            }
        ],
    }


def _sample(reading: JobReading, trial: Trial) -> dict[str, Any]:
    sample: dict[str, Any] = {
        "id": trial.task,
        "epoch": trial.attempt,
        "input": "",  # the ledger keeps digests of tasks, not their texts
        "target": "",
        "messages": [],
        "scores": {name: {"value": value} for name, value in _scores(trial).items()},
        "metadata": {
            "evalledger": {
                "trial": trial.trial_id,
                "status": trial.status,
                "no_reward": trial.no_reward,
                "phase": trial.phase,
                "exit_code": trial.exit_code,
                "artifacts": artifacts_of(trial),
            }
        },
        "uuid": trial.trial_id,
    }
    if trial.started_at:
        sample["started_at"] = trial.started_at.isoformat()
    if trial.ended_at:
        sample["completed_at"] = trial.ended_at.isoformat()
    if trial.duration_s is not None:
        sample["total_time"] = trial.duration_s
    if trial.status != "succeeded":
        text = reading.text(trial.message, "messages", trial.redacted) or ""
        # As Inspect writes an exception, so that its type can be read.
        sample["error"] = {"message": f"{trial.error_type or CANCELED}()", "traceback": text, "traceback_ansi": text}
    reading.left_out["judge summaries"] += trial.judge is not None
    reading.left_out["files that could not be kept"] += len(trial.lost)
    reading.left_out["rejected results"] += trial.rejected_result is not None
    return sample


def _scores(trial: Trial) -> dict[str, float]:
    """Each number as a score of its own; without a reward there is none of that name, which Inspect takes for a gap."""
    scores = {} if trial.reward is None else {REWARD: trial.reward}
    parts = dict(trial.dimensions or {})
    if trial.composite is not None:
        scores["composite"] = trial.composite
    for name, value in parts.items():
        scores[f"dimensions.{name}" if name in (REWARD, "composite") else name] = value
    return scores
