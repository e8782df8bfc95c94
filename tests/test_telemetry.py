"""What the server logs and counts: every request once, with its id and route, and never what may be secret."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import PlainTextResponse, Response

from api.app import create_app
from api.keys import new_key
from api.telemetry import LoggingBridge, RequestLog, Telemetry, make_log
from tests.given_commands import client_at
from tests.given_doors import serving

SECRET = "sk-planted-secret-7"


class Served:
    """An app with every kind of ending, its log and its numbers."""

    def __init__(self) -> None:
        self.said = io.StringIO()
        self.telemetry = Telemetry(make_log(self.said))
        app = FastAPI()

        @app.get("/things/{name}")
        def thing(name: str, request: Request) -> Response:
            request.state.project, request.state.key_name, request.state.position = "p", "ci", 7
            return PlainTextResponse("here it is")

        @app.post("/breaks")
        def breaks() -> None:
            raise ValueError(SECRET)

        app.add_middleware(RequestLog, telemetry=self.telemetry)
        self.client = TestClient(app, raise_server_exceptions=False)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.getvalue().splitlines()]

    def sample(self, name: str, **labels: str) -> float:
        body, _ = self.telemetry.exposition()
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return 0.0


@pytest.fixture
def served() -> Served:
    return Served()


def test_a_request_is_one_line(served: Served) -> None:
    """Id, method, the route's template, status, duration, project, key and position: one JSON document."""
    answer = served.client.get("/things/one", headers={"X-Request-ID": "req-1"})
    (line,) = served.lines
    assert answer.headers["x-request-id"] == line["request_id"] == "req-1"
    assert 0 < line.pop("duration_ms") < 60_000
    assert line.pop("at").endswith("Z")
    assert line == {
        "event": "request", "level": "info", "request_id": "req-1", "method": "GET", "route": "/things/{name}",
        "status": 200, "project": "p", "key": "ci", "position": 7,
    }  # fmt: skip


@pytest.mark.parametrize("given", ["", "a" * 65, 'x" injected="1', "a b", "é"])
def test_an_id_that_is_no_plain_word_is_replaced(served: Served, given: str) -> None:
    """What a caller sends as its id reaches the log only when it is short and plain."""
    answer = served.client.get("/things/one", headers={"X-Request-ID": given.encode()})
    assert answer.headers["x-request-id"] == served.lines[0]["request_id"]
    assert len(answer.headers["x-request-id"]) == 32


def test_no_secret_is_logged_or_counted(served: Served) -> None:
    """A value planted in header, path, query, body, method and error shows up in no line and no label."""
    planted = {"Authorization": f"Bearer {SECRET}", "Cookie": SECRET, "X-Request-ID": f"{SECRET}!"}
    served.client.get(f"/things/{SECRET}?key={SECRET}", headers=planted)
    served.client.get(f"/nowhere/{SECRET}", headers=planted)
    served.client.request(SECRET.upper(), "/breaks")
    assert served.client.post("/breaks", content=SECRET).status_code == 500
    assert len(served.lines) == 4
    assert SECRET not in served.said.getvalue().lower()
    assert SECRET not in served.telemetry.exposition()[0].decode().lower()


def test_an_unexpected_error_is_told_by_class_and_place(served: Served) -> None:
    """Enough to find it, nothing of what it says."""
    served.client.post("/breaks")
    line = served.lines[0]
    assert (line["level"], line["status"], line["error"]) == ("error", 500, "ValueError")
    assert any("breaks" in where for where in line["where"])


def test_requests_are_counted_by_route_and_status(served: Served) -> None:
    """Paths that exist count under their template, all others under one name, so that nobody can fill the memory."""
    for path in ("/things/1", "/things/2", "/no/1", "/no/2"):
        served.client.get(path)
    assert served.sample("el_http_requests_total", method="GET", route="/things/{name}", status="200") == 2
    assert served.sample("el_http_requests_total", method="GET", route="unmatched", status="404") == 2
    assert served.sample("el_http_request_seconds_count", method="GET", route="/things/{name}") == 2
    assert served.sample("el_http_requests_running") == 0


def test_how_many_writes_share_a_commit_is_counted(served: Served) -> None:
    """Prometheus shows how many commits there were and how many writes they held, by size."""
    for count in (1, 3, 500):
        served.telemetry.committed(count)
    assert served.sample("el_group_commit_writes_count") == 3
    assert served.sample("el_group_commit_writes_sum") == 504
    assert served.sample("el_group_commit_writes_bucket", le="5.0") == 2


def test_what_libraries_log_is_told_without_values() -> None:
    """A record of uvicorn or asyncio becomes a line with its fixed text; its arguments and errors stay out."""
    said = io.StringIO()
    logger = logging.getLogger("test_telemetry.library")
    logger.propagate = False
    logger.addHandler(LoggingBridge(make_log(said)))
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception("it failed for %s", SECRET)
    line = json.loads(said.getvalue())
    assert (line["message"], line["error"]) == ("it failed for %s", "ValueError")
    assert SECRET not in said.getvalue()


def test_a_log_that_cannot_be_written_stops_nothing() -> None:
    """A closed standard error loses lines, never requests."""

    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    make_log(Closed()).info("nobody reads this")


def test_a_server_counts_what_it_commits_together(tmp_path: Path) -> None:
    """A write through the server shows in the histogram of group commits, on the page for Prometheus."""
    with serving(tmp_path) as served:
        door = served.project()
        before = door.http.get(f"{served.url}/metrics").text
        door.post("/runners", {"ref": "ext@1", "kind": "external"}, 201)
        after = door.http.get(f"{served.url}/metrics").text
    counts = [
        float(line.split()[-1])
        for page in (before, after)
        for line in page.splitlines()
        if line.startswith("el_group_commit_writes_count")
    ]
    assert counts[1] > counts[0]


def test_a_key_that_is_turned_away_is_named(tmp_path: Path) -> None:
    """A 403 says in the log which key lacks the scope; one that is none of the project's has no name to say."""
    client = client_at(tmp_path)
    key = client.issue_key("ci", ["submit"]).key
    said = io.StringIO()
    app = create_app(client.workspace, telemetry=Telemetry(make_log(said)), follow=False)
    http = TestClient(app)
    for text, status in ((key, 403), (new_key(), 404)):
        answer = http.get("/v1/projects/default/jobs", headers={"Authorization": f"Bearer {text}"})
        assert answer.status_code == status
    forbidden, unknown = [line for line in map(json.loads, said.getvalue().splitlines()) if line["event"] == "request"]
    assert (forbidden["status"], forbidden["key"], forbidden["project"]) == (403, "ci", "default")
    assert "key" not in unknown
