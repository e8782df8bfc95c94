"""The server: what many clients at once get done, against the driver alone and against routes that do nothing.

The same appends are also made by as many threads through the group commit alone: what it gains, what the door costs.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

import psycopg

from api.client import Client
from api.http.reports import PAUSE_S
from api.settings import Settings
from api.wiring import Workspace
from ledger.application import utc_now
from ledger.codec import encode
from ledger.facts.catalogue import RunnerPublished, Task
from ledger.facts.entry import Entry
from ledger.facts.trial import RewardRecorded, TrialDispatched, trial_id_for, trial_stream
from ledger.grouping import GroupCommit
from ledger.rules import trial as rules
from tests import postgres
from tests.benchmarks.load import Load, put_load, request
from tests.benchmarks.measuring import Line, Measured, Sizes, Wanted
from tests.benchmarks.on_postgresql import server
from tests.given import digest_of

CLIENTS = 32
PROJECT = "default"
_INSERT = "INSERT INTO entries VALUES (%s, %s, %s, %s, %s, %s)"
_P = f"/v1/projects/{PROJECT}"


def serving(folder: Path, sizes: Sizes) -> list[Line]:
    """Single appends against one INSERT a commit; results and reports against constants; all through one server."""
    each = max(5, sizes.entries // (CLIENTS * sizes.rounds * 20))
    url = postgres.fresh_url(server().url)
    client = Client(Workspace(Settings(home=folder, database_url=url)), PROJECT)
    job, trials = _job(client, CLIENTS * each * (sizes.rounds + 1) * 2)
    key = client.issue_key("load", ["admin"]).key
    rounds: dict[str, list[Load]] = {name: [] for name in ("report", "constant-post", "result", "constant-get")}
    raw: list[float] = []
    grouped: list[float] = []
    with _server(folder, url) as port:
        for number in range(sizes.rounds + 1):
            first = number * CLIENTS * each * 2
            some = trials[first:][: CLIENTS * each]
            reports = [request("POST", f"{_P}/work/{trial}/reports", key, _REPORT) for trial, _ in some]
            rate = _raw_inserts(url, min(500, CLIENTS * each), number)
            together = _through_a_group(client, [stream for _, stream in trials[first + len(some) :][: CLIENTS * each]])
            found = {
                "report": put_load("127.0.0.1", port, _shares(reports)),
                "constant-post": _repeated(port, request("POST", f"{_P}/constant", key, _REPORT), each),
                "result": _repeated(port, request("GET", f"{_P}/jobs/{job}/result", key), each),
                "constant-get": _repeated(port, request("GET", f"{_P}/constant", key), each),
            }
            if number:  # the first round only warms up
                raw.append(rate)
                grouped.append(together)
                for name, load in found.items():
                    rounds[name].append(load)
    return _lines(raw, grouped, rounds)


_REPORT = '{"token":1,"facts":[{"fact":"reward-recorded","reward":1.0}]}'


def _lines(raw: list[float], grouped: list[float], rounds: dict[str, list[Load]]) -> list[Line]:
    rates = Measured(
        {name: [load.rate for load in loads] for name, loads in rounds.items()} | {"raw": raw, "grouped": grouped}
    )
    p99_ms = Measured({name: [load.p99_s * 1000 for load in loads] for name, loads in rounds.items()})
    lines = [
        Line(
            "serve", f"POST reports of one fact, {CLIENTS} clients", "requests/s", rates.median("report"),
            "psycopg INSERT, one a commit", rates.median("raw"), rates.ratio("report", "raw"), Wanted("at least", 3),
        ),
        Line(
            "serve", f"the same by {CLIENTS} threads, without HTTP", "entries/s", rates.median("grouped"),
            "psycopg INSERT, one a commit", rates.median("raw"), rates.ratio("grouped", "raw"),
        ),
    ]  # fmt: skip
    for name, what, constant in (
        ("report", "POST reports of one fact", "constant-post"),
        ("result", "GET result, 20 tasks", "constant-get"),
    ):
        against = "the same route answering a constant"
        lines.append(
            Line("serve", f"{what}, {CLIENTS} clients", "requests/s", rates.median(name), against,
                 rates.median(constant), rates.ratio(name, constant))
        )  # fmt: skip
        lines.append(
            Line("serve", f"{what}, {CLIENTS} clients: p99", "ms", p99_ms.median(name), against,
                 p99_ms.median(constant), p99_ms.ratio(name, constant))
        )  # fmt: skip
    return lines


def _job(client: Client, count: int) -> tuple[str, list[tuple[str, str]]]:
    """A job, and so many of its trials that are running, each by its id and its stream."""
    tasks = [Task(f"task-{number:06}", digest_of(str(number))) for number in range(count)]
    client.publish_runner(RunnerPublished("ext@1", "external"))
    client.publish_dataset("d@1", tasks, runner="ext@1")
    job = client.submit_job("d@1").id

    def running(task: Task) -> tuple[str, list[partial[object]]]:
        fact = TrialDispatched(trial_id_for(job, task.name, 1), job, task.name, task.digest, 1)
        return trial_stream(job, task.name, 1), [partial(rules.dispatch, dispatched=fact), partial(rules.start)]

    client.record_new([[running(task) for task in tasks]])  # type: ignore[list-item]  # rules of a trial
    client.workspace.caught_up(PROJECT)
    return job, [(trial_id_for(job, task.name, 1), trial_stream(job, task.name, 1)) for task in tasks]


@contextmanager
def _server(folder: Path, url: str) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.benchmarks.served", str(folder), url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(timeout=30)


def _shares(requests: Sequence[str]) -> list[Sequence[str]]:
    return [requests[number::CLIENTS] for number in range(CLIENTS)]


def _repeated(port: int, text: str, each: int) -> Load:
    return put_load("127.0.0.1", port, [[text] * each] * CLIENTS)


def _through_a_group(client: Client, streams: Sequence[str]) -> float:
    """Rewards a second, one a call, by as many threads as there are clients, committed together."""
    ledger = copy.copy(client.ledger)
    ledger.group = GroupCommit(client.ledger.record_each, pause_s=PAUSE_S)
    asked = [partial(rules.require_claim, token=1), partial(rules.record_reward, reward=1.0)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        start = perf_counter()
        list(threads.map(lambda stream: ledger.record(stream, *asked), streams))
        return len(streams) / (perf_counter() - start)


def _raw_inserts(url: str, count: int, number: int) -> float:
    """Commits a second: the same entry as a report makes, one INSERT each, in a project of its own."""
    now, project = utc_now(), f"raw-{number}"
    entries = [
        Entry(
            trial_stream("00000000-0000-4000-8000-000000000000", f"task-{n:06}", 1),
            3,
            now,
            "key:load",
            RewardRecorded(1.0),
        )
        for n in range(count)
    ]
    rows = [(project, position, *row) for position, row in enumerate(encode(entries), 1)]
    with psycopg.connect(url) as connection:
        start = perf_counter()
        for row in rows:
            connection.execute(_INSERT, row)
            connection.commit()
        return count / (perf_counter() - start)
