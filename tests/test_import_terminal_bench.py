"""Importing terminal-bench: what a run and its trials say, alone or merged, and what neither may hide."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.importers import terminal_bench
from api.importers.importing import Report, import_path
from api.importers.run import Options
from api.settings import Settings
from ledger.errors import BadInput
from projections.trials import TrialRow, why_no_reward


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


def row(task: str, attempt: int = 1, resolved: Any = True, mode: Any = "unset", **more: Any) -> dict[str, Any]:
    return {
        "id": f"{task}-{attempt}",
        "trial_name": f"{task}.{attempt}-of-2.run",
        "task_id": task,
        "instruction": f"Do {task}.",
        "is_resolved": resolved,
        "failure_mode": mode,
        "parser_results": {"test_a": "passed"},
        "trial_started_at": "2026-01-10T08:00:00+00:00",
        "trial_ended_at": "2026-01-10T10:00:30+02:00",
    } | more


def write(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    results: dict[str, Any] | None = None,
    lock: dict[str, Any] | None = None,
    files: bool = True,
    **metadata: Any,
) -> Path:
    """A run as the tool leaves it; what is given None is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "run_id": folder.name,
        "uuid": folder.name,
        "dataset_name": "core",
        "dataset_version": "0.1.1",
        "agent_name": "agent",
        "model_name": "m",
        "task_ids": list(dict.fromkeys(row["task_id"] for row in rows)),
        "n_attempts": 1,
        "start_time": "2026-01-10T08:00:00+00:00",
        "end_time": "2026-01-10T09:00:00+00:00",
    } | metadata
    (folder / "run_metadata.json").write_text(json.dumps(told))
    (folder / "results.json").write_text(json.dumps({"id": "x", "results": rows} | (results or {})))
    if lock is not None:
        (folder / "tb.lock").write_text(json.dumps(lock))
    for trial in rows if files else ():
        path = folder / trial["task_id"] / trial["trial_name"] / "results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(trial))
    return folder


def take(client: Client, path: Path, **options: Any) -> Report:
    return import_path(client, "terminal-bench", path, Options(**options))


def trials(client: Client, report: Report) -> dict[tuple[str, int], TrialRow]:
    assert report.refused == []
    return {(found.task, found.attempt): found for found in client.trials(report.jobs[0].id)}


def refusal(client: Client, report: Report) -> str:
    assert report.jobs == []
    assert client.jobs().jobs == []
    return report.refused[0].why


@pytest.mark.parametrize(
    ("mode", "status", "phase"),
    [
        ("unset", "succeeded", None),
        ("none", "succeeded", None),
        (None, "succeeded", None),
        ("agent_timeout", "failed", "agent"),
        ("context_length_exceeded", "failed", "agent"),
        ("test_timeout", "failed", "verifier"),
        ("parse_error", "failed", "verifier"),
        ("agent_installation_failed", "failed", "setup"),
        ("unknown", "failed", "unknown"),
        ("of_a_later_version", "failed", "unknown"),
    ],
)
def test_the_failure_mode_says_how_it_ended(
    client: Client, tmp_path: Path, mode: str | None, status: str, phase: str | None
) -> None:
    """Only unset and none are success; the mode is the error's type; a reward that exists counts all the same."""
    found = trials(client, take(client, write(tmp_path / "r", [row("t", mode=mode)])))["t", 1]
    assert (found.status, found.reward, found.phase) == (status, 1.0, phase)
    assert found.error_type == (None if status == "succeeded" else mode)


@pytest.mark.parametrize(
    ("resolved", "reward", "why"),
    [
        (True, 1.0, None),
        (False, 0.0, None),
        (None, None, "null"),
        ("true", None, "not-a-number"),
        ([], None, "not-a-number"),
    ],
)
def test_null_is_missing_and_text_is_no_reward(
    client: Client, tmp_path: Path, resolved: Any, reward: float | None, why: str | None
) -> None:
    """Nothing but a truth value, or a number, becomes a reward."""
    report = take(client, write(tmp_path / "r", [row("t", resolved=resolved)]))
    found = trials(client, report)["t", 1]
    assert (found.reward, why_no_reward(found)) == (reward, why)
    assert ("reward-rejected" in report.jobs[0].flags) is (why == "not-a-number")


