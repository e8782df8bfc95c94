"""Following a log: read models catching up, states folded again, a rebuild's memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from ledger.facts.entry import Entry
from projections.replay import recompute
from tests.benchmarks.appending import Batches, Recording, rate_of
from tests.benchmarks.arrivals import FACTS_A_TRIAL, RUNNING, arrivals, take, tasks_of
from tests.benchmarks.child import in_child
from tests.benchmarks.given import client_in, submitted
from tests.benchmarks.measuring import Line, Sizes, Wanted, in_turns, seconds

ATTEMPTS = 2
MEMORY_MB = 300
REBUILD_TIMES = 10  # a rebuild goes over so many times the entries that the other lines append


def catching_up(folder: Path, sizes: Sizes) -> list[Line]:
    """All read models together, against appending what they follow."""
    client = client_in(folder)
    tasks = tasks_of(((sizes.rounds + 1) * sizes.in_round // FACTS_A_TRIAL + RUNNING) // ATTEMPTS + 1)
    job_id = submitted(client, "benchmark", tasks, attempts=ATTEMPTS)
    client.workspace.caught_up(client.project)
    entries = arrivals(job_id, tasks, attempts=ATTEMPTS)

    def catch_up(batches: Batches) -> float:
        return rate_of(batches, seconds(lambda: client.workspace.caught_up(client.project)))

    found = in_turns(
        sizes.rounds,
        lambda: take(entries, sizes.transactions, sizes.in_transaction),
        {"append": Recording(client.ledger.recorder).one_by_one, "catch up": catch_up},
        in_order=True,
    )
    return [
        Line(
            "catch-up",
            "all read models, 2 attempts a task",
            "entries/s",
            found.median("catch up"),
            "append_new",
            found.median("append"),
            found.ratio("catch up", "append"),
            Wanted("at least", 0.5),
        )
    ]


def replaying(folder: Path, sizes: Sizes) -> list[Line]:
    """Recompute every number from the log alone, against the bare reading and decoding of it."""
    client = client_in(folder)
    count = sizes.rounds * sizes.in_round
    tasks = tasks_of((count // FACTS_A_TRIAL + RUNNING) // ATTEMPTS + 1)
    entries = arrivals(submitted(client, "benchmark", tasks, attempts=ATTEMPTS), tasks, attempts=ATTEMPTS)
    Recording(client.ledger.recorder).fill(take(entries, sizes.rounds * sizes.transactions, sizes.in_transaction))
    connection = sqlite3.connect(folder / "ledger.db")
    decode = msgspec.json.Decoder(Entry).decode

    def bare() -> None:
        for _, body in connection.execute("SELECT position, body FROM entries WHERE project_id = ?", (client.project,)):
            decode(body)

    contenders: dict[str, Any] = {
        "recompute": lambda _: count / seconds(lambda: recompute(client.ledger.entries())),
        "bare": lambda _: count / seconds(bare),
    }
    found = in_turns(sizes.rounds, lambda: None, contenders)
    return [
        Line(
            "replay",
            "every job's numbers from the log",
            "entries/s",
            found.median("recompute"),
            "sqlite3 and msgspec alone",
            found.median("bare"),
            found.ratio("recompute", "bare"),
            Wanted("at least", 0.5),
        )
    ]


def rebuilding(folder: Path, sizes: Sizes) -> list[Line]:
    """Build every read model, drop it and build it again, in a process of its own."""
    client = client_in(folder)
    count = sizes.entries * REBUILD_TIMES
    tasks = tasks_of(-(-count // FACTS_A_TRIAL // ATTEMPTS))
    job_id = submitted(client, "benchmark", tasks, attempts=ATTEMPTS)
    entries = arrivals(job_id, tasks, attempts=ATTEMPTS)
    batches = iter(lambda: take(entries, 1, sizes.in_transaction)[0], [])
    count = Recording(client.ledger.recorder).fill(batches)
    client.workspace.engine.dispose()
    found = in_child("rebuild", folder)
    what = f"{count:,} entries, all read models"
    memory = found.peak_mb / MEMORY_MB
    return [
        Line("rebuild", what, "entries/s", count / found.seconds),
        Line("rebuild", f"{what}: peak memory", "MB", found.peak_mb, "bound", MEMORY_MB, memory, Wanted("at most", 1)),
    ]
