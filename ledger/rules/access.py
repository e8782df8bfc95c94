"""Rules of a project."""

from __future__ import annotations

import re

from ledger.errors import BadInput
from ledger.facts.access import ProjectCreated, ProjectFact

_PROJECT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

State = ProjectCreated | None


def evolve(_state: State, fact: ProjectFact) -> State:
    """The project after one more fact."""
    return fact


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
