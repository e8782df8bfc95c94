"""The same on PostgreSQL, synced, on a server of its own: appending against COPY of ready rows, and following."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.string import BytesBinaryDumper

from ledger import codec
from ledger.codec import Row
from ledger.database import create_tables, entries, open_database
from ledger.recorder import ProjectRecorder
from projections.following import rebuild
from projections.models import READ_MODELS
from tests import postgres
from tests.benchmarks.appending import Batches, Recording, feed_of, rate_of
from tests.benchmarks.arrivals import FACTS_A_TRIAL, RUNNING, arrivals, take, tasks_of
from tests.benchmarks.given import client_in, submitted
from tests.benchmarks.measuring import Line, Sizes, Wanted, in_turns, seconds
from tests.benchmarks.stores import PROJECT

ATTEMPTS = 2
_COPY = f"COPY entries ({', '.join(column.name for column in entries.c)}) FROM STDIN (FORMAT BINARY)"


@cache
def server() -> postgres.Server:
    """The server that all of these use."""
    return postgres.Server(fsync=True)


def version() -> str:
    """What it is and how durable, for the header."""
    with psycopg.connect(server().url) as connection:
        found = [connection.execute(f"SHOW {name}").fetchone() for name in ("server_version", "fsync")]  # type: ignore[arg-type]
    return "PostgreSQL {}, fsync={}".format(*(row[0] for row in found if row))


class RawCopy:
    """The limit: the driver alone, COPY of ready tuples into our own tables."""

    def __init__(self) -> None:
        url = postgres.fresh_url(server().url)
        engine = open_database(url)
        create_tables(engine)
        engine.dispose()
        self.connection = psycopg.connect(url)
        self.connection.adapters.register_dumper(bytes, BytesBinaryDumper)  # quicker than the driver's default
        self._size = 0

    def ready(self, batch: Sequence[Row]) -> list[tuple[Any, ...]]:
        """The rows as they are copied."""
        first, self._size = self._size + 1, self._size + len(batch)
        return [(PROJECT, position, *row) for position, row in enumerate(batch, first)]

    def append(self, batch: Sequence[tuple[Any, ...]]) -> None:
        """One transaction."""
        with self.connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.set_types(["text", "int8", "text", "int8", "text", "bytea"])
            for row in batch:
                copy.write_row(row)
        self.connection.commit()


def appending(_folder: Path, sizes: Sizes) -> list[Line]:
    """Ours encodes, hashes, moves the head and tells of it besides."""
    limit = RawCopy()
    engine = open_database(postgres.fresh_url(server().url))
    create_tables(engine)

    def raw(batches: Batches) -> float:
        ready = [limit.ready(codec.encode(batch)) for batch in batches]
        return rate_of(batches, seconds(lambda: [limit.append(batch) for batch in ready]))

    feed = feed_of(sizes)
    contenders = {"append_new": Recording(ProjectRecorder(engine, PROJECT)).one_by_one, "raw": raw}
    found = in_turns(sizes.rounds, lambda: next(feed), contenders)
    ours, other = found.median("append_new"), found.median("raw")
    ratio, wanted = found.ratio("append_new", "raw"), Wanted("at least", 0.6)
    engine.dispose()
    limit.connection.close()
    return [Line("pg-append", "append_new, in queue order", "entries/s", ours, "psycopg COPY", other, ratio, wanted)]


def following(folder: Path, sizes: Sizes) -> list[Line]:
    """All read models catch up with what was just appended; then they are built anew from the whole log."""
    client = client_in(folder, postgres.fresh_url(server().url))
    tasks = tasks_of(((sizes.rounds + 1) * sizes.in_round // FACTS_A_TRIAL + RUNNING) // ATTEMPTS + 1)
    job_id = submitted(client, "benchmark", tasks, attempts=ATTEMPTS)
    client.workspace.caught_up(client.project)
    log = arrivals(job_id, tasks, attempts=ATTEMPTS)

    def catch_up(batches: Batches) -> float:
        return rate_of(batches, seconds(lambda: client.workspace.caught_up(client.project)))

    found = in_turns(
        sizes.rounds,
        lambda: take(log, sizes.transactions, sizes.in_transaction),
        {"append": Recording(client.ledger.recorder).one_by_one, "catch up": catch_up},
        in_order=True,
    )
    ours, other, ratio = found.median("catch up"), found.median("append"), found.ratio("catch up", "append")
    count = client.ledger.recorder.head().size
    took_s = seconds(lambda: rebuild(client.workspace.engine, client.project, READ_MODELS))
    client.workspace.engine.dispose()
    return [
        Line("pg-catch-up", "all read models, 2 attempts a task", "entries/s", ours, "append_new", other, ratio),
        Line("pg-catch-up", f"rebuild of {count:,} entries", "entries/s", count / took_s),
    ]
