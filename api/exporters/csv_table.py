"""CSV for spreadsheets: numbers stay numbers, and no text of a task or tool is run as a formula."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import IO, Any

import msgspec

from api.exporters.reading import JobReading
from api.exporters.table import Row, rows

NAME = "csv"
SUFFIX = ".csv"
IS_TEXT = True

# What makes a spreadsheet take a text for a formula, the wide forms too; the apostrophe so that it can be undone.
RISKY = tuple("=+-@\t\r\n＝＋－＠'")


def write(reading: JobReading, file: IO[bytes]) -> None:
    """A line of column names, then one a slot; UTF-8, lines end in CRLF (RFC 4180)."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow(Row.__struct_fields__)
        for row in rows(reading):
            writer.writerow([_cell(value) for value in msgspec.structs.astuple(row)])
    finally:
        text.detach()


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return f"'{value}" if value.startswith(RISKY) else value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case _:
            return msgspec.json.encode(value).decode()