def test_resolved_without_a_test_is_flagged(client: Client, tmp_path: Path) -> None:
    """All of no tests have passed: the tool's 1 counts, and is called suspicious."""
    for name, results, resolved, flagged in (
        ("a", {}, True, True),
        ("b", None, True, True),
        ("c", {}, False, False),
        ("d", {"t": "passed"}, True, False),
    ):
        report = take(client, write(tmp_path / name, [row("t", resolved=resolved, parser_results=results)]))
        assert ("empty-parser-results" in report.jobs[0].flags) is flagged


def test_times_are_kept_in_utc_or_not_at_all(client: Client, tmp_path: Path) -> None:
    """An offset is turned to UTC; without one no instant is guessed; absent times and no times are flagged."""
    rows = [
        row("utc"),
        row("naive", trial_started_at="2026-01-10T08:00:00", trial_ended_at="2026-01-10T09:00:00"),
        row("none", trial_started_at=None, trial_ended_at=None),
        row("wrong", trial_started_at=12.5, trial_ended_at="soon"),
    ]
    report = take(client, write(tmp_path / "r", rows))
    found = trials(client, report)
    assert {"time-zone-unknown", "times-missing", "times-dropped"} <= set(report.jobs[0].flags)
    assert found["utc", 1].duration_s == 30
    assert all(found[task, 1].duration_s is None for task in ("naive", "none", "wrong"))


@pytest.mark.parametrize("task", ["任务.hard", "a.1-of-2.b", "a b", "x-of-y", ".", "=cmd()"])
def test_the_attempt_is_told_by_the_trials_name(client: Client, tmp_path: Path, task: str) -> None:
    """Whatever the task is called, the slot follows its name; a run's name may hold such a part, too."""
    rows = [row(task, 2) | {"trial_name": f"{task}.2-of-2.3-of-4.run"}]
    assert set(trials(client, take(client, write(tmp_path / "r", rows, files=False, n_attempts=2)))) == {(task, 2)}


@pytest.mark.parametrize("name", ["u.1-of-2.run", "t.0-of-2.run", "t.x", "t", "t.1-of-2x", "t.-1-of-2.run"])
def test_a_name_that_tells_no_attempt_is_refused(client: Client, tmp_path: Path, name: str) -> None:
    """No attempt is guessed; the row and the name are told."""
    why = refusal(client, take(client, write(tmp_path / "r", [row("t") | {"trial_name": name}], files=False)))
    assert "Row 1" in why
    assert repr(name) in why


def test_more_trials_than_asked_for_are_extra(client: Client, tmp_path: Path) -> None:
    """k is what the metadata says, else the lock, else the trials' names; further attempts are flagged."""
    rows = [row("t", 1), row("t", 2)]
    report = take(client, write(tmp_path / "r", rows))
    assert (report.jobs[0].attempts, "extra-trials" in report.jobs[0].flags) == (1, True)
    locked = take(client, write(tmp_path / "l", rows, n_attempts=None, lock={"run_config": {"n_attempts": 3}}))
    named = take(client, write(tmp_path / "n", rows, n_attempts=None))
    assert (locked.jobs[0].attempts, named.jobs[0].attempts) == (3, 2)


