"""How metrics are shown to people: never a rounded number that says more than was measured."""

from projections.metrics import ScoreCounts

GAP = "–"  # no number: not a zero


def percent(value: float | None) -> str:
    """A score as people read it: 0.75 is "75%", 4/7 is "57.1%"; outside [0, 1] it keeps its own scale.

    Only exactly 1 prints as 100%, only exactly 0 as 0%; what would round there prints as ">99.9%" or "<0.1%".
    """
    if value is None:
        return GAP
    if not 0 <= value <= 1:
        return _own_scale(value)
    text = f"{abs(value):.1%}"  # abs: -0.0 is 0
    if text == "100.0%" and value != 1:
        return ">99.9%"
    if text == "0.0%" and value != 0:
        return "<0.1%"
    return text.replace(".0%", "%")


def _own_scale(value: float) -> str:
    """Four decimals at most, unless they would make it look like a score within [0, 1]."""
    rounded = round(value, 4)
    return repr(float(value if 0 <= rounded <= 1 else rounded)).removesuffix(".0")


def coverage(counts: ScoreCounts, k: int) -> str:
    """How much was measured: "5/6 attempts scored, 1 missing, 1 invalid; 2/3 members complete"."""
    parts = [f"{counts.scored:,}/{counts.total:,} attempts scored"]
    if counts.missing:
        parts.append(f"{counts.missing:,} missing")
    if counts.invalid:
        parts.append(f"{counts.invalid:,} invalid")
    if counts.extra:
        parts.append(f"{counts.extra:,} extra beyond k={k}")
    return f"{', '.join(parts)}; {counts.complete_members:,}/{counts.total_members:,} members complete"
