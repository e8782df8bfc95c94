"""Given: datasets of small tasks and `command` runners made of shell lines, for the tests of runner and worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from api.client import Client
from api.runners.sources import Source, remember
from api.settings import Settings
from api.wiring import Workspace
from ledger.digests import task_digest_of_folder
from ledger.facts.catalogue import Parameter, RunnerPublished, Step, Task

REWARD_1 = "echo 1 > {output}/reward.txt"
DATASET = "tasks@1"


def client_at(home: Path) -> Client:
    return Client(Workspace(Settings(home=home)), "default")


def runner_of(
    agent: str,
    verifier: str = REWARD_1,
    *,
    ref: str = "sh@1",
    timeout_s: float = 20.0,
    outputs: Sequence[str] = (),
    structured_result: str | None = None,
    parameters: Sequence[Parameter] = (),
) -> RunnerPublished:
    """A runner whose two steps are lines for the shell."""
    return RunnerPublished(
        ref,
        "command",
        tuple(parameters),
        Step(("sh", "-c", agent), timeout_s),
        Step(("sh", "-c", verifier), timeout_s),
        structured_result,
        tuple(outputs),
    )


def task_folders(folder: Path, names: Sequence[str]) -> list[Task]:
    """A dataset on disk: for each name a folder with one file."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "question.txt").write_text(f"what is {name}?\n")
    return [Task(name, task_digest_of_folder(folder / name)) for name in names]


def published(client: Client, folder: Path, runner: RunnerPublished, names: Sequence[str], ref: str = DATASET) -> None:
    """The dataset and its runner in the catalogue, its files known to this machine."""
    tasks = task_folders(folder, names)
    client.publish_runner(runner)
    client.publish_dataset(ref, tasks, runner=runner.ref)
    remember(client.workspace.sources(client.project), ref, Source("folder", folder))


def job_of(
    client: Client,
    folder: Path,
    runner: RunnerPublished,
    names: Sequence[str] = ("t1",),
    *,
    attempts: int = 1,
    ref: str = DATASET,
    params: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> str:
    """A submitted job over fresh tasks; its id."""
    published(client, folder, runner, names, ref)
    profile = None
    if params or secrets:
        profile = "profile@1"
        client.create_profile(profile, params or {}, secrets or {})
    return client.submit_job(ref, attempts=attempts, profile=profile).id


def until(condition: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Wait until a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
