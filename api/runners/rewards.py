"""The reward a verifier left, read strictly: a finite number, or why there is none."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from api.forms.document import RepeatedKey, unique_keys
from ledger.errors import BadInput
from ledger.facts.trial import WhyNoReward
from ledger.rules.forms import checked_text
from ledger.rules.trial import DIMENSIONS_MAX

REWARD_BYTES_MAX = 64 * 1024
REWARD_FILES = ("reward.txt", "reward.json")

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


class Reward(msgspec.Struct, frozen=True):
    """A finite `value`, or `why` there is none; and the other named numbers of the same file."""

    value: float | None = None
    why: WhyNoReward | None = None
    dimensions: dict[str, float] = {}


def read_reward(files: Mapping[str, bytes]) -> Reward:
    """The reward in the files that are there: `reward.txt` (a number) and `reward.json`.

    `reward.json` is a number, or an object: its only key is the reward, whatever its name; of several keys only
    `reward` is, and the other numbers are dimensions. Two files must say the same. A file above REWARD_BYTES_MAX is
    not a number.
    """
    found = [_read(name, files[name]) for name in REWARD_FILES if name in files]
    if not found:
        return Reward(why="not-reported")
    first, last = found[0], found[-1]  # dimensions stand in reward.json, the last
    if (first.value, first.why) != (last.value, last.why):
        return Reward(why="conflicting", dimensions=last.dimensions)
    return last


def finite_numbers(named: Mapping[str, Any]) -> dict[str, float]:
    """Those of the named values that can be dimensions: finite numbers under a name that a fact can hold."""
    found: dict[str, float] = {}
    for name, value in named.items():
        number = _of_value(value).value
        if number is not None and is_dimension_name(name) and len(found) < DIMENSIONS_MAX:
            found[name] = number
    return found


def is_dimension_name(name: str) -> bool:
    """Whether a fact can hold the name of a dimension."""
    try:
        checked_text(name, what="dimension name", chars_max=200)
    except BadInput:
        return False
    return True


def _read(name: str, data: bytes) -> Reward:
    if len(data) > REWARD_BYTES_MAX:
        return Reward(why="not-a-number")
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return Reward(why="not-a-number")
    return _of_json(text) if name.endswith(".json") else _of_text(text)


def _of_text(text: str) -> Reward:
    if _NUMBER.fullmatch(text):
        return _of_value(float(text))
    if _NOT_FINITE.fullmatch(text):
        return Reward(why="not-finite")
    return Reward(why="null" if text == "null" else "not-a-number")


def _of_json(text: str) -> Reward:
    try:
        # Whole numbers as floats too: Python refuses to read those of very many digits.
        found = json.loads(text, parse_int=float, object_pairs_hook=unique_keys)
    except RepeatedKey:
        return Reward(why="conflicting")
    except (ValueError, RecursionError):
        return Reward(why="not-a-number")
    if not isinstance(found, dict):
        return _of_value(found)
    if len(found) == 1:
        return _of_value(*found.values())
    others = finite_numbers({name: value for name, value in found.items() if name != "reward"})
    if "reward" not in found:
        return Reward(why="no-reward-key", dimensions=others)
    return msgspec.structs.replace(_of_value(found["reward"]), dimensions=others)


def _of_value(value: object) -> Reward:
    if value is None:
        return Reward(why="null")
    if not isinstance(value, float):
        return Reward(why="not-a-number")
    return Reward(value) if math.isfinite(value) else Reward(why="not-finite")
