"""Our own neutral form: JSON Lines, one trial a line. `el schema import-jsonl` prints what a line may hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.importers.files import Lines, find_files, head_of
from api.importers.rewards import dimensions_of, is_unusable, reward_of
from api.importers.run import Failure, Member, NoReward, Options, Run, Source, Status, Trial
from api.importers.strict_json import NotJson, read_value
from ledger.errors import BadInput
from ledger.facts.trial import ArtifactPersisted, Phase, WhyNoReward
from ledger.rules.forms import checked_task_name

NAME = "jsonl"
POLICIES: tuple[str, ...] = ()

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Why a trial has no reward; the first two say that the trial's end is all there is to say.
NoRewardWord = Literal["trial-error", "canceled"] | WhyNoReward

Instant = Annotated[datetime, Meta(tz=True, description="RFC 3339, with its offset from UTC")]


class Error(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a trial failed."""

    type: Annotated[str, Meta(min_length=1, max_length=200, description="the kind of error, such as AgentTimeout")]
    exit_code: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    phase: Phase = "unknown"
    message: Annotated[str, Meta(description="free text; kept as an artifact, never in a fact")] | None = None


class Artifact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that the trial left, named by its digest. Its content is not part of the form."""

    name: Annotated[str, Meta(min_length=1, max_length=1_000)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, Meta(ge=0, le=2**63 - 1, description="bytes")]
    role: Literal["output", "stdout", "stderr", "message", "reward", "result", "source"] = "output"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line: one attempt at a task. A line with nothing but `task` names a member that has no trial.

    A key that is absent or null says nothing, except `reward: null`: the verifier gave none.
    """

    task: Annotated[str, Meta(min_length=1, max_length=512, description="the task's name; text, never a number")]
    attempt: Annotated[int, Meta(ge=1, le=1_000_000, description="counts from 1")] | None = None
    reward: Annotated[
        Any | UnsetType,
        Meta(
            description="any finite number; anything else is recorded as no reward, with the reason",
            extra_json_schema={"type": ["number", "null"]},
        ),
    ] = UNSET
    no_reward: Annotated[NoRewardWord, Meta(description="why there is none; not beside a `reward`")] | None = None
    raw_reward: Annotated[str, Meta(description="what stood in the reward's place; with `no_reward`")] | None = None
    status: Annotated[Status, Meta(description="absent: failed where there is an error, else succeeded")] | None = None
    error: Annotated[Error, Meta(description="only of a failed trial")] | None = None
    dimensions: Annotated[
        Any,
        Meta(
            description="named parts of the result, in their own units",
            extra_json_schema={"type": ["object", "null"], "additionalProperties": {"type": "number"}},
        ),
    ] = None
    composite: Annotated[float, Meta(description="the structured result as one number")] | None = None
    artifacts: list[Artifact] | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None


_HEAD = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"(%s)"\s*:' % "|".join(Row.__struct_fields__).encode())


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of one line."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Row)}


def find(path: Path) -> Sequence[Path]:
    """The file, or every `.jsonl` file below a folder."""
    return find_files(path, ".jsonl")


def recognises(path: Path) -> bool:
    """A `.jsonl` file whose first line begins with a key of ours and names a task."""
    head = head_of(path) if path.suffix == ".jsonl" else b""
    return _HEAD.match(head) is not None and b'"task"' in head


def read(path: Path, options: Options) -> Iterator[Run]:
    """The one job that a file holds; the file is read twice, and memory grows with its slots, not its bytes.

    Raises:
        BadInput: a line is not of the form, or contradicts another; names the line.
    """
    scan = _Scan()
    lines = Lines(path, bytes_max=options.file_bytes_max)
    for number, line in lines:
        try:
            row = _row(number, line)
            if row is not None:
                scan.take(number, row)
        except NotJson as error:
            # Only the last line can be without its line end: there the file was cut.
            if line.endswith(b"\n") or options.strict:
                raise BadInput(f"Line {number:,}: {error}.") from error
            scan.flags.add("source-incomplete")
            scan.left_out.add(number)
        except BadInput as error:
            raise BadInput(f"Line {number:,}: {error}") from error
    source = lines.source
    assert source is not None  # noqa: S101 - told to mypy; the lines were read to the end
    yield Run(
        tool=NAME,
        name=path.stem,
        attempts=scan.attempt_max or 1,
        attempt_max=scan.attempt_max,
        members=[Member(task) for task in scan.members],
        trials=lambda: _trials(path, options, source, scan.left_out),
        failed_trials=scan.failed_trials,
        sources=[source],
        flags=sorted(scan.flags),
    )


