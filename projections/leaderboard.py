"""The snapshots of every leaderboard, and how they rank: rows as they stood at any position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.database import metadata
from ledger.errors import NotFound
from ledger.facts.entry import Recorded
from ledger.facts.leaderboard import FrozenNumbers, SnapshotAdded, SnapshotWithdrawn
from projections.following import Batch, ReadModel, microseconds

snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("snapshot_id", sa.Text, primary_key=True),
    sa.Column("cohort", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("fact", sa.LargeBinary, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("added_us", sa.BigInteger, nullable=False),
    sa.Column("added_by", sa.Text, nullable=False),
    sa.Column("withdrawn_position", sa.BigInteger),
    sa.Column("withdrawn_us", sa.BigInteger),
    sa.Column("withdrawn_by", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Index("snapshots_cohort", "project_id", "cohort", "position"),
    sa.Index("snapshots_job", "project_id", "job_id"),
)

Order = Literal["score", "lower-bound"]
Outside = Literal["below-coverage", "no-bounds", "withdrawn"]

BEGINNING_CHARS_MIN = 4


class SnapshotRow(msgspec.Struct, frozen=True):
    """A snapshot with the entry that added it: its position, time (microseconds since 1970 UTC) and actor.

    The same of the entry that withdrew it, and the reason, where one did.
    """

    fact: SnapshotAdded
    position: int
    added_us: int
    added_by: str
    withdrawn_position: int | None
    withdrawn_us: int | None
    withdrawn_by: str | None
    reason: str | None


_COLUMNS = tuple(snapshots.c[name] for name in SnapshotRow.__struct_fields__)
_decode_fact = msgspec.json.Decoder(SnapshotAdded).decode


def apply(connection: Connection, project_id: str, batch: Batch) -> None:
    """A row a snapshot; a withdrawal is written beside it."""
    for position, entry in batch.others:
        match entry.fact:
            case SnapshotAdded() as fact:
                row = {
                    "project_id": project_id,
                    "snapshot_id": fact.snapshot_id,
                    "cohort": fact.cohort,
                    "job_id": fact.job_id,
                    "fact": msgspec.json.encode(fact),
                    "position": position,
                    "added_us": microseconds(entry.at),
                    "added_by": entry.actor,
                }
                connection.execute(snapshots.insert(), row)
            case SnapshotWithdrawn(snapshot_id, reason):
                this = (snapshots.c.project_id == project_id, snapshots.c.snapshot_id == snapshot_id)
                withdrawn = snapshots.update().where(*this)
                connection.execute(
                    withdrawn.values(
                        withdrawn_position=position,
                        withdrawn_us=microseconds(entry.at),
                        withdrawn_by=entry.actor,
                        reason=reason,
                    )
                )
            case _:
                pass


MODEL = ReadModel("leaderboard", 1, (snapshots,), apply)


def row_in(entries: Iterable[Recorded], snapshot_id: str) -> SnapshotRow | None:
    """A snapshot as the entries of its leaderboard's stream tell it; what was just written is in them already."""
    row: SnapshotRow | None = None
    for position, entry in entries:
        match entry.fact:
            case SnapshotAdded() as fact if fact.snapshot_id == snapshot_id:
                row = SnapshotRow(fact, position, microseconds(entry.at), entry.actor, None, None, None, None)
            case SnapshotWithdrawn(withdrawn, reason) if withdrawn == snapshot_id and row:
                gone = (position, microseconds(entry.at), entry.actor, reason)
                row = SnapshotRow(row.fact, row.position, row.added_us, row.added_by, *gone)
            case _:
                pass
    return row


def get_snapshot(connection: Connection, project_id: str, snapshot_id: str) -> SnapshotRow:
    """One snapshot by its id."""
    found = find_snapshot(connection, project_id, snapshot_id)
    if found is None:
        raise NotFound(f"There is no snapshot {snapshot_id}; `el leaderboard list` shows the leaderboards.")
    return found


def find_snapshot(connection: Connection, project_id: str, snapshot_id: str) -> SnapshotRow | None:
    """One snapshot by its id, None when there is none of that id."""
    found = _rows(connection, project_id, snapshots.c.snapshot_id == snapshot_id)
    return found[0] if found else None


def snapshot_of(connection: Connection, project_id: str, job_id: str) -> SnapshotRow | None:
    """The snapshot of a job, None when it is on no leaderboard."""
    found = _rows(connection, project_id, snapshots.c.job_id == job_id)
    return found[0] if found else None


def list_snapshots(
    connection: Connection, project_id: str, *, cohort: str | None = None, upto: int | None = None
) -> list[SnapshotRow]:
    """The snapshots of one cohort, or all, by position; as they stood at the position `upto`, if one is given."""
    conditions = [] if cohort is None else [snapshots.c.cohort == cohort]
    if upto is None:
        return _rows(connection, project_id, *conditions)
    rows = _rows(connection, project_id, *conditions, snapshots.c.position <= upto)
    return [_before_withdrawal(row, upto) for row in rows]


