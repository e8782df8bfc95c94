"""How read models follow a log: in batches, rows and position in one commit, the position only from where it stood.

A read model that crashed, or whose batch another follower took first, starts again from its position: nothing is
applied twice and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

import sqlalchemy as sa
from eventsourcing.persistence import IntegrityError, Tracking, TrackingRecorder
from sqlalchemy.engine import Connection, Engine

from ledger import codec
from ledger.bulk import find_by_key
from ledger.database import insert_into, metadata, reading, writing
from ledger.errors import ConcurrentWrite, NotFound, OutdatedReadModel
from ledger.facts.entry import Entry, Recorded
from ledger.facts.trial import Slot, slot_of
from ledger.recorder import ProjectRecorder

Key = TypeVar("Key", str, int)

BATCH_ENTRIES = 10_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

positions = sa.Table(
    "positions",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("follower", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("definition", sa.Integer, nullable=False),
)


class OfTrial(NamedTuple):
    """An entry of a trial's stream, with the slot that the stream names."""

    slot: Slot
    position: int
    entry: Entry


class Batch(NamedTuple):
    """A run of the log as read models take it: all entries, those of trials with their slots, and the others."""

    entries: list[Recorded]
    of_trials: list[OfTrial]
    others: list[Recorded]


class ReadModel(NamedTuple):
    """An answer that can be dropped and rebuilt. `definition` rises when its rows would come out otherwise."""

    name: str
    definition: int
    tables: tuple[sa.Table, ...]
    apply: Callable[[Connection, str, Batch], None]


class Standing(NamedTuple):
    """How far a read model has come: its position, and the log's last one."""

    name: str
    position: int
    head: int
    outdated: bool


def batch_of(entries: list[Recorded]) -> Batch:
    """Sort a run of the log by what its entries are about."""
    slots = {stream: slot_of(stream) for stream in {e.stream for _, e in entries} if stream.startswith("trial/")}
    of_trials: list[OfTrial] = []
    others: list[Recorded] = []
    for recorded in entries:
        slot = slots.get(recorded.entry.stream)
        if slot:
            of_trials.append(OfTrial(slot, *recorded))
        else:
            others.append(recorded)
    return Batch(entries, of_trials, others)


