"""The one place that puts the parts together; web, command line and tests use it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from api.settings import Settings
from ledger.application import Ledger
from ledger.artifacts import ArtifactStore, make_private_folder
from ledger.database import create_tables, open_database, reading
from ledger.errors import NotFound, StoreUnreachable
from ledger.facts.access import STREAM
from ledger.rules.access import checked_project, create_project
from ledger.secrets import SecretBox, load_or_create_key
from projections.following import catch_up
from projections.models import READ_MODELS

DEFAULT_PROJECT = "default"


class Workspace:
    """A home folder with its database: everything one process needs, opened when first used."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.home = settings.home.absolute()

    @cached_property
    def engine(self) -> Engine:
        """The database, with its tables made where they are missing."""
        if self.settings.database_url is None:
            try:
                make_private_folder(self.home)
            except OSError as error:
                raise StoreUnreachable(
                    f"The folder {self.home} cannot be made ({error.strerror}); set EL_HOME."
                ) from error
        engine = open_database(self.settings.url)
        with reading(engine) as connection:
            ready = sa.inspect(connection).has_table("positions")
        if not ready:
            create_tables(engine)
        return engine

    @cached_property
    def secrets(self) -> SecretBox:
        """What seals and opens the secrets of profiles."""
        return load_or_create_key(self.home, os.environ)

    def artifacts(self, project: str) -> ArtifactStore:
        """The artifacts of one project; no other project's can be read through it."""
        return ArtifactStore(self.home / "artifacts" / checked_project(project))

    def sources(self, project: str) -> Path:
        """The folder that remembers where on this machine the files of datasets lie."""
        return self.home / "sources" / checked_project(project)

    def ledger(self, project: str, *, actor: str | None = None) -> Ledger:
        """The ledger of a project that exists; the default project is made on first use.

        Raises:
            NotFound: there is no such project.
        """
        ledger = Ledger(self.engine, checked_project(project), actor=actor or self.settings.actor)
        if ledger.state(STREAM) is None:
            if project != DEFAULT_PROJECT:
                raise NotFound(f"There is no project {project}; `el project create {project}` makes it.")
            ledger.record(STREAM, lambda state: create_project(state, name=project))
        return ledger

    def caught_up(self, project: str, *, progress: Callable[[int], None] | None = None) -> int:
        """Bring every read model of a project to the end of its log; the position reached."""
        return catch_up(self.engine, project, READ_MODELS, progress=progress)
