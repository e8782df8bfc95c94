"""Exact tallies: what a member's trials, and a job's members, add up to.

They hold exact sums (a float is a fraction), so adding, replacing and merging give the same tally in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple, Self

import msgspec


class Trial(NamedTuple):
    """What the formulas need of one dispatched trial."""

    reward: float | None
    ended: bool  # succeeded, failed or canceled
    extra: bool = False  # its attempt number is above k


class MemberTally(msgspec.Struct, frozen=True, gc=False):
    """What one member's trials contribute to its job."""

    dispatched: int = 0  # all of them, those beyond k too
    scored: int = 0
    passed: int = 0  # rewards exactly 1
    non_binary: int = 0  # rewards not exactly 0 or 1
    outside_unit: int = 0  # rewards outside [0, 1]
    invalid: int = 0  # ended without a reward
    extra: int = 0  # attempts above k
    reward_sum: Fraction = Fraction(0)


_NO_TRIALS = MemberTally()


def member_tally(trials: Iterable[Trial]) -> MemberTally:
    """Tally one member's dispatched trials, in any order."""
    dispatched = scored = passed = non_binary = outside_unit = invalid = beyond = 0
    numerator, denominator = 0, 1  # of the non-binary rewards; a float's denominator is a power of two
    for reward, ended, extra in trials:
        dispatched += 1
        beyond += extra
        if reward is None:
            invalid += ended
            continue
        scored += 1
        if reward == 1:
            passed += 1
        elif reward != 0:
            non_binary += 1
            outside_unit += not 0 < reward < 1
            top, bottom = reward.as_integer_ratio()
            if bottom > denominator:
                numerator, denominator = numerator * (bottom // denominator), bottom
            numerator += top * (denominator // bottom)
    reward_sum = Fraction(numerator + passed * denominator, denominator) if non_binary else Fraction(passed)
    return MemberTally(dispatched, scored, passed, non_binary, outside_unit, invalid, beyond, reward_sum)


class JobTally(msgspec.Struct):
    """Exact running sums over a job's members: n_m is a member's scored trials, S_m their reward sum."""

    attempts: int  # k
    total_members: int
    dispatched: int = 0
    scored: int = 0
    covered: int = 0  # sum of min(k, n_m): requested slots that have a reward
    extra: int = 0  # trials whose attempt number is above k
    invalid: int = 0
    non_binary: int = 0
    outside_unit: int = 0
    scored_members: int = 0  # members with n_m > 0: the clusters of the interval
    count_squares: int = 0  # sum of n_m^2
    reward_sum: Fraction = Fraction(0)
    sum_squares: Fraction = Fraction(0)  # sum of S_m^2
    sum_products: Fraction = Fraction(0)  # sum of S_m n_m
    passes: dict[int, int] = {}  # passed attempts -> complete members; msgspec copies the {}

    @property
    def complete_members(self) -> int:
        """Members with exactly k trials dispatched, each with a reward."""
        return sum(self.passes.values())

    def replace_member(self, old: MemberTally | None, new: MemberTally | None) -> None:
        """Take a member's old contribution out and put its new one in, exactly. Changes this tally."""
        k, old, new = self.attempts, old or _NO_TRIALS, new or _NO_TRIALS
        self.dispatched += new.dispatched - old.dispatched
        self.scored += new.scored - old.scored
        self.covered += min(k, new.scored) - min(k, old.scored)
        self.extra += new.extra - old.extra
        self.invalid += new.invalid - old.invalid
        self.non_binary += new.non_binary - old.non_binary
        self.outside_unit += new.outside_unit - old.outside_unit
        self.scored_members += (new.scored > 0) - (old.scored > 0)
        self.count_squares += new.scored**2 - old.scored**2
        before, after, unit = _in_one_unit(old.reward_sum, new.reward_sum)
        self.reward_sum = _plus(self.reward_sum, after - before, unit)
        self.sum_squares = _plus(self.sum_squares, after * after - before * before, unit * unit)
        self.sum_products = _plus(self.sum_products, after * new.scored - before * old.scored, unit)
        self._count_complete(old, -1)
        self._count_complete(new, +1)

    def _count_complete(self, member: MemberTally, change: int) -> None:
        if member.dispatched == member.scored == self.attempts:
            count = self.passes.pop(member.passed, 0) + change
            if count:
                self.passes[member.passed] = count

    def merged(self, other: JobTally) -> JobTally:
        """The tally of two disjoint sets of members of one job, as a new tally."""
        if self.attempts != other.attempts:
            raise ValueError(f"tallies of {self.attempts} and {other.attempts} attempts do not add up")
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _SUMS}
        keys = sorted(self.passes.keys() | other.passes.keys())
        passes = {c: self.passes.get(c, 0) + other.passes.get(c, 0) for c in keys}
        return JobTally(attempts=self.attempts, passes=passes, **sums)

    def to_json(self) -> str:
        """Canonical text: equal tallies give equal bytes; fractions as "p/q", the histogram in order."""
        ordered = msgspec.structs.replace(self, passes=dict(sorted(self.passes.items())))
        return msgspec.json.encode(ordered, enc_hook=str).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        return msgspec.json.decode(text, type=cls, dec_hook=_fraction)


_SUMS = tuple(name for name in JobTally.__struct_fields__ if name not in {"attempts", "passes"})


def _fraction(_type: type, text: str) -> Fraction:
    return Fraction(text)


def _in_one_unit(a: Fraction, b: Fraction) -> tuple[int, int, int]:
    """Numerators of both over one denominator: integer sums cost a fraction of what Fraction's own do."""
    unit = math.lcm(a.denominator, b.denominator)
    return a.numerator * (unit // a.denominator), b.numerator * (unit // b.denominator), unit


def _plus(total: Fraction, change: int, unit: int) -> Fraction:
    """total + change / unit."""
    if change == 0:
        return total
    if unit == total.denominator == 1:
        return Fraction(total.numerator + change)
    common = math.lcm(total.denominator, unit)
    return Fraction(total.numerator * (common // total.denominator) + change * (common // unit), common)
