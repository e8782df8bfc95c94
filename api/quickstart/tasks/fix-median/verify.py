"""Grades fix-median: every case is run against the corrected function; the reward is 1 when all hold."""

import json
import os
import runpy
import sys
from pathlib import Path

TASK, WORK, OUTPUT = (Path(os.environ[name]) for name in ("EL_TASK_DIR", "EL_WORK_DIR", "EL_OUTPUT_DIR"))

answer = WORK / "answer.py"
if not answer.exists():
    print("no answer to grade: answer.py is missing", file=sys.stderr)
    sys.exit(3)

cases = json.loads((TASK / "cases.json").read_text())
held = 0
try:
    median = runpy.run_path(str(answer))["median"]
    for numbers, wanted in cases:
        given = list(numbers)
        held += median(given) == wanted and given == numbers
except Exception as error:  # whatever the answer does wrong is a wrong answer, not a broken verifier
    print(f"the answer raised {type(error).__name__}", file=sys.stderr)

share = held / len(cases)
(OUTPUT / "result.json").write_text(json.dumps({"composite": share, "dimensions": {"cases_held": held}}))
(OUTPUT / "reward.txt").write_text(f"{int(held == len(cases))}\n")
