"""What an Inspect log prints of its scores, and whether our formulas give the same."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from api.importers.rewards import reward_of
from api.importers.strict_json import NotFinite
from ledger.facts.catalogue import Scalar
from projections.metrics import Metrics

MEANS = ("accuracy", "mean")
_PASS_AT = re.compile(r"pass_at_(\d{1,4})")


class Metric(msgspec.Struct, frozen=True):
    """One printed number."""

    value: Any = None


class ScoreResult(msgspec.Struct, frozen=True):
    """The metrics of a scorer, or of one key of its values, after the epochs of a sample were reduced to one."""

    name: str
    scorer: str | None = None
    reducer: str | None = None
    metrics: dict[str, Metric] = {}


class Results(msgspec.Struct, frozen=True):
    """`results` of a log."""

    total_samples: int | None = None
    completed_samples: int | None = None
    scores: list[ScoreResult] = []


class Printed(NamedTuple):
    """A printed metric: `key` is of a scorer whose values have keys, `reducer` is named where there are several."""

    scorer: str
    key: str | None
    metric: str
    reducer: str | None
    several: bool
    value: Any

    @property
    def name(self) -> str:
        """`<scorer>.<metric>`, `<scorer>.<key>.<metric>`, with `/<reducer>` where one name would stand for several."""
        parts = [part for part in (self.scorer, self.key, self.metric) if part is not None]
        return ".".join(parts) + (f"/{self.reducer}" if self.several and self.reducer else "")


def printed_in(results: Results) -> Iterator[Printed]:
    """Every metric that the log prints."""
    reducers: dict[tuple[str, str], set[str | None]] = {}
    for score in results.scores:
        reducers.setdefault((score.scorer or score.name, score.name), set()).add(score.reducer)
    for score in results.scores:
        scorer = score.scorer or score.name
        several = len(reducers[scorer, score.name]) > 1
        for metric, printed in score.metrics.items():
            key = None if score.name == scorer else score.name
            yield Printed(scorer, key, metric, score.reducer, several, printed.value)


def as_reported(results: Results) -> Mapping[str, Scalar]:
    """The printed numbers by their names; what is no finite number stays as it was written."""
    found: dict[str, Scalar] = {printed.name: _scalar(printed.value) for printed in printed_in(results)}
    counts = {"total_samples": results.total_samples, "completed_samples": results.completed_samples}
    return found | {name: count for name, count in counts.items() if count is not None}


def differs(results: Results, scorer: str | None, ours: Metrics) -> bool:
    """Whether a printed number that our formulas give too is another than ours.

    These are the count of samples, and the reward's mean or pass@k. Inspect takes the mean of each member's mean.
    """
    if results.total_samples not in (None, ours.score_counts.total):
        return True
    for printed in printed_in(results):
        if printed.scorer != scorer or printed.key is not None or printed.metric not in MEANS:
            continue
        same = _ours(printed.reducer, ours)
        if same is not None and not _equal(printed.value, same.number):
            return True
    return False


class _Same(NamedTuple):
    """Our number of the same meaning; None where it cannot be given."""

    number: float | None


def _ours(reducer: str | None, ours: Metrics) -> _Same | None:
    """None when we have no number of that meaning."""
    if reducer in (None, "mean"):
        return _Same(ours.score)
    at = _PASS_AT.fullmatch(reducer or "")
    if at and 1 <= int(at[1]) <= ours.k:
        return _Same(next((point.pass_at_k for point in ours.curve if point.k == int(at[1])), None))
    return None


def _equal(value: Any, ours: float | None) -> bool:
    number = reward_of(value)
    return isinstance(number, float) and ours is not None and math.isclose(number, ours, rel_tol=1e-9, abs_tol=1e-12)


def _scalar(value: Any) -> Scalar:
    if isinstance(value, NotFinite):
        return value.text
    return value if isinstance(value, str | int | float | bool) else str(value)
