"""Pages of the audit trail of a long log: each filter against no filter at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import perf_counter

from sqlalchemy.engine import Connection

from ledger.database import reading
from ledger.facts.entry import Entry
from ledger.facts.trial import RewardRevised
from projections.audit_trail import events
from projections.following import microseconds
from tests.benchmarks.appending import Recording
from tests.benchmarks.arrivals import FACTS_A_TRIAL, arrivals, take, tasks_of
from tests.benchmarks.given import client_in, submitted
from tests.benchmarks.measuring import Line, Sizes, Wanted

LOG_TIMES = 10  # the log holds so many times the entries that the other lines append
ATTEMPTS = 2
PAGES = 1_000
PAGE_ROWS = 100
RARE_EVERY = 1_000


def auditing(folder: Path, sizes: Sizes) -> list[Line]:
    """A page of 100 from anywhere in the log; every filter alone, rare things and common ones, and two together."""
    client = client_in(folder)
    count = sizes.entries * LOG_TIMES
    jobs = []
    for name, share in (("large", count * 9 // 10), ("small", count // 10)):
        tasks = tasks_of(-(-share // FACTS_A_TRIAL // ATTEMPTS))
        jobs.append(job_id := submitted(client, name, tasks, attempts=ATTEMPTS))
        entries = _with_rare_ones(arrivals(job_id, tasks, attempts=ATTEMPTS))
        Recording(client.ledger.recorder).fill(iter(partial(_next, entries, sizes.in_transaction), []))
    end = client.workspace.caught_up(client.project)
    chance = random.Random(11)
    with reading(client.workspace.engine) as connection:
        times = [microseconds(entry.at) for _, entry in client.ledger.entries(after=end - 2)]
        asked: dict[str, dict[str, object]] = {
            "no filter": {},
            "job": {"job_id": jobs[1]},
            "task": {"task": tasks[len(tasks) // 2].name},
            "actor": {"actor": "somebody"},
            "tag": {"tags": ["reward-recorded"]},
            "rare tag": {"tags": ["reward-revised"]},
            "three tags": {"tags": ["reward-revised", "reward-recorded", "trial-started"]},
            "time": {"since_us": min(times) - 10_000_000},
            "job and tag": {"job_id": jobs[0], "tags": ["reward-recorded"]},
            "job and actor": {"job_id": jobs[0], "actor": "somebody"},
        }
        p99_ms = {name: _p99_ms(connection, client.project, end, words, chance) for name, words in asked.items()}
    plain = p99_ms.pop("no filter")
    what = f"{end:,} entries, pages of {PAGE_ROWS}, p99: by "
    return [
        Line("audit", what + name, "ms", found, "no filter", plain, found / plain, Wanted("at most", 3))
        for name, found in p99_ms.items()
    ]


def _p99_ms(connection: Connection, project: str, end: int, words: dict[str, object], chance: random.Random) -> float:
    took = []
    for _ in range(PAGES):
        after = chance.randrange(end)
        start = perf_counter()
        events(connection, project, after=after, limit=PAGE_ROWS, **words)  # type: ignore[arg-type]  # names of its own
        took.append(perf_counter() - start)
    return sorted(took)[PAGES * 99 // 100] * 1000


def _next(entries: Iterator[Entry], size: int) -> list[Entry]:
    return take(entries, 1, size)[0]


def _with_rare_ones(entries: Iterator[Entry]) -> Iterator[Entry]:
    """Every thousandth trial is corrected once, by somebody else."""
    ended = 0
    for entry in entries:
        yield entry
        if entry.version == FACTS_A_TRIAL:
            ended += 1
            if ended % (RARE_EVERY // FACTS_A_TRIAL) == 0:
                fact = RewardRevised(None, 1.0, "judge@2", "checked by hand")
                yield Entry(entry.stream, entry.version + 1, entry.at + timedelta(microseconds=1), "somebody", fact)
