"""A real server for tests: uvicorn on a free port of this machine, over a store of its own, with keys and projects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import httpx
import sqlalchemy as sa
import uvicorn

from api.app import create_app
from api.client import Client
from api.settings import Settings
from api.wiring import Workspace
from ledger.facts.access import STREAM
from ledger.facts.catalogue import RunnerPublished, Task
from ledger.rules.access import create_project
from tests.given import digest_of, fresh_project

READY_S_MAX = 20.0
EVERY_SCOPE = ("submit", "report", "read", "publish", "admin")


class Door:
    """One project of a served store: `http` for requests below it, `client` for what happens behind its back."""

    def __init__(self, served: Served, project: str, scopes: tuple[str, ...]) -> None:
        self.served = served
        self.project = project
        self.client = Client(served.workspace, project)
        self.key = self.client.issue_key("tests", scopes).key
        self.base = f"{served.url}/v1/projects/{project}"
        self.http = self.with_key(self.key)

    def with_key(self, key: str) -> httpx.Client:
        """An HTTP client for the project with another key."""
        return httpx.Client(base_url=self.base, headers={"Authorization": f"Bearer {key}"}, timeout=30)

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
        """A fresh project with a key of these scopes."""
        name = fresh_project()
        self.workspace.unchecked_ledger(name).record(STREAM, partial(create_project, name=name))
        return Door(self, name, scopes)


@contextmanager
def serving(home: Path, database_url: str | None = None, **options: Any) -> Iterator[Served]:
    """A server on a store, in a thread of this process, until the block ends."""
    workspace = Workspace(Settings(home=home, database_url=database_url))
    if workspace.engine.dialect.name == "sqlite":
        sa.event.listen(workspace.engine, "connect", _without_sync)
        workspace.engine.dispose()
    app = create_app(workspace, **options)
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
