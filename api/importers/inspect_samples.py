"""The samples of an Inspect log as trials: one epoch of a sample is one attempt at the member that its id names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.importers.instants import instant_of
from api.importers.json_stream import Picked
from api.importers.rewards import is_unusable, reward_of
from api.importers.run import Failure, NoReward, Trial
from api.importers.strict_json import NotFinite, read_value
from ledger.errors import BadInput
from ledger.rules.forms import checked_task_name

LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # correct, incorrect, partial, no answer
CANCELLED = "CancelledError"
UNKNOWN_ERROR = "SampleError"

_REPR = re.compile(r"([A-Za-z_][\w.]{0,199})\(.*\)", re.DOTALL)
_LAST_LINE = re.compile(r"^([A-Za-z_][\w.]{0,199}(?:Error|Exception|Timeout|Interrupt|Exit))(?::|$)", re.MULTILINE)


class Score(msgspec.Struct, frozen=True):
    """What one scorer said; its explanation, answer and history stay in the log."""

    value: Any | UnsetType = UNSET


class Error(msgspec.Struct, frozen=True):
    """Why a sample ended before its time: usually `repr` of the exception, and its traceback."""

    message: str = ""
    traceback: str | None = None


class Sample(msgspec.Struct, frozen=True):
    """One epoch of one sample, as far as it is read."""

    id: Any
    epoch: Annotated[int, Meta(ge=1, le=1_000_000)]
    input: Any = None
    scores: dict[str, Score] | None = None
    error: Error | None = None
    error_retries: list[Any] | None = None
    limit: Any = None
    invalidation: Any = None
    started_at: Any = None
    completed_at: Any = None
    total_time: Any = None


SAMPLE_KEYS = Sample.__struct_fields__


class _Seen(NamedTuple):
    """Where a slot was seen first, what the whole of it held, and the sample without its input."""

    where: str
    content: bytes
    sample: Sample


class Samples:
    """The samples of one log, checked one against the other."""

    def __init__(self) -> None:
        self.texts: dict[str, str | None] = {}
        self.scorers: dict[str, None] = {}
        self.flags: set[str] = set()
        self.slots: dict[tuple[str, int], _Seen] = {}
        self._kinds: dict[str, type] = {}
        self._unclear: set[str] = set()

    def take(self, where: str, picked: Picked) -> None:
        """Take one sample, which lies at `where`. Raises BadInput when it is none, or contradicts another."""
        try:
            sample = msgspec.convert(read_value(picked.text), Sample)
        except (BadInput, msgspec.ValidationError) as error:
            raise BadInput(f"{where} is no sample of Inspect: {str(error).removesuffix('.')}.") from error
        task = id_text(sample.id, where)
        if self._kinds.setdefault(task, type(sample.id)) is not type(sample.id):
            raise BadInput(f'{where}: the log has samples with both {task} and "{task}" as id; give them one spelling.')
        self._add_text(task, prompt_of(sample.input))
        first = self.slots.setdefault(
            (task, sample.epoch), _Seen(where, picked.content, msgspec.structs.replace(sample, input=None))
        )
        if first.where != where:
            if first.content != picked.content:
                raise BadInput(
                    f"{first.where} and {where} say different things of epoch {sample.epoch} of sample {task!r}; "
                    "keep the one that holds."
                )
            self.flags.add("duplicate-rows-dropped")
            return
        self.scorers |= dict.fromkeys(sample.scores or {})
        self._flag(sample)

    def trials(self, scorer: str | None) -> Iterator[Trial]:
        """Each slot's trial, its reward from this scorer, and what the others said as dimensions."""
        for (task, epoch), seen in self.slots.items():
            yield self._trial(task, epoch, seen.sample, scorer)

    def _add_text(self, task: str, text: str | None) -> None:
        """A sample with two inputs has no one text: it is known by its id only."""
        had = self.texts.setdefault(task, text)
        if task not in self._unclear and text is not None and had != text:
            self.texts[task] = text if had is None else None
            if had is not None:
                self._unclear.add(task)

    def _flag(self, sample: Sample) -> None:
        told = {
            "limit-reached": sample.limit,
            "samples-invalidated": sample.invalidation,
            "errors-retried": sample.error_retries,
        }
        self.flags |= {flag for flag, value in told.items() if value}

    def _trial(self, task: str, epoch: int, sample: Sample, scorer: str | None) -> Trial:
        scores = {name: score.value for name, score in (sample.scores or {}).items() if score.value is not UNSET}
        reward = _reward(scores, scorer)
        if is_unusable(reward):
            self.flags.add("reward-rejected")
        if reward == NoReward("no-reward-key"):
            self.flags.add("no-reward-key")
        dimensions, rejected = _dimensions(scores, scorer)
        if rejected:
            self.flags.add("dimensions-rejected")
        failure = _failure(sample.error) if sample.error else None
        canceled = failure is not None and failure.error_type.rpartition(".")[2] == CANCELLED
        duration = reward_of(sample.total_time)
        if reward is None and failure is None:
            reward = NoReward("not-reported")
        return Trial(
            task,
            epoch,
            "canceled" if canceled else "failed" if failure else "succeeded",
            reward,
            None if canceled else failure,
            dimensions or None,
            started_at=instant_of(sample.started_at, self.flags),
            ended_at=instant_of(sample.completed_at, self.flags),
            duration_s=duration if isinstance(duration, float) and duration >= 0 else None,
        )