def test_members_are_what_was_asked_for(client: Client, tmp_path: Path) -> None:
    """A task without a trial is a member; trials of a task that was not asked for are left out and named."""
    report = take(client, write(tmp_path / "r", [row("a"), row("b")], task_ids=["a", "never"]))
    assert set(trials(client, report)) == {("a", 1)}
    (job,) = report.jobs
    assert (job.members, job.as_reported["ids_not_in_dataset"]) == (2, "b")
    assert "ids-not-in-dataset" in job.flags
    locked = write(tmp_path / "l", [row("a")], task_ids=None, lock={"dataset": {"task_ids": ["a", "b", "c"]}})
    patterns = write(tmp_path / "p", [row("a")], task_ids=["a*"])
    assert [take(client, path, dataset=f"{path.name}@1").jobs[0].members for path in (locked, patterns)] == [3, 1]


def test_one_dataset_has_one_name(client: Client, tmp_path: Path) -> None:
    """`core:0.1.1`, `core@0.1.1`, `core==0.1.1` and name with version are the same; a local one is its folder's."""
    for number, (name, version) in enumerate(
        [("core", "0.1.1"), ("core:0.1.1", None), ("core@0.1.1", None), ("core==0.1.1", "0.1.1")]
    ):
        path = write(tmp_path / f"r{number}", [row("t")], dataset_name=name, dataset_version=version)
        assert take(client, path).jobs[0].dataset == "core@0.1.1"
    local = write(tmp_path / "l", [row("t")], dataset_name=None, dataset_version=None, dataset_path="/x/my tasks")
    assert take(client, local).jobs[0].dataset.startswith("terminal-bench/my-tasks@")
    other = write(tmp_path / "o", [row("t")], lock={"dataset": {"name": "core", "version": "0.2"}})
    assert "core@0.1.1, tb.lock core@0.2" in take(client, other).refused[0].why


def test_the_lock_names_the_version(client: Client, tmp_path: Path) -> None:
    """The runner is the tool at its version; without a lock it is unknown."""
    with_lock = take(client, write(tmp_path / "a", [row("t")], lock={"harness": {"version": "0.2.18"}}))
    without = take(client, write(tmp_path / "b", [row("t")]), dataset="b@1")
    assert [client.job(report.jobs[0].id).runner for report in (with_lock, without)] == [
        "terminal-bench@0.2.18",
        "terminal-bench@unknown",
    ]


def test_a_trial_counts_from_either_file(client: Client, tmp_path: Path) -> None:
    """A row whose own file is gone counts; a trial that only has its own file counts, and is flagged."""
    path = write(tmp_path / "r", [row("a"), row("b")])
    shutil.rmtree(path / "a")
    (path / "results.json").write_text(json.dumps({"id": "x", "results": [row("a")]}))
    report = take(client, path)
    assert set(trials(client, report)) == {("a", 1), ("b", 1)}
    assert "source-incomplete" in report.jobs[0].flags
    (path / "results.json").unlink()
    path.rename(tmp_path / "s")
    assert "has no results.json" in take(client, tmp_path / "s", strict=True).refused[0].why


def test_files_that_disagree_are_refused(client: Client, tmp_path: Path) -> None:
    """Neither the run's file nor the trial's own wins: both are named. What is no outcome may differ."""
    path = write(tmp_path / "r", [row("t", resolved=False)])
    file = path / "t/t.1-of-2.run/results.json"
    file.write_text(json.dumps(row("t", resolved=True)))
    why = refusal(client, take(client, path))
    assert "Row 1" in why
    assert "t/t.1-of-2.run/results.json" in why
    file.write_text(json.dumps({"uuid": "of another version"} | row("t", resolved=False, recording_path="elsewhere")))
    assert take(client, path).refused == []


def test_the_same_slot_twice(client: Client, tmp_path: Path) -> None:
    """A copy of a row counts once and is flagged; another row in its slot is refused, naming both."""
    path = write(tmp_path / "r", [row("t"), row("u"), row("t") | {"id": "again"}])
    assert "Row 1 and Row 3" in refusal(client, take(client, path))
    report = take(client, write(tmp_path / "r", [row("t"), row("t")]))
    assert len(trials(client, report)) == 1
    assert "duplicate-rows-dropped" in report.jobs[0].flags


