"""Alembic runs this file for each of its commands; the connection is handed in by `upgrading`, in a transaction."""

from __future__ import annotations

from alembic import context

from ledger.database import metadata

# SQLite can undo a CREATE TABLE as well as PostgreSQL can; Alembic only does not count on it by itself.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