def catch_up(
    engine: Engine,
    project_id: str,
    models: Sequence[ReadModel],
    *,
    batch_entries: int = BATCH_ENTRIES,
    upto: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Bring all `models` to the end of the log, or to the position `upto`; the position they have reached.

    The ones furthest behind go first, so a model finds those before it in `models` at least where it is itself.

    Raises:
        OutdatedReadModel: a model's rows were made by another definition of it.
        UnknownFact: an entry cannot be read; the models stay before it.
    """
    recorder = ProjectRecorder(engine, project_id)
    while True:
        stood = _positions(engine, project_id, models)
        start = min(stood.values())
        ahead = [position for position in stood.values() if position > start]
        stop = min([*ahead, *([upto] if upto is not None else [])], default=None)
        limit = batch_entries if stop is None else min(batch_entries, stop - start)
        bodies = recorder.bodies(after=start, limit=limit) if limit > 0 else []
        if not bodies:
            return start
        batch = batch_of(codec.decode_all(bodies))
        end = bodies[-1][0]
        going = [model for model in models if stood[model.name] == start]
        try:
            with writing(engine) as connection:
                _move(connection, project_id, going, start, end)
                _require_ahead(connection, project_id, [m.name for m in models if m not in going], end)
                find_by_key(connection)
                for model in going:
                    model.apply(connection, project_id, batch)
        except (_TakenByAnother, ConcurrentWrite):  # the latter when PostgreSQL made this one give way to the other
            continue
        if progress:
            progress(end)
        if len(bodies) < limit and len(going) == len(models):  # to look again would cost as much as a few entries
            return end


def rebuild(
    engine: Engine,
    project_id: str,
    models: Sequence[ReadModel],
    names: Collection[str] = (),
    *,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Drop the rows of the named models (all by default) and build them again from the log; the position reached."""
    known = {model.name for model in models}
    if unknown := sorted(set(names) - known):
        raise NotFound(f"There is no read model {unknown[0]!r}; there are {', '.join(sorted(known))}.")
    again = [model for model in models if not names or model.name in names]
    _positions(engine, project_id, [model for model in models if model not in again])  # none of them may be outdated
    with writing(engine) as connection:
        for model in again:
            connection.execute(
                positions.delete().where(positions.c.project_id == project_id, positions.c.follower == model.name)
            )
            for table in model.tables:
                connection.execute(table.delete().where(table.c.project_id == project_id))
    return catch_up(engine, project_id, models, progress=progress)


def standings(engine: Engine, project_id: str, models: Sequence[ReadModel]) -> list[Standing]:
    """Where each read model stands."""
    head = ProjectRecorder(engine, project_id).head().size
    with reading(engine) as connection:
        rows = _select(connection, project_id)
    found = []
    for model in models:
        position, definition = rows.get(model.name, (0, model.definition))
        found.append(Standing(model.name, position, head, definition != model.definition))
    return found


def position_of(connection: Connection, project_id: str, models: Sequence[ReadModel]) -> int:
    """The position that all these read models have reached, as the transaction of `connection` sees it."""
    rows = _select(connection, project_id)
    return min(rows[model.name][0] if model.name in rows else 0 for model in models)


def runs_of(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """Keys in runs of at most `size`, as many as one statement may name."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


def microseconds(at: datetime) -> int:
    """An instant as whole microseconds since 1970 UTC, exactly."""
    return (at - _EPOCH) // _MICROSECOND


def instant(microseconds_since_1970: int) -> datetime:
    """The instant back from `microseconds`."""
    return _EPOCH + timedelta(microseconds=microseconds_since_1970)


class Follower(TrackingRecorder):
    """The positions in the library's interface, for somebody who follows a log with its `ProjectionRunner`."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = f"follower/{name}"  # never the name of a read model

    def insert_tracking(self, tracking: Tracking) -> None:
        """Move forward in an application's log; going back or standing still is an IntegrityError."""
        at = tracking.notification_id
        with writing(self.engine) as connection:
            insert = insert_into(connection, positions)
            moved = connection.execute(
                insert.on_conflict_do_update(
                    index_elements=["project_id", "follower"],
                    set_={"position": at},
                    where=positions.c.position < at,
                )
                .values(project_id=tracking.application_name, follower=self.name, position=at, definition=1)
                .returning(positions.c.position)
            )
            if moved.first() is None:
                raise IntegrityError(f"{self.name} is at {at} or further in {tracking.application_name} already")

    def max_tracking_id(self, application_name: str) -> int | None:
        """How far this follower has come in an application's log."""
        with reading(self.engine) as connection:
            row = _select(connection, application_name).get(self.name)
        return row[0] if row else None


class _TakenByAnother(Exception):
    """Another follower moved a position first; the batch is given up."""


def _select(connection: Connection, project_id: str) -> dict[str, tuple[int, int]]:
    columns = (positions.c.follower, positions.c.position, positions.c.definition)
    query = sa.select(*columns).where(positions.c.project_id == project_id)
    return {name: (position, definition) for name, position, definition in connection.execute(query)}


def _positions(engine: Engine, project_id: str, models: Sequence[ReadModel]) -> dict[str, int]:
    with reading(engine) as connection:
        rows = _select(connection, project_id)
    for model in models:
        if model.name in rows and rows[model.name][1] != model.definition:
            raise OutdatedReadModel(
                f"The read model {model.name} was built by another version of EvalLedger; "
                f"run `el projection rebuild {model.name}`."
            )
    return {model.name: rows[model.name][0] if model.name in rows else 0 for model in models}


def _move(connection: Connection, project_id: str, models: Sequence[ReadModel], start: int, end: int) -> None:
    """Move positions from `start` to `end`, all only if each still stands there. Written before anything is read."""
    table, names = positions.c, sorted(model.name for model in models)
    if start == 0:
        first = insert_into(connection, positions).on_conflict_do_nothing()
        at_first = [
            {"project_id": project_id, "follower": m.name, "position": 0, "definition": m.definition} for m in models
        ]
        connection.execute(first, at_first)
    still_there = (table.project_id == project_id, table.follower.in_(names), table.position == start)
    if connection.execute(positions.update().where(*still_there).values(position=end)).rowcount != len(names):
        raise _TakenByAnother


def _require_ahead(connection: Connection, project_id: str, names: Sequence[str], end: int) -> None:
    """Give the batch up when a model that was ahead is no longer: somebody rebuilds it, so its rows are not there."""
    if names:
        query = sa.select(positions.c.follower).where(
            positions.c.project_id == project_id, positions.c.follower.in_(names), positions.c.position >= end
        )
        # Locked, so that on PostgreSQL a rebuild waits until this batch is done; SQLite has one writer anyway.
        if len(connection.execute(query.with_for_update(read=True)).all()) < len(names):
            raise _TakenByAnother
