"""`el serve`: the HTTP door."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.output import say
from api.cli.store_here import store_here


def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where to listen (EL_HOST).", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="The port; 0 takes a free one (EL_PORT).", min=0, max=65535, show_default="8000"
        ),
    ] = None,
    insecure_local: Annotated[
        bool, typer.Option("--insecure-local", help="Answer without keys, to this machine only.")
    ] = False,
) -> None:
    """Serve the store over HTTP, on SQLite from one process, on PostgreSQL from any number. Ctrl-C stops in order.

    Example: el serve --insecure-local
    """
    # Imported here: FastAPI and uvicorn take longer to import than other commands take to run.
    from api import serving  # noqa: PLC0415
    from api.app import create_app  # noqa: PLC0415

    workspace = store_here("el serve")
    settings = workspace.settings
    host = settings.host if host is None else host
    serving.check_binding(host, has_keys=serving.has_key(workspace), insecure_local=insecure_local)
    with serving.only_process_of(workspace):
        listening = serving.bind(host, settings.port if port is None else port)
        url = serving.url_of(listening)
        app = create_app(workspace, insecure_local=insecure_local)

        def started() -> None:
            key = "" if insecure_local else " EL_API_KEY=el_..."
            store = workspace.engine.url.render_as_string(hide_password=True)
            say(f"EvalLedger listens on {url} (the store is {store}); Ctrl-C stops it")
            say(f"use it: EL_API_URL={url}{key} el job list")

        serving.run(
            app,
            listening,
            telemetry=app.state.telemetry,
            shutdown_s=settings.shutdown_s,
            forwarded_allow_ips=settings.forwarded_allow_ips,
            started=started,
        )
