"""`el leaderboard`: results of comparable jobs, frozen and ranked; what moved, and which facts moved it."""

from __future__ import annotations

from typing import Annotated

import typer

from api.boards import Board, BoardDiff, BoardRow, Place, RowNumbers, Snapshot
from api.cli.as_of import AsOf
from api.cli.output import GAP, Json, Project, harmless, say, say_json, say_table
from api.client import connect
from projections.leaderboard import Order
from projections.metrics_text import percent

COHORT_SHOWN_CHARS = 12

app = typer.Typer(
    help="Results of comparable jobs: same dataset revision, runner, tasks and attempts.", no_args_is_help=True
)

Cohort = Annotated[
    str, typer.Argument(metavar="COHORT|JOB", help="The cohort as `list` shows it, or a job on the leaderboard.")
]


@app.command()
def add(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or its first characters.")],
    project: Project = None,
    json: Json = False,
) -> None:
    """Freeze a job's result on the leaderboard of the jobs it can be compared with. Again, nothing changes.

    Example: el leaderboard add 3f2a1c9e
    """
    added = connect(project=project).add_snapshot(job)
    if json:
        say_json(added)
        return
    snapshot = added.snapshot
    verb = "added to" if added.outcome == "written" else "was already on"
    say(harmless(f"{snapshot.name} {verb} the leaderboard {snapshot.cohort[:COHORT_SHOWN_CHARS]}: {_score(snapshot)}"))
    say(f"look at it: el leaderboard show {snapshot.cohort[:COHORT_SHOWN_CHARS]}")


@app.command("list")
def list_(as_of: AsOf = None, project: Project = None, json: Json = False) -> None:
    """List the leaderboards of the project, and what the jobs on each have in common.

    Example: el leaderboard list
    """
    listed = connect(project=project).leaderboards(as_of=as_of)
    if json:
        say_json(listed)
        return
    if not listed.leaderboards:
        say("no leaderboards; `el leaderboard add JOB` begins one")
        return
    say_table(
        ["cohort", "dataset", "runner", "k", "members", "jobs", "withdrawn"],
        [
            [
                board.cohort[:COHORT_SHOWN_CHARS],
                board.dataset,
                board.runner,
                str(board.attempts),
                f"{board.members:,}",
                f"{board.snapshots:,}",
                f"{board.withdrawn:,}",
            ]
            for board in listed.leaderboards
        ],
        right=["k", "members", "jobs", "withdrawn"],
    )


