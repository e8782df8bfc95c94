"""`el import` and `el schema`: the results that other tools wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.output import GAP, Json, Project, err, harmless, progress, say, say_json
from api.client import connect
from api.el import El
from api.importers import jsonl
from api.importers.following import follow_path
from api.importers.importing import AUTO, IMPORTERS, Report, import_path
from api.importers.recording import Imported
from api.importers.run import ARCHIVE_BYTES_MAX, ARCHIVE_MEMBERS_MAX, FILE_BYTES_MAX, Options

TOOLS = ", ".join(importer.NAME for importer in IMPORTERS)

schema_app = typer.Typer(help="Schemas of the files that el reads.", no_args_is_help=True)


def import_(
    tool: Annotated[
        str, typer.Argument(metavar="TOOL", help=f"{TOOLS}; or {AUTO}, to find out for each run that lies there.")
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run, or a folder with runs in it.")],
    dataset: Annotated[str | None, typer.Option(metavar="NAME@VERSION", help="The dataset revision it ran.")] = None,
    runner: Annotated[str | None, typer.Option(metavar="NAME@VERSION", help="Instead of the tool's own.")] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", "-k", min=1, help="Attempts that were asked for.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="The policy that the tool's own numbers follow.")
    ] = None,
    merge_runs: Annotated[
        bool, typer.Option("--merge-runs", help="Several runs of one agent are one job (terminal-bench).")
    ] = False,
    scorer: Annotated[
        str | None, typer.Option(metavar="NAME", help="The scorer that gives the reward (inspect).")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="The metric that gives the reward (lm-eval).")
    ] = None,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="NAME", help="The filter that gives the reward (lm-eval).")
    ] = None,
    no_artifacts: Annotated[bool, typer.Option("--no-artifacts", help="Do not keep the source files.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Import nothing of a file that is cut off.")] = False,
    max_file_bytes: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="The largest file to read.")
    ] = FILE_BYTES_MAX,
    max_archive_bytes: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="The most that an archive may unpack to.")
    ] = ARCHIVE_BYTES_MAX,
    max_archive_members: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="The most members that an archive may have.")
    ] = ARCHIVE_MEMBERS_MAX,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written; write nothing.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Record a run while it goes on, until its tool ends it (harbor).")
    ] = False,
    project: Project = None,
    json: Json = False,
) -> None:
    """Import finished runs as the facts that live runs would have left. The same run again writes nothing.

    Example: el import tau-bench gpt-4o-airline.json --dataset tau-airline@1
    """
    options = Options(
        dataset=dataset,
        runner=runner,
        attempts=attempts,
        policy=policy,
        strict=strict,
        dry_run=dry_run,
        keep_artifacts=not no_artifacts,
        file_bytes_max=max_file_bytes,
        archive_bytes_max=max_archive_bytes,
        archive_members_max=max_archive_members,
        merge_runs=merge_runs,
        scorer=scorer,
        metric=metric,
        filter=filter_,
    )
    client = connect(project=project)
    if follow:
        report = _follow(client, tool, path, options)
    else:
        with progress("importing runs", None) as done:
            report = import_path(client, tool, path, options, progress=done)
    if json:
        say_json(report)
    else:
        _say(report, dry_run=dry_run)
    if report.refused:
        raise typer.Exit(4 if all(refused.outcome == "conflict" for refused in report.refused) else 1)


def _follow(client: El, tool: str, path: Path, options: Options) -> Report:
    """Follow a run, telling on standard error what was recorded. Ctrl-C leaves it as it is."""
    try:
        return follow_path(client, tool, path, options, tell=lambda line: err().print(harmless(line)))
    except KeyboardInterrupt:
        err().print("stopped; the same command goes on where it was")
        raise typer.Exit(130) from None


def _say(report: Report, *, dry_run: bool) -> None:
    for job in report.jobs:
        say(_line(job))
        if job.as_reported:
            numbers = ", ".join(f"{name} {value}" for name, value in job.as_reported.items())
            say(harmless(f"    the tool says: {numbers}"))
    for refused in report.refused:
        # Most reasons name the file themselves; the others are told where it is.
        where = "" if refused.why.startswith(refused.path) else f"{refused.path}: "
        say(harmless(f"{refused.outcome}: {where}{refused.why}"))
    if len(report.jobs) + len(report.refused) > 1:
        say(f"{len(report.jobs):,} jobs, {len(report.refused):,} refused")
    if report.jobs and not dry_run:
        say("", f"look at it: el job result {report.jobs[0].id}")


def _line(job: Imported) -> str:
    """One job, with what was written or would be."""
    flags = f"; flags: {', '.join(job.flags)}" if job.flags else ""
    written = "entries to write" if job.outcome == "planned" else "entries written"
    size = f"{job.members:,} members x {job.attempts} attempts, {job.entries_written:,} {written}"
    return f"{job.outcome}: job {job.id or GAP} on {job.dataset}, {size}{flags}"


@schema_app.command("import-jsonl")
def import_jsonl() -> None:
    """Print the JSON Schema of one line of the neutral import form.

    Example: el schema import-jsonl > trial.schema.json
    """
    say_json(jsonl.schema())


@schema_app.callback()
def schemas() -> None:
    """Schemas of the files that el reads."""
