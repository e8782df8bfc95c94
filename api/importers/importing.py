"""Importing what lies at a path: run by run, each in its own transaction; a bad one is reported and the rest go on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from api.client import Client
from api.importers import jsonl, tau_bench
from api.importers.files import shown
from api.importers.recording import Imported, import_run
from api.importers.run import Importer, Options
from ledger.errors import BadInput, Conflict, Refused

IMPORTERS: tuple[Importer, ...] = (jsonl, tau_bench)


class NotImported(msgspec.Struct, frozen=True):
    """A run of which nothing was written: where it lies and why, `conflict` when it is there with other content."""

    path: str
    outcome: Literal["refused", "conflict"]
    why: str


class Report(msgspec.Struct, frozen=True):
    """What an import came to: the jobs that stand now, and the runs that were refused."""

    jobs: list[Imported]
    refused: list[NotImported]


def import_path(client: Client, tool: str, path: Path, options: Options | None = None) -> Report:
    """Import the run, or every run, that a tool left at a path.

    Raises:
        BadInput: there is no such tool, or it knows no such policy. Whatever is wrong with a run is in the report.
    """
    options = options or Options()
    importer = _importer_of(tool, options.policy)
    report = Report([], [])
    try:
        runs = importer.find(path)
    except Refused as refusal:
        return Report([], [_refused(path, refusal)])
    for found in runs:
        try:
            for run in importer.read(found, options):
                job = import_run(
                    client,
                    run,
                    dataset=options.dataset,
                    runner=options.runner,
                    attempts=options.attempts,
                    keep_artifacts=options.keep_artifacts,
                    dry_run=options.dry_run,
                )
                report.jobs.append(job)
        except Refused as refusal:
            report.refused.append(_refused(found, refusal))
    return report


def _importer_of(tool: str, policy: str | None) -> Importer:
    by_name = {importer.NAME: importer for importer in IMPORTERS}
    importer = by_name.get(tool)
    if importer is None:
        raise BadInput(f"There is no importer for {tool[:80]!r}; there are: {', '.join(sorted(by_name))}.")
    if policy is not None and policy not in importer.POLICIES:
        known = f"it knows {', '.join(importer.POLICIES)}" if importer.POLICIES else "it has none"
        raise BadInput(f"{tool} has no policy {policy[:80]!r}; {known}.")
    return importer


def _refused(path: Path, refusal: Refused) -> NotImported:
    if isinstance(refusal, Conflict):
        return NotImported(shown(path), "conflict", " ".join([str(refusal), "; ".join(refusal.differs)]).strip())
    return NotImported(shown(path), "refused", str(refusal))
