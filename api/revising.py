"""Corrections: rewards of a later grading, beside the first ones and never over them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from api.answers import Published, Regraded
from api.publishing import published
from ledger.errors import BadInput, NotFound
from ledger.facts.trial import RewardRevised, trial_stream
from ledger.rules import trial as rules

if TYPE_CHECKING:
    from api.client import Client

REGRADED_MAX = 100_000


class NewReward(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a later grading gave a trial, named by its task and attempt."""

    task: str
    attempt: int
    reward: float


def revise(client: Client, trial_id: str, *, reward: float, verifier: str, reason: str) -> Published:
    """Correct one trial's reward."""
    row = client.get_trial(trial_id)
    rule = partial(rules.revise_reward, new=reward, verifier=verifier, reason=reason)
    written = client.ledger.record(trial_stream(row.job_id, row.task, row.attempt), rule)
    return published(row.trial_id, written)


def regrade(client: Client, job_id: str, rewards: Sequence[NewReward], *, verifier: str, reason: str) -> Regraded:
    """Correct rewards of a job, all or none, in one transaction."""
    job_id = client.job(job_id).id
    streams = [trial_stream(job_id, one.task, one.attempt) for one in rewards]
    _check(rewards, streams)
    rows = client.ledger.recorder.bodies_of(streams)
    for one, stream in zip(rewards, streams, strict=True):
        if not rows[stream]:
            raise NotFound(f"Job {job_id} has no trial of task {one.task[:80]!r} with attempt {one.attempt}.")
    asked = [
        (stream, [partial(rules.revise_reward, new=one.reward, verifier=verifier, reason=reason)])
        for one, stream in zip(rewards, streams, strict=True)
    ]
    written = client.ledger.record_all(asked)
    facts = [fact for one in written for fact in one.facts if isinstance(fact, RewardRevised)]
    position = max(one.position for one in written)
    return Regraded(job_id, len(facts), len(rewards) - len(facts), sum(fact.old is None for fact in facts), position)


def _check(rewards: Sequence[NewReward], streams: Sequence[str]) -> None:
    if not rewards:
        raise BadInput("There is no reward to record; give at least one task, attempt and reward.")
    if len(rewards) > REGRADED_MAX:
        raise BadInput(f"At most {REGRADED_MAX:,} rewards are revised at once; hand them in in parts.")
    if len(set(streams)) < len(streams):
        twice = next(one for n, one in enumerate(rewards) if streams[n] in streams[:n])
        raise BadInput(f"Task {twice.task[:80]!r}, attempt {twice.attempt} is there twice; give each trial once.")
