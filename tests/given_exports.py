"""Given: jobs to export, and the way there and back through a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from api.client import Client
from api.exporters.exporting import Exported, export_job
from api.exporters.reading import Trial, read_job
from api.importers.importing import import_path
from api.importers.run import Options
from ledger.rules.access import create_project
from tests.given_commands import client_at

SHA = "084c799cd551dd1d8d5c5f9a5d593b2e931f5e36122ee5c793c1d08a19839cc0"

# Every signal once: rewards, gaps of each kind, an error with a reward, dimensions, a member without a trial, k = 2.
ROWS: list[Any] = [
    {"task": "add/1", "attempt": 1, "reward": 1, "dimensions": {"style": 0.5}, "composite": 0.75},
    {"task": "add/1", "attempt": 2, "reward": -0.0},
    {"task": "=1+1", "attempt": 1, "reward": 0, "artifacts": [{"name": "@a", "sha256": SHA, "size": 3}]},
    {
        "task": "=1+1",
        "attempt": 2,
        "error": {"type": "-Lost", "phase": "agent", "exit_code": -9, "message": "没有了\n"},
    },
    {"task": "任务 三", "attempt": 1, "reward": 1, "error": {"type": "Timeout"}},
    {"task": "任务 三", "attempt": 2, "no_reward": "not-finite", "raw_reward": "NaN"},
    {"task": "never tried"},
    {"task": "c", "attempt": 1, "status": "canceled", "no_reward": "canceled"},
    {
        "task": "c",
        "attempt": 2,
        "started_at": "2026-01-02T03:04:05Z",
        "ended_at": "2026-01-02T03:04:06.5Z",
        "reward": 1,
    },
]


def client_without_sync(home: Path) -> Client:
    """A client on a store that need not survive a power cut."""
    client = client_at(home)
    sa.event.listen(
        client.workspace.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF")
    )
    return client


def other(client: Client, project: str) -> Client:
    """A client on another project of the same store, made when it is not there."""
    ledger = client.workspace.unchecked_ledger(project)
    ledger.record("project", lambda state: create_project(state, name=project))
    return Client(client.workspace, project)


def imported(client: Client, path: Path, rows: list[Any] | None = None, **options: Any) -> str:
    """Rows imported as one job; its id."""
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROWS if rows is None else rows)))
    return imported_file(client, path, **options)


def imported_file(client: Client, path: Path, tool: str = "jsonl", **options: Any) -> str:
    report = import_path(client, tool, path, Options(**options))
    assert report.refused == []
    return report.jobs[0].id


def exported(client: Client, job: str, form: str, path: Path, **options: Any) -> Exported:
    return export_job(client, job, form, str(path), **options)


def told(client: Client, job: str, *without: str) -> list[Any]:
    """Everything the reading tells of a job but its ids; to the last bit, so as text."""
    found: list[Any] = []
    for member in read_job(client, job).members():
        found += [(member.task, _values(trial, without)) for trial in member.trials] or [(member.task, None)]
    return found


def _values(trial: Trial, without: tuple[str, ...]) -> dict[str, str]:
    values = msgspec.structs.asdict(trial)
    return {name: repr(value) for name, value in values.items() if name not in ("trial_id", "task_digest", *without)}
