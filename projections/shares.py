"""What a member is to each metric: what it adds, or why it is left out; and the formula in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ledger.errors import BadInput
from projections.job_metrics import Attempt
from projections.metrics import Metrics


class Share(NamedTuple):
    """What one member adds to the numerator; or why it is left out."""

    adds: float | None
    why_not: str | None


class Explained(NamedTuple):
    """A metric as it is explained: its formula, its denominator, its value, and each member's share in it."""

    formula: str
    denominator_of: str
    denominator: Callable[[Metrics], int]
    value: Callable[[Metrics], float | tuple[float, float] | None]
    share: Callable[[Sequence[Attempt], int], Share]
    why_null: Callable[[Metrics], str]


def _scored(attempts: Sequence[Attempt], _k: int) -> Share:
    rewards = [attempt.reward for attempt in attempts if attempt.reward is not None]
    if not rewards:
        return Share(None, "no attempt has a reward" if attempts else "never dispatched")
    return Share(sum(rewards), None)


def _incomplete(attempts: Sequence[Attempt], k: int) -> str | None:
    """Why a member is not complete: a complete one has exactly k trials, each with a reward."""
    if not attempts:
        return "never dispatched"
    if len(attempts) != k:
        return "fewer attempts dispatched than asked for" if len(attempts) < k else "more attempts than asked for"
    return "an attempt has no reward" if any(attempt.reward is None for attempt in attempts) else None


def _any_pass(attempts: Sequence[Attempt], k: int) -> Share:
    why_not = _incomplete(attempts, k)
    return Share(None if why_not else float(any(attempt.reward == 1 for attempt in attempts)), why_not)


def _all_pass(attempts: Sequence[Attempt], k: int) -> Share:
    why_not = _incomplete(attempts, k)
    return Share(None if why_not else float(all(attempt.reward == 1 for attempt in attempts)), why_not)


def _missing(attempts: Sequence[Attempt], k: int) -> Share:
    return Share(float(max(0, k - sum(attempt.reward is not None for attempt in attempts))), None)


def _why_not_binary(metrics: Metrics) -> str:
    return "a scored reward is neither 0 nor 1" if metrics.score_counts.scored else "nothing is scored"


def _why_no_k(metrics: Metrics) -> str:
    return "no member is complete" if metrics.pass_ is not None else _why_not_binary(metrics)


def _why_unbounded(metrics: Metrics) -> str:
    if metrics.score_counts.extra:
        return "attempts beyond k were dispatched"
    return "a scored reward lies outside [0, 1]" if metrics.score_counts.scored else "nothing is scored"


METRICS = {
    "score": Explained(
        "math.fsum(rewards) / n: the mean of every numeric reward",
        "scored attempts",
        lambda m: m.denominators.score,
        lambda m: m.score,
        _scored,
        lambda _: "nothing is scored",
    ),
    "pass": Explained(
        "the mean of every numeric reward, when each is exactly 0 or 1",
        "scored attempts",
        lambda m: m.denominators.pass_,
        lambda m: m.pass_,
        _scored,
        _why_not_binary,
    ),
    "pass_at_k": Explained(
        "complete members with at least one reward of 1 / complete members",
        "complete members",
        lambda m: m.denominators.pass_at_k,
        lambda m: m.pass_at_k,
        _any_pass,
        _why_no_k,
    ),
    "pass_hat_k": Explained(
        "complete members whose every reward is 1 / complete members",
        "complete members",
        lambda m: m.denominators.pass_hat_k,
        lambda m: m.pass_hat_k,
        _all_pass,
        _why_no_k,
    ),
    "score_bounds": Explained(
        "[sum / total, (sum + missing) / total]: were every missing reward 0, or 1",
        "requested attempts",
        lambda m: m.denominators.score_bounds,
        lambda m: m.score_bounds,
        _scored,
        _why_unbounded,
    ),
    "missing": Explained(
        "sum over members of max(0, k - scored)",
        "requested attempts",
        lambda m: m.score_counts.total,
        lambda m: float(m.score_counts.missing),
        _missing,
        lambda _: "",
    ),
}

_OF_K = re.compile(r"pass([@^])([0-9]{1,9}|k)")


def shown_name(metric: str, k: int) -> str:
    """A metric under the name that a job's result shows it by."""
    return {"pass_at_k": f"pass@{k}", "pass_hat_k": f"pass^{k}", "score_bounds": "bounds"}.get(metric, metric)


def metric_named(text: str, k: int) -> str:
    """The metric of METRICS that a text names, by its own name or by the one shown for a job of k attempts.

    Raises:
        BadInput: there is no such metric; names those there are.
    """
    for metric in METRICS:
        if text in (metric, shown_name(metric, k), shown_name(metric, k).replace(str(k), "k")):
            return metric
    if of_k := _OF_K.fullmatch(text):
        raise BadInput(f"A job of k = {k} is explained by pass{of_k[1]}{k}, not by {text}.")
    raise BadInput(f"There is no metric {text[:80]!r} to explain; there are {', '.join(METRICS)}.")
