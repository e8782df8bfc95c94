"""Entries as they arrive in life: eight trials of a job run at the same time, taken from the queue in its order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import UUID

from ledger.facts.catalogue import Task
from ledger.facts.entry import Entry
from ledger.facts.trial import (
    RewardRecorded,
    RewardRejected,
    Slot,
    TrialDispatched,
    TrialFact,
    TrialStarted,
    TrialSucceeded,
    trial_id_for,
    trial_stream,
)

FACTS_A_TRIAL = 4
RUNNING = 8
LOST_EVERY = 10
_BEGAN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def job_id_of(number: int) -> str:
    """A job id that is the same in every run."""
    return str(UUID(int=random.Random(number).getrandbits(128), version=4))


def tasks_of(count: int) -> list[Task]:
    """Tasks with names as long as those of known benchmarks."""
    return [Task(f"astropy__astropy-{number:06d}", f"{number:064x}") for number in range(count)]


def arrivals(
    job_id: str, tasks: Sequence[Task], *, attempts: int = 1, shuffled: bool = False, lost_every: int = LOST_EVERY
) -> Iterator[Entry]:
    """Every entry of a job's trials, four a trial, eight trials at once; `shuffled`, the tasks come in no order."""
    chance = random.Random(7)
    entries = _entries(job_id, tasks, attempts, lost_every, chance if shuffled else None)
    going = list(islice(entries, RUNNING))
    number = 0
    while going:
        at = chance.randrange(len(going))
        entry = next(going[at], None)
        if entry is not None:
            stream, version, fact = entry
            yield Entry(stream, version, _BEGAN + timedelta(microseconds=1_371 * number), "worker", fact)
            number += 1
        elif (following := next(entries, None)) is not None:
            going[at] = following
        else:
            going.pop(at)


def take(entries: Iterator[Entry], transactions: int, size: int) -> list[list[Entry]]:
    """The next entries as batches, one a transaction."""
    return [list(islice(entries, size)) for _ in range(transactions)]


def _entries(
    job_id: str, tasks: Sequence[Task], attempts: int, lost_every: int, chance: random.Random | None
) -> Iterator[Iterator[tuple[str, int, TrialFact]]]:
    """The trials of a job, each as the iterator of its stream; first attempts before second ones."""
    for attempt in range(1, attempts + 1):
        order = list(range(len(tasks)))
        if chance:
            chance.shuffle(order)
        for ordinal in order:
            slot = Slot(job_id, attempt, tasks[ordinal].name)
            yield iter(_trial(slot, tasks[ordinal], lost=ordinal % lost_every == 0))


def _trial(slot: Slot, task: Task, *, lost: bool) -> list[tuple[str, int, TrialFact]]:
    digits = int(task.digest, 16)
    trial_id = trial_id_for(slot.job_id, slot.task, slot.attempt)
    facts: list[TrialFact] = [
        TrialDispatched(trial_id, slot.job_id, slot.task, task.digest, slot.attempt, f"worker-{digits % RUNNING}"),
        TrialStarted(),
        RewardRejected("not-reported") if lost else RewardRecorded(float(digits % 3 == 0), "reward.txt"),
        TrialSucceeded(0, 30.25 + digits % 977),
    ]
    stream = trial_stream(slot.job_id, slot.task, slot.attempt)
    return [(stream, version, fact) for version, fact in enumerate(facts, 1)]
