"""Whether the server lives and is ready, and its numbers for Prometheus. No key is needed."""

from __future__ import annotations

from hmac import compare_digest

import msgspec
from prometheus_client import CollectorRegistry, Gauge
from starlette.requests import Request
from starlette.responses import Response

from api.following import BackgroundFollower, Standing, standings
from api.http.answering import answer
from api.http.calls import Open
from api.http.routes import Routes
from api.migrations.revision import require_current
from api.telemetry import Telemetry
from api.wiring import Workspace
from ledger.errors import EvalLedgerError, OutdatedStore

routes = Routes("health", project=False)


class Health(msgspec.Struct, frozen=True):
    """`ok`, or what is wrong in a word or two. No project is named: anybody may ask."""

    status: str


@routes.get("/health/live", scope="public", answers=Health)
def live(call: Open) -> Response:
    """Say that the process answers; nothing else is looked at."""
    return answer(call, Health("ok"))


@routes.get(
    "/health/ready", scope="public", answers=Health, statuses={200: "ready", 503: "not ready; `status` says why"}
)
def ready(call: Open) -> Response:
    """Say whether requests can be answered: the database answers, its schema is current, read models follow."""
    wrong = _what_is_wrong(call)
    return answer(call, Health(wrong or "ok"), status=503 if wrong else 200)


def _what_is_wrong(call: Open) -> str | None:
    if call.request.app.state.stopping.is_set():
        return "stopping"
    return _wrong_with_database(call.workspace) or _wrong_with_follower(call.request.app.state.follower)


def _wrong_with_database(workspace: Workspace) -> str | None:
    try:
        require_current(workspace.engine)
    except OutdatedStore:
        return "the schema is not the one of this version"
    except EvalLedgerError:
        return "the database does not answer"
    return None


def _wrong_with_follower(follower: BackgroundFollower | None) -> str | None:
    """None also where every read brings the read models up to date itself."""
    if follower is None:
        return None
    if not follower.is_running:
        return "nothing follows the log"
    return "read models stand still; the log says which and why" if follower.troubled else None


@routes.get("/metrics", scope="public", media="text/plain")
def metrics(call: Open) -> Response:
    """Give the numbers of this process in Prometheus' text form; of single projects to who has EL_METRICS_KEY."""
    telemetry: Telemetry = call.request.app.state.telemetry
    try:
        found: dict[str, Standing] | None = standings(call.workspace.engine)
    except EvalLedgerError:
        found = None  # the numbers of the process itself are wanted most when the database does not answer
    registry = CollectorRegistry()
    Gauge("el_database_up", "Whether the database answers.", registry=registry).set(found is not None)
    if found is not None:
        _add_logs(registry, found, by_project=_may_see_projects(call))
    body, content_type = telemetry.exposition(registry)
    return Response(body, headers={"content-type": content_type, "cache-control": "no-store"})


def _may_see_projects(call: Open) -> bool:
    """Names of projects are told to who has the key of metrics only: /metrics is open to anybody else."""
    key = call.workspace.settings.metrics_key
    return key is not None and compare_digest(_bearer(call.request), key.get_secret_value().encode())


def _bearer(request: Request) -> bytes:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip().encode() if kind.lower() == "bearer" else b""


def _add_logs(registry: CollectorRegistry, found: dict[str, Standing], *, by_project: bool) -> None:
    """The same for every process of a store: they are read from the database."""
    entries = Gauge("el_log_entries", "Entries in the logs of all projects.", registry=registry)
    entries.set(sum(standing.head for standing in found.values()))
    lag = Gauge("el_follower_lag_entries_max", "Entries that the read models furthest behind lack.", registry=registry)
    lag.set(max((standing.head - standing.reached for standing in found.values()), default=0))
    if by_project:
        size = Gauge("el_project_log_entries", "Entries in a project's log.", ["project"], registry=registry)
        behind = "Entries that a project's read models lack."
        lag = Gauge("el_project_follower_lag_entries", behind, ["project"], registry=registry)
        for project, standing in found.items():
            size.labels(project).set(standing.head)
            lag.labels(project).set(standing.head - standing.reached)
