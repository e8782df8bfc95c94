"""How things are measured: in turns, many times, medians of rates and of the ratios within a round."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Literal, NamedTuple, TypeVar

Work = TypeVar("Work")


class Sizes(NamedTuple):
    """How much is measured. Everything follows from the entries appended over all rounds, `entries`."""

    entries: int
    rounds: int

    @property
    def in_transaction(self) -> int:
        """Entries of one transaction: 1,000, except in tiny runs that only try the benchmark out."""
        return min(1_000, max(10, self.entries // (self.rounds * 2)))

    @property
    def transactions(self) -> int:
        """Transactions of one round."""
        return max(2, self.entries // (self.rounds * self.in_transaction))

    @property
    def in_round(self) -> int:
        """Entries of one round."""
        return self.transactions * self.in_transaction


class Wanted(NamedTuple):
    """The bound that a ratio has to keep."""

    side: Literal["at least", "at most"]
    bound: float

    def held(self, ratio: float) -> bool:
        """Whether a ratio keeps it."""
        return ratio >= self.bound if self.side == "at least" else ratio <= self.bound

    def __str__(self) -> str:
        return f"{self.side} {self.bound:g}"


class Line(NamedTuple):
    """One line of the table: what was measured, against what, and what is wanted of the ratio (None: nothing)."""

    name: str
    what: str
    unit: Literal["entries/s", "tasks/s", "rows/s", "requests/s", "ms", "MB"]
    ours: float
    against: str = ""
    other: float | None = None
    ratio: float | None = None
    wanted: Wanted | None = None

    @property
    def verdict(self) -> str:
        """Held, missed, or nothing where nothing is wanted."""
        if self.wanted is None or self.ratio is None:
            return ""
        return "held" if self.wanted.held(self.ratio) else "missed"


class Measured(NamedTuple):
    """What each contender reached, round by round, in the same order of rounds."""

    rounds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        """The median of a contender's rates (or times)."""
        return median(self.rounds[name])

    def ratio(self, name: str, other: str) -> float:
        """The median of the ratios within each round: what slows a whole round down cancels out."""
        return median(a / b for a, b in zip(self.rounds[name], self.rounds[other], strict=True))


def in_turns(
    rounds: int, feed: Callable[[], Work], contenders: Mapping[str, Callable[[Work], float]], *, in_order: bool = False
) -> Measured:
    """Give every contender the same work in each round; the first round only warms up.

    Another one begins each time, unless they build on each other and go `in_order`.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        work = feed()
        first = 0 if in_order else number % len(names)
        for name in names[first:] + names[:first]:
            value = contenders[name](work)
            if number > 0:
                found[name].append(value)
    return Measured(found)


def seconds(do: Callable[[], object]) -> float:
    """How long a call takes. The collector runs during it as it does in production, but owes nothing from before."""
    gc.collect()
    start = perf_counter()
    do()
    return perf_counter() - start


def seconds_each(do: Callable[[], object], times: int) -> float:
    """The median of how long a short call takes, over many of them in a row."""
    gc.collect()
    took_s = []
    for _ in range(times):
        start = perf_counter()
        do()
        took_s.append(perf_counter() - start)
    return median(took_s)
