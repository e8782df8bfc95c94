"""The simulations of a tau2 run as trials, checked one against another and against the tasks and the index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.importers.instants import instant_of
from api.importers.rewards import dimensions_of, is_unusable, reward_of
from api.importers.run import Failure, NoReward, Trial
from api.importers.strict_json import digest_of_value, to_text
from ledger.errors import BadInput
from ledger.facts.trial import Phase

SUCCEEDED = ("user_stop", "agent_stop")
PHASES: Mapping[str, Phase] = {
    "max_steps": "agent",
    "timeout": "agent",
    "too_many_errors": "agent",
    "agent_error": "agent",
    "context_window_exceeded": "agent",
}

Id = str | int
Form = TypeVar("Form")


class Environment(msgspec.Struct, frozen=True):
    """The domain that the tasks are of."""

    domain_name: str | None = None


class Info(msgspec.Struct, frozen=True):
    """What was asked for. `num_trials` is k; the tool knows its version by a commit only."""

    num_trials: Annotated[int, Meta(ge=1, le=1_000_000)]
    git_commit: str | None = None
    environment_info: Environment = Environment()


class Task(msgspec.Struct, frozen=True):
    """A task; the instructions of its user are a text or an object."""

    id: Id
    user_scenario: Any = None


class RewardInfo(msgspec.Struct, frozen=True):
    """What the verifier gave."""

    reward: Any | UnsetType = UNSET
    reward_breakdown: Any = None


class Simulation(msgspec.Struct, frozen=True):
    """One run of one task; `trial` counts from 0, `duration` is in seconds."""

    task_id: Id
    trial: Annotated[int, Meta(ge=0, lt=1_000_000)]
    termination_reason: Annotated[str, Meta(min_length=1, max_length=200)]
    reward_info: RewardInfo | None = None
    start_time: Any = None
    end_time: Any = None
    duration: Any = None
    info: dict[str, Any] | None = None


class Entry(msgspec.Struct, frozen=True):
    """A line of the index, which is no evidence of a simulation."""

    task_id: Id
    trial: int
    reward: Any = None


class _Seen(NamedTuple):
    where: str
    content: int


def info_of(value: Any) -> Info:
    """`info`. Raises BadInput when it is of another form."""
    return _form(value, Info, "`info`")


class Simulations:
    """What a run's lists hold: `tasks` with their instructions, and the trials by task and attempt.

    `foreign` are the ids of simulations whose task the run does not list; they are left out.
    """

    def __init__(self, flags: set[str]) -> None:
        self.tasks: dict[str, str | None] = {}
        self.slots: dict[tuple[str, int], Trial] = {}
        self.foreign: list[str] = []
        self._flags = flags
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._kinds: dict[str, type] = {}
        self._index: dict[tuple[str, int], Any] = {}
        self._has_index = False

    def take_list(self, name: str, values: Iterable[Any]) -> None:
        """Take `tasks`, `simulations` or `simulation_index`."""
        self._has_index |= name == "simulation_index"
        for number, value in enumerate(values, 1):
            if name == "simulations":
                self.take(f"Simulation {number:,}", value)
            elif name == "tasks":
                self._take_task(f"Task {number:,}", value)
            else:
                entry = _form(value, Entry, f"Entry {number:,} of the index")
                self._index[str(entry.task_id), entry.trial + 1] = entry.reward

    def take(self, where: str, value: Any) -> None:
        """Take one simulation."""
        simulation = _form(value, Simulation, where)
        slot = (self._id(where, simulation.task_id), simulation.trial + 1)
        seen = _Seen(where, digest_of_value(value))
        first = self._seen.setdefault(slot, seen)
        if first is seen:
            self.slots[slot] = self._trial(simulation, slot)
        elif first.content == seen.content:
            self._flags.add("duplicate-rows-dropped")
        else:
            raise BadInput(
                f"{first.where} and {where} say different things of trial {simulation.trial} at task {slot[0]}; keep "
                "the one that holds."
            )

    def finish(self, *, tasks_whole: bool) -> None:
        """Compare the lists once all were read. Of a cut list of tasks, the simulations tell further ones."""
        if self._has_index:
            if self._index.keys() != self.slots.keys():
                self._flags.add("source-incomplete")
            for slot in self._index.keys() & self.slots.keys():
                if not _same(self._index[slot], self.slots[slot].reward):
                    self._flags.add("as-reported-differs")
        unlisted = list(dict.fromkeys(task for task, _ in self.slots if task not in self.tasks))
        if not tasks_whole:
            self.tasks |= dict.fromkeys(unlisted)
        elif unlisted:
            self._flags.add("ids-not-in-dataset")
            self.foreign = unlisted
            self.slots = {slot: trial for slot, trial in self.slots.items() if slot[0] in self.tasks}

    def _take_task(self, where: str, value: Any) -> None:
        task = _form(value, Task, where)
        name = self._id(where, task.id)
        scenario = task.user_scenario
        text = scenario.get("instructions") if isinstance(scenario, dict) else scenario
        told = text if isinstance(text, str) or text is None else to_text(text).decode()
        if self.tasks.setdefault(name, told) != told:
            raise BadInput(f"{where} gives task {name} other instructions than before; keep the one that holds.")

    def _id(self, where: str, task_id: Id) -> str:
        name = str(task_id)
        if self._kinds.setdefault(name, type(task_id)) is not type(task_id):
            raise BadInput(f'{where}: the run has both {name} and "{name}" as a task\'s id; give them one spelling.')
        return name

    def _trial(self, simulation: Simulation, slot: tuple[str, int]) -> Trial:
        reason = simulation.termination_reason
        failure = None
        if reason not in SUCCEEDED:
            failure = Failure(reason, PHASES.get(reason, "unknown"), message=_message(simulation.info or {}))
        reward = _reward(simulation.reward_info, failure)
        if is_unusable(reward):
            self._flags.add("reward-rejected")
        if simulation.start_time is None and simulation.end_time is None:
            self._flags.add("times-missing")
        return Trial(
            *slot,
            "failed" if failure else "succeeded",
            reward,
            failure,
            dimensions_of(simulation.reward_info.reward_breakdown) if simulation.reward_info else None,
            started_at=instant_of(simulation.start_time, self._flags),
            ended_at=instant_of(simulation.end_time, self._flags),
            duration_s=_duration_s(simulation.duration),
        )


def _reward(info: RewardInfo | None, failure: Failure | None) -> float | NoReward | None:
    if info is None:
        return None if failure else NoReward("null")
    if info.reward is UNSET:
        return None if failure else NoReward("not-reported")
    return reward_of(info.reward)


def _message(info: dict[str, Any]) -> str | None:
    """What the tool noted of the error that a simulation ended by."""
    texts = [info.get(name) for name in ("error_type", "error", "error_traceback")]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def _duration_s(value: Any) -> float | None:
    number = reward_of(value)
    return number if isinstance(number, float) and number >= 0 else None


def _same(indexed: Any, reward: float | NoReward | None) -> bool:
    number = reward_of(indexed)
    if isinstance(number, float) and isinstance(reward, float):
        return math.isclose(number, reward, rel_tol=1e-9, abs_tol=1e-9)
    return not isinstance(number, float) and not isinstance(reward, float)


def _form(value: Any, form: type[Form], where: str) -> Form:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise BadInput(f"{where} is not of tau2's form: {error}.") from error
