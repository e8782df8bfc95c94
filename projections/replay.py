"""Recomputing numbers from the log alone, without a read model: what the read models have to agree with."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.facts.entry import Recorded
from ledger.facts.job import JobSubmitted
from ledger.facts.trial import slot_of
from projections.job_metrics import Attempts, evolve, tally_of
from projections.metrics import Metrics, measure
from projections.tally import JobTally


def recompute(entries: Iterable[Recorded]) -> dict[str, Metrics]:
    """The numbers of every job in a log, by job id, folded from its entries in order. Holds every attempt in memory."""
    jobs: dict[str, JobTally] = {}
    members: dict[tuple[str, str], Attempts] = {}
    # An entry's stream says which attempt of which member it is about; it is taken apart once for each trial.
    places: dict[str, tuple[Attempts, int]] = {}
    for _, entry in entries:
        stream = entry.stream
        place = places.get(stream)
        if place is None:
            if stream.startswith("trial/"):
                slot = slot_of(stream)
                attempts = members.setdefault((slot.job_id, slot.task), {})
                place = places[stream] = (attempts, slot.attempt)
            elif isinstance(entry.fact, JobSubmitted):
                jobs[entry.fact.job_id] = JobTally(entry.fact.attempts, entry.fact.member_count)
                continue
            else:
                continue
        evolve(place[0], entry.fact, place[1])
    for (job_id, _), attempts in members.items():
        tally = jobs[job_id]
        tally.replace_member(None, tally_of(attempts, tally.attempts))
    return {job_id: measure(tally) for job_id, tally in jobs.items()}
