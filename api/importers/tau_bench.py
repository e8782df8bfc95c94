"""tau-bench: one JSON array of `{task_id, trial, reward, info, traj}`, as its `run.py` writes it.

What is read: the ids, the reward, `info.error` with its traceback, the task's instruction. What is left out: `traj`,
the conversation, which stays in the source file; `info`'s costs and the verifier's own details.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.importers.files import find_files, head_of, read_whole, shown
from api.importers.rewards import is_unusable, reward_of
from api.importers.run import Failure, Member, NoReward, Options, Run, Trial
from api.importers.strict_json import NotJson, digest_of_value, read_array
from ledger.errors import BadInput

NAME = "tau-bench"
POLICIES: tuple[str, ...] = ("tau-1",)

_HEAD = re.compile(rb'\s*\[\s*\{\s*"(task_id|trial|reward|info|traj)"\s*:')

ERROR_TYPE = "RunError"  # the tool keeps an exception's text, not its class


class Task(msgspec.Struct, frozen=True):
    """The task as a row repeats it."""

    instruction: str | None = None


class Info(msgspec.Struct, frozen=True):
    """What the tool notes of a run: the task, or the error it died of."""

    error: str | None = None
    traceback: str | None = None
    task: Task | None = None


class Row(msgspec.Struct, frozen=True):
    """One run of one task; `trial` counts from 0."""

    task_id: int | str
    trial: Annotated[int, Meta(ge=0, lt=1_000_000)]
    reward: Any | UnsetType = UNSET
    info: Info = Info()


def find(path: Path) -> Sequence[Path]:
    """The file, or every `.json` file below a folder."""
    return find_files(path, ".json")


def recognises(path: Path) -> bool:
    """A `.json` file that begins with an array of the tool's rows."""
    return path.suffix == ".json" and _HEAD.match(head_of(path)) is not None


def read(path: Path, options: Options) -> Iterator[Run]:
    """The one job that a file holds. k is the number of different trial numbers.

    Raises:
        BadInput: the file is no such array, or a row contradicts another.
    """
    data, source = read_whole(path, bytes_max=options.file_bytes_max)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown(path)} is not UTF-8.") from error
    scan = _Scan()
    try:
        for number, value in enumerate(read_array(text), 1):
            scan.take(number, value)
    except NotJson as error:
        if options.strict:
            raise BadInput(f"{shown(path)}: {error}.") from error
        scan.flags.add("source-incomplete")
    trials = [seen.trial for seen in scan.slots.values()]
    yield Run(
        tool=NAME,
        name=path.stem,
        attempts=len({trial.attempt for trial in trials}),
        attempt_max=max((trial.attempt for trial in trials), default=0),
        members=[Member(task, text) for task, text in scan.members.items()],
        trials=lambda: iter(trials),
        failed_trials=sum(trial.status == "failed" for trial in trials),
        sources=[source],
        policy=options.policy or POLICIES[0],
        flags=sorted(scan.flags),
    )


class _Seen(NamedTuple):
    """Where a slot was seen first, what the whole row held, and its trial."""

    row: int
    content: int
    trial: Trial


class _Scan:
    """The rows of a file, checked one against the other."""

    def __init__(self) -> None:
        self.members: dict[str, str | None] = {}
        self.slots: dict[tuple[str, int], _Seen] = {}
        self.flags = {"times-missing"}
        self._kinds: dict[str, type] = {}
        self._unclear: set[str] = set()

    def take(self, number: int, value: Any) -> None:
        """Take one row, counted from 1."""
        try:
            row = msgspec.convert(value, Row)
        except msgspec.ValidationError as error:
            raise BadInput(f"Row {number:,} is no run of tau-bench: {error}.") from error
        task = str(row.task_id)
        if self._kinds.setdefault(task, type(row.task_id)) is not type(row.task_id):
            raise BadInput(
                f'Row {number:,}: the file has both {task} and "{task}" as a task_id; give them one spelling.'
            )
        self._add_member(task, row.info.task.instruction if row.info.task else None)
        trial = _trial(task, row)
        content = digest_of_value(value)
        first = self.slots.setdefault((task, trial.attempt), _Seen(number, content, trial))
        if first.row != number:
            if first.content != content:
                raise BadInput(
                    f"Rows {first.row:,} and {number:,} say different things of trial {row.trial} at task {task}; "
                    "keep the one that holds."
                )
            self.flags.add("duplicate-rows-dropped")
        elif is_unusable(trial.reward):
            self.flags.add("reward-rejected")

    def _add_member(self, task: str, text: str | None) -> None:
        """A task with two instructions has no one text: it is known by its name only."""
        had = self.members.setdefault(task, text)
        if task not in self._unclear and text is not None and had != text:
            self.members[task] = text if had is None else None
            if had is not None:
                self._unclear.add(task)


def _trial(task: str, row: Row) -> Trial:
    reward: float | NoReward = NoReward("not-reported") if row.reward is UNSET else reward_of(row.reward)
    if row.info.error is None:
        return Trial(task, row.trial + 1, "succeeded", reward)
    message = "\n".join(text for text in (row.info.error, row.info.traceback) if text)
    # A run that died has 0.0 written where its reward would be; only another number is a reward that exists.
    exists = isinstance(reward, float) and reward != 0
    return Trial(
        task, row.trial + 1, "failed", reward if exists else None, Failure(ERROR_TYPE, "agent", message=message)
    )
