"""A second, slow way to a job's numbers that shares no formula with `projections.metrics`.

Every mean is taken over the rewards themselves, as Fractions, and an estimator is what it stands for: the share
of all subsets of j attempts that hold a pass, or nothing but passes.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations
from typing import Any

from projections.tally import Trial

Z_95 = float("1.95996398454005423552")


def reference(attempts: int, total_members: int, members: Mapping[str, Sequence[Trial]]) -> dict[str, Any]:
    """What `measure_trials` must say, as the plain values of its JSON."""
    k = attempts
    rewards = {m: [Fraction(t.reward) for t in trials if t.reward is not None] for m, trials in members.items()}
    every = [reward for of_member in rewards.values() for reward in of_member]
    complete = [rewards[m] for m in members if len(members[m]) == k == len(rewards[m])]
    absent = total_members - len(members)
    extra = sum(t.extra for trials in members.values() for t in trials)
    missing = absent * k + sum(max(0, k - len(of_member)) for of_member in rewards.values())
    total = total_members * k
    binary = bool(every) and set(every) <= {Fraction(0), Fraction(1)}
    score = rounded_mean(every, len(every)) if every else None
    bounds = None
    if every and extra == 0 and all(0 <= reward <= 1 for reward in every):
        bounds = [rounded_mean(every, total), rounded_mean(every + [Fraction(1)] * missing, total)]
    curve = []
    if binary and complete:
        for j in range(1, k + 1):
            any_pass = [share([max(s) == 1 for s in combinations(of_member, j)]) for of_member in complete]
            all_pass = [share([min(s) == 1 for s in combinations(of_member, j)]) for of_member in complete]
            point = {"pass_at_k": mean(any_pass), "pass_hat_k": mean(all_pass)}
            curve.append({"k": j} | point)
    interval = interval_95([of_member for of_member in rewards.values() if of_member])
    over_complete = len(complete) if curve else 0
    return {
        "score": score,
        "pass": score if binary else None,
        "pass_at_k": curve[-1]["pass_at_k"] if curve else None,
        "pass_hat_k": curve[-1]["pass_hat_k"] if curve else None,
        "k": k,
        "score_counts": {
            "total": total,
            "scored": len(every),
            "missing": missing,
            "invalid": sum(t.reward is None and t.ended for trials in members.values() for t in trials),
            "total_members": total_members,
            "complete_members": len(complete),
            "extra": extra,
        },
        "curve": curve,
        "score_bounds": bounds,
        "interval_95": interval,
        "denominators": {
            "score": len(every),
            "pass": len(every) if binary else 0,
            "pass_at_k": over_complete,
            "pass_hat_k": over_complete,
            "curve": over_complete,
            "score_bounds": total if bounds else 0,
            "interval_95": len(every) if interval else 0,
        },
        "definition": "metrics/1",
    }


def rounded_mean(rewards: Sequence[Fraction], count: int) -> float:
    """The float sum divided by the count, or the exact mean where the sum is too large for a float."""
    try:
        return float(sum(rewards, Fraction(0))) / count
    except OverflowError:
        return float(sum(rewards, Fraction(0)) / count)


def mean(values: Sequence[Fraction]) -> float:
    return float(sum(values, Fraction(0)) / len(values))


def share(outcomes: Sequence[bool]) -> Fraction:
    return Fraction(sum(outcomes), len(outcomes))


def interval_95(clusters: Sequence[Sequence[Fraction]]) -> dict[str, Any] | None:
    """The clustered interval from each reward's distance to the mean; the root taken with 1,500 digits."""
    if len(clusters) < 2:
        return None
    count = sum(len(cluster) for cluster in clusters)
    centre = sum((reward for cluster in clusters for reward in cluster), Fraction(0)) / count
    residuals = [sum((reward - centre for reward in cluster), Fraction(0)) for cluster in clusters]
    variance = (
        sum((r * r for r in residuals), Fraction(0)) / Fraction(count**2) * Fraction(len(clusters), len(clusters) - 1)
    )
    if variance == 0:
        return None
    with localcontext(prec=1500, Emin=-9999, Emax=9999):
        root = (Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt()
        error = float(root)
    try:
        reach = Fraction(Z_95 * error)
        low, high = float(centre - reach), float(centre + reach)
    except OverflowError:
        return None
    return {
        "low": low,
        "high": high,
        "standard_error": error,
        "clusters": len(clusters),
        "method": "normal; standard error clustered by member, times sqrt(G/(G-1)) for G clusters",
    }
