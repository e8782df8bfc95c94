"""What this machine needs to run the trials of one job: its runner's steps, its files, its parameters and secrets."""

from __future__ import annotations

from collections.abc import Mapping

from api.el import El
from api.runners.sources import Source, recall
from ledger.errors import BadInput, NotAllowed
from ledger.facts.catalogue import RunnerPublished, Scalar, Step
from ledger.secrets import Redactor


class RunsElsewhere(NotAllowed):
    """The job's runner is external: somebody else runs its trials and reports them."""


class JobPlan:
    """Everything about a job that its trials share. It holds secret values, so its repr names the job only."""

    __slots__ = ("agent", "job_id", "outputs", "redactor", "secrets", "source", "structured_result",
                 "values", "verifier")  # fmt: skip

    def __init__(self, job_id: str, runner: RunnerPublished, source: Source, parameters: Mapping[str, Scalar]) -> None:
        self.job_id = job_id
        self.agent: Step = _step(runner, runner.agent)
        self.verifier: Step = _step(runner, runner.verifier)
        self.structured_result = runner.structured_result
        self.outputs = runner.outputs
        self.source = source
        self.values = {name: value_text(value) for name, value in parameters.items()}
        self.secrets: list[str] = []
        self.redactor = Redactor([])

    def take_secrets(self, secrets: Mapping[str, str]) -> None:
        """Take the values of the job's secrets. Raises BadInput when one cannot be an environment variable."""
        for name, value in secrets.items():
            if "\0" in value:
                raise BadInput(f"The secret {name} of job {self.job_id} holds a NUL; no process can be given it.")
        self.values |= secrets
        self.secrets = list(secrets.values())
        self.redactor = Redactor(self.secrets)

    def __repr__(self) -> str:
        return f"JobPlan({self.job_id})"


def prepare(el: El, job_id: str, files: Mapping[str, Source]) -> JobPlan:
    """The plan of a job on this machine, without its secrets: they are given out under a claim only.

    `files` says where datasets lie, before what this machine remembers.

    Raises:
        NotFound: there is no such job; or its dataset's files are not on this machine.
        RunsElsewhere: its runner is external.
        NotAllowed: its tasks are known by name only, so nothing can be compared with what was published.
    """
    job = el.job(job_id)
    runner = el.runner(job.runner)
    if runner.kind != "command":
        raise RunsElsewhere(
            f"Job {job_id} is run elsewhere: its runner {runner.ref} is external; report its trials with `el trial`."
        )
    if el.dataset(job.dataset).digests != "content":
        raise NotAllowed(f"The tasks of dataset {job.dataset} are known by name only and cannot be run.")
    source = files.get(job.dataset) or recall(el.sources, job.dataset)
    return JobPlan(job.id, runner, source, job.parameters)


def value_text(value: Scalar) -> str:
    """A parameter's value as an environment variable: true and false in lower case, numbers as Python writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _step(runner: RunnerPublished, step: Step | None) -> Step:
    if step is None:
        raise BadInput(f"Runner {runner.ref} is of kind command and needs an agent and a verifier command.")
    return step
