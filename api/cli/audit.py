"""`el audit`: who recorded what, and when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import msgspec
import typer

from api.asof import instant_asked
from api.cli import proof
from api.cli.output import GAP, Json, Project, cut, fields_told, say, say_json, say_table, write
from api.client import connect
from ledger.facts.trial import Slot
from projections.audit_trail import AuditRow
from projections.following import instant

SHOWN = 100
PAGE = 1_000
FIELDS_CHARS_MAX = 80
NAME_CHARS_MAX = 32
COLUMNS = ("position", "recorded (UTC)", "actor", "fact", "job", "trial", "fields")

app = typer.Typer(help="The audit trail, and what proves it.", no_args_is_help=True)
app.command()(proof.checkpoint)
app.command("proof")(proof.prove)
app.command()(proof.verify)
app.command()(proof.witness)
app.command("export")(proof.export)
app.command()(proof.epoch)


@app.command()
def events(
    job: Annotated[str | None, typer.Option(help="Only of this job.")] = None,
    trial: Annotated[str | None, typer.Option(help="Only of this trial.")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only by this actor.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only facts of this kind; may be given again.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From this time of the log on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time of the log.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Start after this position.")] = 0,
    before: Annotated[int | None, typer.Option(min=1, help="End before this position.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many at the most; 100, and all with --jsonl.")] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="One entry a line, with its stored bytes as they are.")
    ] = False,
    project: Project = None,
    json: Json = False,
) -> None:
    """List entries of the log, in order, the long ones cut; --jsonl shows all of them.

    Example: el audit events --job 3f2a1c9e --tag reward-recorded
    """
    el = connect(project=project)
    row = el.get_trial(trial) if trial else None
    asked = partial(
        el.events,
        job_id=job,
        slot=Slot(row.job_id, row.attempt, row.task) if row else None,
        actor=actor,
        tags=tag or (),
        task=task,
        before=before,
        since=None if since is None else instant_asked(since),
        until=None if until is None else instant_asked(until),
    )
    if jsonl:
        _write_lines(asked, after, limit)
        return
    rows = asked(after=after, limit=limit or SHOWN)
    if json:
        say_json({"events": [{"position": row.position, "entry": msgspec.Raw(row.body)} for row in rows]})
        return
    say_table(COLUMNS, [_cells(row) for row in rows], right=["position"])
    if len(rows) == (limit or SHOWN):
        say(f"there may be further ones: the same with --after {rows[-1].position}")


def _write_lines(asked: Callable[..., list[AuditRow]], after: int, limit: int | None) -> None:
    """Every entry asked for, page by page: memory does not grow with them."""
    left = limit
    while left is None or left > 0:
        wanted = PAGE if left is None else min(PAGE, left)
        rows = asked(after=after, limit=wanted)
        write(b"".join(b'{"position":%d,"entry":%s}\n' % (row.position, row.body) for row in rows))
        if len(rows) < wanted:
            break
        after = rows[-1].position
        left = None if left is None else left - len(rows)


def _cells(row: AuditRow) -> list[str]:
    fact = msgspec.json.decode(row.body)["fact"]
    hidden = ("fact", "job_id", "trial_id", "task", "attempt")
    told = fields_told({name: value for name, value in fact.items() if name not in hidden})
    return [
        f"{row.position:,}",
        instant(row.recorded_us).strftime("%Y-%m-%d %H:%M:%S"),
        cut(row.actor, NAME_CHARS_MAX),
        row.tag,
        (row.job_id or GAP)[:8],
        f"{cut(row.task, NAME_CHARS_MAX)} #{row.attempt}" if row.task else GAP,
        cut(told, FIELDS_CHARS_MAX),
    ]
