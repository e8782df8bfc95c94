"""Folders as Harbor writes them, small: a job's three documents, and for each trial its own three."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

JOB_ID = "11111111-2222-4333-8444-555555555555"
BEGIN = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)
AGENT = {"name": "demo", "model_name": "lab/m-1"}
SOURCE = "acme/mini"


def digest_of(task: str) -> str:
    return hashlib.sha256(task.encode()).hexdigest()


def at(minute: float) -> str:
    """A time of a trial: minutes after the job began, in UTC."""
    return (BEGIN + timedelta(minutes=minute)).isoformat().replace("+00:00", "Z")


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False))
    return path


def locked(task: str, agent: Mapping[str, Any] = AGENT, **more: Any) -> dict[str, Any]:
    """A trial as a lock has it."""
    return {
        "task": {"name": task, "digest": f"sha256:{digest_of(task)}", "source": SOURCE} | more,
        "agent": dict(agent),
    }


def write_job(
    folder: Path,
    lock: list[dict[str, Any]] | None,
    *,
    k: int = 1,
    total: int | None = None,
    ended: bool = True,
    job_id: str = JOB_ID,
    version: str | None = "0.26.0",
    evals: Mapping[str, Any] | None = None,
    retries: int = 0,
    **result: Any,
) -> Path:
    """The documents of a job; `lock` is None for a version that writes none."""
    write(folder / "config.json", {"job_name": folder.name, "n_attempts": k, "retry": {"max_retries": retries}})
    if lock is not None:
        harbor = {"version": version} if version else {}
        write(folder / "lock.json", {"schema_version": 3, "harbor": harbor, "n_concurrent_trials": 2, "trials": lock})
    write_result(folder, len(lock or ()) if total is None else total, ended=ended, job_id=job_id, evals=evals, **result)
    return folder


def write_result(
    folder: Path,
    total: int,
    *,
    ended: bool = True,
    job_id: str = JOB_ID,
    evals: Mapping[str, Any] | None = None,
    **more: Any,
) -> None:
    result = {
        "id": job_id,
        "started_at": "2026-03-02T09:00:00.120000",
        "finished_at": "2026-03-02T09:30:00.120000" if ended else None,
        "n_total_trials": total,
        "stats": {"evals": dict(evals or {})},
    }
    write(folder / "result.json", result | more)


def error(kind: str, **more: Any) -> dict[str, Any]:
    """An exception as a trial or a step has it."""
    return {"exception_type": kind, "exception_message": "it broke", "exception_traceback": "Traceback: ..."} | more


def begin_trial(job: Path, name: str, task: str, *, agent: Mapping[str, Any] = AGENT) -> Path:
    """A trial that runs: it has a configuration and a lock, but no result."""
    folder = job / name
    write(folder / "config.json", {"trial_name": name, "task": {"name": task}, "agent": dict(agent), "job_id": JOB_ID})
    write(folder / "lock.json", locked(task, agent))
    return folder


def trial_result(
    name: str, task: str, rewards: Any, *, start: float = 0, agent: Mapping[str, Any] = AGENT, **more: Any
) -> dict[str, Any]:
    provider, _, model = (agent.get("model_name") or "").rpartition("/")
    result = {
        "id": f"id-of-{name}",
        "task_name": task,
        "trial_name": name,
        "source": SOURCE,
        "task_checksum": "0" * 64,
        "config": {"trial_name": name, "task": {"name": task}, "agent": dict(agent), "job_id": JOB_ID},
        "agent_info": {
            "name": agent["name"],
            "version": "1.0",
            "model_info": {"name": model, "provider": provider or None} if model else None,
        },
        "verifier_result": None if rewards is None else {"rewards": rewards},
        "exception_info": None,
        "started_at": at(start),
        "finished_at": at(start + 1),
    }
    return result | more


def write_trial(
    job: Path,
    name: str,
    task: str,
    rewards: Any = None,
    *,
    start: float = 0,
    agent: Mapping[str, Any] = AGENT,
    files: Mapping[str, str] | None = None,
    **more: Any,
) -> Path:
    """A trial that has ended; `rewards` is None when the verifier gave no result."""
    folder = begin_trial(job, name, task, agent=agent)
    for path, text in (files or {}).items():
        write(folder / path, text)
    write(folder / "result.json", trial_result(name, task, rewards, start=start, agent=agent, **more))
    return folder
