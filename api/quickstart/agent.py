"""The scripted agent of the quickstart: it solves the tasks by computing, except where its style has it err.

Run as `python -I -m api.quickstart.agent` in a trial: it reads EL_TASK, EL_ATTEMPT, EL_TASK_DIR, EL_WORK_DIR and the
parameters AGENT_STYLE, MODEL_NAME and MODEL_API_KEY from its environment, and writes its answer into the work folder.
Nothing else decides what it does, so every run of the quickstart comes to the same result.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

Mistake = Literal["wrong", "crash", "stall"]

# By style: what goes wrong in which attempt at which task. Everything else, also beyond two attempts, is solved.
MISTAKES: Mapping[str, Mapping[tuple[str, int], Mistake]] = {
    "hasty": {
        ("fix-median", 1): "wrong",
        ("sort-csv", 1): "wrong",
        ("find-the-bug", 1): "wrong",
        ("find-the-bug", 2): "wrong",
        ("match-dates", 1): "crash",
        ("roman-numerals", 1): "stall",
    },
    "careful": {("find-the-bug", 1): "wrong"},
}
STALL_S = 60.0

ROMAN = {
    "M": 1000,
    "CM": 900,
    "D": 500,
    "CD": 400,
    "C": 100,
    "XC": 90,
    "L": 50,
    "XL": 40,
    "X": 10,
    "IX": 9,
    "V": 5,
    "IV": 4,
    "I": 1,
}

Answer = tuple[str, str]  # the file's name and its text
Solver = Callable[[Path, bool], Answer]  # the task's folder, and whether to do it right


def sum_multiples(task: Path, _right: bool) -> Answer:
    """The sum of the multiples of 3 or 5."""
    numbers = [int(line) for line in (task / "numbers.txt").read_text().split()]
    return "answer.txt", str(sum(n for n in numbers if n % 3 == 0 or n % 5 == 0))


def fix_median(task: Path, right: bool) -> Answer:
    """The mean of the two in the middle; in a hurry, always of the upper one and its neighbour."""
    mended = "(ordered[middle] + ordered[~middle]) / 2" if right else "(ordered[middle] + ordered[middle - 1]) / 2"
    old = "    return sorted(numbers)[middle]\n"
    new = f"    ordered = sorted(numbers)\n    return {mended}\n"
    return "answer.py", (task / "median.py").read_text().replace(old, new)


def word_count(task: Path, _right: bool) -> Answer:
    """The words that occur at least twice."""
    counted = Counter(re.findall("[a-z]+", (task / "text.txt").read_text().lower()))
    return "answer.json", json.dumps({word: count for word, count in counted.items() if count > 1})


def sort_csv(task: Path, right: bool) -> Answer:
    """The rows by age; in a hurry, by age as text."""
    rows = list(csv.DictReader((task / "people.csv").read_text(encoding="utf-8").splitlines()))
    rows.sort(key=lambda row: (int(row["age"]), row["name"]) if right else (row["age"], row["name"]))
    table = io.StringIO()
    writer = csv.DictWriter(table, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return "answer.csv", table.getvalue()


def edit_json(task: Path, _right: bool) -> Answer:
    """The configuration with its four edits."""
    config = json.loads((task / "config.json").read_text())
    config["server"].update(port=8443, tls=True)
    config["regions"].append("eu-west")
    del config["debug"]
    return "answer.json", json.dumps(config, indent=2)


def find_the_bug(task: Path, right: bool) -> Answer:
    """The line of the comparison that leaves ten out; in a hurry, the first comparison that looks suspicious."""
    suspicious = "count > 10" if right else ">="
    lines = (task / "basket.py").read_text().splitlines()
    return "answer.txt", str(next(number for number, line in enumerate(lines, 1) if suspicious in line))


def roman_numerals(task: Path, _right: bool) -> Answer:
    """Each number as a Roman numeral."""
    numerals = []
    for line in (task / "numbers.txt").read_text().split():
        rest, numeral = int(line), ""
        for letters, value in ROMAN.items():
            numeral += letters * (rest // value)
            rest %= value
        numerals.append(numeral)
    return "answer.txt", "\n".join(numerals)


def match_dates(_task: Path, _right: bool) -> Answer:
    """An expression for the dates."""
    return "answer.txt", r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"


SOLVERS: Mapping[str, Solver] = {
    "sum-multiples": sum_multiples,
    "fix-median": fix_median,
    "word-count": word_count,
    "sort-csv": sort_csv,
    "edit-json": edit_json,
    "find-the-bug": find_the_bug,
    "roman-numerals": roman_numerals,
    "match-dates": match_dates,
}


def main() -> None:
    """One attempt at one task."""
    task, attempt = os.environ["EL_TASK"], int(os.environ["EL_ATTEMPT"])
    mistake = MISTAKES[os.environ["AGENT_STYLE"]].get((task, attempt))
    # As a careless HTTP library logs it: what the ledger keeps of this line shows `[secret]` for the key.
    print(f"POST /v1/messages model={os.environ['MODEL_NAME']} x-api-key={os.environ['MODEL_API_KEY']}")
    print(f"{task}: attempt {attempt}", flush=True)
    if mistake == "crash":
        raise ConnectionResetError("the model closed the connection before it answered")
    name, text = SOLVERS[task](Path(os.environ["EL_TASK_DIR"]), mistake != "wrong")
    (Path(os.environ["EL_WORK_DIR"]) / name).write_text(text.rstrip() + "\n", encoding="utf-8")
    if mistake == "stall":
        print("answered; waiting for the model to confirm", flush=True)
        time.sleep(STALL_S)
    print(f"wrote {name}")


if __name__ == "__main__":
    main()
