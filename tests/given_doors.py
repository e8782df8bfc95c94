"""Given: the same ledger behind each of its doors, for tests that must hold on all of them.

A store is made once for a run and served by one server; each test takes a project of its own in it, with a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from api.client import Client
from api.http_client import HttpClient
from api.keys import issue
from api.telemetry import Telemetry, make_log
from api.wiring import Workspace
from ledger.facts.access import STREAM
from ledger.rules.access import create_project
from tests.given import fresh_project
from tests.serving_given import serving

ACTOR = "key:tests"
SCOPES = ("admin",)


class Served(NamedTuple):
    """A store with a server in front of it."""

    workspace: Workspace
    url: str

    def project(self) -> tuple[str, str]:
        """A project that nobody has used, and a key for all of it."""
        name = fresh_project()
        self.workspace.unchecked_ledger(name).record(STREAM, partial(create_project, name=name))
        return name, issue(self.store(name), "tests", SCOPES).key

    def store(self, project: str) -> Client:
        """A client on the store itself, which says it is the key that is used over HTTP."""
        return Client(self.workspace, project, actor=ACTOR)

    def http(self, project: str, key: str, *, url: str | None = None, home: Path | None = None) -> HttpClient:
        """A client of the server; `home` keeps what the client's machine remembers."""
        return HttpClient(url or self.url, key=key, project=project, home=home or self.workspace.home)


@contextmanager
def served(home: Path, *, database_url: str | None = None) -> Iterator[Served]:
    """A store and its server; what the server logs is kept out of the output that tests look at."""
    quiet = Telemetry(log=make_log(StringIO()))
    with serving(home, database_url, telemetry=quiet) as running:
        yield Served(running.workspace, running.url)
