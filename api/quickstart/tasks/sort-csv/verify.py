"""Grades sort-csv: the table is sorted again and compared row by row."""

import csv
import json
import os
import sys
from pathlib import Path

TASK, WORK, OUTPUT = (Path(os.environ[name]) for name in ("EL_TASK_DIR", "EL_WORK_DIR", "EL_OUTPUT_DIR"))

answer = WORK / "answer.csv"
if not answer.exists():
    print("no answer to grade: answer.csv is missing", file=sys.stderr)
    sys.exit(3)

header, *rows = csv.reader((TASK / "people.csv").read_text(encoding="utf-8").splitlines())
age, name = header.index("age"), header.index("name")
rows.sort(key=lambda row: (int(row[age]), row[name]))
try:
    given = [row for row in csv.reader(answer.read_text(encoding="utf-8").splitlines()) if row]
except (ValueError, csv.Error):
    given = []
wanted = [header, *rows]
in_place = sum(one == other for one, other in zip(wanted, given, strict=False))

result = {"composite": in_place / max(len(wanted), len(given)), "dimensions": {"rows_in_place": in_place}}
(OUTPUT / "result.json").write_text(json.dumps(result))
(OUTPUT / "reward.txt").write_text(f"{int(given == wanted)}\n")
