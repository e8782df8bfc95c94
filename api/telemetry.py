"""What a server says of itself: one JSON line for each request on standard error, and numbers for Prometheus.

Neither ever holds a header, a body, a query, a raw path or the text of an unexpected error: a secret may be in it. Of a
path the route's template is told, of an error its class and where it was raised.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import traceback
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, TextIO
from uuid import uuid4

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "x-request-id"
FRAMES_SHOWN = 12

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_GROUP_WRITES = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # to ledger.grouping.GROUP_MAX
# A client can make up methods; each would be a series of its own.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Log(Protocol):
    """Where lines go: an event and what belongs to it."""

    def info(self, event: str, **fields: Any) -> Any:
        """Say what happened."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Say what should not happen often."""

    def error(self, event: str, **fields: Any) -> Any:
        """Say what somebody has to look at."""


def make_log(stream: TextIO | None = None) -> Log:
    """A log of JSON lines, on standard error unless told otherwise."""
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.JSONRenderer(serializer=lambda line, **_: msgspec.json.encode(line).decode()),
    ]
    log: Log = structlog.wrap_logger(_Lines(stream), processors=processors, wrapper_class=structlog.BoundLogger)
    return log


class _Lines:
    """Writes lines. A log that cannot be written any more (a closed pipe, a full disk) must not stop the server."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def info(self, line: str) -> None:
        """Write a line."""
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError):
            stream.write(f"{line}\n")
            stream.flush()

    warning = error = info


def told_of(error: BaseException) -> dict[str, Any]:
    """An unexpected error as it may be logged: its class and where it was raised, nothing of what it says."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SHOWN:]
    return {"error": type(error).__name__, "where": [f"{f.filename}:{f.lineno} {f.name}" for f in frames]}


class LoggingBridge(logging.Handler):
    """Hands on what libraries log (uvicorn's warnings, asyncio's) as lines of our own."""

    def __init__(self, log: Log, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on the fixed text of a record, never what is put into it."""
        error = record.exc_info[1] if record.exc_info else None
        self._log.warning(
            "library", logger=record.name, message=str(record.msg).splitlines()[0], **(told_of(error) if error else {})
        )


class Telemetry:
    """The log and the numbers of one server process."""

    def __init__(self, log: Log | None = None) -> None:
        self.log = log or make_log()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "el_http_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self._latency_s = Histogram(
            "el_http_request_seconds", "From the request's head to the end of its answer; streams until they end.",
            ["method", "route"], buckets=_LATENCY_S, registry=self.registry,
        )  # fmt: skip
        self._group_writes = Histogram(
            "el_group_commit_writes", "Writes that were committed in one transaction.",
            buckets=_GROUP_WRITES, registry=self.registry,
        )  # fmt: skip
        self._running = Gauge("el_http_requests_running", "Requests being answered now.", registry=self.registry)

    def begun(self) -> None:
        """Count a request that begins."""
        self._running.inc()

    def ended(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count a request that ended."""
        self._running.dec()
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._latency_s.labels(known, route).observe(duration_s)

    def committed(self, count: int) -> None:
        """Count a transaction in which so many writes were committed together."""
        self._group_writes.observe(count)

    def exposition(self, *others: CollectorRegistry) -> tuple[bytes, str]:
        """All numbers in Prometheus' text form, with those of other registries, and the content type of it."""
        return b"".join(generate_latest(registry) for registry in (self.registry, *others)), CONTENT_TYPE_LATEST


class RequestLog:
    """The outermost layer of the app: gives each request its id, and says and counts how it ended.

    Who answers tells it more through `request.state`: `project`, `key_name` and `position` (the last one written),
    each only when it is known to be right: a caller's words are not logged before they are checked.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self.app = app
        self.telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id = _request_id(Headers(scope=scope))
        status = 0
        failure: dict[str, Any] = {}

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        self.telemetry.begun()
        try:
            await self.app(scope, receive, send_with_id)
        except BaseException as error:
            failure = told_of(error)
            raise
        finally:
            duration_s = time.perf_counter() - started
            route = _route(scope)
            # Without an answer's head the client got none from here: uvicorn's own 500, or a closed connection.
            self.telemetry.ended(scope["method"], route, status or 500, duration_s)
            tell = self.telemetry.log.error if failure or status >= 500 else self.telemetry.log.info
            tell(
                "request",
                request_id=request_id,
                method=scope["method"] if scope["method"] in _METHODS else "other",
                route=route,
                status=status or 500,
                duration_ms=round(duration_s * 1000, 3),
                **_known(state),
                **failure,
            )


def _request_id(headers: Headers) -> str:
    """The id that the caller gave the request, when it is short and plain; else one of our own."""
    given = headers.get(REQUEST_ID, "")
    return given if _REQUEST_ID.fullmatch(given) else uuid4().hex


def _route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path_format", None) or getattr(scope.get("route"), "path", None)
    return str(path) if path else "unmatched"


def _known(state: Mapping[str, Any]) -> dict[str, Any]:
    told = {"project": "project", "key_name": "key", "position": "position"}
    return {shown: state[name] for name, shown in told.items() if state.get(name) is not None}
