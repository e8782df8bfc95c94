"""Given: the same ledger behind each of its doors, a real server in front of a store, with keys and projects.

`serving` is a server in a thread of this process, `Process` one that runs as `el serve` by itself. A store is made once
for a module or so; each test takes a project of its own in it, with a key.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import httpx
import sqlalchemy as sa
import uvicorn

from api.app import create_app
from api.client import Client
from api.http_client import HttpClient
from api.settings import Settings
from api.telemetry import Telemetry, make_log
from api.wiring import Workspace
from ledger.facts.access import STREAM
from ledger.facts.catalogue import RunnerPublished, Task
from ledger.rules.access import create_project
from tests.given import digest_of, fresh_project

READY_S_MAX = 20.0
EVERY_SCOPE = ("submit", "report", "read", "publish", "admin")
ACTOR = "key:tests"
# Nothing here speaks TLS, and to load the machine's certificates takes longer than most requests.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
MAIN = "from api.cli.main import main; main()"


class Door:
    """One project of a served store, and a key for it.

    `http` is for requests below it, `el` gives a client of the server, `client` is one on the store itself, which says
    it is the key that is used over HTTP.
    """

    def __init__(self, served: Served, project: str, scopes: tuple[str, ...]) -> None:
        self.served = served
        self.project = project
        self.client = Client(served.workspace, project, actor=ACTOR)
        self.key = self.client.issue_key("tests", scopes).key
        self.base = f"{served.url}/v1/projects/{project}"
        self.http = self.with_key(self.key)

    def with_key(self, key: str) -> httpx.Client:
        """An HTTP client for the project with another key."""
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.base, headers=headers, timeout=30, verify=NO_TLS)

    def el(self, *, url: str | None = None, home: Path | None = None) -> HttpClient:
        """A client of the server; `home` keeps what the client's machine remembers."""
        home = home or self.served.workspace.home
        return HttpClient(url or self.served.url, key=self.key, project=self.project, home=home)

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of a read that must succeed."""
        answer = self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any, status: int, **headers: str) -> Any:
        """The JSON of a write that must end in this status."""
        answer = self.http.post(path, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def with_dataset(self, *names: str, ref: str = "arith@1", runner: str = "shell@1") -> Door:
        """The project, with an external runner and a dataset of tasks so named."""
        self.client.publish_runner(RunnerPublished(runner, "external"))
        self.client.publish_dataset(ref, [Task(name, digest_of(name)) for name in names or ("add-1",)], runner=runner)
        return self.caught_up()

    def caught_up(self) -> Door:
        """The project, once reads know what was written behind the server's back."""
        self.served.workspace.caught_up(self.project)
        return self


class Served:
    """A running server and the store behind it."""

    def __init__(self, workspace: Workspace, url: str) -> None:
        self.workspace = workspace
        self.url = url

    def project(self, scopes: tuple[str, ...] = EVERY_SCOPE) -> Door:
        """A project that nobody has used, with a key of these scopes."""
        name = fresh_project()
        self.workspace.unchecked_ledger(name).record(STREAM, partial(create_project, name=name))
        return Door(self, name, scopes)


@contextmanager
def serving(home: Path, database_url: str | None = None, **options: Any) -> Iterator[Served]:
    """A server on a store, in a thread of this process, until the block ends; what it logs is shown nowhere."""
    workspace = Workspace(Settings(home=home, database_url=database_url))
    if workspace.engine.dialect.name == "sqlite":
        sa.event.listen(workspace.engine, "connect", _without_sync)
        workspace.engine.dispose()
    app = create_app(workspace, telemetry=Telemetry(make_log(StringIO())), **options)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until_s = monotonic() + READY_S_MAX
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert monotonic() < until_s, "the server did not start in time"
            sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(workspace, f"http://127.0.0.1:{port}")
    finally:
        app.state.stopping.set()
        server.should_exit = True
        thread.join(READY_S_MAX)
        workspace.engine.dispose()


def _without_sync(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


class Process:
    """`el serve` in a process of its own; `log` is where its log goes. A twin gives Python that is run in it before."""

    def __init__(self, home: Path, *options: str, sabotage: str = "", **environ: str) -> None:
        self.home = home
        self.log = home.parent / "log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("EL_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{sabotage}\n{MAIN}", "serve", "--port", "0", *options],
            env=inherited | {"EL_HOME": str(home)} | environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=self.log.open("a"),
        )

    @cached_property
    def url(self) -> str:
        """Where it listens, once it does; empty when it has ended instead."""
        assert self.process.stdout
        found = re.search(r"http://\S+", self.process.stdout.readline())
        return found.group() if found else ""

    @cached_property
    def client(self) -> httpx.Client:
        """For requests to it."""
        return httpx.Client(base_url=self.url, timeout=30, verify=NO_TLS)

    def said(self) -> list[dict[str, Any]]:
        """What it logged."""
        lines = (line for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]

    def end(self, how: signal.Signals = signal.SIGTERM, *, within_s: float = 20) -> int:
        """Tell it to stop; its exit code."""
        self.process.send_signal(how)
        return self.process.wait(within_s)
