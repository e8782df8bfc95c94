"""The one place that puts the parts together; web, command line and tests use it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from api.migrations.revision import prepare
from api.settings import Settings
from ledger import leases, vault
from ledger.appending import Head
from ledger.application import Ledger
from ledger.artifacts import ArtifactStore, make_private_folder
from ledger.checkpoints import checkpoints, require_never_signed
from ledger.database import entries, log_heads, open_database, reading
from ledger.errors import NotFound, StoreUnreachable
from ledger.facts.access import STREAM
from ledger.notes import SigningKey, load_or_create_signer
from ledger.pins import require_unforked
from ledger.recorder import ProjectRecorder
from ledger.rules.access import checked_project, create_project
from ledger.secrets import SecretBox, load_or_create_key
from ledger.tiles import tiles
from projections.following import catch_up, positions
from projections.models import READ_MODELS

DEFAULT_PROJECT = "default"

# Every module that has tables is named here, so that whoever opens a store first makes all of them.
TABLES = {
    table.name
    for tables in (
        (log_heads, entries),
        (leases.leases, vault.sealed_secrets, positions),
        (tiles, checkpoints),
        *(model.tables for model in READ_MODELS),
    )
    for table in tables
}


class Workspace:
    """A home folder with its database: everything one process needs, opened when first used."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.home = settings.home.absolute()
        self._unforked: dict[str, int] = {}  # project: when its pin was written that its log was found to extend

    @cached_property
    def engine(self) -> Engine:
        """The database, with its tables made where there are none.

        Raises:
            OutdatedStore: they are those of another version.
        """
        prepare(self.database, TABLES)
        return self.database

    @cached_property
    def database(self) -> Engine:
        """The database as it is; what is in it may be of another version."""
        if self.settings.database_url is None:
            try:
                make_private_folder(self.home)
            except OSError as error:
                raise StoreUnreachable(
                    f"The folder {self.home} cannot be made ({error.strerror}); set EL_HOME."
                ) from error
        return open_database(self.settings.url)

    @cached_property
    def secrets(self) -> SecretBox:
        """What seals and opens the secrets of profiles."""
        return load_or_create_key(self.home, os.environ)

    @cached_property
    def signer(self) -> SigningKey:
        """What signs the checkpoints of this store's logs.

        Raises:
            NotAllowed: the key is missing that has signed some.
        """
        refuse = partial(require_never_signed, self.engine)
        return load_or_create_signer(self.home, os.environ, before_making=refuse)

    def sign_anew(self) -> None:
        """Go on with the key that is there, or a new one, whichever key signed before."""
        self.signer = load_or_create_signer(self.home, os.environ)

    def pin(self, project: str) -> Path:
        """The file that keeps the last checkpoint this home has seen of a project's log, outside the database."""
        return self.home / "checkpoints" / f"{checked_project(project)}.json"

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
        ledger = Ledger(self.engine, checked_project(project), actor=actor or self.settings.actor)
        ledger.recorder.guard = partial(self._require_unforked, ledger.recorder)
        return ledger

    def _require_unforked(self, recorder: ProjectRecorder) -> None:
        """Once for each pin: every append asks this."""
        path = self.pin(recorder.project_id)
        try:
            written = path.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if self._unforked.get(recorder.project_id) != written:
            require_unforked(recorder, path)
            self._unforked[recorder.project_id] = written

    def projects(self) -> dict[str, Head]:
        """The projects of this store with the ends of their logs, by name."""
        with reading(self.engine) as connection:
            rows = connection.execute(sa.select(log_heads.c.project_id, log_heads.c.size, log_heads.c.root))
            return {name: Head(size, bytes(root)) for name, size, root in sorted(rows.all())}

    def caught_up(self, project: str, *, progress: Callable[[int], None] | None = None) -> int:
        """Bring every read model of a project to the end of its log; the position reached."""
        return catch_up(self.engine, project, READ_MODELS, progress=progress)