def test_printed_numbers_stay_beside_ours(client: Client, tmp_path: Path) -> None:
    """They are kept by their names; one that our formulas do not give is flagged, noise in its last digits is not."""
    rows = [row("a"), row("b", resolved=False), row("c", resolved=False)]
    noisy = 1 / 3 + 1e-16
    printed: dict[str, Any] = {"accuracy": noisy, "n_resolved": 1, "n_unresolved": 2, "pass_at_k": {}}
    same = take(client, write(tmp_path / "a", rows, results=printed, accuracy=noisy)).jobs[0]
    assert same.as_reported == {"accuracy": noisy, "n_resolved": 1, "n_unresolved": 2}
    assert "as-reported-differs" not in same.flags
    rows[2]["is_resolved"] = None
    other = take(client, write(tmp_path / "b", rows, results=printed, accuracy=0.5, pass_at_k={"2": None, "5": 0.25}))
    assert other.jobs[0].as_reported == {
        "accuracy": noisy,
        "n_resolved": 1,
        "n_unresolved": 2,
        "run_metadata.accuracy": 0.5,
        "pass_at_k.5": 0.25,
    }
    assert "as-reported-differs" in other.jobs[0].flags


def test_a_cut_file_gives_what_is_whole(client: Client, tmp_path: Path) -> None:
    """Of a cut results.json the whole rows count, and every trial's own file; of a cut trial file, the row."""
    path = write(tmp_path / "r", [row("a"), row("b")])
    text = (path / "results.json").read_text()
    (path / "results.json").write_text(text[: text.index('"task_id": "b"')])
    assert "cut" in refusal(client, take(client, path, strict=True))
    report = take(client, path)
    assert set(trials(client, report)) == {("a", 1), ("b", 1)}
    assert "source-incomplete" in report.jobs[0].flags
    cut = write(tmp_path / "s", [row("a")])
    (cut / "a/a.1-of-2.run/results.json").write_text("")
    assert "source-incomplete" in take(client, cut).jobs[0].flags


def test_a_run_left_before_its_end_is_flagged(client: Client, tmp_path: Path) -> None:
    """No end time and missing slots: the run did not finish. A resumed run that is whole has no end time either."""
    for name, attempts, flagged in (("a", 2, True), ("b", 1, False)):
        report = take(client, write(tmp_path / name, [row("t")], n_attempts=attempts, end_time=None))
        assert ("run-unfinished" in report.jobs[0].flags) is flagged


def runs(root: Path, *names: str, **metadata: Any) -> Path:
    """Runs of one agent, a day apart in the order they are named; the n-th resolves its task when n is odd."""
    for day, name in enumerate(names, 1):
        write(
            root / name,
            [row("t", resolved=day % 2 == 1), *([row("u")] if day != 2 else [])],
            **{"task_ids": ["t", "u"], "start_time": f"2026-01-{day:02}T00:00:00+00:00"} | metadata,
        )
    return root


def test_runs_of_one_agent_become_one_job(client: Client, tmp_path: Path) -> None:
    """The attempt is the run's place by its start, whatever it is called; a task that a run lacks leaves a gap."""
    report = take(client, runs(tmp_path / "runs", "z", "y", "x"), merge_runs=True)
    found = trials(client, report)
    assert {slot: trial.reward for slot, trial in found.items()} == {
        ("t", 1): 1.0,
        ("t", 2): 0.0,
        ("t", 3): 1.0,
        ("u", 1): 1.0,
        ("u", 3): 1.0,
    }
    assert (report.jobs[0].attempts, report.jobs[0].members) == (3, 2)
    again = take(client, runs(tmp_path / "elsewhere", "z", "y", "x"), merge_runs=True)
    assert [(job.id, job.outcome) for job in again.jobs] == [(report.jobs[0].id, "unchanged")]


