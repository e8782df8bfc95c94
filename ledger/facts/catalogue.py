"""Facts of the catalogue: datasets, runners and profiles, each in frozen revisions `name@version`."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.facts.fact import Fact

Scalar = str | int | float | bool


def dataset_stream(ref: str) -> str:
    """The stream of the dataset revision `ref` (`name@version`)."""
    return f"dataset/{ref}"


def runner_stream(ref: str) -> str:
    """The stream of the runner revision `ref` (`name@version`)."""
    return f"runner/{ref}"


def profile_stream(ref: str) -> str:
    """The stream of the profile revision `ref` (`name@version`)."""
    return f"profile/{ref}"


class Task(msgspec.Struct, frozen=True, array_like=True):
    """One problem of a benchmark: its name and the sha256 (hex) of its content."""

    name: str
    digest: str


class DatasetMembersAdded(Fact, frozen=True, tag="dataset-members-added"):
    """Tasks of a dataset revision, as many as fit one entry, in the dataset's order."""

    tasks: tuple[Task, ...]


class DatasetPublished(Fact, frozen=True, tag="dataset-published"):
    """Seals a dataset revision. `digests` says what a task's digest stands for: its content, or only its name."""

    ref: str
    runner: str
    member_count: int
    members_digest: str
    digests: Literal["content", "by-name"] = "content"


DatasetFact = DatasetMembersAdded | DatasetPublished


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A parameter that a runner reads. Without a default and not required, it is simply absent."""

    name: str
    required: bool = False
    default: Scalar | None = None


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A process of the `command` runner: its argument vector and how long it may take, in seconds."""

    command: tuple[str, ...]
    timeout_s: float = 600.0


class RunnerPublished(Fact, frozen=True, tag="runner-published"):
    """How tasks are executed. `kind` is `command` (we run its steps) or `external` (somebody else reports)."""

    ref: str
    kind: Literal["command", "external"]
    parameters: tuple[Parameter, ...] = ()
    agent: Step | None = None
    verifier: Step | None = None
    structured_result: str | None = None  # the declared result file, a path relative to the output folder
    outputs: tuple[str, ...] = ()  # glob patterns of the files to keep as artifacts


class ProfilePublished(Fact, frozen=True, tag="profile-published"):
    """Values for runner parameters; for a secret only its name and a keyed fingerprint, never the value."""

    ref: str
    params: dict[str, Scalar]
    secrets: dict[str, str]
