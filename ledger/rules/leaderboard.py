"""Rules of a leaderboard: a job stands on it once, as it was when it was added; who withdraws it says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import msgspec

from ledger.errors import Conflict, NotAllowed, NotFound
from ledger.facts.leaderboard import LeaderboardFact, SnapshotAdded, SnapshotWithdrawn
from ledger.rules.forms import checked_reason
from ledger.rules.job import Ending, Job


class Leaderboard(msgspec.Struct, frozen=True):
    """The snapshots that were added, and of those the withdrawn, by snapshot id."""

    snapshots: Mapping[str, SnapshotAdded] = {}
    withdrawn: Mapping[str, SnapshotWithdrawn] = {}


def evolve(state: Leaderboard | None, fact: LeaderboardFact) -> Leaderboard:
    """The leaderboard after one more fact."""
    state = state or Leaderboard()
    match fact:
        case SnapshotAdded():
            return msgspec.structs.replace(state, snapshots={**state.snapshots, fact.snapshot_id: fact})
        case SnapshotWithdrawn():
            return msgspec.structs.replace(state, withdrawn={**state.withdrawn, fact.snapshot_id: fact})
        case _:
            assert_never(fact)


def ending_of(job: Job | None) -> Ending:
    """How a job ended; one that has not ended is on no leaderboard yet."""
    if job is None or job.manifest is None:
        raise NotFound("There is no such job; `el job list` shows those there are.")
    if job.ended is None:
        raise NotAllowed(
            "The job has not ended, so its result may still change; add it once `el job get` says completed, failed "
            "or canceled."
        )
    return job.ended


def add_snapshot(state: Leaderboard | None, *, snapshot: SnapshotAdded) -> list[LeaderboardFact]:
    """Freeze a job's result. The same job again is nothing new, whatever has become of it since."""
    if state and snapshot.snapshot_id in state.snapshots:
        return []
    if snapshot.numbers.score is None:
        raise NotAllowed(
            "Nothing of the job was scored, so there is no result to rank; `el job result` shows which rewards are "
            "missing, and why."
        )
    return [snapshot]


def withdraw_snapshot(state: Leaderboard | None, *, snapshot_id: str, reason: str) -> list[LeaderboardFact]:
    """Take a snapshot out of the ranking. Once: for the same reason again is nothing new, for another is refused."""
    if state is None or snapshot_id not in state.snapshots:
        raise NotFound(f"There is no snapshot {snapshot_id}; `el leaderboard list` shows the leaderboards.")
    checked_reason(reason)
    had = state.withdrawn.get(snapshot_id)
    if had is None:
        return [SnapshotWithdrawn(snapshot_id, reason)]
    if had.reason == reason:
        return []
    raise Conflict(
        "The snapshot was withdrawn already for another reason, and a fact is not changed.",
        [f"reason: {had.reason!r}, now {reason!r}"],
    )
