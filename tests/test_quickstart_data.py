"""Promises of the quickstart's files: each attempt comes to what it is there to show, and the verifiers do check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from api.forms.dataset import read_dataset
from api.forms.profile import read_profile
from api.forms.runner import read_runner
from api.quickstart import PROFILE, PROFILE_CAREFUL, RUNNER, TASKS
from api.quickstart.agent import MISTAKES, SOLVERS
from ledger.facts.catalogue import ProfilePublished, Step
from ledger.rules.catalogue import publish_runner
from ledger.rules.job import effective_parameters

NAMES = sorted(SOLVERS)
STYLE = {"hasty": PROFILE, "careful": PROFILE_CAREFUL}

# What an attempt shows: how the agent ends ("timeout", or its exit code), the reward (None: none), the composite.
Outcome = tuple[int | str, str | None, float | None]
SOLVED: Outcome = (0, "1\n", 1.0)
HASTY: Mapping[tuple[str, int], Outcome] = {
    ("fix-median", 1): (0, "0\n", 0.75),
    ("sort-csv", 1): (0, "0\n", 0.1),
    ("find-the-bug", 1): (0, "0\n", 0.0),
    ("find-the-bug", 2): (0, "0\n", 0.0),
    ("match-dates", 1): (1, None, None),
    ("roman-numerals", 1): ("timeout", "1\n", 1.0),
}
CAREFUL: Mapping[tuple[str, int], Outcome] = {("find-the-bug", 1): (0, "0\n", 0.0)}


class Ended(NamedTuple):
    """How a process ended: its exit code or "timeout", and what it wrote."""

    code: int | str
    text: str


def run(step: Step, root: Path, task: str, attempt: int = 1, style: str = "hasty") -> Ended:
    """One step of the runner, in the environment that a trial gives it."""
    places = {"python": sys.executable, "task": str(TASKS / task), "work": str(root / "work")}
    for name in ("work", "output"):
        (root / name).mkdir(exist_ok=True)
    _, params, secrets = read_profile(STYLE[style])
    environment = {
        "PATH": os.environ["PATH"],
        **{name: str(value) for name, value in params.items()},
        **secrets,
        "EL_TASK": task,
        "EL_ATTEMPT": str(attempt),
        "EL_TASK_DIR": str(TASKS / task),
        "EL_WORK_DIR": str(root / "work"),
        "EL_OUTPUT_DIR": str(root / "output"),
    }
    try:
        done = subprocess.run(
            [argument.format(**places) for argument in step.command],
            cwd=root / "work",
            env=environment,
            timeout=step.timeout_s,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Ended("timeout", (error.stdout or b"").decode())
    return Ended(done.returncode, done.stdout)


def agent() -> Step:
    step = read_runner(RUNNER).agent
    assert step
    return step


def verifier() -> Step:
    step = read_runner(RUNNER).verifier
    assert step
    return step


def graded(root: Path, task: str) -> tuple[int | str, str | None, float | None]:
    """The verifier's exit code, and the reward and composite that it left."""
    ended = run(verifier(), root, task)
    reward, result = root / "output" / "reward.txt", root / "output" / "result.json"
    composite = json.loads(result.read_text())["composite"] if result.exists() else None
    return ended.code, reward.read_text() if reward.exists() else None, composite


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("task", NAMES)
@pytest.mark.parametrize(("style", "intended"), [("hasty", HASTY), ("careful", CAREFUL)], ids=["hasty", "careful"])
def test_each_attempt_comes_to_what_it_is_there_to_show(
    tmp_path: Path, style: str, intended: Mapping[tuple[str, int], Outcome], task: str, attempt: int
) -> None:
    """Solved, wrong, no reward after a crash, and a reward after a timeout: each in its place, and nowhere else."""
    ends, reward, composite = intended.get((task, attempt), SOLVED)
    ended = run(agent(), tmp_path, task, attempt, style)
    assert ended.code == ends, ended.text
    assert graded(tmp_path, task) == (3 if reward is None else 0, reward, composite)


