"""Leases: which worker is at work on which trial, and until when it has to be heard of again.

They lie beside the log and are no facts. Without its lease a trial at work counts as left behind, and the next worker
that looks about ends it.
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.database import insert_into, metadata

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("stream_id", sa.Text, primary_key=True),
    sa.Column("worker", sa.Text, nullable=False),
    sa.Column("expires_s", sa.Float(53), nullable=False),
)

_ONE = sa.and_(leases.c.project_id == sa.bindparam("p"), leases.c.stream_id == sa.bindparam("s"))


def take(connection: Connection, project_id: str, stream: str, *, worker: str, until: datetime) -> None:
    """Write the lease of a trial that is being dispatched to a worker, in the transaction that dispatches it."""
    row = {"project_id": project_id, "stream_id": stream, "worker": worker, "expires_s": until.timestamp()}
    insert = insert_into(connection, leases)
    renewed = {"worker": insert.excluded.worker, "expires_s": insert.excluded.expires_s}
    connection.execute(insert.on_conflict_do_update(index_elements=["project_id", "stream_id"], set_=renewed), row)


def renew(connection: Connection, project_id: str, stream: str, *, worker: str, until: datetime) -> bool:
    """Extend a lease; False when it is no longer this worker's."""
    own = leases.update().where(_ONE, leases.c.worker == worker).values(expires_s=until.timestamp())
    return connection.execute(own, {"p": project_id, "s": stream}).rowcount == 1


def expiry(connection: Connection, project_id: str, stream: str, *, worker: str) -> float | None:
    """When a worker's lease ends, in s since 1970 UTC; None when it is no longer this worker's."""
    query = sa.select(leases.c.expires_s).where(_ONE, leases.c.worker == worker)
    return connection.execute(query, {"p": project_id, "s": stream}).scalar()


def give_up(connection: Connection, project_id: str, stream: str) -> None:
    """Remove the lease of a trial that has ended or was released."""
    connection.execute(leases.delete().where(_ONE), {"p": project_id, "s": stream})


def held(connection: Connection, project_id: str, *, now: datetime) -> set[str]:
    """The streams of the trials whose worker was heard of in time."""
    query = sa.select(leases.c.stream_id).where(leases.c.project_id == project_id, leases.c.expires_s > now.timestamp())
    return set(connection.execute(query).scalars())


def streams(connection: Connection, project_id: str, *, worker: str | None = None) -> list[str]:
    """The streams of the trials that there are leases on, held or lapsed, of one worker or of all."""
    query = sa.select(leases.c.stream_id).where(leases.c.project_id == project_id)
    if worker is not None:
        query = query.where(leases.c.worker == worker)
    return sorted(connection.execute(query).scalars())
