"""Importing tau2: one file or a folder, and only what a simulation itself says is evidence of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.importers import tau2
from api.importers.importing import Report, import_path
from api.importers.run import Options
from api.settings import Settings
from projections.trials import TrialRow, structured_result, why_no_reward

Import = Callable[..., Report]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def take(client: Client, tmp_path: Path) -> Import:
    """Import a run, or the text of a file, as one file; the report."""

    def run(content: dict[str, Any] | str | bytes, *, name: str = "run.json", **options: Any) -> Report:
        text = json.dumps(content, ensure_ascii=False) if isinstance(content, dict) else content
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return import_path(client, "tau2", tmp_path / name, Options(**options))

    return run


def simulation(task: Any = "0", trial: Any = 0, reward: Any = 1.0, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{task}-{trial}",
        "task_id": task,
        "start_time": "2026-02-01T12:00:00",
        "end_time": "2026-02-01T12:01:20",
        "duration": 79.5,
        "termination_reason": "user_stop",
        "reward_info": {"reward": reward, "reward_breakdown": {"DB": reward}},
        "trial": trial,
    } | more


def results(*simulations: dict[str, Any], tasks: Any = ("0",), k: Any = 1, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-02-01T11:59:58",
        "info": {"git_commit": "abc", "num_trials": k, "environment_info": {"domain_name": "airline"}},
        "tasks": [{"id": task, "user_scenario": {"instructions": f"Ask for {task}."}} for task in tasks],
        "simulations": list(simulations),
    } | more


def folder(path: Path, *simulations: dict[str, Any], **more: Any) -> Path:
    """The same run as a folder, with its index."""
    (path / "simulations").mkdir(parents=True)
    index = [
        {"id": each["id"], "task_id": each["task_id"], "trial": each["trial"], "reward": each["reward_info"]["reward"]}
        for each in simulations
    ]
    (path / "results.json").write_text(json.dumps(results(**{"simulation_index": index} | more)))
    for each in simulations:
        (path / f"simulations/{each['id']}.json").write_text(json.dumps(each))
    return path


def trials(client: Client, report: Report) -> dict[tuple[str, int], TrialRow]:
    assert report.refused == []
    return {(found.task, found.attempt): found for found in client.trials(report.jobs[0].id)}


def refusal(client: Client, report: Report) -> str:
    assert report.jobs == []
    assert client.jobs().jobs == []
    return report.refused[0].why


def test_members_are_the_tasks(client: Client, take: Import) -> None:
    """A task without a simulation is a member; k is num_trials; attempts count from 1; the commit is the version."""
    report = take(results(simulation("0", 0), simulation("0", 2), tasks=["0", "never"], k=2))
    assert set(trials(client, report)) == {("0", 1), ("0", 3)}
    (job,) = report.jobs
    assert (job.attempts, job.members) == (2, 2)
    assert job.dataset.startswith("tau2/airline@")
    assert "extra-trials" in job.flags
    answer = client.job(job.id)
    assert (answer.runner, answer.origin["policy"]) == ("tau2@abc", "tau-2")


def test_a_task_that_is_not_listed_is_left_out(client: Client, take: Import) -> None:
    """Its simulation is no part of the job; it is flagged and named."""
    report = take(results(simulation("0"), simulation("x/二")))
    assert set(trials(client, report)) == {("0", 1)}
    assert report.jobs[0].as_reported == {"ids_not_in_dataset": "x/二"}
    assert "ids-not-in-dataset" in report.jobs[0].flags


@pytest.mark.parametrize(
    ("reason", "status", "phase"),
    [
        ("user_stop", "succeeded", None),
        ("agent_stop", "succeeded", None),
        ("max_steps", "failed", "agent"),
        ("too_many_errors", "failed", "agent"),
        ("user_error", "failed", "unknown"),
        ("infrastructure_error", "failed", "unknown"),
        ("of_a_later_version", "failed", "unknown"),
    ],
)
def test_how_it_ended_and_its_reward_are_two_things(
    client: Client, take: Import, reason: str, status: str, phase: str | None
) -> None:
    """Only a stop is success; a reward that is there counts, also 0 of max_steps and one of an infrastructure error."""
    for reward in (0.0, 1.0):
        report = take(results(simulation(reward=reward, termination_reason=reason)))
        found = trials(client, report)["0", 1]
        assert (found.status, found.reward, found.phase) == (status, reward, phase)
        assert found.error_type == (None if status == "succeeded" else reason)


@pytest.mark.parametrize(
    ("info", "reason", "why"),
    [
        (None, "infrastructure_error", "trial-error"),
        (None, "user_stop", "null"),
        ({}, "user_stop", "not-reported"),
        ({"reward": None}, "user_stop", "null"),
        ({"reward": "1.0"}, "user_stop", "not-a-number"),
        ({"reward": float("nan")}, "user_stop", "not-finite"),
    ],
)
def test_no_reward_has_its_reason(client: Client, take: Import, info: Any, reason: str, why: str) -> None:
    """None of them is a 0."""
    report = take(results(simulation(reward_info=info, termination_reason=reason)))
    found = trials(client, report)["0", 1]
    assert (found.reward, why_no_reward(found)) == (None, why)
    assert ("reward-rejected" in report.jobs[0].flags) is (why in ("not-a-number", "not-finite"))


def test_the_breakdown_is_kept_as_dimensions(client: Client, take: Import) -> None:
    """Its parts have their names; without one there are none."""
    found = trials(
        client,
        take(results(simulation("0", 0), simulation("0", 1, reward_info={"reward": 0, "reward_breakdown": None}), k=2)),
    )
    assert structured_result(found["0", 1]).dimensions == {"DB": 1.0}
    assert found["0", 2].structured is None


def test_an_error_is_kept_as_an_artifact(client: Client, take: Import) -> None:
    """What the tool noted of the error is free text: never in a fact."""
    info = {"error_type": "APIError", "error": "lost", "attempts": 3}
    report = take(results(simulation(reward_info=None, termination_reason="infrastructure_error", info=info)))
    found = trials(client, report)["0", 1]
    assert client.artifacts.read_bytes(found.message or "", max_bytes=100) == b"APIError\nlost"


def test_a_naive_time_is_no_instant(client: Client, take: Import) -> None:
    """It is flagged and left out; how long it took stays, as the tool measured it. With an offset it is kept."""
    report = take(results(simulation()))
    assert report.jobs[0].flags == ("time-zone-unknown",)
    assert trials(client, report)["0", 1].duration_s == 79.5
    zoned = simulation(start_time="2026-02-01T12:00:00+08:00", end_time="2026-02-01T04:00:10Z", duration=None)
    report = take(results(zoned))
    assert report.jobs[0].flags == ()
    assert trials(client, report)["0", 1].duration_s == 10
    none = simulation(start_time=None, end_time=None, duration=-1)
    report = take(results(none))
    assert report.jobs[0].flags == ("times-missing",)
    assert trials(client, report)["0", 1].duration_s is None


def test_the_same_slot_twice(client: Client, take: Import) -> None:
    """The same content counts once and is flagged; other content is refused, naming both."""
    report = take(results(simulation(), simulation()))
    assert len(trials(client, report)) == 1
    assert "duplicate-rows-dropped" in report.jobs[0].flags
    other = take(results(simulation(), simulation(seed=2)), name="b.json")
    assert "Simulation 1 and Simulation 2" in other.refused[0].why


def test_two_spellings_of_an_id_are_refused(client: Client, take: Import) -> None:
    """1 and "1" are never merged; the index, which is no evidence, may spell a number as a text."""
    assert '"1"' in refusal(client, take(results(simulation(1), tasks=["1"])))
    index = [{"id": "a", "task_id": 1, "trial": 0, "reward": 1}]
    assert take(results(simulation("1"), tasks=["1"], simulation_index=index)).refused == []


def test_the_instructions_are_part_of_the_digest(client: Client, take: Import) -> None:
    """A task with other instructions is another task, whether they are a text or an object."""
    for number, scenario in enumerate([{"instructions": "a"}, {"instructions": {"goal": "a"}}, "a", None]):
        tasks = [{"id": "0", "user_scenario": scenario}]
        report = take(results(simulation(seed=number)) | {"tasks": tasks}, name=f"{number}.json", dataset="d@1")
        assert (report.refused == []) is (number != 1)
    twice = [{"id": "0", "user_scenario": "a"}, {"id": "0", "user_scenario": "b"}]
    assert "Task 2" in take(results(simulation()) | {"tasks": twice}).refused[0].why


def test_a_folder_is_the_same_run(client: Client, tmp_path: Path, take: Import) -> None:
    """The folder, or its results.json, gives one job whose sources are all of its files."""
    path = folder(tmp_path / "run", simulation("0", 0), simulation("0", 1, 0.0), k=2)
    first = import_path(client, "tau2", path)
    assert {slot: trial.reward for slot, trial in trials(client, first).items()} == {("0", 1): 1.0, ("0", 2): 0.0}
    assert first.jobs[0].flags == ("time-zone-unknown",)
    second = import_path(client, "tau2", path / "results.json")
    assert [(job.id, job.outcome) for job in second.jobs] == [(first.jobs[0].id, "unchanged")]
    listing = client.artifacts.read_bytes(str(client.job(first.jobs[0].id).origin["sources"]), max_bytes=10_000)
    assert [source["path"] for source in json.loads(listing)] == [
        "results.json",
        "simulations/0-0.json",
        "simulations/0-1.json",
    ]


@pytest.mark.parametrize("left", [None, "", '{"task_id": "0", "trial": 1, "termination_reason": "user_stop", "rew'])
def test_the_index_alone_is_no_evidence(client: Client, tmp_path: Path, left: str | None) -> None:
    """A simulation whose file is missing or cut leaves its slot empty, and is flagged; with --strict it is refused."""
    path = folder(tmp_path / "run", simulation("0", 0), simulation("0", 1), k=2)
    file = path / "simulations/0-1.json"
    file.unlink() if left is None else file.write_text(left)
    refusal(client, import_path(client, "tau2", path, Options(strict=True)))
    report = import_path(client, "tau2", path)
    assert set(trials(client, report)) == {("0", 1)}
    assert "source-incomplete" in report.jobs[0].flags
    assert client.result(report.jobs[0].id).score_counts.missing == 1


def test_an_index_with_no_simulation_at_all(client: Client, tmp_path: Path) -> None:
    """Every slot is empty: a job with members and no trial."""
    path = folder(tmp_path / "run", simulation())
    (path / "simulations/0-0.json").unlink()
    for _ in range(2):
        report = import_path(client, "tau2", path)
        assert (trials(client, report), report.jobs[0].members) == ({}, 1)


def test_a_simulation_stands_against_its_index(client: Client, tmp_path: Path) -> None:
    """One that the index does not know counts and is flagged; a reward that the index tells otherwise is flagged."""
    path = folder(tmp_path / "a", simulation(), simulation_index=[])
    report = import_path(client, "tau2", path)
    assert len(trials(client, report)) == 1
    assert "source-incomplete" in report.jobs[0].flags
    index = [{"id": "0-0", "task_id": "0", "trial": 0, "reward": 0.0}]
    (job,) = import_path(client, "tau2", folder(tmp_path / "b", simulation(), simulation_index=index)).jobs
    assert "as-reported-differs" in job.flags
    assert client.result(job.id).score == 1.0


def test_a_broken_simulation_refuses_the_run(client: Client, tmp_path: Path) -> None:
    """What is not cut but wrong, in whatever way, is told by its file's name."""
    path = folder(tmp_path / "run", simulation(), simulation("0", 1))
    file = path / "simulations/0-1.json"
    for text, says in (
        ('{"task_id": "0", "task_id": "1"}', "'task_id' twice"),
        ('{"task_id": oops}', "no JSON"),
        ('{"task_id": "0"}', "trial"),
        (json.dumps(simulation("0", 0, 0.0)), "different things"),
    ):
        file.write_text(text)
        why = refusal(client, import_path(client, "tau2", path))
        assert says in why
        assert "simulations/0-1.json" in why


