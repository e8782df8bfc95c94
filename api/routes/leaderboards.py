"""Leaderboards: results of comparable jobs, frozen, ranked and read as of any position."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import ConfigDict, Field

from api.boards import AddedSnapshot, Board, BoardDiff, BoardList, SnapshotAnswer, WithdrawnSnapshot
from api.http.answering import answer
from api.http.bodies import Form, strict
from api.http.calls import Read, Write
from api.http.routes import Routes
from api.routes.queries import AsOfQ
from ledger.rules.forms import REASON_CHARS_MAX
from projections.leaderboard import Order

routes = Routes("leaderboards")

CohortPath = Annotated[
    str, Path(max_length=64, description="A cohort, or the beginning of one; or the id of a job or snapshot on it.")
]
SnapshotPath = Annotated[str, Path(max_length=36, description="A snapshot's id, or its job's.")]
CoverageQ = Annotated[float, Query(ge=0, le=1, description="Rank only rows that cover this share of the attempts.")]
PLACE = "A position, or a time (RFC 3339)."


class AddSnapshot(Form):
    """The job whose result is to be frozen."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"job_id": "6f1c2e5a-1f0e-5a53-9f6e-0d8f2a4b7c11"}]})

    job_id: str = Field(min_length=1, max_length=36)


class WithdrawSnapshot(Form):
    """Why a result is taken out of the ranking."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "two tasks were in the training data"}]})

    reason: str = Field(min_length=1, max_length=REASON_CHARS_MAX)


@routes.post(
    "/leaderboards/snapshots",
    scope="publish",
    answers=AddedSnapshot,
    statuses={201: "It is frozen.", 200: "It was frozen before; the saved snapshot, unchanged."},
)
def add_snapshot(call: Write, body: Annotated[AddSnapshot, strict(AddSnapshot)]) -> Response:
    """Freeze a job's result on the leaderboard of its cohort. The same job again gives the saved snapshot."""
    added = call.client.add_snapshot(body.job_id)
    status = 201 if added.outcome == "written" else 200
    where = f"/leaderboards/snapshots/{added.snapshot.id}"
    return answer(call, added, status=status, position=added.position, location=where)


@routes.get("/leaderboards", scope="read", answers=BoardList)
def leaderboards(call: Read, as_of: AsOfQ = None) -> Response:
    """List the leaderboards of the project."""
    return answer(call, call.client.leaderboards(as_of=as_of))


@routes.get("/leaderboards/snapshots/{snapshot_id}", scope="read", answers=SnapshotAnswer)
def snapshot(call: Read, snapshot_id: SnapshotPath) -> Response:
    """Read a snapshot, and what its job's numbers have become since."""
    return answer(call, call.client.snapshot(snapshot_id))


@routes.post("/leaderboards/snapshots/{snapshot_id}/withdraw", scope="publish", answers=WithdrawnSnapshot)
def withdraw_snapshot(
    call: Write, snapshot_id: SnapshotPath, body: Annotated[WithdrawSnapshot, strict(WithdrawSnapshot)]
) -> Response:
    """Take a result out of the ranking, for good; it stays readable with the reason."""
    withdrawn = call.client.withdraw_snapshot(snapshot_id, reason=body.reason)
    return answer(call, withdrawn, position=withdrawn.position)


@routes.get("/leaderboards/{cohort}", scope="read", answers=Board)
def leaderboard(
    call: Read, cohort: CohortPath, order: Order = "score", min_coverage: CoverageQ = 0.0, as_of: AsOfQ = None
) -> Response:
    """Read a leaderboard: each score with how much was measured."""
    return answer(call, call.client.leaderboard(cohort, order=order, min_coverage=min_coverage, as_of=as_of))


@routes.get("/leaderboards/{cohort}/diff", scope="read", answers=BoardDiff)
def leaderboard_diff(
    call: Read,
    cohort: CohortPath,
    start: Annotated[str, Query(alias="from", min_length=1, max_length=40, description=PLACE)],
    end: Annotated[str | None, Query(alias="to", min_length=1, max_length=40, description=PLACE)] = None,
) -> Response:
    """Say which rows moved between two positions or times, and which facts moved them."""
    return answer(call, call.client.leaderboard_diff(cohort, start, end))
