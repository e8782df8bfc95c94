"""Every Eval Ever 0.3.0: an aggregate JSON and, beside it, a `_samples.jsonl` with the scored trials.

Both lie where its datastore wants them: `data/<collection>/<developer>/<model>/<uuid>.json`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from api.exporters.placing import Placing
from api.exporters.reading import Job, JobReading, Trial
from api.exporters.summary import model_of
from projections.metrics import Metrics

NAME = "eee"
SCHEMA_VERSION = "0.3.0"
UNBOUNDED = ("-Infinity", "Infinity")

_encode = msgspec.json.Encoder().encode


class _Place(NamedTuple):
    """What both files say of themselves: the ids that join them, and their path below the folder."""

    evaluation_id: str
    model_id: str
    samples_path: str
    result_id: str


def write(reading: JobReading, folder: Path, *, force: bool, now: datetime) -> list[Path]:
    """Write both files below a folder; the samples are left out when no trial was scored.

    Raises:
        Conflict: one of them is there already, and not `force`.
    """
    job = reading.job
    place = _place(job)
    aggregate = folder / place.samples_path.replace("_samples.jsonl", ".json")
    samples = folder / place.samples_path
    with Placing(force=force) as placing:
        companion = None
        if job.metrics.score_counts.scored:
            digest, count = hashlib.sha256(), 0
            file = placing.open(samples)
            for line in _samples(reading, place):
                file.write(line)
                digest.update(line)
                count += 1
            companion = {
                "format": "jsonl",
                "file_path": place.samples_path,
                "hash_algorithm": "sha256",
                "checksum": digest.hexdigest(),
                "total_rows": count,
            }
        document = _aggregate(job, place, now) | ({"detailed_evaluation_results": companion} if companion else {})
        placing.open(aggregate).write(msgspec.json.format(_encode(document), indent=2) + b"\n")
    return [aggregate, samples] if companion else [aggregate]


def _place(job: Job) -> _Place:
    model = model_of(job) or (job.manifest.profile or "unknown").rpartition("@")[0] or "unknown"
    model_id = model if "/" in model else f"unknown/{model}"
    developer, _, name = model_id.partition("/")
    dataset, _, _ = job.manifest.dataset.rpartition("@")
    # The datastore asks for a version 4 id; made of the job's, so that the same job has the same name again.
    named = bytearray(hashlib.sha256(f"eee/{job.id}".encode()).digest()[:16])
    file = f"{UUID(bytes=bytes(named), version=4)}_samples.jsonl"
    path = "/".join(["data", _component(dataset), _component(developer), _component(name), file])
    return _Place(f"{job.manifest.dataset}/{model_id}/{job.id}", model_id, path, f"{job.id}/score")


def _component(text: str) -> str:
    """A text as one folder's name on every system."""
    return re.sub(r"[^\w.+-]+", "-", text.replace("/", "_")).strip(".- ") or "unknown"


def _aggregate(job: Job, place: _Place, now: datetime) -> dict[str, Any]:
    manifest, origin = job.manifest, job.manifest.origin
    imported = origin.kind == "import"
    library = (origin.tool or "unknown", origin.tool_version or "unknown")
    document = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": place.evaluation_id,
        "retrieved_timestamp": str(int(now.timestamp())),
        "source_metadata": {
            "source_name": "EvalLedger",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": _texts({"job": job.id, "as_of": job.as_of, "status": job.status}),
        },
        "eval_library": dict(
            zip(("name", "version"), library if imported else ("evalledger", version("evalledger")), strict=True)
        ),
        "model_info": {
            "name": place.model_id.removeprefix("unknown/"),
            "id": place.model_id,
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": [
            {
                "evaluation_result_id": f"{job.id}/{name}",
                "evaluation_name": manifest.dataset,
                "source_data": {
                    "dataset_name": manifest.dataset,
                    "source_type": "other",
                    "additional_details": _texts(
                        {"members_digest": manifest.members_digest, "runner": manifest.runner}
                    ),
                },
                "metric_config": config,
                "score_details": details,
            }
            for name, config, details in _results(job.metrics)
        ],
    }
    if not imported:  # of an import, our times say when it was imported
        document["evaluation_timestamp"] = str(int(job.submitted_at.timestamp()))
    return document


def _results(metrics: Metrics) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, metric, score) of every number that could be given; the coverage stands beside each."""
    k = metrics.k
    unit = metrics.score_bounds is not None or metrics.pass_ is not None
    least, most = (0.0, 1.0) if unit else UNBOUNDED
    counts = _texts(msgspec.to_builtins(metrics.score_counts) | {"k": k, "definition": metrics.definition})
    score: dict[str, Any] = {"score": metrics.score, "details": counts}
    if interval := metrics.interval_95:
        score["uncertainty"] = {
            "standard_error": {"value": interval.standard_error, "method": interval.method},
            "confidence_interval": {
                "lower": interval.low, "upper": interval.high, "confidence_level": 0.95, "method": interval.method,
            },
            "num_samples": metrics.score_counts.scored,
        }  # fmt: skip
    for name, metric_id, parameters, value in (
        ("score", "evalledger.score", {}, score),
        (f"pass_at_{k}", "pass_at_k", {"k": k}, {"score": metrics.pass_at_k, "details": counts}),
        (f"pass_pow_{k}", "evalledger.pass_pow_k", {"k": k}, {"score": metrics.pass_hat_k, "details": counts}),
    ):
        if value["score"] is not None:
            of_score = name == "score"
            config = {
                "metric_id": metric_id,
                "metric_name": name,
                "metric_parameters": parameters,
                "lower_is_better": False,
                "score_type": "binary" if of_score and metrics.pass_ is not None else "continuous",
                "min_score": least if of_score else 0.0,
                "max_score": most if of_score else 1.0,
            }
            yield name, config, value


def _samples(reading: JobReading, place: _Place) -> Iterator[bytes]:
    """One line a scored trial; the form has no place for a trial without a score."""
    for member in reading.members():
        for trial in member.trials:
            if trial.reward is None:
                reading.left_out["trials without a reward"] += 1
            else:
                yield _encode(_sample(reading.job, place, trial)) + b"\n"


def _sample(job: Job, place: _Place, trial: Trial) -> dict[str, Any]:
    known = {
        "attempt": trial.attempt,
        "extra": trial.extra,
        "trial": trial.trial_id,
        "status": trial.status,
        "task_digest": trial.task_digest,
        "composite": trial.composite,
        "dimensions": None if trial.dimensions is None else _encode(trial.dimensions).decode(),
        "exit_code": trial.exit_code,
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": place.evaluation_id,
        "model_id": place.model_id,
        "evaluation_name": job.manifest.dataset,
        "evaluation_result_id": place.result_id,
        "sample_id": trial.task,
        # The ledger keeps neither prompts nor transcripts; of its kinds only this one may go without both.
        "interaction_type": "agentic",
        "input": {"raw": "", "reference": []},
        "output": None,
        "messages": [],
        "answer_attribution": [],
        "evaluation": {"score": trial.reward, "is_correct": trial.reward == 1},
        "performance": None if trial.duration_s is None else {"latency_ms": max(0.0, trial.duration_s * 1000)},
        "error": trial.error_type,
        "metadata": _texts(known),
    }


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Values as the texts that the schema asks for; what is not known is left out."""
    return {
        name: value if isinstance(value, str) else _encode(value).decode()
        for name, value in values.items()
        if value is not None
    }
