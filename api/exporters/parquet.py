"""Parquet, by pyarrow: typed columns, so that nothing has to be guessed from texts."""

from __future__ import annotations

from itertools import islice
from typing import IO, Any

import msgspec

from api.exporters.optional import optional
from api.exporters.reading import JobReading
from api.exporters.summary import summary
from api.exporters.table import Row, rows

NAME = "parquet"
SUFFIX = ".parquet"
IS_TEXT = False

ROWS_PER_GROUP = 10_000


def write(reading: JobReading, file: IO[bytes]) -> None:
    """One row a slot, 10,000 a row group; the job's own numbers stand in the file's metadata under `evalledger`."""
    arrow, parquet = optional("pyarrow", extra=NAME), optional("pyarrow.parquet", extra=NAME)
    schema = _schema(arrow).with_metadata({"evalledger": msgspec.json.encode(summary(reading.job))})
    every = rows(reading)
    with parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(every, ROWS_PER_GROUP)):
            writer.write_table(arrow.Table.from_pylist([_values(row) for row in group], schema=schema))


def _schema(arrow: Any) -> Any:
    text, number, instant = arrow.string(), arrow.float64(), arrow.timestamp("us", tz="UTC")
    artifact = arrow.struct([("name", text), ("sha256", text), ("size", arrow.int64()), ("role", text)])
    types = {
        "attempt": arrow.int64(),
        "extra": arrow.bool_(),
        "reward": number,
        "composite": number,
        "dimensions": arrow.map_(text, number),
        "exit_code": arrow.int64(),
        "artifacts": arrow.list_(artifact),
        "started_at": instant,
        "ended_at": instant,
        "duration_s": number,
    }
    always = {"job", "dataset", "task", "attempt", "extra"}
    return arrow.schema(
        [arrow.field(name, types.get(name, text), nullable=name not in always) for name in Row.__struct_fields__]
    )


def _values(row: Row) -> dict[str, Any]:
    values = msgspec.structs.asdict(row)
    if row.dimensions is not None:
        values["dimensions"] = list(row.dimensions.items())
    return values
