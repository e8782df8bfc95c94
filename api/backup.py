"""A copy of a store on SQLite, taken while it is in use, and checked before it gets its name."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.artifacts import sync_folder
from ledger.checking import check_log
from ledger.database import log_heads, open_database, reading
from ledger.errors import BadInput, DamagedStore, NotAllowed, StoreUnreachable
from ledger.recorder import ProjectRecorder


class BackedUp(msgspec.Struct, frozen=True):
    """What a backup holds: its file, and the number of entries of each project; every one was read and checked."""

    file: str
    projects: dict[str, int]


def back_up(engine: Engine, file: Path, *, progress: Callable[[int], None] | None = None) -> BackedUp:
    """Copy the database of `engine`, as it stands at one moment, to a new file; durable when this returns.

    Writers wait while it is copied, not while it is checked. `progress` is told how many entries were checked.

    Raises:
        NotAllowed: the store is on PostgreSQL, which has better tools for this.
        BadInput: there is such a file already, or it cannot be made.
        DamagedStore: the log is not what was recorded; no file is left.
    """
    if engine.dialect.name != "sqlite":
        raise NotAllowed(
            'PostgreSQL is backed up with its own tools: `pg_dump --format=custom --file FILE "$EL_DATABASE_URL"`; '
            "then copy the artifacts and the secret key as docs/operations.md says."
        )
    if file.exists():
        raise BadInput(f"{file} is there already; a backup does not replace another, so give a new name.")
    partial = file.with_name(f".{file.name}.{secrets.token_hex(8)}.partial")
    try:
        # Made by us first, so that nobody else can read it: SQLite takes a file's mode as it is.
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _copy(engine, partial)
        found = _checked(partial, progress)
        _sync(partial)
        os.link(partial, file)  # fails where a rename would replace a file that was made meanwhile
    except FileExistsError as error:
        raise BadInput(f"{file} is there already; give a new name.") from error
    except OSError as error:
        raise BadInput(f"{file} cannot be written ({error.strerror}).") from error
    finally:
        partial.unlink(missing_ok=True)
        if file.parent.is_dir():
            sync_folder(file.parent)
    return BackedUp(str(file), found)


def _copy(engine: Engine, to: Path) -> None:
    """All pages in one step: under one lock, so the copy is of one moment."""
    target = sqlite3.connect(to, isolation_level=None)
    try:
        with reading(engine) as connection:
            source = cast(sqlite3.Connection, connection.connection.driver_connection)
            source.backup(target, pages=-1)
    except sqlite3.Error as error:
        raise StoreUnreachable(f"The store cannot be copied ({error}).") from error
    finally:
        target.close()


def _checked(copy: Path, progress: Callable[[int], None] | None) -> dict[str, int]:
    """How many entries each project has in a copy, once its log was read and found as recorded."""
    engine = open_database(f"sqlite:///{copy}")
    counts: dict[str, int] = {}

    def tell(entries: int) -> None:
        if progress:
            progress(sum(counts.values()) + entries)

    try:
        with reading(engine) as connection:
            names = sorted(connection.execute(sa.select(log_heads.c.project_id)).scalars())
        for name in names:
            found = check_log(ProjectRecorder(engine, name), progress=tell)
            if found.faults:
                raise DamagedStore(
                    f"The log of project {name} is damaged ({found.faults[0]}), so there is no backup of it; "
                    f"`el db check --project {name}` lists everything, restore an older backup."
                )
            counts[name] = found.entries
    finally:
        engine.dispose()
    return counts


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
