"""One folder that terminal-bench left: what it was asked for, what came of it, and what it printed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from api.importers.files import read_text, shown
from api.importers.instants import instant_of
from api.importers.reading import reading
from api.importers.rewards import reward_of
from api.importers.run import Options, Source, Trial
from api.importers.strict_json import Elements, digest_of_value, read_members
from api.importers.terminal_bench_files import LOCK, METADATA, RESULTS, trial_files
from api.importers.terminal_bench_forms import Lock, Metadata
from api.importers.terminal_bench_trials import Trials
from ledger.errors import BadInput
from ledger.facts.catalogue import Scalar
from projections import tally
from projections.metrics import measure_trials

AGAIN = "run_metadata."  # before the name of a number that stands there too, and differs
NAMES_SHOWN_MAX = 20

Form = TypeVar("Form")

_SOME_K = re.compile("[0-9]{1,4}")


class TerminalBenchRun:
    """A run as its folder tells it.

    `attempts` is k; `members` are the tasks asked for, each with its instructions; `started_at` is when it began, by
    its metadata or else its first trial.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        """Read a run's files. Raises BadInput when one is none of a run, or contradicts another."""
        self.folder = folder
        self.sources: list[Source] = []
        self.flags: set[str] = set()
        self.as_reported: dict[str, Scalar] = {}
        self._options = options
        self.metadata = self._read_form(METADATA, Metadata)
        self.lock = self._read_form(LOCK, Lock)
        self.trials = Trials()
        self._read_results()
        self._report("accuracy", self.metadata.accuracy, again=AGAIN)
        self._report("pass_at_k", self.metadata.pass_at_k, again=AGAIN)
        for path in trial_files(folder):
            self._read_trial(path)
        self.flags |= self.trials.flags
        self.attempts = self.metadata.n_attempts or self.lock.run_config.n_attempts or self.trials.attempts or 1
        self.dataset, self.dataset_version = self._dataset()
        self.members = self._members()
        began = [trial.started_at for trial in self.slots.values() if trial.started_at]
        self.started_at = instant_of(self.metadata.start_time, self.flags) or min(began, default=None)
        self._compare()

    @property
    def slots(self) -> Mapping[tuple[str, int], Trial]:
        """The trials by task and attempt, those of members only."""
        return self.trials.slots

    @property
    def attempt_max(self) -> int:
        """The largest attempt there is; 0 without a trial."""
        return max((attempt for _, attempt in self.slots), default=0)

    @property
    def agent(self) -> tuple[str | None, str | None, int]:
        """Who was measured: the agent, its model, and a digest of its further arguments, which may hold secrets."""
        kwargs = self.metadata.agent_kwargs or self.lock.agent.extra_kwargs or {}
        return (
            self.metadata.agent_name or self.lock.agent.name,
            self.metadata.model_name or self.lock.agent.model_name,
            digest_of_value(kwargs),
        )

    @property
    def content(self) -> tuple[str, ...]:
        """What a copy shares with it, wherever it lies."""
        return tuple(sorted(source.sha256 for source in self.sources))

    def _read_text(self, path: Path) -> str:
        text, source = read_text(path, bytes_max=self._options.file_bytes_max)
        self.sources.append(source._replace(path=shown(path.relative_to(self.folder))))
        return text

    def _read_form(self, name: str, form: type[Form]) -> Form:
        path = self.folder / name
        members: dict[str, Any] = {}
        if os.path.lexists(path):
            text = self._read_text(path)
            with reading(path, self._options, self.flags):
                for key, value in read_members(text):
                    members[key] = value
        try:
            return msgspec.convert(members, form)
        except msgspec.ValidationError as error:
            raise BadInput(f"{shown(path)} is not what terminal-bench writes there: {error}.") from error

    def _read_results(self) -> None:
        path = self.folder / RESULTS
        if not os.path.lexists(path):
            self.flags.add("source-incomplete")
            if self._options.strict:
                raise BadInput(f"{shown(self.folder)} has no {RESULTS}.")
            return
        text = self._read_text(path)
        members: dict[str, Any] = {}
        with reading(path, self._options, self.flags):
            for key, value in read_members(text, lists=("results",)):
                members[key] = value
                if key == "results":
                    if not isinstance(value, Elements):
                        raise BadInput("`results` must be a list of trials.")
                    for number, row in enumerate(value, 1):
                        self.trials.take_row(number, row)
            if "results" not in members:
                raise BadInput("it has no list `results`, as a run of terminal-bench has.")
        for name in ("accuracy", "n_resolved", "n_unresolved", "pass_at_k"):
            self._report(name, members.get(name))

    def _read_trial(self, path: Path) -> None:
        text, flags = self._read_text(path), set[str]()
        with reading(path, self._options, flags):
            value = dict(read_members(text))
            self.trials.take_file(shown(path.relative_to(self.folder)), value)
        self.flags |= flags

    def _report(self, name: str, value: Any, *, again: str = "") -> None:
        """Keep a number that the tool printed; `again` stands before its name where it comes again and is another."""
        if name == "pass_at_k" and isinstance(value, dict):
            for k, number in value.items():
                if _SOME_K.fullmatch(k):
                    self._report(f"{name}.{k}", number, again=again)
        elif isinstance(number := reward_of(value), float):
            printed = value if isinstance(value, int) and abs(value) < 2**53 else number
            if self.as_reported.setdefault(name, printed) != printed:
                self.as_reported[again + name] = printed

    def _dataset(self) -> tuple[str | None, str | None]:
        """Name and version; a local dataset has the name of its folder and no version."""
        told = _named(self.metadata.dataset_name, self.metadata.dataset_version)
        locked = _named(self.lock.dataset.name, self.lock.dataset.version)
        if told and locked and (told[0] != locked[0] or len({told[1], locked[1], None}) > 2):
            raise BadInput(
                f"{shown(self.folder)}: {METADATA} says {_spelt(told)}, {LOCK} {_spelt(locked)}; it is one dataset."
            )
        if told or locked:
            return max(filter(None, (told, locked)), key=lambda one: one[1] is not None)
        path = self.metadata.dataset_path or self.lock.dataset.local_path
        return (Path(path).name if path else None), None

    def _members(self) -> dict[str, set[str]]:
        """The tasks asked for with their instructions. Trials of others are left out, and named."""
        listed = _listed(self.metadata.task_ids) or _listed(self.lock.dataset.task_ids)
        instructions = self.trials.instructions
        if listed is None:
            return instructions
        foreign = sorted(instructions.keys() - {*listed})
        if foreign:
            self.flags.add("ids-not-in-dataset")
            more = f", and {len(foreign) - NAMES_SHOWN_MAX:,} more" if len(foreign) > NAMES_SHOWN_MAX else ""
            self.as_reported["ids_not_in_dataset"] = ", ".join(foreign[:NAMES_SHOWN_MAX]) + more
            left_out = {*foreign}
            self.trials.slots = {slot: trial for slot, trial in self.slots.items() if slot[0] not in left_out}
        return {task: instructions.get(task, set()) for task in listed}

    def _compare(self) -> None:
        """Flag where a printed number differs from ours, and a run that was left before its end."""
        missing = self.attempts * len(self.members) - len(self.slots)
        if missing > 0 and self.metadata.start_time and not self.metadata.end_time:
            self.flags.add("run-unfinished")
        ours = _numbers(self.attempts, self.members, self.slots.values())
        for name, value in self.as_reported.items():
            if isinstance(value, str):
                continue
            number = ours.get(name.removeprefix(AGAIN))
            if number is None or not math.isclose(number, value, rel_tol=1e-9, abs_tol=1e-9):
                self.flags.add("as-reported-differs")


