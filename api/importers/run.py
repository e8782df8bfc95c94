"""The neutral stream: what an importer reads out of a tool's files, before any of it is a fact.

An importer is a module with `NAME`, `POLICIES` (the names `--policy` may give), `find(path)` (the runs that lie at a
path), `read(path, options)` (each run as a `Run`) and `recognises(path)`, by which `el import auto` finds out whose a
file or folder is. `recording.import_run` takes a `Run` to facts, the same way for every tool.

`recognises` must be cheap and must not raise: it looks at names and at the first bytes of a file (`files.head_of`), and
parses nothing. It says yes to what `find` takes and `read` understands when it is whole: the file of a run, or the
folder of one run, never a folder that holds runs among other things. A folder that is recognised is not looked into for
runs of other tools. No two importers may say yes to the same path; a run that is cut may be one that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from ledger.facts.catalogue import Scalar
from ledger.facts.trial import ArtifactFailed, ArtifactPersisted, Phase, WhyNoReward

FILE_BYTES_MAX = 200_000_000
ARCHIVE_BYTES_MAX = 1_000_000_000
ARCHIVE_MEMBERS_MAX = 10_000

Status = Literal["queued", "running", "succeeded", "failed", "canceled"]


class Options(msgspec.Struct, frozen=True):
    """What a person may ask of an import. `attempts` and `runner` override what the files say.

    `strict` refuses a truncated file instead of importing what is whole; `file_bytes_max` caps every file, the archive
    caps what one unpacks to. `merge_runs` makes one job of several runs of one agent (terminal-bench); `scorer`
    (Inspect) and `metric` with `filter` (lm-eval) pick the reward where a tool gives several numbers.
    """

    dataset: str | None = None
    runner: str | None = None
    attempts: int | None = None
    policy: str | None = None
    strict: bool = False
    dry_run: bool = False
    keep_artifacts: bool = True
    file_bytes_max: int = FILE_BYTES_MAX
    archive_bytes_max: int = ARCHIVE_BYTES_MAX
    archive_members_max: int = ARCHIVE_MEMBERS_MAX
    merge_runs: bool = False
    scorer: str | None = None
    metric: str | None = None
    filter: str | None = None


class NoReward(NamedTuple):
    """The tool gave no usable number: why, and what stood in its place."""

    why: WhyNoReward
    raw: bytes | None = None


class Failure(NamedTuple):
    """How a trial failed. `message` is free text; it is kept as an artifact."""

    error_type: str
    phase: Phase = "unknown"
    exit_code: int | None = None
    message: str | None = None


class File(NamedTuple):
    """A file that a trial left: the name it is kept under, where it lies, and what it is."""

    name: str
    path: Path
    role: Literal["output", "stdout", "stderr", "reward", "result"] = "output"


class Trial(msgspec.Struct, frozen=True, gc=False):
    """One attempt as the tool tells it; `attempt` counts from 1, times are in UTC.

    `reward` is None where the tool says nothing and the status explains it. `failure` stands exactly when the status
    is `failed`. `dimensions` is bytes where they are no map of names to finite numbers: what stood there. `artifacts`
    are known by digest only; `files` are copied, unless the import keeps no artifacts. `duration_s` (seconds) is the
    tool's own; without it, the two times give it.
    """

    task: str
    attempt: int
    status: Status
    reward: float | NoReward | None = None
    failure: Failure | None = None
    dimensions: dict[str, float] | bytes | None = None
    artifacts: tuple[ArtifactPersisted | ArtifactFailed, ...] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None
    composite: float | None = None
    files: tuple[File, ...] = ()
    duration_s: float | None = None


class Member(NamedTuple):
    """A task of the run: its id as text, its instruction or prompt and its digest (sha256) where the tool has them."""

    task: str
    text: str | None = None
    digest: str | None = None


class Source(NamedTuple):
    """A file the run was read from: its path in the run, where it lies, sha256 and size (bytes) of what was read."""

    path: str
    file: Path
    sha256: str
    size: int


class Run(msgspec.Struct, frozen=True):
    """One finished run of a tool, which becomes one job.

    `name` names the dataset where neither the tool (`dataset`, a reference) nor a person does. `attempts` is k,
    `attempt_max` the largest attempt there is. `members` come in the tool's order. `trials` gives them anew each time
    it is called, each slot once; `failed_trials` says beforehand how many of them failed. With a `run_id`, other bytes
    under the same id are a conflict. `reward_from` says what picked the reward where the tool gives several numbers:
    the same run with another pick is another job.
    """

    tool: str
    name: str
    attempts: int
    attempt_max: int
    members: Sequence[Member]
    trials: Callable[[], Iterator[Trial]]
    failed_trials: int
    sources: Sequence[Source]
    tool_version: str | None = None
    run_id: str | None = None
    reward_from: str | None = None
    dataset: str | None = None
    policy: str | None = None
    flags: Sequence[str] = ()
    as_reported: Mapping[str, Scalar] = {}


class Importer(Protocol):
    """A module that reads the files of one tool."""

    NAME: str
    POLICIES: tuple[str, ...]

    def find(self, path: Path) -> Sequence[Path]:
        """The runs at a path: itself, or those below it when it is a folder."""

    def recognises(self, path: Path) -> bool:
        """Whether a file, or a folder, is a run of this tool, by its names and first bytes. Raises nothing."""

    def read(self, path: Path, options: Options) -> Iterable[Run]:
        """The jobs that one of these runs holds. Raises BadInput when it cannot be read as what it should be."""
