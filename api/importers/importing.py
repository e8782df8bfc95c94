"""Importing what lies at a path: run by run, each in its own transaction; a bad one is reported and the rest go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from api.el import El
from api.importers import harbor, inspect_log, jsonl, lm_eval, swe_bench, tau2, tau_bench, terminal_bench
from api.importers.files import PATH_SHOWN_MAX, real_path, shown
from api.importers.growing import take_run
from api.importers.recognising import Recognised, recognise
from api.importers.recording import Imported
from api.importers.run import Importer, Options, Run
from ledger.errors import BadInput, Conflict, Refused

IMPORTERS: tuple[Importer, ...] = (
    harbor,
    inspect_log,
    jsonl,
    lm_eval,
    swe_bench,
    tau2,
    tau_bench,
    terminal_bench,
)
AUTO = "auto"
UNKNOWN_SHOWN_MAX = 10

Progress = Callable[[int, int], None]
Content = tuple[str, ...]


class NotImported(msgspec.Struct, frozen=True):
    """A run of which nothing was written: where it lies and why, `conflict` when it is there with other content."""

    path: str
    outcome: Literal["refused", "conflict"]
    why: str


class Report(msgspec.Struct, frozen=True):
    """What an import came to: the jobs that stand now, and what was refused."""

    jobs: list[Imported]
    refused: list[NotImported]


def import_path(
    client: El,
    tool: str,
    path: Path,
    options: Options | None = None,
    *,
    progress: Progress | None = None,
) -> Report:
    """Import the run, or every run, that a tool left at a path; `auto` finds out which tool, for each of them.

    A copy of a run that lies in another run is skipped and flagged. `progress` is told how many of how many runs are
    done.

    Raises:
        BadInput: there is no such tool, or it knows no such policy. Whatever is wrong with a run is in the report.
    """
    options = options or Options()
    importers = _importers_of(tool, options)
    try:
        place = real_path(path)
        found = recognise(importers, place) if tool == AUTO else _found(importers[0], place, options)
    except Refused as refusal:
        return Report([], [_refused(path, refusal)])
    taken = _Import(client, options, found)
    for done, (run_path, importer) in enumerate(taken.order):
        if progress:
            progress(done, len(taken.order))
        taken.take(run_path, importer)
    unknown = [file for file in found.unknown if file not in taken.read]
    return Report(taken.jobs, [*taken.refused, *_unknown(path, unknown)])


class _Import:
    """The runs of one import, those that lie in another run last: by then it is known what they are copies of."""

    def __init__(self, client: El, options: Options, found: Recognised) -> None:
        self.jobs: list[Imported] = []
        self.refused = [_refused(path, refusal) for path, refusal in found.refused]
        self.read: set[Path] = set()
        self._client = client
        self._options = options
        self._nested = {path for path in found.runs if any(parent in found.runs for parent in path.parents)}
        self._done: set[Content] = set()
        self._copied: set[Content] = set()
        self.order = sorted(found.runs.items(), key=lambda run: (run[0] in self._nested, run[0]))
        for path in self._nested:
            with suppress(Refused):  # it is reported when its turn comes
                self._copied |= {_content(run) for run in found.runs[path].read(path, options)}

    def take(self, path: Path, importer: Importer) -> None:
        """Import the jobs of one run, or note why not."""
        nested, contents = path in self._nested, set()
        try:
            for run in importer.read(path, self._options):
                self.read.update(source.file for source in run.sources)
                content = _content(run)
                contents.add(content)
                if nested and content in self._done:
                    continue
                flags = ["nested-run-skipped"] if content in self._copied and not nested else []
                self._record(path, msgspec.structs.replace(run, flags=[*run.flags, *flags]))
        except Refused as refusal:
            self.refused.append(_refused(path, refusal))
        self._done |= contents

    def _record(self, path: Path, run: Run) -> None:
        """Record one job; the next one of the same files is tried even when this one is refused."""
        try:
            self.jobs.append(take_run(self._client, run, self._options))
        except Refused as refusal:
            self.refused.append(_refused(path, refusal))


def _content(run: Run) -> Content:
    """What is equal of a run and its copies, wherever they lie."""
    return (run.tool, *sorted(source.sha256 for source in run.sources))


def _found(importer: Importer, path: Path, options: Options) -> Recognised:
    """The runs at a path; those that are to become one job are read together."""
    found = Recognised((importer,))
    paths = [path] if options.merge_runs else importer.find(path)
    found.runs.update(dict.fromkeys(paths, importer))
    return found


def _importers_of(tool: str, options: Options) -> tuple[Importer, ...]:
    by_name = {importer.NAME: importer for importer in IMPORTERS}
    if tool == AUTO:
        if options.policy is not None or options.merge_runs:
            raise BadInput("`--policy` and `--merge-runs` are of one tool; name it instead of `auto`.")
        return IMPORTERS
    importer = by_name.get(tool)
    if importer is None:
        raise BadInput(f"There is no importer for {tool[:80]!r}; there are: {', '.join(sorted(by_name))}, or {AUTO}.")
    if options.policy is not None and options.policy not in importer.POLICIES:
        known = f"it knows {', '.join(importer.POLICIES)}" if importer.POLICIES else "it has none"
        raise BadInput(f"{tool} has no policy {options.policy[:80]!r}; {known}.")
    if options.merge_runs and tool != terminal_bench.NAME:
        raise BadInput(f"{tool} has no runs to merge; `--merge-runs` is of {terminal_bench.NAME}.")
    return (importer,)


def _refused(path: Path, refusal: Refused) -> NotImported:
    name = shown(path)[:PATH_SHOWN_MAX]
    if isinstance(refusal, Conflict):
        return NotImported(name, "conflict", " ".join([str(refusal), "; ".join(refusal.differs)]).strip())
    return NotImported(name, "refused", str(refusal))


def _unknown(path: Path, files: Sequence[Path]) -> Iterable[NotImported]:
    """The files of results that no importer recognises, the first of them by name."""
    for file in files[:UNKNOWN_SHOWN_MAX]:
        yield NotImported(shown(file), "refused", "No importer recognises it; name the tool that wrote it.")
    if (more := len(files) - UNKNOWN_SHOWN_MAX) > 0:
        yield NotImported(shown(path), "refused", f"No importer recognises {more:,} further files in it.")
