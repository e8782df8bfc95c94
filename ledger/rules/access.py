"""Rules of a project and its keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from ledger.errors import BadInput, Conflict, NotFound
from ledger.facts.access import (
    SCOPES,
    ApiKeyIssued,
    ApiKeyRevoked,
    LogEpochStarted,
    ProjectCreated,
    ProjectFact,
    Scope,
)
from ledger.rules.forms import checked_sha256

KEYS_MAX = 1_000

_PROJECT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was issued at a time, and whether it was revoked since."""

    issued: ApiKeyIssued
    revoked: bool = False

    def is_valid(self, now: datetime) -> bool:
        """Whether it opens anything at a time."""
        return not self.revoked and (self.issued.expires_at is None or now < self.issued.expires_at)


@dataclass(frozen=True, slots=True)
class Project:
    """A project with its keys by id, in the order they were issued, and the epochs its log has begun anew."""

    name: str
    keys: Mapping[str, Key] = field(default_factory=dict)
    epochs: tuple[LogEpochStarted, ...] = ()


State = Project | None


def evolve(state: State, fact: ProjectFact) -> State:
    """The project after one more fact."""
    match fact:
        case ProjectCreated():
            return Project(fact.name)
        case ApiKeyIssued():
            project = _there(state)
            return replace(project, keys={**project.keys, fact.key_id: Key(fact)})
        case ApiKeyRevoked():
            project = _there(state)
            revoked = replace(project.keys[fact.key_id], revoked=True)
            return replace(project, keys={**project.keys, fact.key_id: revoked})
        case LogEpochStarted():
            project = _there(state)
            return replace(project, epochs=(*project.epochs, fact))
        case _:
            assert_never(fact)


def checked_project(name: str) -> str:
    """A project's name as it is: 1 to 63 of a-z, 0-9, '.', '_', '-', starting with a letter or digit."""
    if not _PROJECT.fullmatch(name):
        raise BadInput(
            f"{name[:80]!r} is no project name; use 1 to 63 of a-z, 0-9, '.', '_', '-', first a letter or digit."
        )
    return name


def create_project(state: State, *, name: str) -> list[ProjectFact]:
    """Create a project; one that is there already stays as it is."""
    return [] if state else [ProjectCreated(checked_project(name))]


def issue_key(state: State, *, key: ApiKeyIssued, now: datetime) -> list[ProjectFact]:
    """Hand out a key. Its name is what stands as actor in the log, so no other valid key may have it.

    Raises:
        BadInput: name, digest, scopes or end have not the right form.
        Conflict: a valid key has this name.
        NotFound: there is no such project.
    """
    project = _there(state)
    if not _PROJECT.fullmatch(key.name):
        raise BadInput(
            f"{key.name[:80]!r} is no name of a key; use 1 to 63 of a-z, 0-9, '.', '_', '-', first a letter or digit."
        )
    checked_sha256(key.sha256)
    checked_scopes(key.scopes)
    if key.expires_at is not None and key.expires_at <= now:
        raise BadInput("The key would have expired already; give a time in the future.")
    valid = [one for one in project.keys.values() if one.is_valid(now)]
    if any(one.issued.name == key.name for one in valid):
        raise Conflict(f"A valid key is named {key.name} already; revoke it first, or choose another name.")
    if len(valid) >= KEYS_MAX:
        raise BadInput(f"The project has {KEYS_MAX:,} valid keys, which is the most; revoke some first.")
    return [key]


def revoke_key(state: State, *, key_id: str) -> list[ProjectFact]:
    """Take a key back for good; a revoked one stays so.

    Raises:
        NotFound: the project has no such key.
    """
    key = _there(state).keys.get(key_id)
    if key is None:
        raise NotFound("There is no key with this id or name; `el key list` shows those there are.")
    return [] if key.revoked else [ApiKeyRevoked(key_id)]


def start_epoch(state: State, *, size: int, root: str, reason: str) -> list[ProjectFact]:
    """Go on although the log does not extend a checkpoint that was seen of it; each checkpoint is given up once.

    Raises:
        BadInput: there is no reason, or the root is no sha256.
        NotFound: there is no such project.
    """
    project = _there(state)
    if not reason.strip():
        raise BadInput("Say why the log begins a new epoch: everybody who pinned the old one will read it.")
    if any((epoch.size, epoch.root) == (size, root) for epoch in project.epochs):
        return []
    return [LogEpochStarted(size, checked_sha256(root), reason.strip())]


def checked_scopes(scopes: Collection[str]) -> tuple[Scope, ...]:
    """Scopes in their usual order, each once."""
    if not scopes or not set(scopes) <= set(SCOPES):
        raise BadInput(f"A key needs scopes, one or several of {', '.join(SCOPES)}.")
    return tuple(scope for scope in SCOPES if scope in scopes)


def _there(state: State) -> Project:
    if state is None:
        raise NotFound("There is no such project.")
    return state
