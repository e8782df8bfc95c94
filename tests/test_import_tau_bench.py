"""Importing tau-bench: a run that died has no reward, whatever the tool wrote in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.importers.importing import Report, import_path
from api.importers.run import Options
from api.settings import Settings
from projections.trials import TrialRow, why_no_reward

Import = Callable[..., Report]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def take(client: Client, tmp_path: Path) -> Import:
    """Import rows, or the text of a file, as one run; the report."""

    def run(rows: list[dict[str, Any]] | str | bytes, *, name: str = "small.json", **options: Any) -> Report:
        text = json.dumps(rows, ensure_ascii=False) if isinstance(rows, list) else rows
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return import_path(client, "tau-bench", path, Options(**options))

    return run


def row(task_id: Any, trial: int, reward: Any = 1.0, **info: Any) -> dict[str, Any]:
    return {"task_id": task_id, "trial": trial, "reward": reward, "info": info, "traj": [{"role": "user"}]}


def trials(client: Client, report: Report) -> dict[tuple[str, int], TrialRow]:
    assert report.refused == []
    return {(found.task, found.attempt): found for found in client.trials(report.jobs[0].id)}


def refusal(client: Client, report: Report) -> str:
    assert report.jobs == []
    assert client.jobs().jobs == []
    assert client.datasets() == []
    return report.refused[0].why


def test_trials_count_from_0_and_attempts_from_1(client: Client, take: Import) -> None:
    """k is the number of different trial numbers; times are flagged as missing; the tool's policy is named."""
    report = take([row(0, 0), row(0, 1, 0.0), row(7, 0), row(7, 1)])
    assert set(trials(client, report)) == {("0", 1), ("0", 2), ("7", 1), ("7", 2)}
    (job,) = report.jobs
    assert (job.attempts, job.members, job.flags) == (2, 2, ("times-missing",))
    origin = client.job(job.id).origin
    assert (origin["tool"], origin["policy"]) == ("tau-bench", "tau-1")
    assert client.job(job.id).runner == "tau-bench@unknown"


def test_a_run_that_died_has_no_reward(client: Client, take: Import) -> None:
    """The tool's 0.0 is no measurement: the trial failed, and its error and traceback are kept as an artifact."""
    report = take([row(0, 0, 0.0, error="Rate limit", traceback="Traceback:\n..."), row(0, 1, 0.0, error=None)])
    died, lost = trials(client, report)["0", 1], trials(client, report)["0", 2]
    assert (died.status, died.reward, why_no_reward(died)) == ("failed", None, "trial-error")
    assert (died.error_type, died.phase) == ("RunError", "agent")
    assert died.message is not None
    assert client.artifacts.read_bytes(died.message, max_bytes=100) == b"Rate limit\nTraceback:\n..."
    assert (lost.status, lost.reward) == ("succeeded", 0.0)


def test_a_reward_that_exists_counts(client: Client, take: Import) -> None:
    """Another number than the 0.0 that the tool fills in was given by its verifier, and counts."""
    found = trials(client, take([row(0, 0, 1.0, error="died while saving")]))["0", 1]
    assert (found.status, found.reward) == ("failed", 1.0)


@pytest.mark.parametrize(
    ("reward", "why"), [("NaN", "not-finite"), ("null", "null"), ('"1.0"', "not-a-number"), ("true", "not-a-number")]
)
def test_what_is_no_number_is_no_reward(client: Client, take: Import, reward: str, why: str) -> None:
    """Python's NaN, which is no JSON, is read and rejected as a reward."""
    report = take(f'[{{"task_id": 0, "trial": 0, "reward": {reward}, "info": {{}}, "traj": []}}]')
    assert why_no_reward(trials(client, report)["0", 1]) == why


def test_two_spellings_of_an_id_are_refused(client: Client, take: Import) -> None:
    """1 and "1" are never merged into one task."""
    assert '"1"' in refusal(client, take([row(1, 0), row("1", 1)]))


