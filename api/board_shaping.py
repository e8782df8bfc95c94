"""Rows of leaderboards into answers."""

from __future__ import annotations

from collections.abc import Sequence

from api.boards import BoardRow, BoardSummary, Mark, RowNumbers, Snapshot, Withdrawal
from api.shaping import time_text
from ledger.facts.leaderboard import FrozenNumbers
from projections.leaderboard import Ranked, SnapshotRow, coverage_of


def snapshot_of(row: SnapshotRow) -> Snapshot:
    """A snapshot as it was saved."""
    fact = row.fact
    return Snapshot(
        id=fact.snapshot_id,
        cohort=fact.cohort,
        job_id=fact.job_id,
        name=fact.model or fact.job_id,
        model=fact.model,
        status=fact.status,
        dataset=fact.dataset,
        runner=fact.runner,
        attempts=fact.attempts,
        profile=fact.profile,
        manifest=fact.manifest,
        position=fact.position,
        numbers=fact.numbers,
        added=added_of(row),
    )


def row_numbers(numbers: FrozenNumbers) -> RowNumbers:
    """What a row shows of a job's numbers."""
    counts, bounds = numbers.score_counts, numbers.score_bounds
    return RowNumbers(
        score=numbers.score,
        scored=counts.scored,
        missing=counts.missing,
        total=counts.total,
        coverage=coverage_of(numbers),
        complete_members=counts.complete_members,
        total_members=counts.total_members,
        composite=numbers.composite,
        score_bounds=None if bounds is None else (bounds.low, bounds.high),
    )


def row_of(ranked: Ranked, now: FrozenNumbers | None, project: str) -> BoardRow:
    """A row of a leaderboard as it is shown, with its job's numbers of now where they are others."""
    row, fact = ranked.row, ranked.row.fact
    frozen = row_numbers(fact.numbers)
    return BoardRow(
        rank=ranked.rank,
        outside=ranked.outside,
        name=fact.model or fact.job_id,
        score=frozen.score,
        scored=frozen.scored,
        missing=frozen.missing,
        total=frozen.total,
        coverage=frozen.coverage,
        complete_members=frozen.complete_members,
        total_members=frozen.total_members,
        composite=frozen.composite,
        score_bounds=frozen.score_bounds,
        snapshot_id=fact.snapshot_id,
        job_id=fact.job_id,
        job_link=f"/v1/projects/{project}/jobs/{fact.job_id}",
        model=fact.model,
        profile=fact.profile,
        status=fact.status,
        position=fact.position,
        added=added_of(row),
        now=None if now is None else row_numbers(now),
        withdrawn=withdrawal_of(row),
    )


def summary_of(rows: Sequence[SnapshotRow]) -> BoardSummary:
    """A leaderboard, of whose snapshots there is at least one, in a list."""
    first = rows[0].fact
    withdrawn = sum(row.withdrawn_position is not None for row in rows)
    return BoardSummary(
        cohort=first.cohort,
        dataset=first.dataset,
        runner=first.runner,
        attempts=first.attempts,
        members=first.numbers.score_counts.total_members,
        snapshots=len(rows) - withdrawn,
        withdrawn=withdrawn,
    )


def added_of(row: SnapshotRow) -> Mark:
    """The entry that added a snapshot."""
    return Mark(row.position, time_text(row.added_us) or "", row.added_by)


def withdrawal_of(row: SnapshotRow) -> Withdrawal | None:
    """The entry that withdrew a snapshot, if one did."""
    if row.withdrawn_position is None:
        return None
    return Withdrawal(
        row.withdrawn_position, time_text(row.withdrawn_us) or "", row.withdrawn_by or "", row.reason or ""
    )
