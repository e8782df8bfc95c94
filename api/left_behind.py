"""What workers that died leave behind: trials at work, jobs whose end nobody recorded, half-written files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from api.answers import LeftBehind
from ledger import leases
from ledger.database import reading
from ledger.errors import StoreError
from ledger.facts.entry import Recorded
from ledger.facts.trial import slot_of, trial_stream
from ledger.rules import trial as rules
from ledger.rules.trial import Trial
from projections import trials, work_queue

if TYPE_CHECKING:  # the client stands on this module
    from api.client import Client

LEFT_BEHIND_MAX = 10_000
JOBS_ENDED_MAX = 100
TEMPORARIES_S = 86_400.0  # what a crash left half-written is certainly nobody's any more after a day


def look_after(client: Client) -> list[LeftBehind]:
    """End the trials whose workers were not heard of in time: a started one has failed, else its slot is free."""
    rows = client.ask(partial(trials.running, project_id=client.project, limit=LEFT_BEHIND_MAX))
    streams = [trial_stream(row.job_id, row.task, row.attempt) for row in rows]
    held = _held(client) if streams else set()
    silent = [stream for stream in streams if stream not in held]
    if not silent:
        return []
    pasts = client.streams(silent)
    # Read after the streams: what was dispatched in them had its lease by then.
    held = _held(client)
    found: list[LeftBehind] = []
    position = 0
    for stream, past in pasts.items():
        trial = trial_of(past)
        if stream in held or trial.dispatched is None or trial.dispatched.worker is None:
            continue
        rule = partial(rules.lapse, token=trial.token, started=trial.started)
        # The lapsed lease of a slot that is freed stays until the slot is given out again: it tells whose trial that
        # was, should its worker still report, when no read model does.
        give_up = partial(leases.give_up, project_id=client.project, stream=stream) if trial.started else None
        written = client.ledger.record(stream, rule, also=give_up)
        if written.facts:
            position = written.position
            slot = slot_of(stream)
            found.append(LeftBehind(slot.job_id, slot.task, slot.attempt, "failed" if trial.started else "released"))
    for job_id in {one.job_id for one in found if one.became == "failed"}:
        client.finish_job(job_id, position=position)
    return found


def tidy(client: Client) -> None:
    """What somebody may have died before doing: end jobs whose slots have all ended, sweep half-written files away."""
    found = client.ask(partial(work_queue.jobs_without_open_slots, project_id=client.project, limit=JOBS_ENDED_MAX))
    for job_id in found:
        client.finish_job(job_id)
    with suppress(StoreError):  # whoever keeps something there says so
        client.artifacts.sweep(before=time.time() - TEMPORARIES_S)


def trial_of(past: Sequence[Recorded]) -> Trial:
    """A trial's state from its stream's entries."""
    state: Trial | None = None
    for recorded in past:
        state = rules.evolve(state, recorded.entry.fact)  # type: ignore[arg-type]  # a trial's stream has its facts
    return state or Trial()


def _held(client: Client) -> set[str]:
    with reading(client.ledger.engine) as connection:
        return leases.held(connection, client.project, now=client.ledger.clock())
