"""Means over tasks of what the binary trials of each task estimate, and ratios: exact fractions, rounded once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from math import comb

Tasks = dict[int, Counter[int]]  # trials of a task -> passed of them -> how many tasks
Estimate = Callable[[int, int, int], int]  # n trials, c passed, k -> favourable ones of the C(n, k) choices


def count_tasks(tasks: Tasks) -> int:
    """How many tasks there are."""
    return sum(counts.total() for counts in tasks.values())


def any_pass(n: int, c: int, k: int) -> int:
    """Choices of k trials with a pass among them: those of pass@k."""
    return comb(n, k) - comb(n - c, k)


def all_pass(n: int, c: int, k: int) -> int:  # noqa: ARG001 - the form of an Estimate
    """Choices of k trials that all passed: those of pass^k."""
    return comb(c, k)


def mean_over_tasks(tasks: Tasks, ks: Iterable[int], estimate: Estimate) -> dict[str, float]:
    """For each k, the mean over tasks of an estimate; k is at most the n of every task."""
    found = {}
    for k in ks:
        sums = (
            Fraction(sum(count * estimate(n, c, k) for c, count in counts.items()), comb(n, k))
            for n, counts in tasks.items()
        )
        found[str(k)] = float(sum(sums, Fraction(0)) / count_tasks(tasks))
    return found


def powers_of_two(most: int) -> set[int]:
    """2, 4, 8, ... up to the most."""
    return {1 << power for power in range(1, most.bit_length())}


def ratio(total: Fraction | int, count: int) -> float | None:
    """The quotient; None over nothing."""
    return float(Fraction(total) / count) if count else None
