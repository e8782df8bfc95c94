"""Which revision of the schema a store has.

Every command asks, so Alembic, which is slow to import, stays out of here.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.database import lock_schema, metadata, reading, writing
from ledger.errors import OutdatedStore, StoreError

# In order; each is a file in versions/.
REVISIONS = ("0001", "0002")
BASELINE, HEAD = REVISIONS[0], REVISIONS[-1]

# Alembic's own table, as Alembic makes it; no part of `metadata`, which is what the revisions describe.
alembic_version = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def prepare(engine: Engine, tables: Collection[str]) -> None:
    """Make a store where there is none, and refuse one of another revision. Many processes may do this at once.

    `tables` are the names of all tables of a store; the modules that define them have been imported.

    Raises:
        OutdatedStore: the store was made by an older or a newer EvalLedger.
    """
    if revision_of(engine) is None:
        with writing(engine) as connection:
            lock_schema(connection)
            there = set(sa.inspect(connection).get_table_names())
            if not there & {alembic_version.name, *tables}:
                metadata.create_all(connection)
                stamp(connection, HEAD)
    require_current(engine)


def require_current(engine: Engine) -> None:
    """Refuse a store whose schema is not the one this version works with.

    Raises:
        OutdatedStore: it is older or newer, or there is none.
    """
    found = revision_of(engine)
    if found == HEAD:
        return
    if found is None or found in REVISIONS:
        raise OutdatedStore("The store was made by an older EvalLedger; back it up, then run `el db upgrade`.")
    raise OutdatedStore(
        f"The store was made by a newer EvalLedger (its schema is {found}, {HEAD} is known here); use that version."
    )


def revision_of(engine: Engine) -> str | None:
    """The revision that a store says it has; None when it says none."""
    query = sa.select(alembic_version.c.version_num)
    try:
        with reading(engine) as connection:
            return connection.execute(query).scalar()
    except (sa.exc.DBAPIError, StoreError):
        # No such table, in each driver's own words, or a real trouble: looking for the table tells which.
        with reading(engine) as connection:
            if sa.inspect(connection).has_table(alembic_version.name):
                return connection.execute(query).scalar()  # made meanwhile, or the trouble is raised again
        return None


def stamp(connection: Connection, revision: str) -> None:
    """Write down the revision that a store has from now on, as Alembic does."""
    alembic_version.create(connection, checkfirst=True)
    connection.execute(alembic_version.delete())
    connection.execute(alembic_version.insert().values(version_num=revision))
