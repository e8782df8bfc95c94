"""`el explain` and `el replay`: why a number is what it is, and whether it is still what the log gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from api.cli.as_of import AsOf
from api.cli.output import GAP, Json, Project, harmless, say, say_json, say_table
from api.client import connect
from api.replaying import Replayed
from projections.explaining import Explanation, MemberExplained, TrialExplained
from projections.metrics_text import percent

DIFFERENCES_SHOWN = 20
POSITIONS_SHOWN = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or its first characters.")]


def explain(
    job: JobId,
    metric: Annotated[
        str, typer.Option("--metric", "-m", help="As a result shows it: score, pass, pass@2, pass^2, bounds, missing.")
    ] = "score",
    task: Annotated[str | None, typer.Option(help="Only this member.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Leave out so many members first.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many members to show.")] = 20,
    as_of: AsOf = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """Take a number apart: formula, denominator, who is counted and who is left out, and the entries behind each value.

    Example: el explain 3f2a1c9e --metric pass^2
    """
    found = connect(project=project).explain(job, metric=metric, task=task, after=after, limit=limit, as_of=as_of)
    if json:
        say_json(found)
        return
    _show_number(found)
    for member in found.members:
        _show_member(member)
    if found.more:
        say("", f"there are further members: the same with --after {found.after + len(found.members)}")


def replay(
    job: Annotated[str | None, typer.Option("--job", "-j", metavar="JOB", help="Recompute one job.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Recompute every job, the default; read all of it.")
    ] = False,
    as_of: AsOf = None,
    definition: Annotated[str | None, typer.Option(metavar="NAME", help="The formulas, such as metrics/1.")] = None,
    policy: Annotated[str | None, typer.Option(metavar="NAME", help="Also the numbers under a tool's rule.")] = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """Recompute stored numbers and snapshots from the log alone; exit with 1 when anything differs.

    Example: el replay --all
    """
    if job and everything:
        raise typer.BadParameter("give --job or --all, not both")
    done = connect(project=project).replay(job, as_of=as_of, definition=definition, policy=policy)
    if json:
        say_json(done)
    else:
        _show_replay(done)
    if done.differences:
        raise typer.Exit(1)


def _show_number(found: Explanation) -> None:
    if found.value is None:
        value = f"{GAP} ({found.why_null})"
    elif isinstance(found.value, list):
        value = " to ".join(percent(bound) for bound in found.value)
    else:
        value = f"{found.value:,.0f}" if found.metric == "missing" else percent(found.value)
    say(f"{found.name} {value}  of job {found.id} at position {found.as_of:,}, by {found.definition}")
    say(f"  formula       {found.formula}")
    say(f"  denominator   {found.denominator:,} {found.denominator_of}")
    say(f"  counted       {_members(found.counted)}")
    for reason, count in found.left_out.items():
        say(f"  left out      {_members(count)}: {reason}")


def _show_member(member: MemberExplained) -> None:
    adds = f"adds {member.adds:g}" if member.adds is not None else f"left out: {member.why_not}"
    never = f", {member.undispatched} never dispatched" if member.undispatched else ""
    say("", harmless(f"{member.task}  {adds}{never}"))
    for trial in member.trials:
        _show_trial(trial, member.why_not)


def _show_trial(trial: TrialExplained, member_why_not: str | None) -> None:
    """A trial and what made it; why its member is left out has been said already."""
    reward = GAP if trial.reward is None else f"{trial.reward:g}"
    why = f"  not counted: {trial.why_not}" if not trial.counted and trial.why_not not in (None, member_why_not) else ""
    say(f"  #{trial.attempt} {reward}  {trial.status}{why}  trial {trial.trial_id}")
    for made in trial.made_by:
        at = (_EPOCH + timedelta(microseconds=made.recorded_us)).strftime("%Y-%m-%d %H:%M:%S")
        say(harmless(f"     {made.position:>9,}  {at}  {made.actor}  {made.tag}{': ' if made.says else ''}{made.says}"))


def _members(count: int) -> str:
    return f"{count:,} member{'' if count == 1 else 's'}"


def _show_replay(done: Replayed) -> None:
    against = [f"{done.compared.snapshots:,} snapshot{'' if done.compared.snapshots == 1 else 's'}"]
    if done.compared.read_models:
        against.insert(0, "the read models")
    if done.compared.log:
        against.append("the log's recorded root")
    jobs = f"{done.jobs:,} job{'' if done.jobs == 1 else 's'}"
    say(f"{jobs} recomputed from the log at position {done.as_of:,} by {done.definition}")
    if not done.differences:
        say(f"equal: {', '.join(against)}")
        return
    say(f"compared with {', '.join(against)}: {len(done.differences):,} differences")
    what = {"log": "the log was changed", "read-model": "a read model is wrong", "formula": "a formula gives otherwise"}
    rows = [
        [
            what[found.kind],
            harmless(found.about)[:36],
            harmless(found.what),
            harmless(found.stored)[:60],
            harmless(found.recomputed)[:60],
            ", ".join(f"{position}" for position in found.positions[:POSITIONS_SHOWN]),
        ]
        for found in done.differences[:DIFFERENCES_SHOWN]
    ]
    say_table(["difference", "about", "what", "stored", "recomputed", "entries"], rows)
    if len(done.differences) > DIFFERENCES_SHOWN:
        say(f"and {len(done.differences) - DIFFERENCES_SHOWN:,} more; --json lists all")
    if any(found.kind == "read-model" for found in done.differences):
        say("read models are made again by: el projection rebuild")