def id_text(value: Any, where: str) -> str:
    """A sample's id as text. Raises BadInput when it is neither text nor a whole number."""
    if type(value) is not int and type(value) is not str:
        raise BadInput(f"{where} has an id that is neither text nor a whole number.")
    try:
        return checked_task_name(str(value))
    except BadInput as error:
        raise BadInput(f"{where} has an id that cannot be kept. {error}") from error


def prompt_of(value: Any) -> str | None:
    """A sample's input as text; of messages, who speaks and the texts, since their ids are other in every run."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    lines = []
    for message in value:
        if not isinstance(message, dict):
            return None
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        lines.append("\n".join([f"{message.get('role')}:", *texts]))
    return "\n".join(lines)


def number_of(value: Any) -> float | NoReward:
    """A score's value as a number: letters and truth values are numbers to Inspect, its NaN says `unscored`."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in LETTERS:
        return LETTERS[value]
    if isinstance(value, NotFinite) and value.text == "NaN":
        return NoReward("unscored")
    return reward_of(value)


def _reward(scores: Mapping[str, Any], scorer: str | None) -> float | NoReward | None:
    """The reward; None when its scorer said nothing."""
    if scorer is None or scorer not in scores:
        return None
    value = scores[scorer]
    return NoReward("no-reward-key") if isinstance(value, dict | list) else number_of(value)


def _dimensions(scores: Mapping[str, Any], scorer: str | None) -> tuple[dict[str, float], bool]:
    """What is no reward as dimensions `<scorer>` or `<scorer>.<key>`, and whether something there is no number."""
    found: dict[str, float] = {}
    rejected = False
    for name, value in scores.items():
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            parts = {f"{name}.{key}": part for key, part in items}
        else:
            parts = {} if name == scorer else {name: value}
        for key, part in parts.items():
            number = number_of(part)
            if isinstance(number, float) and key not in found:
                found[key] = number
            elif isinstance(number, float) or is_unusable(number):
                rejected = True
    return found, rejected


def _failure(error: Error) -> Failure:
    whole = _REPR.fullmatch(error.message)
    lines = None if whole else _LAST_LINE.findall(error.traceback or "")
    error_type = whole[1] if whole else lines[-1] if lines else UNKNOWN_ERROR
    message = "\n".join(text for text in (error.message, error.traceback) if text)
    return Failure(error_type, message=message or None)