def _numbers(attempts: int, members: Iterable[str], trials: Iterable[Trial]) -> dict[str, float | None]:
    """Our numbers under the tool's names."""
    by_task: dict[str, list[tally.Trial]] = {task: [] for task in members}
    for trial in trials:
        reward = trial.reward if isinstance(trial.reward, float) else None
        by_task[trial.task].append(tally.Trial(reward, True, trial.attempt > attempts))
    metrics = measure_trials(attempts, len(by_task), by_task)
    passed = sum(trial.reward == 1 for each in by_task.values() for trial in each)
    return {
        "accuracy": metrics.score,
        "n_resolved": passed,
        "n_unresolved": metrics.score_counts.scored - passed,
        **{f"pass_at_k.{point.k}": point.pass_at_k for point in metrics.curve},
    }


def _named(name: str | None, version: str | None) -> tuple[str, str | None] | None:
    """`core` with 0.1.1, `core:0.1.1`, `core@0.1.1` and `core==0.1.1` are one dataset; None without a name."""
    if not name:
        return None
    for mark in ("==", "@", ":"):
        before, found, after = name.rpartition(mark)
        if found and before and after and version in (None, after):
            return before, after
    return name, version


def _spelt(dataset: tuple[str, str | None]) -> str:
    return "@".join(filter(None, dataset))


def _listed(tasks: list[str] | None) -> list[str] | None:
    """The tasks that are listed; None where there is no list, or one of patterns, which early versions kept."""
    if not tasks or any(mark in task for task in tasks for mark in "*?["):
        return None
    return list(dict.fromkeys(tasks))
