"""Importing a file that another tool wrote, against appending entries that are ready."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from api.importers.importing import import_path
from tests.benchmarks.appending import Recording, feed_of
from tests.benchmarks.arrivals import LOST_EVERY, tasks_of
from tests.benchmarks.given import client_in
from tests.benchmarks.measuring import Line, Sizes, Wanted, in_turns, seconds

ROWS_AN_ENTRY = 2  # so many rows for each entry that the other lines append
ROUNDS = 1  # after one that warms up: a file is large


def importing(folder: Path, sizes: Sizes) -> list[Line]:
    """A whole file, one job in one transaction."""
    client = client_in(folder)
    rows = sizes.entries * ROWS_AN_ENTRY
    files = iter([write_rows(folder / f"run-{number}.jsonl", rows, seed=number) for number in range(ROUNDS + 1)])
    feed = feed_of(sizes)
    recording = Recording.in_file(folder / "appended.db")

    def import_next(_: None) -> float:
        file, before = next(files), client.ledger.head().size
        took_s = seconds(lambda: reports.append(import_path(client, "jsonl", file)))
        assert not reports[-1].refused, reports[-1].refused
        return (client.ledger.head().size - before) / took_s

    reports = []
    contenders = {"import": import_next, "append": lambda _: recording.one_by_one(next(feed))}
    found = in_turns(ROUNDS, lambda: None, contenders)
    return [
        Line(
            "import",
            f"jsonl of {rows:,} trials, each line checked",
            "entries/s",
            found.median("import"),
            "append_new",
            found.median("append"),
            found.ratio("import", "append"),
            Wanted("at least", 0.5),
        )
    ]


def write_rows(file: Path, count: int, *, seed: int) -> Path:
    """A file as a tool leaves it: a line a trial, in the order in which they ended."""
    order = list(enumerate(tasks_of(count)))
    random.Random(seed).shuffle(order)
    encode = msgspec.json.Encoder().encode
    with file.open("wb") as lines:
        for number, task in order:
            row = {"task": task.name, "attempt": 1, "reward": float(number % 3 == 0), "status": "succeeded"}
            if number % LOST_EVERY == 0:
                row["reward"] = None
            lines.write(encode(row) + b"\n")
    return file