def find_cohort(connection: Connection, project_id: str, text: str) -> str:
    """The cohort that a text names: its digest or the id of a job on it, whole or a beginning; or a snapshot's id."""
    named = sa.or_(snapshots.c.cohort == text, snapshots.c.job_id == text, snapshots.c.snapshot_id == text)
    if len(text) >= BEGINNING_CHARS_MIN:
        columns = (snapshots.c.cohort, snapshots.c.job_id)
        named = sa.or_(named, *(column.startswith(text, autoescape=True) for column in columns))
    query = sa.select(snapshots.c.cohort).where(snapshots.c.project_id == project_id, named).distinct().limit(2)
    found = list(connection.execute(query).scalars())
    if len(found) == 1:
        return str(found[0])
    if found:
        raise NotFound(f"{text[:80]} is the beginning of several; give more of it.")
    raise NotFound(f"There is no leaderboard {text[:80]!r}; `el leaderboard list` shows those there are.")


def _rows(connection: Connection, project_id: str, *conditions: sa.ColumnElement[bool]) -> list[SnapshotRow]:
    query = sa.select(*_COLUMNS).where(snapshots.c.project_id == project_id, *conditions)
    found = connection.execute(query.order_by(snapshots.c.position))
    return [SnapshotRow(_decode_fact(fact), *rest) for fact, *rest in found]


def _before_withdrawal(row: SnapshotRow, upto: int) -> SnapshotRow:
    if row.withdrawn_position is None or row.withdrawn_position <= upto:
        return row
    return msgspec.structs.replace(row, withdrawn_position=None, withdrawn_us=None, withdrawn_by=None, reason=None)


# --- ranking ---------------------------------------------------------------------------------------------------------


class Ranked(NamedTuple):
    """A row in its place: its rank from 1, or why it has none."""

    row: SnapshotRow
    rank: int | None
    outside: Outside | None


def coverage_of(numbers: FrozenNumbers) -> float:
    """The share of requested attempts that have a reward; attempts beyond k cover nothing."""
    counts = numbers.score_counts
    return (counts.total - counts.missing) / counts.total


def rank(rows: Iterable[SnapshotRow], *, order: Order = "score", min_coverage: float = 0.0) -> list[Ranked]:
    """The rows in the order they are shown: ranked ones, then those that are not, withdrawn ones last.

    What is ordered by, the score or its lower bound, alone makes the rank: equal ones share it, and the next rank
    counts them all (1, 2, 2, 4). Among equal ones fewer missing stand first, then those added earlier.
    """
    inside: list[SnapshotRow] = []
    beside: list[Ranked] = []
    for row in rows:
        outside = _outside(row, order, min_coverage)
        if outside:
            beside.append(Ranked(row, None, outside))
        else:
            inside.append(row)
    inside.sort(key=lambda row: (-_key(row, order), row.fact.numbers.score_counts.missing, row.position))
    ranked: list[Ranked] = []
    for place, row in enumerate(inside, 1):
        same = ranked and _key(ranked[-1].row, order) == _key(row, order)
        ranked.append(Ranked(row, ranked[-1].rank if same else place, None))
    beside.sort(key=lambda one: (one.outside == "withdrawn", one.row.position))
    return ranked + beside


def _outside(row: SnapshotRow, order: Order, min_coverage: float) -> Outside | None:
    if row.withdrawn_position is not None:
        return "withdrawn"
    if coverage_of(row.fact.numbers) < min_coverage:
        return "below-coverage"
    if order == "lower-bound" and row.fact.numbers.score_bounds is None:
        return "no-bounds"
    return None


def _key(row: SnapshotRow, order: Order) -> float:
    numbers = row.fact.numbers
    if order == "lower-bound" and numbers.score_bounds is not None:
        return numbers.score_bounds.low
    if numbers.score is None:
        raise ValueError("a snapshot without a score is never recorded")
    return numbers.score


def movers(before: Sequence[Ranked], after: Sequence[Ranked], snapshot_id: str) -> set[str]:
    """The other snapshots that came above a row, or went from there: they moved its rank without touching it."""
    above = [_above(board, snapshot_id) for board in (before, after)]
    if above[0] is None or above[1] is None:
        return set()
    return above[0] ^ above[1]


def _above(board: Sequence[Ranked], snapshot_id: str) -> set[str] | None:
    own = next((one.rank for one in board if one.row.fact.snapshot_id == snapshot_id), None)
    if own is None:
        return None
    return {one.row.fact.snapshot_id for one in board if one.rank is not None and one.rank < own}
