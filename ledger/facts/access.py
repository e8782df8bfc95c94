"""Facts of a project: that it exists. Its stream is `project`."""

from __future__ import annotations

from ledger.facts.fact import Fact

STREAM = "project"


class ProjectCreated(Fact, frozen=True, tag="project-created"):
    """A project, the border of visibility, came to be."""

    name: str


ProjectFact = ProjectCreated
