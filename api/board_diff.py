"""What moved on a leaderboard between two positions, and the entries that moved it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.engine import Connection

from api.asof import position_asked
from api.board_shaping import row_numbers
from api.boards import BoardDiff, Move, MovingFact, Place
from api.leaderboards import went_on
from api.shaping import time_text
from ledger.codec import TAGS
from ledger.errors import BadInput, NotFound
from ledger.facts.leaderboard import FrozenNumbers, SnapshotAdded, SnapshotWithdrawn
from ledger.facts.trial import slot_of
from projections import leaderboard as read_model
from projections import snapshots
from projections.following import microseconds
from projections.leaderboard import Ranked, SnapshotRow

FACTS_LISTED_MAX = 100

_ADDED, _WITHDRAWN = TAGS[SnapshotAdded], TAGS[SnapshotWithdrawn]


class _Since(NamedTuple):
    """A job's numbers at both ends where they are others than its snapshot's, and the entries that changed them."""

    before: FrozenNumbers | None
    after: FrozenNumbers | None
    facts: list[MovingFact]


def diff_leaderboard(
    connection: Connection, reached: int, *, project: str, cohort: str, from_: int | str, to: int | str | None
) -> BoardDiff:
    """The rows that stand otherwise at the position `to` than at `from_`, by score, each with what moved it.

    Raises:
        BadInput: `to` lies before `from_`.
        NotFound: there was no such leaderboard at `to`.
    """
    start = position_asked(connection, project, from_, reached=reached)
    end = reached if to is None else position_asked(connection, project, to, reached=reached)
    if end < start:
        raise BadInput(f"The end, position {end:,}, lies before the start, position {start:,}; turn them round.")
    cohort = read_model.find_cohort(connection, project, cohort)
    before = read_model.rank(read_model.list_snapshots(connection, project, cohort=cohort, upto=start))
    after = read_model.rank(read_model.list_snapshots(connection, project, cohort=cohort, upto=end))
    if not after:
        raise NotFound(f"There was no leaderboard {cohort[:12]} at position {end:,} yet.")
    stood = {one.row.fact.snapshot_id: one for one in before}
    rows = {one.row.fact.snapshot_id: one.row for one in after}
    moves: list[Move] = []
    for one in after:
        fact = one.row.fact
        had = stood.get(fact.snapshot_id)
        since = _since(connection, project, one.row, max(start, fact.position), end)
        places = (None if had is None else _place(had, since.before), _place(one, since.after))
        if places[0] == places[1]:
            continue
        movers = read_model.movers(before, after, fact.snapshot_id) if had and had.rank != one.rank else set()
        facts = [*_of_boards([one.row, *(rows[mover] for mover in movers)], start, end), *since.facts]
        facts.sort(key=lambda moving: moving.position)
        moves.append(
            Move(
                name=fact.model or fact.job_id,
                snapshot_id=fact.snapshot_id,
                job_id=fact.job_id,
                before=places[0],
                after=places[1],
                facts=facts[:FACTS_LISTED_MAX],
                facts_left_out=max(0, len(facts) - FACTS_LISTED_MAX),
            )
        )
    return BoardDiff(cohort=cohort, from_=start, to=end, moves=moves, as_of=reached)


def _place(ranked: Ranked, now: FrozenNumbers | None) -> Place:
    score = ranked.row.fact.numbers.score
    return Place(ranked.rank, ranked.outside, score, None if now is None else row_numbers(now))


def _of_boards(rows: Sequence[SnapshotRow], start: int, end: int) -> list[MovingFact]:
    """The entries between the positions that added these snapshots or withdrew them."""
    found: list[MovingFact] = []
    for row in rows:
        if start < row.position <= end:
            at = time_text(row.added_us) or ""
            found.append(MovingFact(row.position, _ADDED, at, row.added_by, row.fact.job_id))
        if row.withdrawn_position is not None and start < row.withdrawn_position <= end:
            at = time_text(row.withdrawn_us) or ""
            found.append(MovingFact(row.withdrawn_position, _WITHDRAWN, at, row.withdrawn_by or "", row.fact.job_id))
    return found


def _since(connection: Connection, project: str, row: SnapshotRow, start: int, end: int) -> _Since:
    """Fold the job's entries, and look at its numbers before and after each one above the position `start`."""
    frozen, job_id = row.fact.numbers, row.fact.job_id
    if not went_on(connection, project, row.fact, end):
        return _Since(None, None, [])
    fold = snapshots.JobFold(job_id)
    at_start: FrozenNumbers | None = None
    numbers: FrozenNumbers | None = None
    facts: list[MovingFact] = []
    for position, entry in snapshots.entries_of(connection, project, job_id, upto=end):
        if position > start and at_start is None:
            at_start = numbers = fold.numbers()
        fold.apply(entry)
        if position <= start:
            continue
        had, numbers = numbers, fold.numbers()
        if had != numbers:
            slot = slot_of(entry.stream)
            at = time_text(microseconds(entry.at)) or ""
            facts.append(MovingFact(position, TAGS[type(entry.fact)], at, entry.actor, job_id, slot.task, slot.attempt))
    last = fold.numbers()
    before, after = (last if at_start is None else at_start), last
    return _Since(None if before == frozen else before, None if after == frozen else after, facts)
