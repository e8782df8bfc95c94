"""`el projection` and `el db`: the read models, and the store below them."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.output import Json, Project, progress, say, say_json, say_table
from api.settings import Settings
from api.wiring import Workspace
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
    workspace, name = _workspace(project)
    found = standings(workspace.engine, name, READ_MODELS)
    if json:
        say_json({"read_models": found and [row._asdict() for row in found]})
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
    workspace, name = _workspace(project)
    head = workspace.ledger(name).head().size
    with progress("rebuilding", head) as done:
        reached = rebuild_models(workspace.engine, name, READ_MODELS, names or (), progress=done)
    say(f"rebuilt {', '.join(names or [model.name for model in READ_MODELS])} from {reached:,} entries")


@db_app.command()
def init() -> None:
    """Make the store, where there is none yet.

    Example: EL_HOME=/srv/evals el db init
    """
    workspace = Workspace(Settings())
    engine = workspace.engine
    say(f"the store is ready: {engine.url.render_as_string(hide_password=True)}")


@db_app.command()
def check(project: Project = None, json: Json = False) -> None:
    """Read the whole log and check it: positions, stream versions, the Merkle root.

    Example: el db check
    """
    workspace, name = _workspace(project)
    ledger = workspace.ledger(name)
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


def _workspace(project: str | None) -> tuple[Workspace, str]:
    settings = Settings()
    workspace = Workspace(settings)
    name = project or settings.project
    workspace.ledger(name)
    return workspace, name
