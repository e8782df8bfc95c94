"""Harbor's JSON documents, as far as they are read. Harbor owns the format: fields not named here are ignored."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from api.importers.files import read_whole, shown
from api.importers.run import Source
from api.importers.strict_json import NotJson, is_cut, read_value
from ledger.errors import BadInput

T = TypeVar("T")

CONFIG, LOCK, RESULT = DOCUMENTS = ("config.json", "lock.json", "result.json")


class Cut(BadInput):
    """The file ends before its JSON does; `source` is what there is of it."""

    def __init__(self, sentence: str, source: Source) -> None:
        super().__init__(sentence)
        self.source = source


class Agent(msgspec.Struct, frozen=True):
    """An agent as it was asked for; the model's name begins with its provider."""

    name: str | None = None
    import_path: str | None = None
    model_name: str | None = None


class Retry(msgspec.Struct, frozen=True):
    """How often a failed trial is run again; its folder is then deleted first."""

    max_retries: int = 0


class JobConfig(msgspec.Struct, frozen=True):
    """`<job>/config.json`."""

    n_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    retry: Retry = Retry()


class TaskLock(msgspec.Struct, frozen=True):
    """A task as it was resolved; a local task is named after its folder."""

    name: str
    digest: str | None = None
    source: str | None = None


class TrialLock(msgspec.Struct, frozen=True):
    """`<trial>/lock.json`, and each trial of the job's own lock."""

    task: TaskLock
    agent: Agent = Agent()


class Harbor(msgspec.Struct, frozen=True):
    """The installation that ran the job."""

    version: str | None = None


class JobLock(msgspec.Struct, frozen=True):
    """`<job>/lock.json`: every trial that was asked for. Versions up to 0.6 write none."""

    harbor: Harbor = Harbor()
    trials: list[TrialLock] = []


class Eval(msgspec.Struct, frozen=True):
    """What Harbor printed of one agent, model and source."""

    n_trials: Any = None
    n_errors: Any = None
    metrics: list[dict[str, Any]] = []
    pass_at_k: dict[str, Any] = {}


class Stats(msgspec.Struct, frozen=True):
    """What Harbor printed of the job."""

    evals: dict[str, Eval] = {}
    n_cancelled_trials: Any = None
    n_retries: Any = None
    n_input_tokens: Any = None
    n_cache_tokens: Any = None
    n_output_tokens: Any = None
    cost_usd: Any = None


class JobResult(msgspec.Struct, frozen=True):
    """`<job>/result.json`, written again and again; with a `finished_at` the run has ended. Its times are local."""

    id: str
    started_at: datetime | None = None
    finished_at: datetime | None = None
    n_total_trials: int | None = None
    stats: Stats = Stats()


class Task(msgspec.Struct, frozen=True):
    """A task as it was asked for: of a registry by name, else by path."""

    name: str | None = None
    path: str | None = None


class TrialConfig(msgspec.Struct, frozen=True):
    """`<trial>/config.json`, and the copy of it in the result."""

    task: Task = Task()
    agent: Agent = Agent()
    job_id: str | None = None


class ModelInfo(msgspec.Struct, frozen=True):
    """A model by its own name, without its provider's."""

    name: str
    provider: str | None = None


class AgentInfo(msgspec.Struct, frozen=True):
    """An agent as it named itself."""

    name: str
    version: str | None = None
    model_info: ModelInfo | None = None


class VerifierResult(msgspec.Struct, frozen=True):
    """What the verifier gave: named numbers, if it gave any."""

    rewards: Any = None


class ExceptionInfo(msgspec.Struct, frozen=True):
    """How a trial, or a step of it, died. Up to 0.6 its time is local."""

    exception_type: str
    exception_message: str = ""
    exception_traceback: str = ""
    occurred_at: datetime | None = None


class Timing(msgspec.Struct, frozen=True):
    """A part of a trial. It has times when it was begun."""

    started_at: datetime | None = None
    finished_at: datetime | None = None


class Step(msgspec.Struct, frozen=True):
    """A step of a task that has several."""

    step_name: str
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None


class TrialResult(msgspec.Struct, frozen=True):
    """`<trial>/result.json`, written once, at the end. Its times are in UTC."""

    task_name: str
    trial_name: str
    id: str | None = None
    source: str | None = None
    task_checksum: str | None = None
    config: TrialConfig = TrialConfig()
    agent_info: AgentInfo | None = None
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    environment_setup: Timing | None = None
    agent_setup: Timing | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None
    step_results: list[Step] | None = None
    reward_valid: bool | None = None


def read_document(path: Path, form: type[T], *, below: Path, bytes_max: int) -> tuple[T, Source]:
    """A document, and the file as a source whose path is relative to the folder `below`.

    Raises:
        NotFound: there is no such file.
        Cut: it ends before its JSON does.
        BadInput: it is no JSON, names a key twice, or is not of the form; names the file.
    """
    data, source = read_whole(path, bytes_max=bytes_max)
    source = source._replace(path=shown(path.relative_to(below)))
    try:
        return msgspec.convert(read_value(data), form), source
    except NotJson as error:
        if is_cut(data):
            raise Cut(f"{shown(path)} is cut off before its end.", source) from error
        raise BadInput(f"{shown(path)}: {error}.") from error
    except msgspec.ValidationError as error:
        raise BadInput(f"{shown(path)} is no such file of Harbor: {error}.") from error
    except BadInput as error:
        raise BadInput(f"{shown(path)}: {error}") from error


def lock_name_of(task: Task) -> str | None:
    """What the lock calls a task: its name in a registry, else that of its folder."""
    return task.name if task.path is None else PurePosixPath(task.path).name or None
