"""Many rows into or out of a table at once, each as fast as the database takes them.

Rows are tuples in the table's column order and go to the driver as they are: what SQLAlchemy does for each row would
cost more than the row. On SQLite that is `executemany`; on PostgreSQL, COPY or one statement over arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from ledger.database import insert_for

Rows = Sequence[tuple[Any, ...]]

# Up to so many rows one INSERT is quicker than a COPY, which takes more messages to begin and to end.
ROWS_PER_INSERT = 8


def insert(connection: Connection, table: sa.Table, rows: Rows, *, meanwhile: Callable[[], None] | None = None) -> None:
    """Insert rows that are not there yet. `meanwhile` is called once, if it can be while the server is at work.

    Raises:
        sqlalchemy.exc.IntegrityError: a key is taken; the transaction cannot go on.
    """
    if rows and connection.dialect.name != "postgresql":
        connection.exec_driver_sql(_insert_sql(connection.dialect, table), list(rows))
    elif len(rows) > ROWS_PER_INSERT:
        _copy(connection, table, rows, meanwhile)
        return
    elif rows:
        values = tuple(value for row in rows for value in row)
        connection.exec_driver_sql(_insert_some_sql(table, len(rows)), values)
    if meanwhile:
        meanwhile()


def upsert(connection: Connection, table: sa.Table, rows: Rows) -> None:
    """Insert rows, or replace those with the same primary key; no two rows may have the same one."""
    if rows and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_upsert_arrays_sql(table), _arrays(rows))
    elif rows:
        connection.exec_driver_sql(_upsert_sql(connection.dialect, table), list(rows))


def remove(connection: Connection, table: sa.Table, keys: Rows) -> None:
    """Delete the rows with the given primary keys, as tuples; keys without a row are passed over."""
    if keys and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_remove_arrays_sql(table), _arrays(keys))
    elif keys:
        connection.exec_driver_sql(_remove_sql(connection.dialect, table), list(keys))


def find(connection: Connection, table: sa.Table, keys: Rows) -> Sequence[Sequence[Any]]:
    """The rows with the given primary keys, whole and in the table's column order; keys without one are passed over.

    Each key is looked up by itself, whatever the database believes of the table: it may know nothing of it yet.
    """
    if keys and connection.dialect.name == "postgresql":
        return connection.exec_driver_sql(_find_arrays_sql(table), _arrays(keys)).all()
    if keys:
        return connection.exec_driver_sql(_find_sql(table), (msgspec.json.encode(keys).decode(),)).all()
    return []


def find_by_key(connection: Connection) -> None:
    """Have PostgreSQL look rows up by their keys, one by one, until the transaction ends.

    What it knows of a table lags behind one that grows with every batch, and it would read all of the table instead.
    """
    if connection.dialect.name == "postgresql":
        off = (f"set_config('enable_{way}', 'off', true)" for way in ("seqscan", "hashjoin", "mergejoin"))
        connection.exec_driver_sql(f"SELECT {', '.join(off)}")


def _copy(connection: Connection, table: sa.Table, rows: Rows, meanwhile: Callable[[], None] | None) -> None:
    """PostgreSQL's COPY in its binary format, through the driver: SQLAlchemy knows no COPY."""
    import psycopg  # noqa: PLC0415 - takes a while to load, and a ledger in a SQLite file needs none of it

    driver: Any = connection.connection.driver_connection
    sql, types = _copy_sql(table)
    try:
        with driver.cursor() as cursor, cursor.copy(sql) as copy:
            copy.set_types(types)
            write = copy.write_row
            for row in rows:
                write(row)
            if meanwhile:
                meanwhile()
    except psycopg.Error as error:
        # As SQLAlchemy would have raised it, so that nobody needs to know how the rows went in.
        raised = sa.exc.DBAPIError.instance(
            sql, None, error, psycopg.Error, hide_parameters=True, dialect=connection.dialect
        )
        if driver.broken:
            connection.invalidate(error)
        raise raised from error


def _arrays(rows: Rows) -> tuple[list[Any], ...]:
    """A list for each column."""
    return tuple(list(column) for column in zip(*rows, strict=True))


@cache
def _insert_sql(dialect: Dialect, table: sa.Table) -> str:
    return str(table.insert().compile(dialect=dialect))


