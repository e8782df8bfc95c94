"""The database: one SQLAlchemy engine, its pragmas, and the tables of the log.

Every key starts with the project, so a distributed PostgreSQL can place projects on shards as it is.
"""

from __future__ import annotations

import re
import select
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry

from ledger.errors import BadInput, ConcurrentWrite, DamagedStore, EvalLedgerError, StoreUnreachable

BUSY_TIMEOUT_S = 60.0  # how long a writer waits for another one to end
IDLE_TIMEOUT_S = 300.0  # how long a transaction may stand still before PostgreSQL undoes it and lets others go on
CONNECTIONS_MAX = 20  # of one process to PostgreSQL; whoever needs one more waits
CHANNEL = "el_appended"  # where PostgreSQL tells of every append, with the project
_READ_COMMITTED, _REPEATABLE_READ = 2, 3  # as the driver numbers them
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
    """An engine for `url`, durable, and with transactions that say what they are for.

    Raises:
        BadInput: the URL is none, or of a database that EvalLedger does not run on.
    """
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        # What is bound to a statement may be a secret or a model's words: it stays out of errors and logs.
        if parsed.drivername.startswith("sqlite"):
            engine = sa.create_engine(parsed, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT_S})
            sa.event.listen(engine, "connect", _prepare_sqlite)
            sa.event.listen(engine, "begin", _begin_sqlite)
            return engine
        if parsed.drivername == "postgresql+psycopg":
            half = CONNECTIONS_MAX // 2
            # Rows in bulk go to the driver as plain tuples, so its placeholders are those by place.
            options = {"paramstyle": "format", "pool_size": half, "max_overflow": half}
            engine = sa.create_engine(parsed, hide_parameters=True, **options)
            sa.event.listen(engine, "connect", _prepare_postgresql)
            sa.event.listen(engine, "checkout", _refuse_cut_connection)
            sa.event.listen(engine, "begin", _begin_postgresql)
            return engine
    except (sa.exc.ArgumentError, ValueError):
        pass  # without its text, which may hold the password
    raise BadInput("The database URL is none; it begins with sqlite:/// or postgresql://. Check EL_DATABASE_URL.")


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
    with _trouble_said(engine), engine.connect().execution_options(writes=True) as connection:
        connection.begin()
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads, and sees one moment from its first statement to its last."""
    with _trouble_said(engine), engine.connect().execution_options(reads=True) as connection, connection.begin():
        yield connection


def create_tables(engine: Engine) -> None:
    """Create every table that is not there yet."""
    with writing(engine) as connection:
        lock_schema(connection)
        metadata.create_all(connection)


def lock_schema(connection: Connection) -> None:
    """Keep other processes from making or changing tables until the transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        # Two processes that create the same table at once would both find it absent, and one fail.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATING)))


def insert_for(dialect: sa.Dialect) -> type[sqlite.Insert] | type[postgresql.Insert]:
    """The dialect's own INSERT, which knows ON CONFLICT."""
    return postgresql.Insert if dialect.name == "postgresql" else sqlite.Insert


def insert_into(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT into a table, of the connection's dialect."""
    return insert_for(connection.dialect)(table)


@compiles(sa.Text, "postgresql")
def _text_on_postgresql(_type: sa.Text, _compiler: Any, **_options: Any) -> str:
    """Text in the order of its code points, as in SQLite and in Python, whatever the database was created with."""
    return 'TEXT COLLATE "C"'


@contextmanager
def _trouble_said(engine: Engine) -> Iterator[None]:
    """The store's own trouble in our words; what a statement did wrong stays as it is."""
    try:
        yield
    except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
        trouble = _trouble(engine, error)
        if trouble is None:
            raise
        raise trouble from error
    except UnicodeEncodeError as error:
        raise BadInput("A text holds a lone surrogate and cannot be looked up; send valid Unicode.") from error


def _trouble(engine: Engine, error: sa.exc.DBAPIError | sa.exc.TimeoutError) -> EvalLedgerError | None:
    where = _place(engine.url)
    if isinstance(error, sa.exc.TimeoutError):
        return StoreUnreachable(f"All connections to the database {where} are in use; try again later.")
    said = re.sub(r"\s+", " ", str(error.orig)).strip()
    # Classes of SQLSTATE, from PostgreSQL's driver: 40 is a transaction that had to make way for another, 54 a limit of
    # the server's that our own limits should have kept us from.
    state = getattr(error.orig, "sqlstate", None) or ""
    if state.startswith("40"):
        return ConcurrentWrite("Somebody else wrote the same at the same moment; try again.")
    if isinstance(error, sa.exc.DataError) and engine.dialect.name == "postgresql":
        return BadInput("A text holds a NUL character, or a number is too large: neither can be stored or looked up.")
    if type(error) is sa.exc.DatabaseError:
        return DamagedStore(f"The database {where} is damaged or no database ({said}); restore it from a backup.")
    if error.connection_invalidated or (isinstance(error, sa.exc.OperationalError) and not state.startswith("54")):
        return StoreUnreachable(f"The database {where} does not answer ({said}); check EL_HOME or EL_DATABASE_URL.")
    return None


def _place(url: sa.URL) -> str:
    """Where a database is, without what gives access to it: a password may also stand among the parameters."""
    shown = {name: value for name, value in url.query.items() if name in ("host", "port", "dbname")}
    return url.set(query=shown).render_as_string(hide_password=True)


def _prepare_postgresql(connection: Any, _record: ConnectionPoolEntry) -> None:
    from psycopg.types.string import BytesBinaryDumper  # noqa: PLC0415 - as in `ledger.bulk`

    # For a column named as bytea the driver takes what was registered last, which by default is not written in C.
    connection.adapters.register_dumper(bytes, BytesBinaryDumper)
    # What was returned is durable, also where the server's own default is to wait for nothing.
    connection.execute(
        "SELECT set_config('lock_timeout', %s, false), set_config('idle_in_transaction_session_timeout', %s, false), "
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
        "ELSE current_setting('synchronous_commit') END, false)",
        (f"{BUSY_TIMEOUT_S:.0f}s", f"{IDLE_TIMEOUT_S:.0f}s"),
    )
    connection.commit()


def _refuse_cut_connection(connection: Any, _record: ConnectionPoolEntry, _proxy: Any) -> None:
    """Have a connection replaced that the server has closed, as when it was restarted.

    The server says nothing to a connection at rest, except its end: so something to read is reason enough. To ask it
    by a statement (`pool_pre_ping`) takes three messages each time, as many as a whole reading.
    """
    socket = select.poll()
    socket.register(connection.fileno(), select.POLLIN)
    if socket.poll(0):
        raise sa.exc.DisconnectionError("closed by the server")


def _begin_postgresql(connection: Connection) -> None:
    """Say with the driver's BEGIN what the transaction is for; SQLAlchemy's own options take messages for it."""
    driver: Any = connection.connection.driver_connection
    reads = bool(connection.get_execution_options().get("reads"))
    if driver.read_only is not reads:
        driver.read_only = reads
        driver.isolation_level = _REPEATABLE_READ if reads else _READ_COMMITTED


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
