"""Grades find-the-bug: the line named must be the one that forgets ten of an article."""

import json
import os
import sys
from pathlib import Path

TASK, WORK, OUTPUT = (Path(os.environ[name]) for name in ("EL_TASK_DIR", "EL_WORK_DIR", "EL_OUTPUT_DIR"))
WRONG = b"if count > 10:"

answer = WORK / "answer.txt"
if not answer.exists():
    print("no answer to grade: answer.txt is missing", file=sys.stderr)
    sys.exit(3)

lines = (TASK / "basket.py").read_bytes().splitlines()
given = answer.read_bytes().strip()
named = lines[int(given) - 1] if given.isdigit() and len(given) < 4 and 1 <= int(given) <= len(lines) else b""
right = named.strip() == WRONG

(OUTPUT / "result.json").write_text(json.dumps({"composite": float(right)}))
(OUTPUT / "reward.txt").write_text(f"{int(right)}\n")
