"""The stores that are compared: the same file system, journal and `synchronous` for each of them."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import sqlalchemy as sa
from eventsourcing.persistence import StoredEvent
from eventsourcing_sqlalchemy.datastore import SQLAlchemyDatastore
from eventsourcing_sqlalchemy.recorders import SQLAlchemyApplicationRecorder
from sqlalchemy.engine import Engine

from ledger.codec import Row
from ledger.database import create_tables, entries, open_database, reading

PRAGMAS = ("journal_mode", "synchronous", "foreign_keys", "cache_size")
PROJECT = "benchmark"
_INSERT = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)"


def open_store(path: Path) -> Engine:
    """A store of ours with all its tables."""
    engine = open_database(f"sqlite:///{path}")
    create_tables(engine)
    return engine


def pragmas(engine: Engine) -> dict[str, str | int]:
    """How a store of ours is durable."""
    with reading(engine) as connection:
        return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in PRAGMAS}


class RawStore:
    """The limit: the driver alone, `executemany` of ready tuples into our own table."""

    def __init__(self, path: Path) -> None:
        engine = open_store(path)
        assert [column.name for column in entries.c][:2] == ["project_id", "position"]
        self.connection = sqlite3.connect(path, isolation_level=None)
        make_durable(self.connection, pragmas(engine))
        engine.dispose()
        self._size = 0

    def ready(self, batch: Sequence[Row]) -> list[tuple[str, int, str, int, str, bytes]]:
        """What is bound to the statement."""
        first, self._size = self._size + 1, self._size + len(batch)
        return [(PROJECT, position, *row) for position, row in enumerate(batch, first)]

    def append(self, batch: Sequence[tuple[str, int, str, int, str, bytes]]) -> None:
        """One transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(_INSERT, batch)
        self.connection.execute("COMMIT")


class LibraryStore:
    """The recorder of eventsourcing-sqlalchemy on a SQLite file, as durable as ours."""

    def __init__(self, path: Path, as_durable_as: Engine) -> None:
        settings = pragmas(as_durable_as)
        datastore = SQLAlchemyDatastore(url=f"sqlite:///{path}")
        # It would turn to WAL at its first transaction; the journal has to be the same for all.
        datastore._tried_init_sqlite_wal_mode = True
        sa.event.listen(datastore.engine, "connect", lambda connection, _: make_durable(connection, settings))
        self.recorder = SQLAlchemyApplicationRecorder(datastore, events_table_name="stored_events")
        self.recorder.create_table()
        with datastore.engine.connect() as connection:
            found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in PRAGMAS}
        assert found == settings, found

    def ready(self, batch: Sequence[Row]) -> list[StoredEvent]:
        """Events as the library stores them: the same bytes; it wants UUIDs for streams."""
        return [
            StoredEvent(uuid5(NAMESPACE_URL, row.stream), row.version, topic=row.tag, state=row.body) for row in batch
        ]


def make_durable(connection: sqlite3.Connection, settings: dict[str, str | int]) -> None:
    """Set the pragmas of our own stores on a connection."""
    for name, value in settings.items():
        connection.execute(f"PRAGMA {name}={value}")


def file_system(folder: Path) -> str:
    """The type of the file system a folder is on."""
    best, kind = Path(), "unknown"
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, of_type, *_ = line.split(" ")
        at = Path(mount.encode().decode("unicode_escape"))
        if folder.resolve().is_relative_to(at) and len(at.parts) >= len(best.parts):
            best, kind = at, of_type
    return kind


def machine(folder: Path) -> str:
    """Where and with what this is measured, in one line."""
    engine = open_store(folder / "pragmas.db")
    settings = pragmas(engine)
    engine.dispose()
    synchronous = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[int(settings["synchronous"])]
    kind = file_system(folder)
    volatile = " (in memory: nothing here is durable)" if kind in ("tmpfs", "ramfs") else ""
    return (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, "
        f"{kind}{volatile}, journal_mode={str(settings['journal_mode']).upper()}, synchronous={synchronous}"
    )