def test_every_signal_is_shown_once_at_least() -> None:
    """The script plans nothing but what is tested here, and between them the attempts show every signal."""
    assert {style: set(plan) for style, plan in MISTAKES.items()} == {"hasty": set(HASTY), "careful": set(CAREFUL)}
    assert set(MISTAKES["hasty"].values()) == {"wrong", "crash", "stall"}


def test_an_attempt_beyond_the_second_is_solved(tmp_path: Path) -> None:
    """A retry of the crashed attempt, which is number 3, gets its reward."""
    assert run(agent(), tmp_path, "match-dates", 3).code == 0
    assert graded(tmp_path, "match-dates") == (0, "1\n", 1.0)


@pytest.mark.parametrize("task", NAMES)
def test_no_answer_is_no_reward_and_a_wrong_one_is_zero(tmp_path: Path, task: str) -> None:
    """Without an answer there is nothing to grade; whatever nonsense stands in an answer, it gets its zero."""
    assert graded(tmp_path, task) == (3, None, None)
    name = answer_name(task)
    for nonsense in (
        b"",
        b"\n",
        b"\xff\xfe\0",
        b"[" * 100_000,
        b"null",
        b"0",
        b"9" * 5_000,
        b"a,b\n1",
        b"raise",
        b'"\n',
    ):
        (tmp_path / "work" / name).write_bytes(nonsense)
        code, reward, composite = graded(tmp_path, task)
        assert (code, reward) == (0, "0\n"), nonsense[:20]
        assert composite is not None
        assert 0 <= composite < 1


@pytest.mark.parametrize("task", NAMES)
def test_an_answer_to_a_changed_task_is_wrong(tmp_path: Path, task: str) -> None:
    """Sabotage: the right answer less its last letters gets no reward, so the verifiers do compare."""
    assert run(agent(), tmp_path, task, 3).code == 0
    answer = tmp_path / "work" / answer_name(task)
    assert graded(tmp_path, task) == (0, "1\n", 1.0)
    answer.write_bytes(answer.read_bytes().rstrip()[:-2])
    assert graded(tmp_path, task)[:2] == (0, "0\n")


def test_the_files_are_what_the_product_reads() -> None:
    """The dataset has its eight tasks, the rules take the runner, and its name is that of no other."""
    found = read_dataset(TASKS)
    assert (found.kind, [task.name for task in found.tasks], found.ignored) == ("folder", NAMES, ())
    runner = read_runner(RUNNER)
    assert publish_runner(None, runner=runner) == [runner]


@pytest.mark.parametrize("style", STYLE)
def test_a_profile_sets_a_secret_and_something_that_is_ignored(style: str) -> None:
    """So the quickstart shows both: a parameter that the runner does not read, and a secret that it does."""
    ref, params, secrets = read_profile(STYLE[style])
    profile = ProfilePublished(ref, params, dict.fromkeys(secrets, "fingerprint"))
    effective = effective_parameters(read_runner(RUNNER), profile)
    assert effective.parameters == {"AGENT_STYLE": style, "MODEL_NAME": f"scripted/{style}"}
    assert (list(effective.secrets), effective.ignored) == (["MODEL_API_KEY"], ("CLAUDE_CODE_EFFORT_LEVEL",))


def test_the_agent_shows_its_key_so_that_redaction_has_something_to_do(tmp_path: Path) -> None:
    """The captured output holds the secret, as a careless library would log it."""
    assert "a-made-up-key-for-the-quickstart" in run(agent(), tmp_path, "word-count").text


def test_an_attempt_takes_well_under_a_second(tmp_path: Path) -> None:
    """Agent and verifier together, the best of three: two Python starts and little else."""
    best_s = min(timed(tmp_path, "sum-multiples") for _ in range(3))
    assert best_s < 0.9


def timed(root: Path, task: str) -> float:
    began = time.perf_counter()
    run(agent(), root, task)
    run(verifier(), root, task)
    return time.perf_counter() - began


def answer_name(task: str) -> str:
    return {
        "fix-median": "answer.py",
        "sort-csv": "answer.csv",
        "edit-json": "answer.json",
        "word-count": "answer.json",
    }.get(task, "answer.txt")
