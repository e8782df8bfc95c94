"""What of `run_metadata.json` and `tb.lock` is read; either may be missing, or lack what older versions left out."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class Metadata(msgspec.Struct, frozen=True):
    """`run_metadata.json`: what was asked for; the tool adds its numbers and the end time at the end."""

    uuid: str | None = None
    dataset_name: str | None = None
    dataset_version: str | None = None
    dataset_path: str | None = None
    task_ids: list[str] | None = None
    n_attempts: Count | None = None
    agent_name: str | None = None
    model_name: str | None = None
    agent_kwargs: dict[str, Any] | None = None
    start_time: Any = None
    end_time: Any = None
    accuracy: Any = None
    pass_at_k: Any = None


class LockedHarness(msgspec.Struct, frozen=True):
    """The tool itself."""

    version: str | None = None


class LockedAgent(msgspec.Struct, frozen=True):
    """Who was measured."""

    name: str | None = None
    model_name: str | None = None
    extra_kwargs: dict[str, Any] | None = None


class LockedDataset(msgspec.Struct, frozen=True):
    """What it was measured on; a local dataset has a path only."""

    name: str | None = None
    version: str | None = None
    local_path: str | None = None
    task_ids: list[str] | None = None


class LockedConfig(msgspec.Struct, frozen=True):
    """How often."""

    n_attempts: Count | None = None


class Lock(msgspec.Struct, frozen=True):
    """`tb.lock`: the same, and the tool's version."""

    harness: LockedHarness = LockedHarness()
    agent: LockedAgent = LockedAgent()
    dataset: LockedDataset = LockedDataset()
    run_config: LockedConfig = LockedConfig()
