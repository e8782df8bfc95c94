"""`el projection` and `el db`: the read models, and the store below them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.backup import back_up
from api.cli.output import Json, Project, progress, say, say_json, say_table
from api.cli.store_here import store_here
from api.client import connect
from api.wiring import TABLES
from ledger.checking import check_log
from projections.following import rebuild as rebuild_models
from projections.following import standings
from projections.models import READ_MODELS

projection_app = typer.Typer(help="Read models: answers that can be dropped and rebuilt.", no_args_is_help=True)
db_app = typer.Typer(help="The store.", no_args_is_help=True)


@projection_app.command()
def status(project: Project = None, json: Json = False) -> None:
    """Show how far each read model has come.

    Example: el projection status
    """
    found = connect(project=project).standings()
    if json:
        say_json({"read_models": [row._asdict() for row in found]})
        return
    say_table(
        ["read model", "position", "behind", ""],
        [
            [
                row.name,
                f"{row.position:,}",
                f"{row.head - row.position:,}",
                "outdated: rebuild it" if row.outdated else "",
            ]
            for row in found
        ],
        right=["position", "behind"],
    )


@projection_app.command()
def rebuild(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Which ones; all by default.")] = None,
    project: Project = None,
) -> None:
    """Drop read models and build them again from the log. Nothing of the log changes.

    Example: el projection rebuild job_metrics
    """
    reached = connect(project=project).rebuild(names or ())
    say(f"rebuilt {', '.join(names or [model.name for model in READ_MODELS])} from {reached:,} entries")


@db_app.command()
def init() -> None:
    """Make the store, where there is none yet.

    Example: EL_HOME=/srv/evals el db init
    """
    engine = store_here("el db init").engine
    say(f"the store is ready: {engine.url.render_as_string(hide_password=True)}")


@db_app.command()
def upgrade() -> None:
    """Bring the tables of a store made by an older EvalLedger up to date. The log itself never changes.

    Example: el db upgrade
    """
    # Alembic takes longer to import than other commands take to run.
    from api.migrations.upgrading import upgrade as upgrade_tables  # noqa: PLC0415

    workspace = store_here("el db upgrade")
    before, now = upgrade_tables(workspace.database, TABLES)
    say(
        f"the store was made with schema {now}"
        if before is None
        else f"the store has schema {now} already"
        if before == now
        else f"the store went from schema {before} to {now}"
    )
    for name, head in workspace.projects().items():
        outdated = [row.name for row in standings(workspace.engine, name, READ_MODELS) if row.outdated]
        if outdated:
            with progress(f"rebuilding {name}", head.size) as done:
                rebuild_models(workspace.engine, name, READ_MODELS, outdated, progress=done)
            say(f"rebuilt {', '.join(outdated)} of project {name}")
        with progress(f"following {name}", head.size) as done:
            workspace.caught_up(name, progress=done)


@db_app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
    json: Json = False,
) -> None:
    """Copy a SQLite store to one file, while it is in use, and check the copy. Artifacts and the key are copied apart.

    Example: el db backup /backup/ledger-2026-08-02.db
    """
    workspace = store_here("el db backup")
    total = sum(head.size for head in workspace.projects().values())
    with progress("checking", total) as done:
        found = back_up(workspace.engine, file, progress=done)
    if json:
        say_json(found)
        return
    entries = sum(found.projects.values())
    projects = f"{len(found.projects)} project{'s' if len(found.projects) != 1 else ''}"
    say(
        f"{found.file}: {entries:,} entries of {projects}, read and checked",
        f"copy beside it, after it, from {workspace.home}: artifacts, secret.key and signing.key",
    )


@db_app.command()
def check(project: Project = None, json: Json = False) -> None:
    """Read the whole log and check it: positions, stream versions, the Merkle root.

    Example: el db check
    """
    workspace = store_here("el db check")
    ledger = workspace.ledger(project or workspace.settings.project)
    with progress("checking", ledger.head().size) as done:
        found = check_log(ledger.recorder, progress=done)
    if json:
        say_json(found)
    elif found.faults:
        say(*(f"fault: {fault}" for fault in found.faults))
    else:
        say(f"{found.entries:,} entries: positions, versions, contents and root {found.root[:16]}… are as recorded")
    if found.faults:
        raise typer.Exit(1)
