"""Facts of a project: that it exists, and the keys that open it. Their stream is `project`."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from ledger.facts.fact import Fact

STREAM = "project"

Scope = Literal["submit", "report", "read", "publish", "admin"]

# What a key may be good for; `admin` includes the others.
SCOPES: tuple[Scope, ...] = ("submit", "report", "read", "publish", "admin")


class ProjectCreated(Fact, frozen=True, tag="project-created"):
    """A project, the border of visibility, came to be."""

    name: str


class ApiKeyIssued(Fact, frozen=True, tag="api-key-issued"):
    """A key was handed out. Of the key itself only its SHA-256 is kept; `expires_at` in UTC, None for never."""

    key_id: str
    name: str
    sha256: str
    scopes: tuple[Scope, ...]
    expires_at: datetime | None = None


class ApiKeyRevoked(Fact, frozen=True, tag="api-key-revoked"):
    """A key opens nothing any more."""

    key_id: str


class LogEpochStarted(Fact, frozen=True, tag="log-epoch-started"):
    """The log goes on although it does not extend a checkpoint that was seen of it: an old backup was restored, say.

    `size` and `root` (hex) are those of that checkpoint; what it had beyond this entry's position is lost.
    """

    size: int
    root: str
    reason: str


ProjectFact = ProjectCreated | ApiKeyIssued | ApiKeyRevoked | LogEpochStarted
