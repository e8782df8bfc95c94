"""Grades match-dates: the expression is tried on every line of both files."""

import json
import os
import re
import sys
from pathlib import Path

TASK, WORK, OUTPUT = (Path(os.environ[name]) for name in ("EL_TASK_DIR", "EL_WORK_DIR", "EL_OUTPUT_DIR"))

answer = WORK / "answer.txt"
if not answer.exists():
    print("no answer to grade: answer.txt is missing", file=sys.stderr)
    sys.exit(3)

try:
    pattern = re.compile(answer.read_text(encoding="utf-8").removesuffix("\n"))
except (ValueError, OverflowError, RecursionError, re.error):
    pattern = re.compile("(?!)")  # an expression that cannot be read matches nothing
dates, others = ((TASK / name).read_text().split() for name in ("dates.txt", "others.txt"))
dimensions = {
    "dates_matched": sum(bool(pattern.fullmatch(line)) for line in dates) / len(dates),
    "others_refused": sum(not pattern.fullmatch(line) for line in others) / len(others),
}
right = dimensions == {"dates_matched": 1, "others_refused": 1}

result = {"composite": min(dimensions.values()), "dimensions": dimensions}
(OUTPUT / "result.json").write_text(json.dumps(result))
(OUTPUT / "reward.txt").write_text(f"{int(right)}\n")
