"""The formulas of `metrics/1`: from trials to exact tallies, from tallies to the numbers people read.

A member's trials make a `MemberTally`, a job's members add up to a `JobTally`, and `measure` turns that into
`Metrics`. Tallies hold exact sums (a float is a fraction), so adding, replacing and merging give the same
tally in any order, and reading costs the same for 10 trials and for 1,000,000. Only `measure` rounds.

A missing reward is never a zero, and a number that cannot be given is None, never 0.
"""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from projections.tally import JobTally, Trial, member_tally

DEFINITION = "metrics/1"

_Z_95 = 1.959963984540054235524594  # normal quantile of 0.975; NormalDist().inv_cdf is one bit off


class ScoreCounts(msgspec.Struct, frozen=True):
    """How much of what was requested was measured."""

    total: int  # members x k, slots never dispatched included
    scored: int
    missing: int  # requested slots without a reward
    invalid: int  # trials that ended without a reward
    total_members: int
    complete_members: int
    extra: int  # trials whose attempt number is above k


class CurvePoint(msgspec.Struct, frozen=True):
    """The k metrics had each member been given this many attempts."""

    k: int
    pass_at_k: float
    pass_hat_k: float


class Interval(msgspec.Struct, frozen=True):
    """A 95% interval around the score, not cut off at 0 or 1."""

    low: float
    high: float
    standard_error: float
    clusters: int  # members with a reward
    method: str = "normal; standard error clustered by member, times sqrt(G/(G-1)) for G clusters"


class Denominators(msgspec.Struct, frozen=True):
    """What each number was averaged over; 0 exactly where the number is null."""

    score: int  # scored attempts
    pass_: int = msgspec.field(name="pass")  # scored attempts
    pass_at_k: int  # complete members
    pass_hat_k: int  # complete members
    curve: int  # complete members
    score_bounds: int  # requested attempts
    interval_95: int  # scored attempts


class Metrics(msgspec.Struct, frozen=True):
    """A job's numbers, with what they cover and what each was averaged over."""

    score: float | None
    pass_: float | None = msgspec.field(name="pass")
    pass_at_k: float | None
    pass_hat_k: float | None
    k: int
    score_counts: ScoreCounts
    curve: list[CurvePoint]
    score_bounds: tuple[float, float] | None
    interval_95: Interval | None
    denominators: Denominators
    definition: str = DEFINITION


def measure(tally: JobTally) -> Metrics:
    """The numbers of one job; None is "cannot be given", never zero."""
    k, scored, complete = tally.attempts, tally.scored, tally.complete_members
    total = tally.total_members * k
    binary = scored > 0 and tally.non_binary == 0
    bounded = scored > 0 and tally.outside_unit == 0 and tally.extra == 0
    missing = total - tally.covered

    score = _mean(tally.reward_sum, scored) if scored else None
    curve = _curve(tally.passes, k) if binary and complete else []
    bounds = (_mean(tally.reward_sum, total), _mean(tally.reward_sum + missing, total)) if bounded else None
    interval = _interval_95(tally)
    complete_used = complete if curve else 0
    return Metrics(
        score=score,
        pass_=score if binary else None,
        pass_at_k=curve[-1].pass_at_k if curve else None,
        pass_hat_k=curve[-1].pass_hat_k if curve else None,
        k=k,
        score_counts=ScoreCounts(
            total=total,
            scored=scored,
            missing=missing,
            invalid=tally.invalid,
            total_members=tally.total_members,
            complete_members=complete,
            extra=tally.extra,
        ),
        curve=curve,
        score_bounds=bounds,
        interval_95=interval,
        denominators=Denominators(
            score=scored,
            pass_=scored if binary else 0,
            pass_at_k=complete_used,
            pass_hat_k=complete_used,
            curve=complete_used,
            score_bounds=total if bounds else 0,
            interval_95=scored if interval else 0,
        ),
    )


def measure_trials(attempts: int, total_members: int, members: Mapping[str, Iterable[Trial]]) -> Metrics:
    """The same numbers straight from the trials of each member; members without trials may be left out."""
    tally = JobTally(attempts, total_members)
    for trials in members.values():
        tally.replace_member(None, member_tally(trials))
    return measure(tally)


def _mean(reward_sum: Fraction, count: int) -> float:
    """`math.fsum(rewards) / count`: the exact sum rounded once, then divided."""
    try:
        return float(reward_sum) / count
    except OverflowError:  # the sum is no float; the mean of floats always is
        return float(reward_sum / count)


def _curve(passes: Mapping[int, int], k: int) -> list[CurvePoint]:
    """pass@j and pass^j for j = 1..k: the mean over complete members of the unbiased estimators.

    For n trials (here k) of which c passed: pass@j = 1 - C(n-c, j) / C(n, j), Chen et al. 2021, "Evaluating
    Large Language Models Trained on Code", arXiv:2107.03374; pass^j = C(c, j) / C(n, j), Yao et al. 2024,
    "tau-bench", arXiv:2406.12045.
    """
    by_passed = [passes.get(c, 0) for c in range(k + 1)]
    complete = sum(by_passed)
    all_pass, none_pass = _choices(by_passed), _choices(by_passed[::-1])
    points = []
    for j in range(1, k + 1):
        choices = complete * math.comb(k, j)  # int / int is correctly rounded
        points.append(CurvePoint(j, (choices - none_pass[j]) / choices, all_pass[j] / choices))
    return points


def _choices(counts: list[int]) -> list[int]:
    """For every j, the sum over c of counts[c] * C(c, j).

    These are the coefficients of the sum of counts[c] * (1+x)^c, found by Horner's rule with additions only;
    a curve for k = 1,000 would otherwise need a million large binomials.
    """
    row: list[int] = []
    for count in reversed(counts):
        row = [kept + moved for kept, moved in zip([*row, 0], [count, *row], strict=True)]
    return row


def _interval_95(tally: JobTally) -> Interval | None:
    """The score's 95% interval; its error is clustered by member, whose attempts are not independent.

    SE^2 = G/(G-1) * (1/n^2) * sum over members of (sum of (reward - mean))^2, from exact sums: Miller 2024,
    "Adding Error Bars to Evals", arXiv:2411.00640, with the factor for few clusters of Cameron and Miller
    2015, "A Practitioner's Guide to Cluster-Robust Inference". With one attempt per member it is the usual
    standard error of a mean. None below two clusters, when all members agree (no spread to judge by), or when
    a bound is too large for a float.
    """
    clusters = tally.scored_members
    if clusters < 2:
        return None
    mean = tally.reward_sum / tally.scored
    spread = tally.sum_squares - 2 * mean * tally.sum_products + mean**2 * tally.count_squares
    if spread == 0:
        return None
    try:
        error = _square_root(spread * Fraction(clusters, (clusters - 1) * tally.scored**2))
        reach = Fraction(_Z_95 * error)
        return Interval(float(mean - reach), float(mean + reach), error, clusters)
    except OverflowError:
        return None


def _square_root(value: Fraction) -> float:
    """The correctly rounded root, also where the value itself is outside a float's range.

    As in CPython's statistics module: an integer root of at least 54 bits whose last bit is set when it is
    inexact, so the final division rounds as the true root would.
    """
    top, bottom = value.numerator, value.denominator
    shift = (top.bit_length() - bottom.bit_length() - 109) // 2
    if shift >= 0:
        bottom <<= 2 * shift
    else:
        top <<= -2 * shift
    root = math.isqrt(top // bottom)
    root |= root * root * bottom != top
    return root / (1 << -shift) if shift < 0 else float(root << shift)
