"""The entry: a fact in its place in a project's log."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec

from ledger.facts.access import ProjectFact
from ledger.facts.catalogue import DatasetFact, ProfilePublished, RunnerPublished
from ledger.facts.job import JobFact
from ledger.facts.leaderboard import LeaderboardFact
from ledger.facts.trial import TrialFact

AnyFact = ProjectFact | DatasetFact | RunnerPublished | ProfilePublished | JobFact | TrialFact | LeaderboardFact


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A fact in its place: stream, version in the stream (from 1), UTC time, actor.

    The position in the project's log is not part of the entry: it is the leaf's index in the tree, plus 1.
    `schema` is the version of the fact's shape; `key` is the request key that caused it, if there was one.
    """

    stream: str
    version: int
    at: datetime
    actor: str
    fact: AnyFact
    schema: int = 1
    key: str | None = None

    @property
    def originator_id(self) -> str:
        """The stream, as the eventsourcing library names it."""
        return self.stream

    @property
    def originator_version(self) -> int:
        """The version, as the eventsourcing library names it."""
        return self.version


class Recorded(NamedTuple):
    """An entry as read from a log: its position (1, 2, 3, ... without gaps) and itself."""

    position: int
    entry: Entry
