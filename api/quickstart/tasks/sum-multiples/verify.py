"""Grades sum-multiples: the sum is worked out again from the numbers."""

import json
import os
import sys
from pathlib import Path

TASK, WORK, OUTPUT = (Path(os.environ[name]) for name in ("EL_TASK_DIR", "EL_WORK_DIR", "EL_OUTPUT_DIR"))

answer = WORK / "answer.txt"
if not answer.exists():
    print("no answer to grade: answer.txt is missing", file=sys.stderr)
    sys.exit(3)

numbers = [int(line) for line in (TASK / "numbers.txt").read_text().split()]
wanted = sum(number for number in numbers if number % 3 == 0 or number % 5 == 0)
right = answer.read_bytes().strip() == str(wanted).encode()

(OUTPUT / "result.json").write_text(json.dumps({"composite": float(right)}))
(OUTPUT / "reward.txt").write_text(f"{int(right)}\n")
