"""What the doors answer about leaderboards. Times are RFC 3339 in UTC; positions are those of the project's log."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.facts.leaderboard import FrozenNumbers
from projections.leaderboard import Order, Outside


class Mark(msgspec.Struct, frozen=True):
    """An entry: its position, when it was recorded, and by whom."""

    position: int
    at: str
    by: str


class Withdrawal(msgspec.Struct, frozen=True):
    """The entry that withdrew a snapshot, and the reason given."""

    position: int
    at: str
    by: str
    reason: str


class Snapshot(msgspec.Struct, frozen=True):
    """A job's result as it was frozen. `name` is the model, or the job's id where the job names none.

    `position` is that of the log which `numbers` were computed at; `manifest` the sha256 of the job-submitted fact.
    """

    id: str
    cohort: str
    job_id: str
    name: str
    model: str | None
    status: str
    dataset: str
    runner: str
    attempts: int
    profile: str | None
    manifest: str
    position: int
    numbers: FrozenNumbers
    added: Mark


class AddedSnapshot(msgspec.Struct, frozen=True):
    """The snapshot of a job; `unchanged` when it was saved before. `position` of its entry."""

    outcome: Literal["written", "unchanged"]
    position: int
    snapshot: Snapshot


class WithdrawnSnapshot(msgspec.Struct, frozen=True):
    """A snapshot that was withdrawn; `unchanged` when it was so before. `position` of the entry that withdrew it."""

    outcome: Literal["written", "unchanged"]
    position: int
    snapshot: Snapshot
    withdrawn: Withdrawal


class SnapshotAnswer(msgspec.Struct, frozen=True):
    """A snapshot as it stands: `now` are its job's numbers where they have become others since; null where not."""

    snapshot: Snapshot
    now: FrozenNumbers | None
    withdrawn: Withdrawal | None
    as_of: int


class RowNumbers(msgspec.Struct, frozen=True):
    """What a row shows of a job's numbers. `coverage` is the share of requested attempts that have a reward."""

    score: float | None
    scored: int
    missing: int
    total: int
    coverage: float
    complete_members: int
    total_members: int
    composite: float | None
    score_bounds: tuple[float, float] | None


class BoardRow(msgspec.Struct, frozen=True):
    """A row of a leaderboard. Without a `rank`, `outside` says why: below the coverage asked for, without bounds to
    order by, or withdrawn.

    `now` is there where the job was revised since: then both numbers are to be shown. `job_link` is the job's route.
    """

    rank: int | None
    outside: Outside | None
    name: str
    score: float | None
    scored: int
    missing: int
    total: int
    coverage: float
    complete_members: int
    total_members: int
    composite: float | None
    score_bounds: tuple[float, float] | None
    snapshot_id: str
    job_id: str
    job_link: str
    model: str | None
    profile: str | None
    status: str
    position: int
    added: Mark
    now: RowNumbers | None
    withdrawn: Withdrawal | None


class Board(msgspec.Struct, frozen=True):
    """A leaderboard as it stood at `as_of`: the ranked rows in order, then those without a rank."""

    cohort: str
    dataset: str
    runner: str
    attempts: int
    members: int
    order: Order
    min_coverage: float
    rows: list[BoardRow]
    as_of: int


class BoardSummary(msgspec.Struct, frozen=True):
    """A leaderboard in a list: what its jobs have in common, how many stand on it and how many were withdrawn."""

    cohort: str
    dataset: str
    runner: str
    attempts: int
    members: int
    snapshots: int
    withdrawn: int


class BoardList(msgspec.Struct, frozen=True):
    """The leaderboards of a project, the one added to first first."""

    leaderboards: list[BoardSummary]
    as_of: int


class Place(msgspec.Struct, frozen=True):
    """Where a row stood: its rank or why it had none, its score, and its job's numbers where they were others."""

    rank: int | None
    outside: Outside | None
    score: float | None
    now: RowNumbers | None


class MovingFact(msgspec.Struct, frozen=True):
    """An entry that moved a row: of the leaderboard (`job_id` says whose snapshot), or of a trial of the row's job."""

    position: int
    tag: str
    at: str
    by: str
    job_id: str
    task: str | None = None
    attempt: int | None = None


class Move(msgspec.Struct, frozen=True):
    """A row that stands otherwise than before, and the entries that moved it; `before` is null for a new row.

    `facts_left_out` counts those beyond the first that are listed.
    """

    name: str
    snapshot_id: str
    job_id: str
    before: Place | None
    after: Place
    facts: list[MovingFact]
    facts_left_out: int


class BoardDiff(msgspec.Struct, frozen=True):
    """What moved on a leaderboard after the position `from` up to the position `to`."""

    cohort: str
    from_: int = msgspec.field(name="from")
    to: int
    moves: list[Move]
    as_of: int
