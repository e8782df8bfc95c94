"""A run in MLflow, by mlflow-skinny: metrics, parameters, tags, and the trials as an artifact."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from api.exporters import jsonl
from api.exporters.optional import optional
from api.exporters.placing import folder_at
from api.exporters.reading import Job, JobReading
from api.exporters.summary import model_of, named_metrics, summary
from ledger.errors import Conflict, StoreUnreachable

NAME = "mlflow"

PER_REQUEST = 100  # of parameters and tags; of metrics MLflow takes 1,000
VALUE_CHARS_MAX = 5_000
STATUSES = {"completed": "FINISHED", "failed": "FAILED", "canceled": "KILLED"}


def write(reading: JobReading, out: str, *, force: bool) -> str:
    """Make a run in a folder (`FOLDER/mlflow.db` and `FOLDER/artifacts`) or at a tracking URI; the run's id.

    Raises:
        Conflict: the job is there already as a run, and not `force`, which adds another one.
        StoreUnreachable: MLflow could not take it.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # to export is no consent to report home
    entities = optional("mlflow.entities", extra=NAME)
    tracking = optional("mlflow.tracking", extra=NAME)
    failure = optional("mlflow.exceptions", extra=NAME).MlflowException
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return _write(reading, out, force, entities, tracking)
    except (failure, ImportError, OSError) as error:
        sentence = " ".join(str(error).split())[:300].replace(out, "the place named by --out")
        raise StoreUnreachable(f"MLflow does not take the run: {sentence}") from error


def _write(reading: JobReading, out: str, force: bool, entities: Any, tracking: Any) -> str:
    job, artifacts = reading.job, None
    uri = out
    if not re.match(r"[a-z+-]+:", out):
        folder = folder_at(Path(out).absolute())
        folder.mkdir(parents=True, exist_ok=True)
        uri, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
    client = tracking.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(job.manifest.dataset)
    experiment_id = (
        experiment.experiment_id if experiment else client.create_experiment(job.manifest.dataset, artifacts)
    )
    had = client.search_runs([experiment_id], f"tags.`evalledger.job` = '{job.id}'", max_results=1)
    if had and not force:
        raise Conflict(f"Job {job.id} is there already as run {had[0].info.run_id}; `--force` adds another one.")
    began = _milliseconds(job.submitted_at.timestamp())
    run = client.create_run(experiment_id, start_time=began, tags=_tags(job), run_name=_name(job)).info.run_id
    for some in _batches(_parameters(job).items()):
        client.log_batch(run, params=[entities.Param(*pair) for pair in some])
    for some in _batches(named_metrics(job.metrics).items()):
        client.log_batch(run, metrics=[entities.Metric(name, value, began, 0) for name, value in some])
    with TemporaryDirectory() as temp:
        trials, about = Path(temp, "trials.jsonl"), Path(temp, "job.json")
        with trials.open("wb") as file:
            jsonl.write(reading, file)
        about.write_bytes(msgspec.json.format(msgspec.json.encode(summary(job)), indent=2))
        for path in (trials, about):
            client.log_artifact(run, str(path))
    if job.ended_at:
        client.set_terminated(run, STATUSES[job.status], _milliseconds(job.ended_at.timestamp()))
    return str(run)


def _name(job: Job) -> str:
    return f"{model_of(job) or job.manifest.profile or job.manifest.runner} {job.id[:8]}"


def _tags(job: Job) -> dict[str, str]:
    """What the job was and how much of it was measured."""
    manifest, counts = job.manifest, msgspec.to_builtins(job.metrics.score_counts)
    tags = {
        "job": job.id,
        "as_of": job.as_of,
        "status": job.status,
        "dataset": manifest.dataset,
        "runner": manifest.runner,
        "profile": manifest.profile,
        "k": manifest.attempts,
        "definition": job.metrics.definition,
        "secrets": " ".join(sorted(manifest.secrets)) or None,
        "flags": " ".join(manifest.origin.flags) or None,
        **{f"coverage.{name}": count for name, count in counts.items()},
        **{f"tag.{name}": value for name, value in manifest.tags.items()},
    }
    return {f"evalledger.{_key(name)}": str(value) for name, value in tags.items() if value is not None}


def _parameters(job: Job) -> dict[str, str]:
    """The effective parameters as MLflow takes them; `job.json` has them as they are."""
    values = {_key(name): str(value) for name, value in job.manifest.parameters.items()}
    return {name: value for name, value in values.items() if len(value) <= VALUE_CHARS_MAX}


def _key(name: str) -> str:
    """A name in the characters that MLflow allows in one."""
    return re.sub(r"[^\w. :/-]", "_", name)[:200]


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _batches(items: Iterable[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    every = iter(items)
    while some := list(islice(every, PER_REQUEST)):
        yield some
