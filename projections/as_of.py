"""The past: read models as they stood at an earlier position, made again from the entries up to there.

The same `apply` fills tables of their own beside the store, so every question that can be put to the read models can be
put to the past. For one job that costs what its own entries cost, whatever else is in the log.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import Connection

from ledger import codec
from ledger.bulk import insert
from ledger.database import metadata, open_database, writing
from ledger.errors import NotFound
from ledger.facts.catalogue import dataset_stream, profile_stream, runner_stream
from ledger.facts.entry import Recorded
from ledger.facts.job import JobSubmitted, job_stream
from ledger.recorder import ProjectRecorder
from projections import catalogue, job_metrics, jobs, trials
from projections.following import BATCH_ENTRIES, ReadModel, batch_of, positions
from projections.models import READ_MODELS

OF_A_JOB = (catalogue.MODEL, jobs.MODEL, trials.MODEL, job_metrics.MODEL)


@contextmanager
def job_as_of(recorder: ProjectRecorder, job_id: str, position: int) -> Iterator[Connection]:
    """A connection to the read models of one job, with what it refers to, as they were at a position of the log.

    Raises:
        NotFound: the job was not submitted by then, or the log does not reach that far.
    """
    _require_position(recorder, position)
    streams = _streams(recorder, job_id, position)
    own = recorder.positions_of(streams, under=f"trial/{job_id}/", upto=position)
    batches = (
        codec.decode_all(recorder.bodies_at(own[start : start + BATCH_ENTRIES]))
        for start in range(0, len(own), BATCH_ENTRIES)
    )
    with _made_again("sqlite://", recorder.project_id, OF_A_JOB, position, batches) as connection:
        yield connection


@contextmanager
def log_as_of(recorder: ProjectRecorder, position: int) -> Iterator[Connection]:
    """A connection to every read model of the project as it was at a position, made in a temporary file.

    Raises:
        NotFound: the log does not reach that far.
    """
    _require_position(recorder, position)
    with tempfile.TemporaryDirectory(prefix="el-replay-") as folder:
        url = f"sqlite:///{Path(folder) / 'replay.db'}"
        batches = _batches(recorder, position)
        with _made_again(url, recorder.project_id, READ_MODELS, position, batches) as connection:
            yield connection


def _require_position(recorder: ProjectRecorder, position: int) -> None:
    """Refuse a position beyond the log's end."""
    if position > (size := recorder.head().size):
        raise NotFound(f"The log ends at position {size:,}; there is nothing at {position:,} yet.")


@contextmanager
def _made_again(
    url: str, project_id: str, models: Sequence[ReadModel], position: int, batches: Iterable[list[Recorded]]
) -> Iterator[Connection]:
    engine = open_database(url)
    try:
        metadata.create_all(engine, tables=[positions, *(table for model in models for table in model.tables)])
        with writing(engine) as connection:
            for entries in batches:
                batch = batch_of(entries)
                for model in models:
                    model.apply(connection, project_id, batch)
            stood = [(project_id, model.name, position, model.definition) for model in READ_MODELS]
            insert(connection, positions, stood)
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _batches(recorder: ProjectRecorder, upto: int) -> Iterator[list[Recorded]]:
    after = 0
    while after < upto and (bodies := recorder.bodies(after=after, limit=min(BATCH_ENTRIES, upto - after))):
        yield codec.decode_all(bodies)
        after = bodies[-1][0]


def _streams(recorder: ProjectRecorder, job_id: str, position: int) -> list[str]:
    """The job's own stream, and those of the revisions its manifest names."""
    own = job_stream(job_id)
    for at, entry in codec.decode_all(recorder.bodies_of([own])[own]):
        if at <= position and isinstance(entry.fact, JobSubmitted):
            manifest = entry.fact
            refers_to = [dataset_stream(manifest.dataset), runner_stream(manifest.runner)]
            return [own, *refers_to, *([profile_stream(manifest.profile)] if manifest.profile else [])]
    raise NotFound(f"There was no job {job_id} at position {position:,}; `el job list` shows those there are now.")