def test_a_cut_file_gives_what_is_whole(client: Client, take: Import) -> None:
    """Simulations before the cut are imported and flagged; with --strict, or before `info` is whole, nothing is."""
    text = json.dumps(results(simulation("0"), simulation("1"), tasks=["0", "1"]))
    second = text.index('"id": "1-0"')
    assert "cut" in refusal(client, take(text[:-1], strict=True))
    assert "before its `info`" in refusal(client, take(text[:80]))
    for cut, whole in ((text.index('"simulations"'), 0), (second, 1), (len(text) - 1, 2)):
        report = take(text[:cut])
        assert len(trials(client, report)) == whole
        assert (report.jobs[0].members, "source-incomplete" in report.jobs[0].flags) == (2, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "before its `info`"),
        ("[]", "'{'"),
        ("{}", "no run of tau2"),
        ('{"info": {"num_trials": 1}, "tasks": []}', "no task"),
        ('{"info": {"num_trials": 0}, "tasks": []}', "num_trials"),
        ('{"info": {"num_trials": true}, "tasks": []}', "num_trials"),
        ('{"info": {}, "tasks": []}', "num_trials"),
        ('{"info": {"num_trials": 1}, "tasks": {}}', "`tasks` must be a list"),
        ('{"info": {"num_trials": 1}, "tasks": [1]}', "Task 1"),
        ('{"info": {"num_trials": 1}, "info": {"num_trials": 2}}', "'info' twice"),
        (json.dumps(results(simulation(trial=None))), "trial"),
        (json.dumps(results(simulation(trial=-1))), "trial"),
        (json.dumps(results(simulation(task=1.5))), "task_id"),
        (json.dumps(results(simulation(termination_reason=None))), "termination_reason"),
        (json.dumps(results(simulation("\ud800"))), "surrogate"),
        (b'{"info": "\xff"}', "UTF-8"),
        ('{"info": ' + "[" * 100_000, "before its `info`"),
        ('{"info": ' + "[" * 1_000 + "]" * 1_000 + "}", "nested"),
    ],
)
def test_a_hostile_file_is_refused(client: Client, take: Import, text: str | bytes, says: str) -> None:
    """One sentence that names the file, nothing written."""
    why = refusal(client, take(text))
    assert says in why
    assert "run.json" in why or says == "no task"


def test_a_folder_of_runs(client: Client, tmp_path: Path) -> None:
    """The parts of a run are no runs; files of any name are, where no results.json stands above them."""
    root = tmp_path / "simulations"
    folder(root / "one", simulation())
    (root / "one/artifacts").mkdir()
    (root / "one/artifacts/log.json").write_text("{}")
    (root / "two.json").write_text(json.dumps(results(simulation(seed=2))))
    report = import_path(client, "tau2", root)
    assert (len(report.jobs), report.refused) == (2, [])
    (tmp_path / "empty").mkdir()
    for name, says in (("empty", "no file"), ("absent", "nothing at")):
        assert says in import_path(client, "tau2", tmp_path / name).refused[0].why


def test_a_run_is_recognised(tmp_path: Path) -> None:
    """By its first bytes; the folder of one run is one, a simulation is none."""
    path = folder(tmp_path / "runs/run", simulation())
    assert tau2.recognises(path)
    assert tau2.recognises(path / "results.json")
    assert not tau2.recognises(tmp_path / "runs")
    assert not tau2.recognises(path / "simulations/0-0.json")
    assert not tau2.recognises(tmp_path / "absent.json")
