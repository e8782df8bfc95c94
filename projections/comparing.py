"""Comparing what is stored with what the log gives when everything is made again from it.

Three kinds of difference are told apart: the log itself is not what was recorded; a row of a read model is not what the
log gives; a snapshot's numbers are not what the formulas of that name give at the snapshot's own position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger import codec
from ledger.errors import NotFound
from ledger.facts.entry import Recorded
from ledger.facts.job import job_stream
from ledger.facts.leaderboard import FrozenNumbers, SnapshotAdded
from ledger.facts.trial import slot_of
from ledger.recorder import ProjectRecorder
from projections.snapshots import JobFold, numbers_of

POSITIONS_MAX = 50
READ_ROWS = 1_000

Row = tuple[Any, ...]


class Difference(msgspec.Struct, frozen=True):
    """Something stored that is not what the log gives. `positions` are entries behind it, at most POSITIONS_MAX."""

    kind: Literal["log", "read-model", "formula"]
    about: str
    what: str
    stored: str
    recomputed: str
    positions: list[int]


def differing_rows(
    stored: Connection, remade: Connection, recorder: ProjectRecorder, tables: Sequence[sa.Table], job_id: str | None
) -> Iterator[Difference]:
    """Rows of read models that differ between the store and the same tables made again; of one job, or of all."""
    behind = _Behind(recorder)
    for table in tables:
        if job_id is not None and "job_id" not in table.c:
            continue
        for before, after in _unlike(
            _rows(stored, table, recorder, job_id), _rows(remade, table, recorder, job_id), table
        ):
            row = before or after or ()
            named = dict(zip(table.c.keys(), row, strict=True))
            differing = [
                name
                for number, name in enumerate(table.c.keys())
                if before is None or after is None or before[number] != after[number]
            ]
            yield Difference(
                "read-model",
                str(named.get("job_id") or recorder.project_id),
                _place(table, named, differing if before and after else []),
                _shown(table, before, differing),
                _shown(table, after, differing),
                behind.of(named),
            )


def differing_snapshot(recorder: ProjectRecorder, added: SnapshotAdded, fold: JobFold) -> list[Difference]:
    """What a snapshot holds against the numbers that `fold`, at the snapshot's own position, gives."""
    return _differing(recorder, "formula", added.snapshot_id, added.job_id, added.numbers, fold.numbers())


def differing_numbers(
    stored: Connection, recorder: ProjectRecorder, job_id: str, recomputed: FrozenNumbers
) -> list[Difference]:
    """What the read models say of a job against what its entries give. Rows that are gone or unreadable say nothing."""
    try:
        numbers = numbers_of(stored, recorder.project_id, job_id)
    except (NotFound, msgspec.MsgspecError, ValueError, ArithmeticError):
        numbers = None
    return _differing(recorder, "read-model", job_id, job_id, numbers, recomputed)


def _differing(
    recorder: ProjectRecorder,
    kind: Literal["read-model", "formula"],
    about: str,
    job_id: str,
    stored: FrozenNumbers | None,
    recomputed: FrozenNumbers | None,
) -> list[Difference]:
    before, after = _numbers(stored), _numbers(recomputed)
    if before == after:
        return []
    behind = _Behind(recorder).of({"job_id": job_id})
    return [
        Difference(kind, about, name, before.get(name, "none"), after.get(name, "none"), behind)
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def job_entries(recorder: ProjectRecorder, job_id: str, *, upto: int) -> Iterator[Recorded]:
    """The entries of a job and its trials in the order of the log, read from the log alone."""
    positions = recorder.positions_of([job_stream(job_id)], under=f"trial/{job_id}/", upto=upto)
    return _entries_at(recorder, positions)


def _entries_at(recorder: ProjectRecorder, positions: Sequence[int]) -> Iterator[Recorded]:
    for start in range(0, len(positions), READ_ROWS):
        yield from codec.decode_each(recorder.bodies_at(positions[start : start + READ_ROWS]))


def _numbers(numbers: FrozenNumbers | None) -> dict[str, str]:
    """Each number as JSON, by name: equal texts are equal to the last bit."""
    if numbers is None:
        return {}
    return {name: msgspec.json.encode(value).decode() for name, value in msgspec.to_builtins(numbers).items()}


def _rows(connection: Connection, table: sa.Table, recorder: ProjectRecorder, job_id: str | None) -> Iterator[Row]:
    """A table's rows in the order of its primary key, read as they are taken."""
    query = sa.select(table).where(table.c.project_id == recorder.project_id)
    if job_id is not None:
        query = query.where(table.c.job_id == job_id)
    query = query.order_by(*table.primary_key).execution_options(yield_per=READ_ROWS)
    for row in connection.execute(query):
        yield tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)


