"""The valid keys of projects, kept in memory for less than a second, so that a revoked key is out within one."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from threading import Lock
from typing import NamedTuple

from api.wiring import Workspace
from ledger.errors import BadInput
from ledger.facts.access import STREAM
from ledger.rules.access import Key, Project

FRESH_S = 0.4
PROJECTS_MAX = 10_000


class Keyring(NamedTuple):
    """The keys of a project by their SHA-256. `exists` is False when there is no such project."""

    exists: bool
    keys: Mapping[str, Key]
    read_at: float

    def key(self, sha256: str, now: datetime) -> tuple[Key | None, bool]:
        """The key with a digest, if the project ever had it, and whether it is valid at a time."""
        key = self.keys.get(sha256)
        return key, key is not None and key.is_valid(now)


class Keyrings:
    """Keyrings by project, each read again when it is older than `fresh_s`."""

    def __init__(self, workspace: Workspace, *, fresh_s: float = FRESH_S) -> None:
        self._workspace = workspace
        self._fresh_s = fresh_s
        self._held: OrderedDict[str, Keyring] = OrderedDict()
        self._reading: dict[str, Lock] = {}
        self._changes = 0
        self._lock = Lock()

    def held(self, project: str) -> Keyring | None:
        """The keyring of a project if it is in memory and fresh enough.

        While somebody reads it again, it serves the others for as long again: they need not wait for the database.
        """
        return self._not_older(project, (2 if project in self._reading else 1) * self._fresh_s)

    def read(self, project: str) -> Keyring:
        """The keyring of a project. Of many that ask at once, one reads it from the log."""
        with self._lock:
            reading = self._reading.setdefault(project, Lock())
        try:
            with reading:
                return self._not_older(project, self._fresh_s) or self._read(project)
        finally:
            with self._lock:
                self._reading.pop(project, None)

    def forget(self, project: str) -> None:
        """Read the keys of a project again before the next request: they were changed here."""
        with self._lock:
            self._changes += 1
            self._held.pop(project, None)

    def _not_older(self, project: str, age_s: float) -> Keyring | None:
        found = self._held.get(project)
        return found if found is not None and time.monotonic() - found.read_at < age_s else None

    def _read(self, project: str) -> Keyring:
        # Both before reading: what is written meanwhile counts as not seen.
        read_at, changes = time.monotonic(), self._changes
        try:
            state: Project | None = self._workspace.unchecked_ledger(project).state(STREAM)
        except BadInput:  # no project can have this name
            return Keyring(False, {}, read_at)
        keys = {key.issued.sha256: key for key in state.keys.values()} if state else {}
        ring = Keyring(state is not None, keys, read_at)
        with self._lock:
            if changes == self._changes:
                self._held[project] = ring
                self._held.move_to_end(project)
            while len(self._held) > PROJECTS_MAX:
                self._held.popitem(last=False)
        return ring