class _Seen(NamedTuple):
    """Where a slot was seen first, and a digest of what it held."""

    line: int
    content: int


class _Scan:
    """What the first reading of a file finds out."""

    def __init__(self) -> None:
        self.members: dict[str, None] = {}
        self.slots: dict[tuple[str, int], _Seen] = {}
        self.attempt_max = 0
        self.failed_trials = 0
        self.flags: set[str] = set()
        self.left_out: set[int] = set()

    def take(self, number: int, row: Row) -> None:
        """Check one row against those before it."""
        trial = _trial(row)
        if row.task not in self.members:
            self.members[checked_task_name(row.task)] = None
        if trial is None:
            return
        slot, content = (trial.task, trial.attempt), hash(msgspec.json.encode(trial))
        first = self.slots.setdefault(slot, _Seen(number, content))
        if first.line != number:
            if first.content != content:
                raise BadInput(
                    f"it says other things of attempt {trial.attempt:,} at {trial.task!r} than line {first.line:,}; "
                    "keep the line that holds."
                )
            self.flags.add("duplicate-rows-dropped")
            self.left_out.add(number)
            return
        self.attempt_max = max(self.attempt_max, trial.attempt)
        self.failed_trials += trial.status == "failed"
        if trial.status in ("queued", "running"):
            self.flags.add("run-unfinished")
        if is_unusable(trial.reward):
            self.flags.add("reward-rejected")


def _trials(path: Path, options: Options, source: Source, left_out: set[int]) -> Iterator[Trial]:
    """The second reading. Raises BadInput when the file is not what it was at the first."""
    lines = Lines(path, bytes_max=options.file_bytes_max)
    for number, line in lines:
        if number not in left_out:
            row = _row(number, line)
            if row is not None and (trial := _trial(row)):
                yield trial
    if lines.source != source:
        raise BadInput(f"{source.path} changed while it was read; import it again.")


def _row(number: int, line: bytes) -> Row | None:
    """One line as a row; None for an empty one."""
    if number == 1:
        line = line.removeprefix(BYTE_ORDER_MARK)
    if line.isspace() or not line:
        return None
    try:
        return msgspec.convert(read_value(line), Row)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}; `el schema import-jsonl` says what a line holds.") from error


def _trial(row: Row) -> Trial | None:
    """The trial that a row tells of; None when it only names a member."""
    if row.attempt is None:
        if row != Row(row.task):
            raise BadInput("it has no `attempt`; only a line with nothing but `task` goes without.")
        return None
    status = row.status or ("failed" if row.error else "succeeded")
    if row.error and status != "failed":
        raise BadInput(f"it has an `error` and the status {status}; only a failed trial has one.")
    if (row.ended_at and status in ("queued", "running")) or (row.started_at and status == "queued"):
        raise BadInput(f"it has a time that contradicts the status {status}.")
    failure = None
    if status == "failed":
        error = row.error or Error("unknown")
        failure = Failure(error.type, error.phase, error.exit_code, error.message)
    artifacts = tuple(ArtifactPersisted(part.name, part.sha256, part.size, part.role) for part in row.artifacts or ())
    return Trial(
        row.task,
        row.attempt,
        status,
        _reward(row, status),
        failure,
        dimensions_of(row.dimensions),
        artifacts,
        _utc(row.started_at),
        _utc(row.ended_at),
        row.composite,
    )


def _reward(row: Row, status: Status) -> float | NoReward | None:
    if row.reward is not UNSET:
        if row.no_reward or row.raw_reward is not None:
            raise BadInput("it has a `reward` and says that there is none; only one of both can hold.")
        return reward_of(row.reward)
    if row.raw_reward is not None and row.no_reward in (None, "trial-error", "canceled"):
        raise BadInput("its `raw_reward` needs a `no_reward` that says why it could not be used.")
    match row.no_reward:
        case None:
            return NoReward("not-reported") if status in ("succeeded", "canceled") else None
        case "trial-error" | "canceled":
            if (row.no_reward, status) not in (("trial-error", "failed"), ("canceled", "canceled")):
                raise BadInput(f"its `no_reward` {row.no_reward} contradicts the status {status}.")
            return None
        case why:
            return NoReward(why, None if row.raw_reward is None else row.raw_reward.encode())


def _utc(at: datetime | None) -> datetime | None:
    try:
        return at and at.astimezone(UTC)
    except OverflowError as error:
        raise BadInput(f"its time {at} has no place in UTC.") from error
