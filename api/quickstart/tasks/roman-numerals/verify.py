"""Grades roman-numerals: each numeral is built again, digit by digit."""

import json
import os
import sys
from pathlib import Path

TASK, WORK, OUTPUT = (Path(os.environ[name]) for name in ("EL_TASK_DIR", "EL_WORK_DIR", "EL_OUTPUT_DIR"))
DIGITS = ("", "a", "aa", "aaa", "ab", "b", "ba", "baa", "baaa", "ac")

answer = WORK / "answer.txt"
if not answer.exists():
    print("no answer to grade: answer.txt is missing", file=sys.stderr)
    sys.exit(3)


def roman(number: int) -> str:
    """A number from 1 to 3,999: each of its four digits in the letters for one, five and ten of its place."""
    numeral = ""
    for digit, letters in zip(f"{number:04}", ("M__", "CDM", "XLC", "IVX"), strict=True):
        numeral += "".join(letters["abc".index(part)] for part in DIGITS[int(digit)])
    return numeral


wanted = [roman(int(line)) for line in (TASK / "numbers.txt").read_text().split()]
given = answer.read_bytes().decode("ascii", "replace").split("\n")[: len(wanted) + 1]
if given and not given[-1]:
    given.pop()
right = sum(one == other for one, other in zip(wanted, given, strict=False))

result = {"composite": right / max(len(wanted), len(given)), "dimensions": {"numerals_right": right}}
(OUTPUT / "result.json").write_text(json.dumps(result))
(OUTPUT / "reward.txt").write_text(f"{int(given == wanted)}\n")