def _unlike(stored: Iterator[Row], remade: Iterator[Row], table: sa.Table) -> Iterator[tuple[Row | None, Row | None]]:
    """Pairs of rows with the same key and other values; None where one side has no such row. Both come in order."""
    keys = [index for index, column in enumerate(table.c) if column.primary_key]

    def key(row: Row) -> tuple[Any, ...]:
        # As UTF-8: both databases keep text in the order of its bytes. Text comes after numbers: where one should be,
        # SQLite keeps whatever somebody wrote.
        return tuple((1, row[i].encode()) if isinstance(row[i], str) else (0, row[i]) for i in keys)

    one, other = next(stored, None), next(remade, None)
    while one is not None or other is not None:
        if other is None or (one is not None and key(one) < key(other)):
            yield one, None
            one = next(stored, None)
        elif one is None or key(other) < key(one):
            yield None, other
            other = next(remade, None)
        else:
            if one != other:
                yield one, other
            one, other = next(stored, None), next(remade, None)


def _place(table: sa.Table, named: dict[str, Any], differing: Sequence[str]) -> str:
    """Which row, and which of its columns."""
    keys = [str(named[column.name]) for column in table.primary_key if column.name not in ("project_id", "job_id")]
    row = " ".join([table.name, *keys])
    return f"{row}: {', '.join(differing)}" if differing else row


def _shown(table: sa.Table, row: Row | None, columns: Sequence[str]) -> str:
    if row is None:
        return "no such row"
    named = dict(zip(table.c.keys(), row, strict=True))
    shown = (named[name] for name in columns)
    texts = (value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value) for value in shown)
    return ", ".join(texts)[:500]


class _Behind:
    """The entries that a row is made of: those of its trial, its member or its job.

    The entries of a job are read once for all rows of it that follow each other, as rows in the order of their keys do.
    """

    def __init__(self, recorder: ProjectRecorder) -> None:
        self._recorder = recorder
        self._job_id = ""
        self._positions: list[int] = []
        self._of_trials: dict[str, dict[int, list[int]]] | None = None  # by task, then attempt

    def of(self, named: dict[str, Any]) -> list[int]:
        """The first POSITIONS_MAX positions of what is behind a row, given by column."""
        job_id, task, attempt = named.get("job_id"), named.get("task"), named.get("attempt")
        if job_id is None:
            return [named["position"]] if isinstance(named.get("position"), int) else []
        if job_id != self._job_id:
            size = self._recorder.head().size
            under = f"trial/{job_id}/"
            self._positions = self._recorder.positions_of([job_stream(job_id)], under=under, upto=size)
            self._job_id, self._of_trials = job_id, None
        if task is None:
            return self._positions[:POSITIONS_MAX]
        of_task = self._by_trial().get(task, {})
        found = of_task.get(attempt, []) if attempt is not None else sorted(chain(*of_task.values()))
        return found[:POSITIONS_MAX]

    def _by_trial(self) -> dict[str, dict[int, list[int]]]:
        if self._of_trials is None:
            self._of_trials = defaultdict(lambda: defaultdict(list))
            for at, entry in _entries_at(self._recorder, self._positions):
                if entry.stream.startswith("trial/"):
                    _, attempt, task = slot_of(entry.stream)
                    self._of_trials[task][attempt].append(at)
        return self._of_trials
