"""terminal-bench: a folder for each run, with `run_metadata.json`, `results.json`, `tb.lock`, and each trial's own
`<task>/<trial>/results.json`.

What is read: those four. What is left out: the names and results of single tests, tokens, recordings, panes and logs.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from api.importers.files import head_of, shown
from api.importers.run import Member, Options, Run
from api.importers.terminal_bench_files import LOCK, METADATA, RESULTS, runs_at
from api.importers.terminal_bench_run import TerminalBenchRun
from ledger.digests import framed
from ledger.errors import BadInput, Conflict
from ledger.facts.catalogue import Scalar

NAME = "terminal-bench"
POLICIES: tuple[str, ...] = ("terminal-bench",)

_RESULTS_HEAD = re.compile(rb'\s*\{\s*"id"\s*:\s*"[^"]*"\s*,\s*"results"\s*:\s*\[')
_NEVER = datetime.min.replace(tzinfo=UTC)
_METADATA_HEAD = re.compile(rb'\s*\{\s*"run_id"\s*:\s*"')


def find(path: Path) -> Sequence[Path]:
    """The folders of the runs at or below a path; of a file of a run, its folder."""
    return runs_at(path)


def recognises(path: Path) -> bool:
    """The folder of a run, or its `results.json` or `run_metadata.json`."""
    if os.path.isdir(path):
        return (path / LOCK).is_file() or recognises(path / METADATA) or recognises(path / RESULTS)
    heads = {RESULTS: _RESULTS_HEAD, METADATA: _METADATA_HEAD}
    return path.name in heads and heads[path.name].match(head_of(path)) is not None


def read(path: Path, options: Options) -> Iterator[Run]:
    """The job of one run; with `merge_runs`, a job for each agent that has runs at or below the path.

    Raises:
        BadInput: a run cannot be read, or does not say what merging has to know.
        Conflict: two of the runs to merge have one uuid and other bytes.
    """
    if not options.merge_runs:
        yield _job([TerminalBenchRun(path, options)], path, options)
        return
    found = runs_at(path)
    unique: dict[tuple[str, ...], TerminalBenchRun] = {}
    for folder in found:
        run = TerminalBenchRun(folder, options)
        if unique.setdefault(run.content, run) is not run:
            unique[run.content].flags.add("nested-run-skipped")
    _refuse_other_bytes(unique.values())
    groups: dict[object, list[TerminalBenchRun]] = {}
    for run in unique.values():
        if len(unique) > 1 and run.agent[0] is None:
            raise BadInput(f"{shown(run.folder)} names no agent, so it is unknown whose runs it can be merged with.")
        groups.setdefault((*run.agent, run.dataset, run.dataset_version), []).append(run)
    root = Path(os.path.commonpath(found))
    for group in groups.values():
        yield _job(_ordered(group), root, options)


def _job(runs: Sequence[TerminalBenchRun], root: Path, options: Options) -> Run:
    """Several runs as one: each takes as many attempts as it had, one after the other."""
    trials, members, attempts, attempt_max = [], dict[str, set[str]](), 0, 0
    for run in runs:
        for trial in run.slots.values():
            trials.append(msgspec.structs.replace(trial, attempt=attempts + trial.attempt))
        for task, instructions in run.members.items():
            members[task] = members.get(task, set()) | instructions
        if run.attempt_max:
            attempt_max = attempts + run.attempt_max
        attempts += run.attempts if len(runs) == 1 else max(run.attempts, run.attempt_max)
    first = runs[0]
    versions = sorted({run.lock.harness.version for run in runs if run.lock.harness.version})
    return Run(
        tool=NAME,
        name=first.dataset or root.name,
        attempts=attempts,
        attempt_max=attempt_max,
        # A task that was given two instructions has no one text: it is known by its name only.
        members=[Member(task, texts.copy().pop() if len(texts) == 1 else None) for task, texts in members.items()],
        trials=lambda: iter(trials),
        failed_trials=sum(trial.status == "failed" for trial in trials),
        sources=[source._replace(path=shown(source.file.relative_to(root))) for run in runs for source in run.sources],
        tool_version="+".join(versions) or None,
        run_id=_run_id(runs),
        dataset=f"{first.dataset}@{first.dataset_version}" if first.dataset_version else None,
        policy=options.policy or POLICIES[0],
        flags=sorted({flag for run in runs for flag in run.flags}),
        as_reported=_as_reported(runs),
    )


def _as_reported(runs: Sequence[TerminalBenchRun]) -> dict[str, Scalar]:
    if len(runs) == 1:
        return runs[0].as_reported
    return {f"runs.{at}.{name}": value for at, run in enumerate(runs, 1) for name, value in run.as_reported.items()}


def _run_id(runs: Sequence[TerminalBenchRun]) -> str | None:
    """The uuid of a run; of several, what all of theirs come to; None when one has none."""
    uuids = sorted(run.metadata.uuid or "" for run in runs)
    if not all(uuids):
        return None
    return uuids[0] if len(uuids) == 1 else f"merged-{hashlib.sha256(framed(*uuids)).hexdigest()}"


def _ordered(runs: Sequence[TerminalBenchRun]) -> Sequence[TerminalBenchRun]:
    """Runs by when they began. Raises BadInput when one of several does not say."""
    began = [(run.started_at, run) for run in runs]
    for at, run in began:
        if at is None and len(runs) > 1:
            raise BadInput(f"{shown(run.folder)} does not say when it began, so the order of the attempts is unknown.")
    return [run for _, run in sorted(began, key=lambda one: (one[0] or _NEVER, one[1].content))]


def _refuse_other_bytes(runs: Iterable[TerminalBenchRun]) -> None:
    by_uuid: dict[str, TerminalBenchRun] = {}
    for run in runs:
        first = by_uuid.setdefault(run.metadata.uuid or f"none of {run.folder}", run)
        if first is not run:
            before = {source.path: source.sha256 for source in first.sources}
            now = {source.path: source.sha256 for source in run.sources}
            raise Conflict(
                f"{shown(first.folder)} and {shown(run.folder)} are the same run {run.metadata.uuid!r} with other "
                "content; keep the one that holds.",
                [f"file {name}" for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)],
            )
