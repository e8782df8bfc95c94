"""Grades word-count: the words are counted again; dimensions say which share was found and which share was right."""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

TASK, WORK, OUTPUT = (Path(os.environ[name]) for name in ("EL_TASK_DIR", "EL_WORK_DIR", "EL_OUTPUT_DIR"))

answer = WORK / "answer.json"
if not answer.exists():
    print("no answer to grade: answer.json is missing", file=sys.stderr)
    sys.exit(3)

counted = Counter(re.findall("[a-z]+", (TASK / "text.txt").read_text().lower()))
wanted = {word: count for word, count in counted.items() if count >= 2}
try:
    given = json.loads(answer.read_bytes())
except (ValueError, RecursionError):
    given = None
pairs = given.items() if isinstance(given, dict) else []
hits = sum(type(count) is int and wanted.get(word) == count for word, count in pairs)

dimensions = {"recall": hits / len(wanted), "precision": hits / len(pairs) if pairs else 0.0}
result = {"composite": min(dimensions.values()), "dimensions": dimensions}
(OUTPUT / "result.json").write_text(json.dumps(result))
(OUTPUT / "reward.txt").write_text(f"{int(hits == len(wanted) == len(pairs))}\n")
