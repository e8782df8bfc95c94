"""What this machine needs to run the trials of one job: its runner's steps, its files, its parameters and secrets."""

from __future__ import annotations

from collections.abc import Mapping

from api.client import Client
from api.runners.sources import Source, recall
from ledger.database import reading
from ledger.errors import BadInput, NotAllowed, NotFound
from ledger.facts.catalogue import RunnerPublished, Scalar, Step
from ledger.facts.job import JobSubmitted, job_stream
from ledger.rules.job import Job
from ledger.secrets import Redactor
from ledger.vault import open_secrets, require_secrets


class RunsElsewhere(NotAllowed):
    """The job's runner is external: somebody else runs its trials and reports them."""


class JobPlan:
    """Everything about a job that its trials share. It holds secret values, so its repr names the job only."""

    __slots__ = ("agent", "dataset", "job_id", "outputs", "redactor", "secrets", "source", "structured_result",
                 "values", "verifier")  # fmt: skip

    def __init__(
        self, manifest: JobSubmitted, runner: RunnerPublished, source: Source, secrets: Mapping[str, str]
    ) -> None:
        self.job_id = manifest.job_id
        self.dataset = manifest.dataset
        self.agent: Step = _step(runner, runner.agent)
        self.verifier: Step = _step(runner, runner.verifier)
        self.structured_result = runner.structured_result
        self.outputs = runner.outputs
        self.source = source
        self.values = {name: value_text(value) for name, value in manifest.parameters.items()} | dict(secrets)
        self.secrets = list(secrets.values())
        self.redactor = Redactor(self.secrets)

    def __repr__(self) -> str:
        return f"JobPlan({self.job_id})"


def prepare(client: Client, job_id: str) -> JobPlan:
    """The plan of a job on this machine.

    Raises:
        NotFound: there is no such job; or its dataset's files, or a secret, are not on this machine.
        RunsElsewhere: its runner is external.
        NotAllowed: its tasks are known by name only, so nothing can be compared with what was published.
        BadInput: a secret cannot be an environment variable.
        DamagedStore: a secret cannot be opened.
    """
    job: Job | None = client.ledger.state(job_stream(job_id))
    if job is None or job.manifest is None:
        raise NotFound(f"There is no job {job_id}; `el job list` shows those there are.")
    manifest = job.manifest
    runner = client.runner(manifest.runner)
    if runner.kind != "command":
        raise RunsElsewhere(
            f"Job {job_id} is run elsewhere: its runner {runner.ref} is external; report its trials with `el trial`."
        )
    if client.dataset(manifest.dataset).digests != "content":
        raise NotAllowed(f"The tasks of dataset {manifest.dataset} are known by name only and cannot be run.")
    source = recall(client.workspace.sources(client.project), manifest.dataset)
    return JobPlan(manifest, runner, source, _secrets(client, manifest))


def value_text(value: Scalar) -> str:
    """A parameter's value as an environment variable: true and false in lower case, numbers as Python writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _secrets(client: Client, manifest: JobSubmitted) -> dict[str, str]:
    if not manifest.secrets or manifest.profile is None:
        return {}
    with reading(client.ledger.engine) as connection:
        values = open_secrets(connection, client.workspace.secrets, client.project, manifest.profile)
    secrets = require_secrets(values, manifest.secrets, manifest.profile)
    for name, value in secrets.items():
        if "\0" in value:
            raise BadInput(f"The secret {name} of profile {manifest.profile} holds a NUL; no process can be given it.")
    return secrets


def _step(runner: RunnerPublished, step: Step | None) -> Step:
    if step is None:
        raise BadInput(f"Runner {runner.ref} is of kind command and needs an agent and a verifier command.")
    return step
