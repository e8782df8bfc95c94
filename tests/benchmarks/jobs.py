"""Jobs: what a result costs in a small and in a large one, and publishing and submitting many tasks."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from api.cli.result_view import show_result
from api.client import Client
from tests.benchmarks.appending import Recording
from tests.benchmarks.arrivals import LOST_EVERY, arrivals, take, tasks_of
from tests.benchmarks.child import in_child
from tests.benchmarks.given import client_in, submitted
from tests.benchmarks.measuring import Line, Sizes, Wanted, in_turns, seconds_each

SMALL = 10
ASKED_A_ROUND_MAX = 25


def run_job(client: Client, name: str, trials: int, *, lost_every: int = LOST_EVERY) -> str:
    """A job of one attempt a task whose trials have all been reported, caught up with; its id."""
    tasks = tasks_of(trials)
    job_id = submitted(client, name, tasks, attempts=1)
    entries = arrivals(job_id, tasks, lost_every=lost_every)
    Recording(client.ledger.recorder).fill(iter(lambda: take(entries, 1, 1_000)[0], []))
    client.workspace.caught_up(client.project)
    return job_id


def read_result(client: Client, job_id: str, **page: int) -> str:
    """What `el job result` prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        show_result(client.result(job_id, **page))
    return printed.getvalue()


def reading_results(folder: Path, sizes: Sizes) -> list[Line]:
    """The first page of a result, in one store with both jobs."""
    client = client_in(folder)
    large = max(sizes.entries, 2 * SMALL)
    ids = {"small": run_job(client, "small", SMALL), "large": run_job(client, "large", large)}

    often = min(ASKED_A_ROUND_MAX, 1 + sizes.entries // 1_000)

    def asking(job_id: str, **page: int) -> Callable[[Any], float]:
        return lambda _: seconds_each(lambda: read_result(client, job_id, **page), often) * 1_000

    lines = []
    for what, page in (("first page", {}), (f"{SMALL} tasks a page", {"tasks_limit": SMALL})):
        contenders = {name: asking(job_id, **page) for name, job_id in ids.items()}
        found = in_turns(sizes.rounds, lambda: None, contenders)
        lines.append(
            Line(
                "result",
                f"job result, {large:,} trials, {what}",
                "ms",
                found.median("large"),
                f"{SMALL} trials",
                found.median("small"),
                found.ratio("large", "small"),
                Wanted("at most", 1.5),
            )
        )
    return lines


def publishing(folder: Path, sizes: Sizes) -> list[Line]:
    """Publish a dataset, submit a job with two attempts on it, catch up: in a process of its own."""
    client_in(folder).workspace.engine.dispose()
    found = in_child("publish", folder, sizes.entries)
    what = f"publish {sizes.entries:,} tasks, submit 2 attempts, catch up"
    return [
        Line("publish", f"{what} ({found.seconds:.1f} s)", "tasks/s", sizes.entries / found.seconds),
        Line("publish", f"{what}: peak memory", "MB", found.peak_mb),
    ]
