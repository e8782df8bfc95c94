"""Publishing in the catalogue, and finding what was published: the embedded client's side of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from sqlalchemy.engine import Connection

from api.answers import Published
from ledger.application import Written
from ledger.database import writing
from ledger.digests import members_digest
from ledger.errors import NotFound
from ledger.facts.catalogue import (
    DatasetPublished,
    ProfilePublished,
    RunnerPublished,
    Scalar,
    Task,
    dataset_stream,
    profile_stream,
    runner_stream,
)
from ledger.rules import catalogue as rules
from ledger.rules.forms import checked_ref
from ledger.vault import fingerprints, put_secrets

if TYPE_CHECKING:
    from api.client import Client


def publish_dataset(
    client: Client, ref: str, tasks: Sequence[Task], *, runner: str, digests: Literal["content", "by-name"]
) -> Published:
    """A dataset revision under a published runner."""
    if client.state(runner_stream(checked_ref(runner))) is None:
        raise NotFound(f"There is no runner {runner}; publish it first with `el runner publish FILE`.")
    rule = partial(
        rules.publish_dataset,
        ref=ref,
        tasks=tasks,
        runner=runner,
        members_digest=members_digest((task.name, task.digest) for task in tasks),
        digests=digests,
    )
    return published(ref, client.ledger.record(dataset_stream(checked_ref(ref)), rule))


def publish_runner(client: Client, runner: RunnerPublished) -> Published:
    """A runner revision."""
    rule = partial(rules.publish_runner, runner=runner)
    return published(runner.ref, client.ledger.record(runner_stream(checked_ref(runner.ref)), rule))


def create_profile(client: Client, ref: str, params: Mapping[str, Scalar], secrets: Mapping[str, str]) -> Published:
    """A profile revision, its secrets sealed in the same transaction."""
    checked_ref(ref)
    box = client.workspace.secrets if secrets else None
    prints = fingerprints(box, client.project, ref, secrets) if box else {}
    profile = ProfilePublished(ref, dict(params), prints)
    rule = partial(rules.publish_profile, profile=profile)

    def seal(connection: Connection) -> None:
        if box:
            put_secrets(connection, box, client.project, ref, secrets)

    written = client.ledger.record(profile_stream(ref), rule, also=seal)
    if not written.facts:
        with writing(client.workspace.engine) as connection:
            seal(connection)
    return published(ref, written)


def published_dataset(client: Client, ref: str) -> DatasetPublished:
    """The seal of a dataset revision. Raises NotFound."""
    past = client.stream(dataset_stream(checked_ref(ref)))
    if not past or not isinstance(past[-1].entry.fact, DatasetPublished):
        raise NotFound(f"There is no dataset {ref}; `el dataset list` shows those there are.")
    return past[-1].entry.fact


def published_runner(client: Client, ref: str) -> RunnerPublished:
    """A runner revision. Raises NotFound."""
    runner: RunnerPublished | None = client.state(runner_stream(checked_ref(ref)))
    if runner is None:
        raise NotFound(f"There is no runner {ref}; `el runner list` shows those there are.")
    return runner


def published_profile(client: Client, ref: str) -> ProfilePublished:
    """A profile revision. Raises NotFound."""
    profile: ProfilePublished | None = client.state(profile_stream(checked_ref(ref)))
    if profile is None:
        raise NotFound(f"There is no profile {ref}; `el profile list` shows those there are.")
    return profile


def published(ref: str, written: Written) -> Published:
    """What a write about something that has a name came to."""
    return Published(ref, "written" if written.facts else "unchanged", written.position)
