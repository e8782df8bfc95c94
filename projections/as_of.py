"""A job as it stood at an earlier position: its own entries up to there, applied by the same read models.

They are applied to tables in memory, so every question that can be put to the read models can be put to the past. It
costs what the job's entries cost, whatever else is in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import Connection

from ledger import codec
from ledger.database import metadata, open_database, writing
from ledger.errors import NotFound
from ledger.facts.catalogue import dataset_stream, profile_stream, runner_stream
from ledger.facts.job import JobSubmitted, job_stream
from ledger.recorder import ProjectRecorder
from projections import catalogue, job_metrics, jobs, trials
from projections.following import BATCH_ENTRIES, batch_of

MODELS = (catalogue.MODEL, jobs.MODEL, trials.MODEL, job_metrics.MODEL)


@contextmanager
def job_as_of(recorder: ProjectRecorder, job_id: str, position: int) -> Iterator[Connection]:
    """A connection to the read models of one job, with what it refers to, as they were at a position of the log.

    Raises:
        NotFound: the job was not submitted by then, or the log does not reach that far.
    """
    if position > (size := recorder.head().size):
        raise NotFound(f"The log ends at position {size:,}; there is nothing at {position:,} yet.")
    streams = _streams(recorder, job_id, position)
    positions = recorder.positions_of(streams, under=f"trial/{job_id}/", upto=position)
    engine = open_database("sqlite://")
    try:
        metadata.create_all(engine, tables=[table for model in MODELS for table in model.tables])
        with writing(engine) as connection:
            for start in range(0, len(positions), BATCH_ENTRIES):
                batch = batch_of(codec.decode_all(recorder.bodies_at(positions[start : start + BATCH_ENTRIES])))
                for model in MODELS:
                    model.apply(connection, recorder.project_id, batch)
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _streams(recorder: ProjectRecorder, job_id: str, position: int) -> list[str]:
    """The job's own stream, and those of the revisions its manifest names."""
    own = job_stream(job_id)
    for at, entry in codec.decode_all(recorder.bodies_of([own])[own]):
        if at <= position and isinstance(entry.fact, JobSubmitted):
            manifest = entry.fact
            refers_to = [dataset_stream(manifest.dataset), runner_stream(manifest.runner)]
            return [own, *refers_to, *([profile_stream(manifest.profile)] if manifest.profile else [])]
    raise NotFound(f"There was no job {job_id} at position {position:,}; `el job list` shows those there are now.")