@cache
def _insert_some_sql(table: sa.Table, count: int) -> str:
    row = ", ".join("%b" if isinstance(column.type, sa.LargeBinary) else "%s" for column in table.c)
    return f"INSERT INTO {_named(table)} VALUES {', '.join([f'({row})'] * count)}"  # noqa: S608 - names of our own


@cache
def _copy_sql(table: sa.Table) -> tuple[str, list[str]]:
    return f"COPY {_named(table)} FROM STDIN (FORMAT BINARY)", [_type_of(column) for column in table.c]


@cache
def _upsert_sql(dialect: Dialect, table: sa.Table) -> str:
    statement = insert_for(dialect)(table)
    keys = [column.name for column in table.primary_key]
    others = {column.name: statement.excluded[column.name] for column in table.c if column.name not in keys}
    if others:
        return str(statement.on_conflict_do_update(index_elements=keys, set_=others).compile(dialect=dialect))
    return str(statement.on_conflict_do_nothing().compile(dialect=dialect))


@cache
def _upsert_arrays_sql(table: sa.Table) -> str:
    keys = [column.name for column in table.primary_key]
    others = ", ".join(f"{column.name} = excluded.{column.name}" for column in table.c if column.name not in keys)
    on_conflict = f"ON CONFLICT ({', '.join(keys)}) DO {f'UPDATE SET {others}' if others else 'NOTHING'}"
    return f"INSERT INTO {_named(table)} SELECT * FROM {_unnest(table.c)} {on_conflict}"  # noqa: S608 - the same


@cache
def _find_sql(table: sa.Table) -> str:
    names = enumerate(column.name for column in table.primary_key)
    where = " AND ".join(f"{table.name}.{name} = json_extract(wanted.value, '$[{at}]')" for at, name in names)
    columns = ", ".join(f"{table.name}.{column.name}" for column in table.c)
    return f"SELECT {columns} FROM json_each(?) AS wanted CROSS JOIN {table.name} WHERE {where}"  # noqa: S608 - the same


@cache
def _find_arrays_sql(table: sa.Table) -> str:
    return f"SELECT {', '.join(f'found.{column.name}' for column in table.c)} FROM {_each_by_itself(table, '*')}"  # noqa: S608 - the same


@cache
def _remove_sql(dialect: Dialect, table: sa.Table) -> str:
    names = [column.name for column in table.primary_key]
    return str(table.delete().where(*(table.c[n] == sa.bindparam(n) for n in names)).compile(dialect=dialect))


@cache
def _remove_arrays_sql(table: sa.Table) -> str:
    there = f"SELECT here FROM {_each_by_itself(table, 'ctid AS here')}"  # noqa: S608 - names of our own
    return f"DELETE FROM {table.name} WHERE ctid = ANY(ARRAY({there}))"  # noqa: S608 - the same


def _each_by_itself(table: sa.Table, columns: str) -> str:
    """Arrays of keys, and the row of each. OFFSET keeps PostgreSQL from making one join of it."""
    names = [column.name for column in table.primary_key]
    where = " AND ".join(f"{table.name}.{name} = wanted.{name}" for name in names)
    found = f"(SELECT {columns} FROM {table.name} WHERE {where} OFFSET 0) AS found"  # noqa: S608 - names of our own
    return f"{_unnest(table.primary_key)} AS wanted({', '.join(names)}) CROSS JOIN LATERAL {found}"


def _named(table: sa.Table) -> str:
    """The table with its columns, in our order: in a migrated store they may stand in another one."""
    return f"{table.name} ({', '.join(column.name for column in table.c)})"


def _unnest(columns: Any) -> str:
    """Arrays as the rows of a table; binary, since bytes as text would be twice as long."""
    return f"unnest({', '.join(f'%b::{_type_of(column)}[]' for column in columns)})"


def _type_of(column: sa.Column[Any]) -> str:
    """What PostgreSQL calls the type of a column."""
    for kind, name in (
        (sa.Text, "text"),
        (sa.BigInteger, "int8"),
        (sa.Integer, "int4"),
        (sa.Float, "float8"),
        (sa.LargeBinary, "bytea"),
    ):
        if isinstance(column.type, kind):
            return name
    raise TypeError(f"{column} has a type that rows in bulk cannot have yet")
