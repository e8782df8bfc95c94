"""What stands where a number should: a reward, or why there is none. The same for every tool."""

from __future__ import annotations

import math
from typing import Any

from api.importers.run import NoReward
from api.importers.strict_json import NotFinite, to_text


def reward_of(value: Any) -> float | NoReward:
    """A reward as a tool wrote it: every finite number counts, -0.0 and 5e-324 too; nothing else becomes one."""
    if value is None:
        return NoReward("null")
    number = _number(value)
    if number is None:
        return NoReward("not-a-number", to_text(value))
    if math.isfinite(number):
        return number
    return NoReward("not-finite", value.text.encode() if isinstance(value, NotFinite) else to_text(value))


def dimensions_of(value: Any) -> dict[str, float] | bytes | None:
    """Named dimensions as a tool wrote them; what stood there, when it is no map of names to finite numbers."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return to_text(value)
    found: dict[str, float] = {}
    for name, part in value.items():
        number = _number(part)
        if number is None or not math.isfinite(number):
            return to_text(value)
        found[name] = number
    return found


def is_unusable(reward: float | NoReward | None) -> bool:
    """Whether something stood in the reward's place and could not be used."""
    return isinstance(reward, NoReward) and reward.why in ("not-finite", "not-a-number")


def _number(value: Any) -> float | None:
    """A number as a float, infinite where no float holds it; None when it is no number."""
    if isinstance(value, NotFinite):
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
