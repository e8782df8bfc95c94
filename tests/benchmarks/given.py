"""A home folder with a dataset and a job, and the job's facts as they would have been reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from api.client import Client
from api.settings import Settings
from api.wiring import Workspace
from ledger.facts.catalogue import RunnerPublished, Task
from ledger.facts.job import job_id_for

RUNNER = RunnerPublished("external@1", "external")
PROJECT = "default"


def client_in(home: Path, database_url: str | None = None) -> Client:
    """A client on the store of a home folder, or on a database elsewhere, with a runner published."""
    client = Client(Workspace(Settings(home=home, database_url=database_url, actor="benchmark")), PROJECT)
    client.publish_runner(RUNNER)
    return client


def submitted(client: Client, name: str, tasks: Sequence[Task], *, attempts: int) -> str:
    """Publish a dataset and submit a job on all of it; the job's id."""
    client.publish_dataset(f"{name}@1", tasks, runner=RUNNER.ref)
    job = client.submit_job(f"{name}@1", attempts=attempts, request_id=name)
    assert job.id == job_id_for(PROJECT, name)
    return job.id
