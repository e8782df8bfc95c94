"""A writer to be killed. One process imports everything once and forks a child for each run, so a start costs little.

    python -m tests.crash_writer URL PROJECT [--no-head]

Each line on stdin, `CYCLE RESEND`, starts a child; `start PID`, `dead STATUS` say when it lives and died. The child
prints `ack FIRST LAST SHA256` after each append has returned: those positions, and the digest of their bodies, are what
a crash must not lose. It first sends batch RESEND of the cycle before again, as after a lost reply, and then goes on
writing until it is killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import count
from uuid import UUID

from sqlalchemy.engine import Engine

from ledger import codec
from ledger.appending import Appending
from ledger.application import Ledger
from ledger.codec import Row
from ledger.database import open_database
from ledger.facts.entry import AnyFact, Entry
from ledger.facts.job import JobSubmitted, job_stream
from ledger.facts.trial import RewardRecorded, TrialDispatched, TrialStarted, TrialSucceeded, trial_id_for, trial_stream
from ledger.rules import job, trial
from projections.following import catch_up
from projections.models import READ_MODELS

JOB = str(UUID(int=7))
DIGEST = "d" * 64
TRIALS_PER_BATCH = 25


def main() -> None:
    """Fork a child for each line on stdin."""
    url, project, *options = sys.argv[1:]
    if "--no-head" in options:
        Appending.move_head = lambda self: None  # type: ignore[method-assign]
    for line in sys.stdin:
        cycle, resend = map(int, line.split())
        pid = os.fork()
        if pid == 0:
            try:
                write(open_database(url), project, cycle, resend)
            finally:
                os._exit(1)
        say(f"start {pid}")
        say(f"dead {os.waitpid(pid, 0)[1]}")


def write(engine: Engine, project: str, cycle: int, resend: int) -> None:
    """Write batches until killed; the read models follow now and then, so the kill also hits them."""
    ledger = Ledger(engine, project)
    if cycle:
        send(ledger, cycle - 1, resend)
    for number in count():
        send(ledger, cycle, number)
        if number % 5 == 4:
            catch_up(engine, project, READ_MODELS, batch_entries=60)


def send(ledger: Ledger, cycle: int, number: int) -> None:
    """One batch: a single row, a decision through the ledger, or a hundred rows; acknowledged when it has returned."""
    tasks = [f"t-{cycle}-{number}-{i}" for i in range(TRIALS_PER_BATCH)]
    if number % 3 == 0:
        acknowledge(ledger, [o.position for o in ledger.recorder.append(rows_of(tasks[:1])[:1])])
    elif number % 3 == 1:
        stream = trial_stream(JOB, tasks[0], 1)
        written = ledger.record(stream, partial(trial.dispatch, dispatched=dispatched(tasks[0])))
        acknowledge(ledger, [written.position])
    else:
        acknowledge(ledger, [o.position for o in ledger.recorder.append(rows_of(tasks))])


def acknowledge(ledger: Ledger, positions: list[int]) -> None:
    """Say which positions a caller now relies on, with what stood there."""
    first, last = positions[0], positions[-1]
    bodies = [body for _, body in ledger.recorder.bodies(after=first - 1, limit=last - first + 1)]
    say(f"ack {first} {last} {digest(bodies)}")


def digest(bodies: list[bytes]) -> str:
    return sha256(b"\n".join(bodies)).hexdigest()


def dispatched(task: str) -> TrialDispatched:
    return TrialDispatched(trial_id_for(JOB, task, 1), JOB, task, DIGEST, 1)


def rows_of(tasks: list[str]) -> list[Row]:
    """Four entries a trial: the same facts each time they are sent, whatever the clock says."""
    return codec.encode(entries_of(tasks))


def entries_of(tasks: list[str]) -> Iterator[Entry]:
    now = datetime.now(UTC)
    for task in tasks:
        facts: list[AnyFact] = [dispatched(task), TrialStarted(), RewardRecorded(0.1), TrialSucceeded(0, 1.5)]
        for version, fact in enumerate(facts, 1):
            yield Entry(trial_stream(JOB, task, 1), version, now, "crash", fact)


def submit(ledger: Ledger) -> None:
    """The one job that all trials belong to."""
    manifest = JobSubmitted(JOB, "crash@1", "crash@1", 1, 10**6, DIGEST, request_id="crash")
    ledger.record(job_stream(JOB), partial(job.submit_job, manifest=manifest))


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
