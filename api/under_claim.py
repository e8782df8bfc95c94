"""What is done under a claim on a slot: signs of life, reports, and being given the secrets that the trial needs.

Each names the claim's token. Whoever's claim has lapsed is told so and changes nothing: a reward it still reports is
kept as evidence beside the trial, and counts nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from api.answers import Heartbeat, Reported
from api.left_behind import trial_of
from api.work import checked_lease, secrets_of
from ledger import leases
from ledger.application import Asked, Rule, Written
from ledger.database import reading, writing
from ledger.errors import BadInput, ClaimLapsed, NotFound
from ledger.facts.trial import (
    ReportedFact,
    RewardRecorded,
    Slot,
    TrialReleased,
    slot_of,
    trial_id_for,
    trial_stream,
)
from ledger.rules import trial as rules
from ledger.rules.asking import rule_of
from ledger.rules.forms import checked_number
from ledger.rules.trial import Ended
from projections import job_metrics, jobs, trials
from projections.following import position_of
from projections.models import READ_MODELS

if TYPE_CHECKING:  # the client stands on this module
    from api.client import Client

FACTS_MAX = rules.ARTIFACTS_MAX + 100


def heartbeat(client: Client, trial_id: str, token: int, *, lease_s: float) -> Heartbeat:
    """Renew a claim's lease, once a third of it is over; say whether it holds and whether the job was called off."""
    lease = checked_lease(lease_s)
    slot, stream = _place(client, trial_id)
    job = client.ask(partial(jobs.get_job, project_id=client.project, job_id=slot.job_id))
    trial = trial_of(client.ledger.stream(stream))
    held = trial.token == token and not trial.ended
    if held and trial.dispatched and trial.dispatched.worker:
        worker, now = trial.dispatched.worker, client.ledger.clock()
        with reading(client.ledger.engine) as connection:
            expires_s = leases.expiry(connection, client.project, stream, worker=worker)
        if expires_s is not None and expires_s < (now + lease * 2 / 3).timestamp():
            with writing(client.ledger.engine) as connection:
                held = leases.renew(connection, client.project, stream, worker=worker, until=now + lease)
        held = held and expires_s is not None
    return Heartbeat(held, job.status == "canceled")


def report(client: Client, trial_id: str, facts: Sequence[ReportedFact], *, token: int) -> Reported:
    """Record facts about a trial in one transaction, in any order and as often as needed; a repeat is nothing new."""
    checked = rules_of(facts)
    slot, stream = _place(client, trial_id)
    asked = asked_of(client, stream, facts, checked, token=token)
    try:
        written = client.ledger.record(stream, *asked.rules, also=asked.also)
    except ClaimLapsed:
        keep_late_rewards(client, stream, facts, token=token)
        raise
    return reported(facts, finish_job(client, slot.job_id, written) if is_over(facts) else written)


def rules_of(facts: Sequence[ReportedFact]) -> list[Rule]:
    """The rules to ask for the facts of a report. Raises BadInput for what is none."""
    if not 1 <= len(facts) <= FACTS_MAX:
        raise BadInput(f"A report holds 1 to {FACTS_MAX:,} facts, not {len(facts):,}.")
    return [_asked(fact) for fact in facts]


def asked_of(
    client: Client, stream: str, facts: Sequence[ReportedFact], checked: Sequence[Rule], *, token: int
) -> Asked:
    """The write that a report is: only under the claim of this token; with the trial's end the lease is given up."""
    give_up = partial(leases.give_up, project_id=client.project, stream=stream) if is_over(facts) else None
    claimed = partial(rules.require_claim, token=token)
    return Asked(stream, [claimed, *checked], client.ledger.actor, also=give_up)


def is_over(facts: Sequence[ReportedFact]) -> bool:
    """Whether a report ends its trial."""
    return any(isinstance(fact, Ended | TrialReleased) for fact in facts)


def finish_job(client: Client, job_id: str, written: Written) -> Written:
    """End the job if this was its last trial; for a repeat, too: whoever reported first may have died in between.

    What was written, with a position that holds the job's end.
    """
    if _may_be_over(client, job_id, written.position) and client.finish_job(job_id, position=written.position):
        return written._replace(position=client.ledger.head().size)
    return written


def reported(facts: Sequence[ReportedFact], written: Written) -> Reported:
    """What a report came to."""
    return Reported(written.position, _which_are_new(facts, written.facts))


def secrets(client: Client, trial_id: str, *, token: int) -> dict[str, str]:
    """The values of the secrets that a trial needs, for whoever has the claim on it and has not ended it."""
    slot, stream = _place(client, trial_id)
    trial = trial_of(client.ledger.stream(stream))
    rules.require_claim(trial, token=token)
    if trial.ended:
        raise ClaimLapsed("The trial has ended, so its secrets are not given out any more.")
    return secrets_of(client, client.ask(partial(jobs.get_job, project_id=client.project, job_id=slot.job_id)).manifest)


def _may_be_over(client: Client, job_id: str, position: int) -> bool:
    """Whether every slot of a job can have ended by a position, as far as read models tell that may be behind it.

    Each further end takes an entry of its own. So most reports need not wait until the read models hold them.
    """
    with reading(client.ledger.engine) as connection:
        behind = position - position_of(connection, client.project, READ_MODELS)
        try:
            measured = job_metrics.result_of(connection, client.project, job_id)
        except NotFound:  # not followed yet
            return True
    ended = sum(measured.endings.get(status, 0) for status in ("succeeded", "failed", "canceled"))
    return ended + max(behind, 0) >= measured.metrics.score_counts.total


def _place(client: Client, trial_id: str) -> tuple[Slot, str]:
    """The slot and the stream of a trial. A trial's id names the same slot for good, so what is read may be stale."""
    with reading(client.ledger.engine) as connection:
        slot = trials.slot_by_id(connection, client.project, trial_id)
        if slot is None:  # not followed yet, or its slot was freed since
            leased = map(slot_of, leases.streams(connection, client.project))
            slot = next((s for s in leased if trial_id_for(s.job_id, s.task, s.attempt) == trial_id), None)
    if slot is None:
        row = client.ask(partial(trials.get_trial, project_id=client.project, trial_id=trial_id))
        slot = Slot(row.job_id, row.attempt, row.task)
    return slot, trial_stream(slot.job_id, slot.task, slot.attempt)


def _asked(fact: object) -> Rule:
    if not isinstance(fact, ReportedFact):
        raise BadInput("A report holds what became of a trial; other facts are not reported by whoever runs it.")
    try:
        # Python lets any word pass where a fact holds one of a few; once written, it would stop every reader.
        msgspec.convert(msgspec.to_builtins(fact), type(fact))
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise BadInput(f"A reported fact does not have the right form: {error}.") from error
    return rule_of(fact)


def keep_late_rewards(client: Client, stream: str, facts: Sequence[ReportedFact], *, token: int) -> None:
    """Keep the rewards in a report under a claim that has lapsed, as evidence."""
    for fact in facts:
        if isinstance(fact, RewardRecorded):
            text = msgspec.json.encode(checked_number(fact.reward, what="reward"))
            raw = client.artifacts.put_bytes(text).sha256
            client.ledger.record(stream, partial(rules.keep_late_reward, token=token, raw=raw))


def _which_are_new(facts: Sequence[ReportedFact], written: Sequence[object]) -> list[bool]:
    left = list(written)
    new: list[bool] = []
    for fact in facts:
        new.append(fact in left)
        if new[-1]:
            left.remove(fact)
    return new
