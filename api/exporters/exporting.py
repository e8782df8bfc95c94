"""Exporting a job: the formats there are, and where each may be written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Protocol

import msgspec

from api.el import El
from api.exporters import csv_table, eee, inspect_log, jsonl, mlflow_run, parquet
from api.exporters.placing import Placing, folder_at, parent_of
from api.exporters.reading import JobReading, read_job
from ledger.errors import BadInput

STDOUT = "-"


class FileFormat(Protocol):
    """A module that writes a job as one file; only a text may go to standard output."""

    NAME: str
    SUFFIX: str
    IS_TEXT: bool

    def write(self, reading: JobReading, file: IO[bytes]) -> None:
        """Write the whole file."""


FILE_FORMATS: dict[str, FileFormat] = {form.NAME: form for form in (jsonl, csv_table, parquet, inspect_log)}
FORMATS = (*FILE_FORMATS, eee.NAME, mlflow_run.NAME)


class Exported(msgspec.Struct, frozen=True):
    """What was written: `attempts` is k; `left_out` counts what the format has no place for, by kind."""

    id: str
    format: str
    written: list[str]
    attempts: int
    attempts_seen: int
    members: int
    left_out: dict[str, int]
    as_of: int


def export_job(
    client: El,
    job: str,
    form: str,
    out: str | None = None,
    *,
    force: bool = False,
    seen: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Write a job in a format to a path; `-`, and for texts no path at all, is standard output.

    Raises:
        NotFound: there is no such job, or no folder for the file.
        BadInput: there is no such format, or it cannot be written there.
        Conflict: something is there already, and not `force`.
        NotAllowed: the library that the format needs is not installed.
    """
    if form not in FORMATS:
        raise BadInput(f"There is no format {form[:80]!r}; there are: {', '.join(FORMATS)}.")
    reading = read_job(client, job, seen)
    if form in FILE_FORMATS:
        written = _file(FILE_FORMATS[form], reading, out, force)
    elif out == STDOUT:
        raise BadInput(f"{form} is no single text, so it cannot go to standard output; name a folder with --out.")
    elif form == eee.NAME:
        folder = folder_at(Path(out or f"{reading.job.id[:8]}-eee"))
        written = [str(path) for path in eee.write(reading, folder, force=force, now=datetime.now(UTC))]
    else:
        written = [f"MLflow run {mlflow_run.write(reading, out or 'mlflow', force=force)}"]
    found = reading.job
    return Exported(
        found.id,
        form,
        written,
        found.manifest.attempts,
        reading.attempt_max,
        found.manifest.member_count,
        {what: count for what, count in sorted(reading.left_out.items()) if count},
        found.as_of,
    )


def _file(form: FileFormat, reading: JobReading, out: str | None, force: bool) -> list[str]:
    if out == STDOUT or (out is None and form.IS_TEXT):
        if not form.IS_TEXT:
            raise BadInput(f"{form.NAME} is no text, so it cannot go to standard output; name a file with --out.")
        form.write(reading, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return [STDOUT]
    path = Path(out or f"{reading.job.id[:8]}{form.SUFFIX}")
    with Placing(force=force) as placing:
        form.write(reading, placing.open(parent_of(path)))
    return [str(path)]
