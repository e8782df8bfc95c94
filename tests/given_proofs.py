"""Given: a store with a log of random legal history, and what somebody with its database can do to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from api.client import Client
from ledger import codec
from ledger.checkpoints import checkpoints
from ledger.codec import Row
from ledger.database import entries, log_heads, writing
from ledger.facts.access import STREAM
from ledger.facts.entry import Entry
from ledger.merkle import Frontier, leaf_hashes
from ledger.tiles import Tiles
from projections.following import rebuild
from projections.models import READ_MODELS
from tests.given import history
from tests.given_commands import client_at

_DURABLE = sa.text("PRAGMA synchronous=OFF")


def client_with_log(home: Path, count: int, *, seed: int = 7) -> Client:
    """A client of a store with `count` entries: no need for them to survive a power cut."""
    client = client_at(home)
    sa.event.listen(client.workspace.engine, "connect", lambda connection, _: connection.execute(str(_DURABLE)))
    client.workspace.engine.dispose()
    # The project itself is there already; much of what is tried in a history is refused.
    past = [entry for entry in history(seed, 8 * count) if entry.stream != STREAM]
    client.ledger.recorder.append_new(codec.encode(past[: count - 1]))
    return client


def entries_of(client: Client) -> list[Entry]:
    """The whole log."""
    return [recorded.entry for recorded in client.ledger.entries()]


def renumbered(log: Sequence[Entry]) -> list[Row]:
    """Entries with versions that fit again, as rows."""
    versions: dict[str, int] = {}
    rows = []
    for entry in log:
        versions[entry.stream] = versions.get(entry.stream, 0) + 1
        fields = {name: getattr(entry, name) for name in Entry.__struct_fields__}
        rows += codec.encode([Entry(**{**fields, "version": versions[entry.stream]})])
    return rows


def rewrite(client: Client, rows: Sequence[Row]) -> None:
    """Put another log in the place of the one that is there, so that everything in the database fits together."""
    project = client.project
    frontier = Frontier.empty().extend(leaf_hashes([row.body for row in rows]))
    with writing(client.workspace.engine) as connection:
        connection.execute(entries.delete().where(entries.c.project_id == project))
        connection.execute(checkpoints.delete().where(checkpoints.c.project_id == project))
        connection.execute(
            entries.insert(),
            [
                dict(zip(("stream_id", "stream_version", "tag", "body"), row, strict=True))
                | {"project_id": project, "position": position}
                for position, row in enumerate(rows, 1)
            ],
        )
        head = {"size": frontier.size, "frontier": frontier.to_bytes(), "root": frontier.root()}
        connection.execute(log_heads.update().where(log_heads.c.project_id == project).values(**head))
    tiles = Tiles(client.ledger.recorder)
    tiles.drop()
    tiles.extend(frontier.size)


def rebuild_read_models(client: Client) -> None:
    """Make the read models those of the log as it is."""
    rebuild(client.workspace.engine, client.project, READ_MODELS)
