"""The rows of a terminal-bench run, in its results.json and in each trial's own, as trials checked one against another.

Both files say the same of a trial, or the run is refused; one that stands in only one of them counts.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.importers.instants import instant_of
from api.importers.rewards import is_unusable, reward_of
from api.importers.run import Failure, NoReward, Trial
from api.importers.strict_json import digest_of_value
from ledger.errors import BadInput
from ledger.facts.trial import Phase

NO_FAILURE = ("unset", "none")
PHASES: dict[str, Phase] = {
    "agent_installation_failed": "setup",
    "agent_timeout": "agent",
    "unknown_agent_error": "agent",
    "fatal_llm_parse_error": "agent",
    "context_length_exceeded": "agent",
    "output_length_exceeded": "agent",
    "test_timeout": "verifier",
    "parse_error": "verifier",
}
OUTCOME = ("is_resolved", "failure_mode", "parser_results", "trial_started_at", "trial_ended_at")

# What follows the task in a trial's name: `.<i>-of-<n>.<run>`.
_SLOT = re.compile(r"\.([0-9]{1,7})-of-([0-9]{1,7})(?:\.|$)")


class Row(msgspec.Struct, frozen=True):
    """One trial as the tool writes it."""

    task_id: str
    trial_name: str
    instruction: str | None = None
    is_resolved: Any | UnsetType = UNSET
    failure_mode: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    parser_results: Any = None
    trial_started_at: Any = None
    trial_ended_at: Any = None


class Trials:
    """The trials of a run by their slot, and the instructions that its rows give each task."""

    def __init__(self) -> None:
        self.slots: dict[tuple[str, int], Trial] = {}
        self.instructions: dict[str, set[str]] = {}
        self.attempts = 0  # the n of `<i>-of-<n>`
        self.flags: set[str] = set()
        self._seen: dict[tuple[str, int], _Seen] = {}

    def take_row(self, number: int, value: Any) -> None:
        """Take a row of the run's results.json, counted from 1."""
        slot, seen = self._read(f"Row {number:,}", value)
        first = self._seen.setdefault(slot, seen)
        if first is not seen:
            if first.content != seen.content:
                raise _contradiction(first, seen, slot)
            self.flags.add("duplicate-rows-dropped")

    def take_file(self, name: str, value: Any) -> None:
        """Take a trial's own results.json, after all rows."""
        slot, seen = self._read(name, value)
        first = self._seen.get(slot)
        if first is None:
            self._seen[slot] = seen
            self.flags.add("source-incomplete")  # the run's own file does not know it
        elif first.outcome != seen.outcome:
            raise _contradiction(first, seen, slot)

    def _read(self, where: str, value: Any) -> tuple[tuple[str, int], _Seen]:
        try:
            row = msgspec.convert(value, Row)
        except msgspec.ValidationError as error:
            raise BadInput(f"{where} is no trial of terminal-bench: {error}.") from error
        match = _SLOT.match(row.trial_name, len(row.task_id)) if row.trial_name.startswith(row.task_id) else None
        if match is None or int(match[1]) == 0:
            raise BadInput(
                f"{where}: the trial's name {row.trial_name!r:.200} must be the task {row.task_id!r:.200} followed by "
                "'.<i>-of-<n>.<run>', i from 1."
            )
        self.attempts = max(self.attempts, int(match[2]))
        texts = self.instructions.setdefault(row.task_id, set())
        if row.instruction is not None:
            texts.add(row.instruction)
        slot = (row.task_id, int(match[1]))
        if slot not in self.slots:
            self.slots[slot] = self._trial(row, slot[1])
        outcome = {name: value.get(name) for name in OUTCOME} | {"failure_mode": row.failure_mode or NO_FAILURE[0]}
        return slot, _Seen(where, digest_of_value(value), digest_of_value(outcome))

    def _trial(self, row: Row, attempt: int) -> Trial:
        mode = row.failure_mode or NO_FAILURE[0]
        failure = None if mode in NO_FAILURE else Failure(mode, PHASES.get(mode, "unknown"))
        reward = _reward(row, failure)
        if is_unusable(reward):
            self.flags.add("reward-rejected")
        if row.is_resolved is True and not row.parser_results:
            self.flags.add("empty-parser-results")
        if row.trial_started_at is None and row.trial_ended_at is None:
            self.flags.add("times-missing")
        return Trial(
            row.task_id,
            attempt,
            "failed" if failure else "succeeded",
            reward,
            failure,
            started_at=instant_of(row.trial_started_at, self.flags),
            ended_at=instant_of(row.trial_ended_at, self.flags),
        )


class _Seen(NamedTuple):
    """Where a slot was seen first, what stood there, and the part of it that both kinds of files must agree on."""

    where: str
    content: int
    outcome: int


def _reward(row: Row, failure: Failure | None) -> float | NoReward | None:
    if row.is_resolved is UNSET:
        return None if failure else NoReward("not-reported")
    return float(row.is_resolved) if isinstance(row.is_resolved, bool) else reward_of(row.is_resolved)


def _contradiction(first: _Seen, second: _Seen, slot: tuple[str, int]) -> BadInput:
    return BadInput(
        f"{first.where} and {second.where} say different things of attempt {slot[1]:,} at {slot[0]!r:.200}; "
        "keep the one that holds."
    )
