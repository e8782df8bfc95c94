"""The one place that puts the parts together; web, command line and tests use it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from api.settings import Settings
from ledger import leases, vault
from ledger.appending import Head
from ledger.application import Ledger
from ledger.artifacts import ArtifactStore, make_private_folder
from ledger.database import create_tables, entries, log_heads, open_database, reading
from ledger.errors import NotFound, StoreUnreachable
from ledger.facts.access import STREAM
from ledger.rules.access import checked_project, create_project
from ledger.secrets import SecretBox, load_or_create_key
from projections.following import catch_up, positions
from projections.models import READ_MODELS

DEFAULT_PROJECT = "default"

# Every module that has tables is named here, so that whoever opens a store first makes all of them.
TABLES = {
    table.name
    for tables in (
        (log_heads, entries),
        (leases.leases, vault.sealed_secrets, positions),
        *(model.tables for model in READ_MODELS),
    )
    for table in tables
}


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
            there = set(sa.inspect(connection).get_table_names())
        if not there >= TABLES:
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
        ledger = self.unchecked_ledger(project, actor=actor)
        if ledger.state(STREAM) is None:
            if project != DEFAULT_PROJECT:
                raise NotFound(f"There is no project {project}; `el project create {project}` makes it.")
            ledger.record(STREAM, lambda state: create_project(state, name=project))
        return ledger

    def unchecked_ledger(self, project: str, *, actor: str | None = None) -> Ledger:
        """The ledger of a project that may not exist yet."""
        return Ledger(self.engine, checked_project(project), actor=actor or self.settings.actor)

    def projects(self) -> dict[str, Head]:
        """The projects of this store with the ends of their logs, by name."""
        with reading(self.engine) as connection:
            rows = connection.execute(sa.select(log_heads.c.project_id, log_heads.c.size, log_heads.c.root))
            return {name: Head(size, bytes(root)) for name, size, root in sorted(rows.all())}

    def caught_up(self, project: str, *, progress: Callable[[int], None] | None = None) -> int:
        """Bring every read model of a project to the end of its log; the position reached."""
        return catch_up(self.engine, project, READ_MODELS, progress=progress)