def test_runs_of_several_attempts_follow_each_other(client: Client, tmp_path: Path) -> None:
    """Each takes as many attempts as it had; what each printed is kept under its place."""
    write(tmp_path / "r/a", [row("t", 1), row("t", 2)], n_attempts=2, results={"accuracy": 1.0})
    write(tmp_path / "r/b", [row("t", 2)], n_attempts=2, start_time="2026-02-01T00:00:00+00:00")
    report = take(client, tmp_path / "r", merge_runs=True)
    assert set(trials(client, report)) == {("t", 1), ("t", 2), ("t", 4)}
    assert (report.jobs[0].attempts, report.jobs[0].as_reported) == (4, {"runs.1.accuracy": 1.0})


def test_without_merging_each_run_is_a_job(client: Client, tmp_path: Path) -> None:
    """A bad one is reported, the rest go on."""
    root = runs(tmp_path / "runs", "a", "b")
    (root / "c").mkdir()
    (root / "c/results.json").write_text("{}")
    report = take(client, root)
    assert [job.outcome for job in report.jobs] == ["imported", "imported"]
    assert report.refused[0].path.endswith("runs/c")


def test_a_copy_counts_once(client: Client, tmp_path: Path) -> None:
    """Beside its original or nested in another run, the same bytes are one run, and the job says so."""
    for merge_runs in (True, False):
        root = runs(tmp_path / str(merge_runs), "a", "b", "c")
        shutil.copytree(root / "b", root / "c/b")
        report = take(client, root, merge_runs=merge_runs)
        assert report.refused == []
        assert len(report.jobs) == (1 if merge_runs else 3)
        assert ["nested-run-skipped" in job.flags for job in report.jobs].count(True) == 1
    shutil.copytree(tmp_path / "True/b", tmp_path / "True/d")
    again = take(client, tmp_path / "True", merge_runs=True)
    assert [(job.attempts, job.outcome) for job in again.jobs] == [(3, "unchanged")]


def test_a_run_that_only_lies_in_another_is_a_run(client: Client, tmp_path: Path) -> None:
    """It is an attempt of its own, not a part of the run around it; what an agent left in its logs is neither."""
    root = runs(tmp_path / "runs", "a", "b", "c")
    shutil.move(root / "b", root / "c/b")
    logs = root / "a/t/t.1-of-2.run/agent-logs"
    logs.mkdir()
    (logs / "results.json").write_text("not ours")
    report = take(client, root, merge_runs=True)
    assert len(trials(client, report)) == 5
    assert "nested-run-skipped" not in report.jobs[0].flags
    assert len(take(client, root).jobs) == 3


@pytest.mark.parametrize("merge_runs", [True, False])
def test_the_same_run_with_other_bytes_is_a_conflict(client: Client, tmp_path: Path, merge_runs: bool) -> None:
    """One uuid, two contents: refused, naming the file that differs."""
    root = runs(tmp_path / "runs", "a")
    write(root / "b", [row("t", resolved=False), row("u")], uuid="a", task_ids=["t", "u"])
    (conflict,) = take(client, root, merge_runs=merge_runs).refused
    assert conflict.outcome == "conflict"
    assert "t/t.1-of-2.run/results.json" in conflict.why


@pytest.mark.parametrize(
    "other",
    [{"agent_name": "other"}, {"model_name": "other"}, {"agent_kwargs": {"version": "2"}}, {"dataset_version": "0.2"}],
)
def test_what_is_measured_apart_stays_apart(client: Client, tmp_path: Path, other: dict[str, Any]) -> None:
    """Another agent, model, agent's argument or dataset is another job."""
    root = runs(tmp_path / "runs", "a", "b")
    runs(root, "c", **other)
    assert sorted(job.attempts for job in take(client, root, merge_runs=True).jobs) == [1, 2]