@app.command()
def show(
    cohort: Cohort,
    order: Annotated[str, typer.Option(metavar="ORDER", help="score, or lower-bound: every missing reward as 0.")] = (
        "score"
    ),
    min_coverage: Annotated[
        float, typer.Option(min=0, max=1, help="Rank only rows that cover this share of the attempts, such as 0.9.")
    ] = 0.0,
    as_of: AsOf = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """Show a leaderboard: each score with how much was measured.

    Example: el leaderboard show 3f2a1c9e --min-coverage 0.9
    """
    asked: Order = order  # type: ignore[assignment]  # what is no order is refused by the client, in a sentence
    board = connect(project=project).leaderboard(cohort, order=asked, min_coverage=min_coverage, as_of=as_of)
    if json:
        say_json(board)
    else:
        _show_board(board)


@app.command()
def withdraw(
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT|JOB", help="The snapshot's id, or its job's.")],
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the leaderboard.")],
    project: Project = None,
    json: Json = False,
) -> None:
    """Take a result out of the ranking, for good; it stays readable with the reason.

    Example: el leaderboard withdraw 3f2a1c9e --reason "two tasks were in the training data"
    """
    answer = connect(project=project).withdraw_snapshot(snapshot, reason=reason)
    if json:
        say_json(answer)
        return
    cohort = answer.snapshot.cohort[:COHORT_SHOWN_CHARS]
    say(harmless(f"{answer.snapshot.name} is withdrawn from the leaderboard {cohort}"))


@app.command()
def diff(
    cohort: Cohort,
    from_: Annotated[str, typer.Option("--from", metavar="POSITION|TIME", help="From how it stood then.")],
    to: Annotated[
        str | None, typer.Option(metavar="POSITION|TIME", help="To how it stood then; the end of the log without.")
    ] = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """Say which rows moved between two positions or times, and which facts moved them.

    Example: el leaderboard diff 3f2a1c9e --from 1200 --to 2026-07-01T12:00:00Z
    """
    found = connect(project=project).leaderboard_diff(cohort, from_, to)
    if json:
        say_json(found)
    else:
        _show_diff(found)


def _show_board(board: Board) -> None:
    say(
        f"leaderboard {board.cohort[:COHORT_SHOWN_CHARS]}  {board.dataset}  {board.runner}  "
        f"k={board.attempts}, {board.members:,} members, as of position {board.as_of:,}"
    )
    floor = f", at least {percent(board.min_coverage)} covered" if board.min_coverage else ""
    say(f"ranked by {board.order.replace('-', ' ')}{floor}", "")
    say_table(
        ["rank", "model or job", "score", "scored", "missing", "members", "bounds", "composite", "status", "job", ""],
        [_cells(row) for row in board.rows],
        right=["rank", "score", "scored", "missing", "members"],
    )


def _cells(row: BoardRow) -> list[str]:
    return [
        GAP if row.rank is None else str(row.rank),
        harmless(row.name),
        percent(row.score),
        f"{row.scored:,}/{row.total:,}",
        f"{row.missing:,}",
        f"{row.complete_members:,}/{row.total_members:,}",
        GAP if row.score_bounds is None else f"{percent(row.score_bounds[0])} to {percent(row.score_bounds[1])}",
        GAP if row.composite is None else f"{row.composite:.6g}",
        row.status,
        row.job_id,
        harmless("; ".join(_remarks(row))),
    ]


def _remarks(row: BoardRow) -> list[str]:
    remarks = []
    if row.withdrawn:
        remarks.append(f"withdrawn: {row.withdrawn.reason}")
    if row.outside == "below-coverage":
        remarks.append(f"not ranked: only {percent(row.coverage)} covered")
    if row.outside == "no-bounds":
        remarks.append("not ranked: a reward lies outside [0, 1] or beyond k, so there are no bounds")
    if row.now:
        remarks.append(f"revised since: now {_numbers(row.now)}")
    return remarks


def _show_diff(diff: BoardDiff) -> None:
    say(
        f"leaderboard {diff.cohort[:COHORT_SHOWN_CHARS]}, after position {diff.from_:,} up to {diff.to:,}: "
        + (f"{len(diff.moves):,} rows moved" if len(diff.moves) != 1 else "1 row moved")
    )
    for move in diff.moves:
        before = "not there" if move.before is None else _place(move.before)
        say("", harmless(f"{move.name} ({move.job_id}): {before} -> {_place(move.after)}"))
        for fact in move.facts:
            slot = "" if fact.task is None else f"  {fact.task} #{fact.attempt}"
            of = "" if fact.job_id == move.job_id else f"  job {fact.job_id}"
            say(harmless(f"  {fact.position:>9,}  {fact.at}  {fact.by}  {fact.tag}{slot}{of}"))
        if move.facts_left_out:
            say(f"  and {move.facts_left_out:,} more; el audit events --job {move.job_id} lists them")


def _place(place: Place) -> str:
    where = f"rank {place.rank}" if place.rank is not None else str(place.outside)
    return f"{where}, score {percent(place.score)}" + (f", now {_numbers(place.now)}" if place.now else "")


def _numbers(numbers: RowNumbers) -> str:
    composite = "" if numbers.composite is None else f", composite {numbers.composite:.6g}"
    return f"score {percent(numbers.score)}, {numbers.scored:,}/{numbers.total:,} scored{composite}"


def _score(snapshot: Snapshot) -> str:
    counts = snapshot.numbers.score_counts
    return f"score {percent(snapshot.numbers.score)}, {counts.scored:,}/{counts.total:,} attempts scored"
