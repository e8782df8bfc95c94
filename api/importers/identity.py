"""Which job a run is: by its content, or by the tool's own id for it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from api.el import El
from api.importers.dataset import ref_part
from api.importers.run import Options, Run, Source
from ledger.digests import framed
from ledger.errors import EvalLedgerError
from ledger.facts.job import job_id_for
from ledger.rules.forms import checked_ref
from ledger.rules.job import Job

LISTING_BYTES_MAX = 10_000_000


class Asked(NamedTuple):
    """What identifies the job of a run: by content, or by the tool's own run id with the content as the request."""

    job_id: str
    request_id: str
    attempts: int
    runner: str
    dataset: str | None


def identify(project: str, run: Run, dataset: str | None, runner: str | None, attempts: int | None) -> Asked:
    """The request is the content: the digests of the files and what else shapes the manifest; no path, no name."""
    runner = checked_ref(runner or f"{ref_part(run.tool)}@{ref_part(run.tool_version or 'unknown')}")
    k = run.attempts if attempts is None else attempts
    picked = () if run.reward_from is None else (run.reward_from,)
    parts = framed(
        *("import/1", run.tool, runner, dataset or "", str(k), run.policy or "", *picked),
        *sorted(s.sha256 for s in run.sources),
    )
    request_id = f"import/{run.tool}/{hashlib.sha256(parts).hexdigest()}"
    named = request_id if run.run_id is None else "/".join(["import", run.tool, "run", run.run_id, *picked])
    return Asked(job_id_for(project, named), request_id, k, runner, dataset)


def asked_of(project: str, run: Run, options: Options) -> Asked:
    """What an import with these options asks for: they override what the run says of itself."""
    return identify(project, run, options.dataset or run.dataset, options.runner, options.attempts)


def is_same(project: str, run: Run, asked: Asked, state: Job) -> bool:
    """Whether a job is what is asked for. Its dataset is its dataset, whether anybody named it or not."""
    manifest = state.manifest
    assert manifest is not None  # noqa: S101 - told to mypy; the caller has looked
    had = state.sealed.request_id if state.sealed else manifest.request_id
    if asked.dataset not in (None, manifest.dataset):
        return had == asked.request_id
    said = (identify(project, run, ref, asked.runner, asked.attempts) for ref in (None, manifest.dataset))
    return had in {request.request_id for request in said}


def differing_terms(run: Run, asked: Asked, state: Job) -> list[str]:
    """What was asked for otherwise than now: k, runner, dataset, policy."""
    had = state.manifest
    assert had is not None  # noqa: S101 - told to mypy; the caller has looked
    terms = (
        ("attempts", had.attempts, asked.attempts),
        ("runner", had.runner, asked.runner),
        ("dataset", had.dataset, asked.dataset or had.dataset),
        ("policy", had.origin.policy, run.policy),
    )
    return [f"{what}: {before}, now {now}" for what, before, now in terms if before != now]


def differences(client: El, run: Run, asked: Asked, state: Job) -> list[str]:
    """What of a run is not as it was in an earlier import of the same id."""
    assert state.manifest is not None  # noqa: S101 - told to mypy; the caller has looked
    origin = state.sealed.origin if state.sealed else state.manifest.origin
    return differing_terms(run, asked, state) + _different_files(client, origin.sources, run.sources)


def _different_files(client: El, listing: str | None, sources: Sequence[Source]) -> list[str]:
    """Which source files differ from those of an earlier import, as far as its listing can still be read."""
    try:
        rows = msgspec.json.decode(client.artifacts.read_bytes(listing or "", max_bytes=LISTING_BYTES_MAX))
    except EvalLedgerError:
        return ["its source files, whose list is no longer there"]
    before = {row["path"]: row["sha256"] for row in rows}
    now = {source.path: source.sha256 for source in sources}
    if sorted(before.values()) == sorted(now.values()):
        return []
    return [
        *(f"file {path} is no longer there" for path in before if path not in now),
        *(f"file {path} is new" for path in now if path not in before),
        *(f"file {path} has other content" for path in now if path in before and before[path] != now[path]),
    ]
