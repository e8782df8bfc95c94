"""Appending: against the driver alone, and against the library's own recorder on the same database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ledger import codec
from ledger.facts.entry import Entry
from ledger.recorder import ProjectRecorder
from tests.benchmarks.arrivals import FACTS_A_TRIAL, RUNNING, arrivals, job_id_of, take, tasks_of
from tests.benchmarks.measuring import Line, Measured, Sizes, Wanted, in_turns, seconds
from tests.benchmarks.stores import PROJECT, LibraryStore, RawStore, open_store

Batches = list[list[Entry]]


def feed_of(sizes: Sizes, *, shuffled: bool = False) -> Iterator[Batches]:
    """The work of each round, from one job that goes on through all of them."""
    count = (sizes.rounds + 1) * sizes.in_round // FACTS_A_TRIAL + RUNNING
    entries = arrivals(job_id_of(1), tasks_of(count), shuffled=shuffled)
    while batches := take(entries, sizes.transactions, sizes.in_transaction):
        yield batches


class Recording:
    """Ours, through the recorder: encoded, hashed, in the tree."""

    def __init__(self, recorder: ProjectRecorder) -> None:
        self.recorder = recorder

    @classmethod
    def in_file(cls, path: Path) -> Recording:
        """In a store of its own."""
        return cls(ProjectRecorder(open_store(path), PROJECT))

    def fill(self, batches: Iterable[list[Entry]]) -> int:
        """A transaction a batch; how many entries."""
        return sum(len(self.recorder.append_new(codec.encode(batch))) for batch in batches)

    def one_by_one(self, batches: Batches) -> float:
        """The same, measured; entries a second."""
        return rate_of(batches, seconds(lambda: self.fill(batches)))


def appending(folder: Path, sizes: Sizes) -> list[Line]:
    """As entries arrive when workers take slots from the queue."""
    return _against_the_driver(folder, sizes, "append", "in queue order", False, Wanted("at least", 0.8))


def appending_in_no_order(folder: Path, sizes: Sizes) -> list[Line]:
    """The hard case for the disk: every insert goes to some other page of the streams' index."""
    return _against_the_driver(folder, sizes, "append-any-order", "tasks in no order", True, Wanted("at least", 0.8))


def _against_the_driver(folder: Path, sizes: Sizes, name: str, how: str, shuffled: bool, wanted: Wanted) -> list[Line]:
    limit = RawStore(folder / "raw.db")

    def raw(batches: Batches) -> float:
        ready = [limit.ready(codec.encode(batch)) for batch in batches]
        return rate_of(batches, seconds(lambda: [limit.append(batch) for batch in ready]))

    feed = feed_of(sizes, shuffled=shuffled)
    contenders = {
        "append_new": Recording.in_file(folder / "one.db").one_by_one,
        "raw": raw,
    }
    found = in_turns(sizes.rounds, lambda: next(feed), contenders)
    return [_line(found, name, f"append_new, {how}", "append_new", "raw", "sqlite3 executemany", wanted)]


def against_the_library(folder: Path, sizes: Sizes) -> list[Line]:
    """The recorder of eventsourcing-sqlalchemy with the same bytes."""
    ours = Recording.in_file(folder / "ours.db")
    library = LibraryStore(folder / "library.db", ours.recorder.engine)

    def theirs(batches: Batches) -> float:
        ready = [library.ready(codec.encode(batch)) for batch in batches]
        return rate_of(batches, seconds(lambda: [library.recorder.insert_events(batch) for batch in ready]))

    feed = feed_of(sizes)
    found = in_turns(sizes.rounds, lambda: next(feed), {"append_new": ours.one_by_one, "library": theirs})
    what = "append_new, in queue order"
    wanted = Wanted("at least", 5)
    return [_line(found, "library", what, "append_new", "library", "eventsourcing-sqlalchemy", wanted)]


def rate_of(batches: Batches, took_s: float) -> float:
    return sum(map(len, batches)) / took_s


def _line(found: Measured, name: str, what: str, ours: str, other: str, against: str, wanted: Wanted | None) -> Line:
    return Line(
        name, what, "entries/s", found.median(ours), against, found.median(other), found.ratio(ours, other), wanted
    )
