"""`el audit`: who recorded what, and when."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from api.cli.output import GAP, Json, Project, harmless, say, say_json, say_table
from api.client import connect
from ledger.facts.trial import Slot
from projections.following import instant

app = typer.Typer(help="The audit trail.", no_args_is_help=True)


@app.command()
def events(
    job: Annotated[str | None, typer.Option(help="Only of this job.")] = None,
    trial: Annotated[str | None, typer.Option(help="Only of this trial.")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only by this actor.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only facts of this kind; may be given again.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Start after this position.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at the most.")] = 100,
    project: Project = None,
    json: Json = False,
) -> None:
    """List entries of the log, in order.

    Example: el audit events --job 3f2a1c9e --tag reward-recorded
    """
    el = connect(project=project)
    row = el.get_trial(trial) if trial else None
    slot = Slot(row.job_id, row.attempt, row.task) if row else None
    rows = el.events(after=after, limit=limit, job_id=job, slot=slot, actor=actor, tags=tag or (), task=task)
    if json:
        say_json({"events": [{"position": row.position, "entry": msgspec.Raw(row.body)} for row in rows]})
        return
    table = []
    for row_ in rows:
        fact = msgspec.json.decode(row_.body)["fact"]
        hidden = ("fact", "job_id", "trial_id", "task", "attempt")
        told = ", ".join(f"{name}={value}" for name, value in fact.items() if name not in hidden)
        about = f"{row_.task} #{row_.attempt}" if row_.task else GAP
        table.append(
            [
                f"{row_.position:,}",
                instant(row_.recorded_us).strftime("%Y-%m-%d %H:%M:%S"),
                row_.actor,
                row_.tag,
                (row_.job_id or GAP)[:8],
                about,
                harmless(told)[:200],
            ]
        )
    say_table(["position", "recorded (UTC)", "actor", "fact", "job", "trial", "fields"], table, right=["position"])
    if len(rows) == limit:
        say(f"there may be further ones: the same with --after {rows[-1].position}")
