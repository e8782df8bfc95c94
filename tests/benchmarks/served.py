"""`python -m tests.benchmarks.served HOME URL`: the server as `el serve` runs it, with two routes that do nothing.

They go through the same door (key, scope, strict query and body) and answer a constant: the limit of everything else.
"""

from __future__ import annotations

import sys
from typing import Annotated

from fastapi import Response

from api.answers import Reported
from api.app import create_app
from api.http.answering import answer
from api.http.bodies import strict
from api.http.calls import Read, Write
from api.http.routes import Routes
from api.routes import ROUTES
from api.routes.bodies import Report
from api.serving import bind, run
from api.settings import Settings
from api.telemetry import Telemetry, make_log
from api.wiring import Workspace

routes = Routes("constant")


@routes.get("/constant", scope="read", answers=Reported)
async def get(call: Read) -> Response:
    """Answer a constant."""
    return answer(call, Reported(1, [True]))


@routes.post("/constant", scope="report", answers=Reported)
async def post(call: Write, body: Annotated[Report, strict(Report)]) -> Response:
    """Take a report and answer a constant."""
    return answer(call, Reported(body.token, [True]))


def main(home: str, url: str) -> None:
    """Serve until ended; the port goes to standard output."""
    workspace = Workspace(Settings(home=home, database_url=url))  # type: ignore[arg-type]  # pydantic makes the path
    telemetry = Telemetry(make_log(open("/dev/null", "w")))  # noqa: SIM115 - open as long as the process lives
    app = create_app(workspace, routes=(routes, *ROUTES), telemetry=telemetry)
    listening = bind("127.0.0.1", 0)

    def tell() -> None:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()

    run(app, listening, telemetry=telemetry, shutdown_s=5, forwarded_allow_ips="127.0.0.1", started=tell)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
