"""Given: jobs of one cohort with the rewards and composites a test names, recorded fact by fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from api.boards import Board
from api.client import Client
from api.settings import Settings
from api.wiring import Workspace
from ledger.facts.access import STREAM
from ledger.facts.catalogue import Parameter, RunnerPublished, Task
from ledger.facts.job import job_stream
from ledger.facts.trial import (
    StructuredResultRecorded,
    TrialDispatched,
    TrialFailed,
    TrialSucceeded,
    trial_id_for,
    trial_stream,
)
from ledger.rules import job, trial
from ledger.rules.access import create_project
from tests.given import digest_of

Rewards = Mapping[str, Sequence[float | None]]

SEED: Rewards = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.0, None]}
"""Five of six attempts are scored, three of them passed: a score of 0.6, and pass@k of the two complete members."""


class Bench:
    """A project with one dataset of tasks, and jobs on it, each by a model of its own."""

    def __init__(self, client: Client, tasks: Sequence[str] = ("a", "b", "c"), *, dataset: str = "set@1") -> None:
        self.client, self.dataset = client, dataset
        client.publish_runner(RunnerPublished("bench@1", "external", (Parameter("MODEL_NAME"),)))
        client.publish_dataset(dataset, [Task(name, digest_of(name)) for name in tasks], runner="bench@1")

    def job(
        self,
        rewards: Rewards,
        *,
        model: str | None = None,
        composites: Mapping[tuple[str, int], float] | None = None,
        tasks: Sequence[str] = (),
        ends: bool = True,
    ) -> str:
        """The id of a job with these rewards; a None is a trial that failed without one, what is left out never ran."""
        profile = None
        if model is not None:
            profile = f"{model}@1"
            self.client.create_profile(profile, {"MODEL_NAME": model}, {})
        attempts = max(map(len, rewards.values()), default=1)
        asked = self.client.submit_job(self.dataset, attempts=attempts, profile=profile, tasks=tasks)
        for task, values in rewards.items():
            for attempt, reward in enumerate(values, 1):
                self.trial(asked.id, task, attempt, reward, composite=(composites or {}).get((task, attempt)))
        if ends:
            failed = sum(reward is None for values in rewards.values() for reward in values)
            self.end(asked.id, job.finish_job, failed_trials=failed)
        return asked.id

    def trial(
        self, job_id: str, task: str, attempt: int, reward: float | None, *, composite: float | None = None
    ) -> None:
        """One trial of a job from its dispatch to its end."""
        dispatched = TrialDispatched(trial_id_for(job_id, task, attempt), job_id, task, digest_of(task), attempt)
        rules: list[Any] = [partial(trial.dispatch, dispatched=dispatched), trial.start]
        if reward is not None:
            rules.append(partial(trial.record_reward, reward=reward))
        if composite is not None:
            rules.append(partial(trial.record_structured_result, result=StructuredResultRecorded(composite)))
        ended = TrialSucceeded() if reward is not None else TrialFailed("Lost", "agent")
        self.client.ledger.record(trial_stream(job_id, task, attempt), *rules, partial(trial.end, ended=ended))

    def end(self, job_id: str, rule: Any, **arguments: Any) -> None:
        """End a job by a rule of it."""
        self.client.ledger.record(job_stream(job_id), partial(rule, **arguments))

    def revise(self, job_id: str, task: str, attempt: int, new: float) -> None:
        """Correct a reward by a later grading."""
        rule = partial(trial.revise_reward, new=new, verifier="v@2", reason="regraded")
        self.client.ledger.record(trial_stream(job_id, task, attempt), rule)

    @property
    def position(self) -> int:
        """The last position of the log."""
        return self.client.ledger.head().size


def client_of(home: Path, project: str = "default", *, database_url: str | None = None) -> Client:
    """A client on a store of its own."""
    workspace = Workspace(Settings(home=home, database_url=database_url))
    if project != "default":
        workspace.unchecked_ledger(project).record(STREAM, lambda state: create_project(state, name=project))
    return Client(workspace, project)


def shown(board: Board) -> list[tuple[int | None, str]]:
    """Rank and name of each row."""
    return [(row.rank, row.name) for row in board.rows]
