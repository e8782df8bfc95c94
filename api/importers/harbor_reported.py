"""The numbers that Harbor printed, under clear names, and whether they differ from ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from api.importers.harbor_documents import Eval, Stats
from api.importers.harbor_trial import Key
from api.importers.strict_json import NotFinite
from ledger.facts.catalogue import Scalar
from projections.metrics import Metrics

ROUNDING = 1e-9  # Harbor adds floats in its own order
SAFE_INTEGER = 2**53


def as_reported(key: Key, agent_version: str | None, printed: Eval | None, of_job: Stats | None) -> dict[str, Scalar]:
    """What Harbor said of one agent, model and source; `of_job` too where they are all that the job ran."""
    found: dict[str, Any] = {
        "agent": key.agent,
        "agent_version": agent_version,
        "model": key.model,
        "source": key.source,
    }
    if printed:
        found |= {"n_trials": printed.n_trials, "n_errors": printed.n_errors}
        for name, value in _metrics(printed):
            found[name if name not in found else _free(name, found)] = value
        found |= {f"pass@{k}": value for k, value in printed.pass_at_k.items()}
    if of_job:
        names = ("n_cancelled_trials", "n_retries", "n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")
        found |= {name: getattr(of_job, name) for name in names}
    return {name: scalar for name, value in found.items() if (scalar := _scalar(value)) is not None}


def differs(printed: Eval, ours: Metrics) -> bool:
    """Whether a printed mean or pass@k is not what our formulas give of the same trials.

    A mean is called `mean`, or `reward` where the trials have several numbers; then it may be of another metric, unless
    it is the only one.
    """
    means = [value for name, value in _metrics(printed) if name == "mean" or (name == "reward" and _is_only(printed))]
    curve = {str(point.k): point.pass_at_k for point in ours.curve}
    pairs = [(value, ours.score) for value in means]
    pairs += [(value, curve.get(k)) for k, value in printed.pass_at_k.items()]
    return any(not _equal(value, other) for value, other in pairs)


def _metrics(printed: Eval) -> Iterator[tuple[str, Any]]:
    for metric in printed.metrics:
        yield from metric.items()


def _is_only(printed: Eval) -> bool:
    return len(printed.metrics) == 1


def _free(name: str, taken: Mapping[str, Any]) -> str:
    number = 2
    while f"{name} ({number})" in taken:
        number += 1
    return f"{name} ({number})"


def _scalar(value: Any) -> Scalar | None:
    """A value as a fact can hold it; a number that no float holds as it was written."""
    if isinstance(value, NotFinite):
        return value.text
    if isinstance(value, int) and abs(value) > SAFE_INTEGER:
        return str(value)
    return value if isinstance(value, str | int | float | bool) else None


def _equal(value: Any, ours: float | None) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or ours is None:
        return False
    return math.isclose(value, ours, rel_tol=ROUNDING, abs_tol=ROUNDING)
