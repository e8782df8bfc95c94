"""The database: one SQLAlchemy engine, its pragmas, and the tables of the log.

Every key starts with the project, so a distributed PostgreSQL can place projects on shards as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import ConnectionPoolEntry

from ledger.errors import DamagedStore, StoreError, StoreUnreachable

BUSY_TIMEOUT_S = 60.0
_CREATING = 0x65766C67  # names our advisory lock

metadata = sa.MetaData()

log_heads = sa.Table(
    "log_heads",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("frontier", sa.LargeBinary, nullable=False),
    sa.Column("root", sa.LargeBinary, nullable=False),
)

entries = sa.Table(
    "entries",
    metadata,
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("stream_id", sa.Text, nullable=False),
    sa.Column("stream_version", sa.BigInteger, nullable=False),
    sa.Column("tag", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("project_id", "position"),
    sa.UniqueConstraint("project_id", "stream_id", "stream_version", name="entries_stream_version"),
    sqlite_with_rowid=False,
)


def wal_is_safe(version: tuple[int, ...]) -> bool:
    """Whether this SQLite is free of the WAL-reset corruption bug (fixed in 3.51.3, 3.50.7 and 3.44.6)."""
    fixed = {(3, 44): 6, (3, 50): 7, (3, 51): 3}
    release, patch = (version[0], version[1]), version[2]
    return patch >= fixed[release] if release in fixed else release > (3, 51)


def open_database(url: str) -> Engine:
    """An engine for `url`; on SQLite durable (`synchronous=FULL`) and with transactions that say what they are for."""
    options: dict[str, Any] = {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
    if not url.startswith("sqlite"):
        options = {"paramstyle": "format"}  # bulk statements go to the driver as text with rows as plain tuples
    # What is bound to a statement may be a secret or a model's words: it stays out of errors and logs.
    engine = sa.create_engine(url, hide_parameters=True, **options)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes and is committed at the end of the block."""
    with begin_writing(engine) as connection:
        yield connection
        connection.commit()


@contextmanager
def begin_writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes and is undone at the end of the block, unless it was committed in it.

    On SQLite it takes the write lock at once: upgrading later ends in 'locked'.
    """
    try:
        with engine.connect().execution_options(writes=True) as connection:
            connection.begin()
            yield connection
    except sa.exc.DatabaseError as error:
        if (trouble := _trouble(engine, error)) is error:
            raise
        raise trouble from error


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads."""
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except sa.exc.DatabaseError as error:
        if (trouble := _trouble(engine, error)) is error:
            raise
        raise trouble from error


def create_tables(engine: Engine) -> None:
    """Create every table that is not there yet."""
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            # Two processes that create the same table at once would both find it absent, and one fail.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATING)))
        metadata.create_all(connection)


def insert_for(dialect: sa.Dialect) -> type[sqlite.Insert] | type[postgresql.Insert]:
    """The dialect's own INSERT, which knows ON CONFLICT."""
    return postgresql.Insert if dialect.name == "postgresql" else sqlite.Insert


def insert_into(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT into a table, of the connection's dialect."""
    return insert_for(connection.dialect)(table)


def _trouble(engine: Engine, error: sa.exc.DatabaseError) -> StoreError | sa.exc.DatabaseError:
    """The store's own trouble in our words; what a statement did wrong stays as it is."""
    where = engine.url.render_as_string(hide_password=True)
    if type(error) is sa.exc.DatabaseError:
        return DamagedStore(f"The database {where} is damaged or no database ({error.orig}); restore it from a backup.")
    if not isinstance(error, sa.exc.OperationalError):
        return error
    return StoreUnreachable(f"The database {where} does not answer ({error.orig}); check EL_HOME or EL_DATABASE_URL.")


def _prepare_sqlite(connection: sqlite3.Connection, _record: ConnectionPoolEntry) -> None:
    # The driver must not begin transactions by itself: `_begin_sqlite` does, and knows which kind.
    connection.isolation_level = None
    # TRUNCATE syncs the journal's end of life, which DELETE leaves to the directory: a commit survives a power cut.
    journal = "WAL" if wal_is_safe(sqlite3.sqlite_version_info) else "TRUNCATE"
    for pragma in (f"journal_mode={journal}", "synchronous=FULL", "foreign_keys=ON", "cache_size=-65536"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    options: dict[str, Any] = connection.get_execution_options()
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")
