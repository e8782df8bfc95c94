"""Grades edit-json: the four edits, and that nothing else has changed."""

import json
import os
import sys
from pathlib import Path

TASK, WORK, OUTPUT = (Path(os.environ[name]) for name in ("EL_TASK_DIR", "EL_WORK_DIR", "EL_OUTPUT_DIR"))

answer = WORK / "answer.json"
if not answer.exists():
    print("no answer to grade: answer.json is missing", file=sys.stderr)
    sys.exit(3)

wanted = json.loads((TASK / "config.json").read_text())
wanted["server"] |= {"port": 8443, "tls": True}
wanted["regions"].append("eu-west")
del wanted["debug"]
try:
    given = json.loads(answer.read_bytes())
except (ValueError, RecursionError):
    given = None
parts = given if isinstance(given, dict) else {}
# Compared as JSON text, because Python takes 1 and true for equal.
same = {key: json.dumps(parts.get(key), sort_keys=True) == json.dumps(wanted[key], sort_keys=True) for key in wanted}
right = all(same.values()) and parts.keys() == wanted.keys()

dimensions = {"parts_right": sum(same.values()), "parts_too_many": len(parts.keys() - wanted.keys())}
result = {"composite": sum(same.values()) / len(wanted), "dimensions": dimensions}
(OUTPUT / "result.json").write_text(json.dumps(result))
(OUTPUT / "reward.txt").write_text(f"{int(right)}\n")
