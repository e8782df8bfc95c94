"""Bringing a store to the schema of this version: `el db upgrade`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection, Engine

from api.migrations.revision import BASELINE, HEAD, REVISIONS, alembic_version, prepare, require_current, stamp
from ledger.database import lock_schema, writing


def upgrade(engine: Engine, tables: Collection[str], *, to: str = HEAD) -> tuple[str | None, str]:
    """Bring a store to a revision, all of it in one transaction; the revisions before and after (None: there was none).

    A store made before there were revisions is taken for one of the first.

    Raises:
        OutdatedStore: the store was made by a newer EvalLedger.
    """
    with writing(engine) as connection:
        lock_schema(connection)
        before = _adopted(connection, tables)
        if before in REVISIONS and before != to:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
            config.attributes["connection"] = connection
            command.upgrade(config, to)
    if before is None:
        prepare(engine, tables)
    elif to == HEAD:
        require_current(engine)
    return before, to


def _adopted(connection: Connection, tables: Collection[str]) -> str | None:
    """The revision of a store; one that says none but has tables is stamped with the first."""
    there = set(sa.inspect(connection).get_table_names())
    if alembic_version.name in there:
        revision: str | None = connection.execute(sa.select(alembic_version.c.version_num)).scalar()
        if revision is not None:
            return revision
    if not there & set(tables):
        return None
    stamp(connection, BASELINE)
    return BASELINE
