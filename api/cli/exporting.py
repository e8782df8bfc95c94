"""`el export`: a job in the form that another tool reads."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.job import JobId
from api.cli.output import Json, Project, err, progress, say, say_json, while_read
from api.client import connect
from api.exporters import jsonl
from api.exporters.exporting import FORMATS, STDOUT, Exported, export_job
from ledger.errors import BadInput


def export(
    job: JobId,
    form: Annotated[str, typer.Option("--format", "-f", metavar="FORMAT", help=f"{', '.join(FORMATS)}.")],
    out: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The file or folder; `-` for standard output, where texts go without it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over what is there.")] = False,
    project: Project = None,
    json: Json = False,
) -> None:
    """Export a job. Secrets never leave; a gap stays a gap, never a zero.

    Example: el export 3f2a1c9e --format csv --out trials.csv
    """
    if json and out in (None, STDOUT):
        raise BadInput("With --json standard output holds the report; name a file or folder with --out.")
    el = connect(project=project)
    with progress("exporting", el.job(job).members) as seen, while_read():
        done = export_job(el, job, form, out, force=force, seen=seen)
    if json:
        say_json(done)
        return
    to_stdout = done.written == [STDOUT]
    for line in _lines(done):
        err().print(line) if to_stdout else say(line)


def _lines(done: Exported) -> list[str]:
    lines = [] if done.written == [STDOUT] else [f"job {done.id} exported to {', '.join(done.written)}"]
    lines += [f"left out: {what} ({count:,})" for what, count in done.left_out.items()]
    if done.format == jsonl.NAME and done.attempts != done.attempts_seen:
        lines.append(f"import it with `--attempts {done.attempts}`: a line does not say how many were asked for")
    return lines
