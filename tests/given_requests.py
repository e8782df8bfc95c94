"""Given: a store with two projects, keys of every kind, and an app on it; and an address for every route of it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.routing import APIRoute

from api.app import create_app
from api.client import Client
from api.http.routes import DoorRoute
from api.keys import issue, new_key
from api.settings import Settings
from api.telemetry import Telemetry
from api.wiring import Workspace
from ledger.application import utc_now
from ledger.facts.access import SCOPES, STREAM
from ledger.facts.catalogue import Task
from ledger.rules.access import create_project
from tests.given_commands import runner_of

MINE, OTHER = "mine", "other"

# Stands in names, tags and texts of one project only: it must be in no answer to anybody else.
MARK = "only-in-mine"
SECRET = "sk-planted-3vT9qL0zXw"


class Silent:
    """A log that says nothing."""

    def info(self, event: str, **fields: Any) -> None:
        """Say nothing."""

    warning = error = info


class World:
    """Two projects. In `mine` there is one of everything; `other` has a dataset of the same name and little else."""

    def __init__(self, home: Path) -> None:
        self.workspace = Workspace(Settings(home=home, project="default", api_url=None))
        sa.event.listen(self.workspace.engine, "connect", _without_sync)
        self.workspace.engine.dispose()
        self.keys: dict[str, str] = {}
        for name in (MINE, OTHER):
            self.workspace.unchecked_ledger(name).record(STREAM, partial(create_project, name=name))
        mine, other = Client(self.workspace, MINE), Client(self.workspace, OTHER)
        for scope in SCOPES:
            self.keys[scope] = mine.issue_key(scope, [scope]).key
        self.keys["other"] = other.issue_key("admin", ["admin"]).key
        self.keys["unknown"] = new_key()
        revoked = mine.issue_key("revoked", ["admin"])
        mine.revoke_key(revoked.id)
        expired = self._expired_key(mine)
        self.keys |= {"revoked": revoked.key, "expired": expired}
        self.filling = {"project": MINE, "key_id": revoked.id} | _fill(mine)
        other.publish_runner(runner_of("true", ref="sh@1"))
        mine.ask(lambda _: None)
        other.ask(lambda _: None)

    def app(self, **more: Any) -> FastAPI:
        """An app on the store, whose reads bring the read models up to date themselves."""
        return create_app(self.workspace, telemetry=Telemetry(Silent()), follow=False, **more)

    def address(self, route: APIRoute, **changes: str) -> str:
        """The address of a route, made of what there is in `mine`."""
        filling = self.filling | changes
        return route.path_format.format_map(_Anything(filling))

    @staticmethod
    def _expired_key(client: Client) -> str:
        clock = client.ledger.clock
        client.ledger.clock = lambda: utc_now() - timedelta(days=2)
        try:
            return issue(client, "expired", ["admin"], expires_at=utc_now() - timedelta(days=1)).key
        finally:
            client.ledger.clock = clock


def _without_sync(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


class _Anything(dict[str, str]):
    """What is not known by name is filled with a word."""

    def __missing__(self, key: str) -> str:
        return "1"


def _fill(client: Client) -> dict[str, str]:
    """One of everything, and how it is named in addresses."""
    client.publish_runner(runner_of("true", ref="sh@1"))
    sha256 = "a" * 64
    client.publish_dataset(f"{MARK}@1", [Task(f"{MARK}-task", sha256)], runner="sh@1")
    client.create_profile("team/eval@1", {"note": MARK}, {"TOKEN": SECRET})
    job = client.submit_job(f"{MARK}@1", profile="team/eval@1", tags={"mark": MARK})
    with client.trial(job.id, f"{MARK}-task", 1) as trial:
        trial.artifact("answer.txt", MARK.encode())
        trial.reward(1.0)
    row = client.trials(job.id)[0]
    filling = {"name": MARK, "version": "1", "job_id": job.id, "trial_id": row.trial_id}
    filling["sha256"] = client.artifacts.put_bytes(MARK.encode()).sha256
    snapshot = client.add_snapshot(job.id).snapshot
    return filling | {"snapshot_id": snapshot.id, "cohort": snapshot.cohort, "position": "1"}


def routes_of(app: FastAPI) -> list[DoorRoute]:
    """Every route of an app."""
    return [route for route in app.routes if isinstance(route, DoorRoute)]
