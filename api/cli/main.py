"""`el`, the command line: nouns, then verbs."""

from __future__ import annotations

import os
import sys

import typer

from api.cli import (
    audit,
    catalogue,
    explain,
    exporting,
    importing,
    job,
    key,
    leaderboard,
    quickstart,
    serving,
    store,
    trial,
    work,
)
from api.cli.output import err, fail
from ledger.errors import EvalLedgerError

app = typer.Typer(
    name="el",
    help="EvalLedger: what the score was, how much it covers, why it is that number, and who can check it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("quickstart")(quickstart.quickstart)
app.add_typer(catalogue.project_app, name="project")
app.add_typer(catalogue.dataset_app, name="dataset")
app.add_typer(catalogue.runner_app, name="runner")
app.add_typer(catalogue.profile_app, name="profile")
app.add_typer(job.app, name="job")
app.add_typer(trial.app, name="trial")
app.add_typer(leaderboard.app, name="leaderboard")
app.command("explain")(explain.explain)
app.command("replay")(explain.replay)
app.add_typer(key.app, name="key")
app.command("serve")(serving.serve)
app.command("worker")(work.worker)
app.command("import")(importing.import_)
app.command("export")(exporting.export)
app.add_typer(audit.app, name="audit")
app.add_typer(store.projection_app, name="projection")
app.add_typer(store.db_app, name="db")
app.add_typer(importing.schema_app, name="schema")


def main() -> None:
    """Run one command; whatever is refused becomes one sentence and an exit code."""
    debug = os.environ.get("EL_DEBUG", "") not in ("", "0")
    try:
        app()
    except EvalLedgerError as error:
        if debug:
            raise
        fail(error)
    except BrokenPipeError:
        # Whoever read our output has enough of it; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except Exception as error:
        if debug:
            raise
        err().print(f"el: something unexpected went wrong ({type(error).__name__}); EL_DEBUG=1 shows where.")
        raise SystemExit(1) from error