def test_merging_guesses_nothing(client: Client, tmp_path: Path) -> None:
    """Runs of an unknown agent, or of an unknown start, are refused; so is a bad one among them."""
    for name, changed, says in (
        ("a", {"agent_name": None}, "names no agent"),
        ("b", {"start_time": None}, "when it began"),
    ):
        root = runs(tmp_path / name, "x")
        untimed = row("t", trial_started_at=None, trial_ended_at=None)
        write(root / "y", [untimed], **changed)
        assert says in refusal(client, take(client, root, merge_runs=True))
    (root / "y/run_metadata.json").write_text('{"uuid": "a", "uuid": "b"}')
    assert "'uuid' twice" in refusal(client, take(client, root, merge_runs=True))
    with pytest.raises(BadInput, match="no runs to merge"):
        import_path(client, "jsonl", root, Options(merge_runs=True))


def test_versions_that_differ_are_both_named(client: Client, tmp_path: Path) -> None:
    """One job of two versions of the tool does not claim to be of either."""
    root = runs(tmp_path / "runs", "a", lock={"harness": {"version": "0.2.17"}})
    write(root / "b", [row("t"), row("u")], lock={"harness": {"version": "0.2.18"}})
    (job,) = take(client, root, merge_runs=True).jobs
    assert client.job(job.id).runner == "terminal-bench@0.2.17+0.2.18"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("results.json", "{}", "no list `results`"),
        ("results.json", "[]", "'{'"),
        ("results.json", '{"results": {}}', "must be a list"),
        ("results.json", '{"results": [1]}', "Row 1"),
        ("results.json", '{"results": [], "results": []}', "'results' twice"),
        ("results.json", '{"results": [{"task_id": "a", "task_id": "b"}]}', "'task_id' twice"),
        ("results.json", '{"results": [{"task_id": 1, "trial_name": "1.1-of-1.r"}]}', "task_id"),
        ("results.json", '{"results": [],}', "no JSON"),
        ("results.json", '{"results": [] "id": 1}', "broken"),
        ("results.json", '{"results": [], 1: 2}', "broken"),
        ("results.json", '{"results": []} x', "follows"),
        ("results.json", '{"a": ' + "[" * 1_000 + "]" * 1_000 + "}", "nested"),
        ("results.json", b'{"id": "\xff"}', "UTF-8"),
        ("run_metadata.json", '{"n_attempts": 0}', "run_metadata.json"),
        ("run_metadata.json", "[]", "'{'"),
        ("tb.lock", '{"harness": 3}', "tb.lock"),
        ("t/t.1-of-2.run/results.json", '{"task_id": "t"}', "trial_name"),
    ],
)
def test_a_hostile_file_is_refused(client: Client, tmp_path: Path, name: str, text: str | bytes, says: str) -> None:
    """One sentence that names the file, nothing written."""
    path = write(tmp_path / "r", [row("t")])
    (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    why = refusal(client, take(client, path))
    assert says in why
    assert name in why


def test_links_and_large_files_are_refused(client: Client, tmp_path: Path) -> None:
    """A link is not followed, a cap holds for every file, and what is no run is said to be none."""
    path = write(tmp_path / "r", [row("t")])
    assert "larger than 10 bytes" in refusal(client, take(client, path, file_bytes_max=10))
    (path / "tb.lock").symlink_to(path / "run_metadata.json")
    assert "symbolic link" in refusal(client, take(client, path))
    (tmp_path / "empty").mkdir()
    assert "no terminal-bench run" in refusal(client, take(client, tmp_path / "empty"))
    assert "nothing at" in refusal(client, take(client, tmp_path / "absent"))
    assert "no list `results`" in refusal(client, take(client, path / "t"))


def test_a_run_is_recognised(tmp_path: Path) -> None:
    """By its lock or the first bytes of its files; a folder of runs is not one run, and a trial is none."""
    path = write(tmp_path / "runs/r", [row("t")])
    assert terminal_bench.recognises(path)
    assert terminal_bench.recognises(path / "results.json")
    assert not terminal_bench.recognises(tmp_path / "runs")
    assert not terminal_bench.recognises(path / "t/t.1-of-2.run")
    assert not terminal_bench.recognises(tmp_path / "absent")