@pytest.mark.parametrize("task_id", [1.5, True, None, [1]])
def test_an_id_is_a_whole_number_or_text(client: Client, take: Import, task_id: Any) -> None:
    """Anything else is refused, naming the row."""
    assert "Row 2" in refusal(client, take([row(0, 0), row(task_id, 0)]))


def test_copies_count_once_and_contradictions_are_refused(client: Client, take: Import) -> None:
    """A copy is flagged; another conversation in the same slot is another content, even with the same reward."""
    other = row(0, 0) | {"traj": []}
    assert "Rows 1 and 2" in refusal(client, take([row(0, 0), other]))
    copy = dict(reversed(row(0, 0).items()))
    report = take([row(0, 0), copy])
    assert len(trials(client, report)) == 1
    assert "duplicate-rows-dropped" in report.jobs[0].flags


def test_a_cut_array_gives_what_is_whole(client: Client, take: Import) -> None:
    """Rows before the cut are imported and flagged, wherever it fell; with --strict nothing is."""
    text = json.dumps([row(0, 0), row(1, 0, text='a "quoted" ] }'), row(2, 0)])
    second = text.index('{"task_id": 1')
    third = text.index('{"task_id": 2')
    assert "cut" in refusal(client, take(text[:-1], strict=True))
    for cut, whole in ((second, 1), (second + 40, 1), (third - 1, 2), (third - 2, 2), (len(text) - 1, 3)):
        report = take(text[:cut])
        assert len(trials(client, report)) == whole
        assert "source-incomplete" in report.jobs[0].flags


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'['"),
        ("{}", "'['"),
        ("[]", "no task"),
        ("[", "no task"),
        ('[{"task_id": 0, "trial": 0}] x', "follows"),
        ('[{"task_id": 0, "trial": 0} {}]', "broken"),
        ('[{"task_id": 0, "trial": 0, "reward": oops}, {"task_id": 1, "trial": 0}]', "no JSON"),
        ('[{"task_id": 0, "trial": 0, "trial": 1}]', "'trial' twice"),
        ('[{"task_id": 0, "trial": 0, "info": {"error": "a", "error": "b"}}]', "'error' twice"),
        ('[{"task_id": 0, "trial": -1}]', "Row 1"),
        ('[{"task_id": 0}]', "`trial`"),
        ('[{"task_id": "\\ud800", "trial": 0}]', "surrogate"),
        (b'[{"task_id": "\xff", "trial": 0}]', "UTF-8"),
        ("[" * 100_000, "no task"),
        ("[" + "[" * 100_000 + "]" * 100_000 + "]", "nested"),
    ],
)
def test_a_hostile_file_is_refused(client: Client, take: Import, text: str | bytes, says: str) -> None:
    """Never a traceback: one sentence, and nothing is written."""
    assert says in refusal(client, take(text))


def test_a_run_that_lost_a_tasks_text_is_on_the_same_dataset(client: Client, take: Import) -> None:
    """A task whose every trial died names no instruction; it is still the task of that name, in either order."""
    told, died = {"instruction": "Book a flight."}, {"error": "lost"}
    for first, second in ((told, None), (None, told)):
        ref = f"flights@{1 if first else 2}"
        for number, task in enumerate((first, second)):
            rows = [row(0, 0, float(number), **({"task": task} if task else died))]
            assert take(rows, name=f"{ref}-{number}.json", dataset=ref).refused == []
    changed = take([row(0, 0, task={"instruction": "Cancel it."})], dataset="flights@1")
    assert changed.refused[0].outcome == "conflict"
    assert "'0' has another digest" in changed.refused[0].why


def test_a_file_beyond_the_cap_is_refused(client: Client, take: Import) -> None:
    """The cap holds for a file that is read whole, too."""
    assert "larger than 10 bytes" in refusal(client, take([row(0, 0)], file_bytes_max=10))
