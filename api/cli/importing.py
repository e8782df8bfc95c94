"""`el import` and `el schema`: the results that other tools wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.output import GAP, Json, Project, harmless, say, say_json
from api.client import connect
from api.importers import jsonl
from api.importers.importing import import_path
from api.importers.run import FILE_BYTES_MAX, Options

schema_app = typer.Typer(help="Schemas of the files that el reads.", no_args_is_help=True)


def import_(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="jsonl or tau-bench.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file that the tool wrote.")],
    dataset: Annotated[str | None, typer.Option(metavar="NAME@VERSION", help="The dataset revision it ran.")] = None,
    runner: Annotated[str | None, typer.Option(metavar="NAME@VERSION", help="Instead of the tool's own.")] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", "-k", min=1, help="Attempts that were asked for.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="The policy that the tool's own numbers follow.")] = None,
    no_artifacts: Annotated[bool, typer.Option("--no-artifacts", help="Do not keep the source files.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Import nothing of a file that is cut off.")] = False,
    max_file_bytes: Annotated[int, typer.Option(min=1, help="The largest file to read.")] = FILE_BYTES_MAX,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written; write nothing.")] = False,
    project: Project = None,
    json: Json = False,
) -> None:
    """Import a finished run as the facts that a live run would have left. The same run again writes nothing.

    Example: el import tau-bench gpt-4o-airline.json --dataset tau-airline@1
    """
    options = Options(
        dataset=dataset,
        runner=runner,
        attempts=attempts,
        policy=policy,
        keep_artifacts=not no_artifacts,
        strict=strict,
        dry_run=dry_run,
        file_bytes_max=max_file_bytes,
    )
    report = import_path(connect(project=project), tool, path, options)
    if json:
        say_json(report)
    else:
        for job in report.jobs:
            flags = f"; flags: {', '.join(job.flags)}" if job.flags else ""
            size = f"{job.members:,} members x {job.attempts} attempts, {job.entries_written:,} entries written"
            say(f"{job.outcome}: job {job.id or GAP} on {job.dataset}, {size}{flags}")
        for refused in report.refused:
            say(f"{refused.outcome}: {refused.path}: {harmless(refused.why)}")
        if report.jobs and not dry_run:
            say("", f"look at it: el job result {report.jobs[0].id}")
    if report.refused:
        raise typer.Exit(4 if all(refused.outcome == "conflict" for refused in report.refused) else 1)


@schema_app.command("import-jsonl")
def import_jsonl() -> None:
    """Print the JSON Schema of one line of the neutral import form.

    Example: el schema import-jsonl > trial.schema.json
    """
    say_json(jsonl.schema())


@schema_app.callback()
def schemas() -> None:
    """Schemas of the files that el reads."""
