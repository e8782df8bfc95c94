"""Importing SWE-bench: four ways to have no pass, of which only one is a zero."""

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
from ledger.facts.trial import ArtifactFailed, ArtifactPersisted, trial_stream
from projections.trials import TrialRow, why_no_reward

Import = Callable[..., Report]

LISTS = ("submitted", "completed", "resolved", "unresolved", "error", "empty_patch", "incomplete")


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def take(client: Client, tmp_path: Path) -> Import:
    """Import a run report, with what its logs say of instances, as one run; the report."""

    def run(report: Any, instances: dict[str, Any] | None = None, *, name: str = "m.r.json", **options: Any) -> Report:
        path = tmp_path / "run" / name
        write(path, report)
        for task, said in (instances or {}).items():
            write(path.parent / "logs/run_evaluation/r/m" / task / "report.json", said)
        return import_path(client, "swe-bench", path, Options(**options))

    return run


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=4))


def report_of(**lists: list[str]) -> dict[str, Any]:
    """A run report with these outcomes, as the harness writes it; `submitted` names further ids."""
    lists["completed"] = lists.get("completed", [*lists.get("resolved", []), *lists.get("unresolved", [])])
    ran = [task for name in ("resolved", "unresolved", "error", "empty_patch") for task in lists.get(name, [])]
    lists["submitted"] = sorted({*ran, *lists.get("submitted", [])})
    dataset = {*ran, *lists.get("incomplete", [])}
    counts = {f"{name}_instances": len(lists.get(name, [])) for name in LISTS if name != "incomplete"}
    ids = {f"{name}_ids": lists.get(name, []) for name in LISTS}
    return {"total_instances": len(dataset), **counts, **ids, "schema_version": 2}


def said(task: str, resolved: Any, **more: Any) -> dict[str, Any]:
    return {task: {"patch_is_None": False, "patch_exists": True, "resolved": resolved, "tests_status": {}} | more}


def trials(client: Client, report: Report) -> dict[str, TrialRow]:
    assert report.refused == []
    return {row.task: row for row in client.trials(report.jobs[0].id)}


def refusal(client: Client, report: Report) -> str:
    assert report.jobs == []
    assert client.jobs().jobs == []
    return report.refused[0].why


def test_four_ways_to_have_no_pass(client: Client, take: Import) -> None:
    """Unresolved is 0; an error and an empty patch failed without a reward, each told; incomplete never ran."""
    report = take(report_of(resolved=["a"], unresolved=["b"], error=["c"], empty_patch=["d"], incomplete=["e"]))
    found = trials(client, report)
    assert {task: (row.status, row.reward, why_no_reward(row)) for task, row in found.items()} == {
        "a": ("succeeded", 1.0, None),
        "b": ("succeeded", 0.0, None),
        "c": ("failed", None, "error"),
        "d": ("failed", None, "empty-patch"),
    }
    (job,) = report.jobs
    assert (job.attempts, job.members, job.flags) == (1, 5, ("times-missing",))
    result = client.result(job.id)
    assert (result.score, result.score_counts.missing, result.score_counts.invalid) == (0.5, 3, 2)
    assert client.job(job.id).origin["policy"] == "swe-bench"


def test_what_the_tool_printed_stands_beside_ours(client: Client, take: Import) -> None:
    """Its counts are kept; one that its own lists contradict is flagged."""
    report = report_of(resolved=["a"], unresolved=["b"])
    (job,) = take(report).jobs
    assert job.as_reported["resolved_instances"] == 1
    assert job.as_reported["total_instances"] == 2
    for changed in ({"total_instances": 3}, {"resolved_instances": 2}, {"error_instances": 1}):
        (job,) = take(report | changed).jobs
        assert "as-reported-differs" in job.flags
        assert job.as_reported.items() >= changed.items()
        assert job.members == 2


def test_ids_outside_the_dataset_are_left_out_and_named(client: Client, take: Import) -> None:
    """What was submitted and stands in no list of outcomes is no member; it is said which those are."""
    report = take(report_of(resolved=["a"], submitted=["z/1", "y 2"]))
    assert set(trials(client, report)) == {"a"}
    (job,) = report.jobs
    assert job.members == 1
    assert "ids-not-in-dataset" in job.flags
    assert job.as_reported["ids_not_in_dataset"] == "y 2, z/1"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"unresolved_ids": ["a", "b"]}, ("both resolved_ids and unresolved_ids", "a")),
        ({"error_ids": ["b"]}, ("both unresolved_ids and error_ids", "b")),
        ({"incomplete_ids": ["a"]}, ("both resolved_ids and incomplete_ids", "a")),
        ({"empty_patch_ids": ["c"], "error_ids": ["c"]}, ("both error_ids and empty_patch_ids", "c")),
        ({"completed_ids": ["a"]}, ("not completed_ids", "b")),
        ({"completed_ids": ["a", "b", "q"]}, ("neither resolved nor unresolved_ids", "q")),
        ({"incomplete_ids": ["x"], "submitted_ids": ["a", "b", "x"]}, ("incomplete_ids and submitted_ids", "x")),
        ({"submitted_ids": ["a"]}, ("not submitted_ids", "b")),
    ],
)
def test_lists_that_contradict_each_other_are_refused(
    client: Client, take: Import, changed: dict[str, Any], says: tuple[str, str]
) -> None:
    """Both lists and the id are named, and nothing is written."""
    why = refusal(client, take(report_of(resolved=["a"], unresolved=["b"]) | changed))
    assert all(part in why for part in says)


def test_an_id_twice_in_a_list_counts_once(client: Client, take: Import) -> None:
    """The same thing said twice is one trial."""
    assert len(trials(client, take(report_of(resolved=["a", "a"]) | {"resolved_instances": 1}))) == 1


def test_an_instances_own_report_must_agree(client: Client, take: Import, tmp_path: Path) -> None:
    """Where the run report and an instance's own contradict each other, both are named and nothing is written."""
    lists: dict[str, list[str]] = {
        "resolved": ["a"], "unresolved": ["b"], "error": ["c"], "empty_patch": ["d"], "incomplete": ["e"],
    }  # fmt: skip
    for task, resolved in (("a", False), ("b", True), ("c", False), ("d", True), ("d", False), ("e", True)):
        why = refusal(client, take(report_of(**lists), {task: said(task, resolved)}))
        assert all(part in why for part in ("m.r.json", f"/{task}/report.json", f"{task} in "))
        (tmp_path / f"run/logs/run_evaluation/r/m/{task}/report.json").unlink()
    agreeing = {
        "a": said("a", True),
        "b": said("b", False),
        "c": "",
        "d": said("d", False, patch_is_None=True, patch_exists=False),
        "foreign": "of an earlier run {",
    }
    report = take(report_of(**lists), agreeing)
    assert len(trials(client, report)) == 4
    assert report.jobs[0].flags == ("times-missing",)


@pytest.mark.parametrize("text", ['{"a": {"resol', "", "[]", '{"other": {"resolved": true}}', '{"a": {}}'])
def test_a_cut_instance_report_leaves_the_run_report_to_stand(client: Client, take: Import, text: str) -> None:
    """What the run report says is imported and flagged; with --strict nothing is."""
    report = report_of(resolved=["a"])
    assert "report.json" in refusal(client, take(report, {"a": text}, strict=True))
    taken = take(report, {"a": text})
    assert trials(client, taken)["a"].reward == 1.0
    assert "source-incomplete" in taken.jobs[0].flags


@pytest.mark.parametrize("text", ['{"a": {"resolved": "true"}}', '{"a": 1}', '{"a": {}, "a": {}}'])
def test_a_broken_instance_report_is_refused(client: Client, take: Import, text: str) -> None:
    """A text is no truth value, and an object that names a key twice is not read."""
    assert "a/report.json" in refusal(client, take(report_of(resolved=["a"]), {"a": text}))


def test_what_an_instance_left_is_kept(client: Client, take: Import, tmp_path: Path) -> None:
    """Patch and logs are the trial's artifacts, the reports are the run's sources; a link is not followed."""
    folder = tmp_path / "run/logs/run_evaluation/r/m/a"
    write(folder / "patch.diff", "diff")
    (folder / "test_output.txt").symlink_to("/etc/passwd")
    taken = take(report_of(resolved=["a"]), {"a": said("a", True)})
    row = trials(client, taken)["a"]
    facts = [recorded.entry.fact for recorded in client.ledger.stream(trial_stream(row.job_id, "a", 1))]
    (kept,) = [fact for fact in facts if isinstance(fact, ArtifactPersisted)]
    assert client.artifacts.read_bytes(kept.sha256, max_bytes=10) == b"diff"
    assert ArtifactFailed("test_output.txt", "unreadable") in facts
    listing = client.job(row.job_id).origin["sources"]
    names = {source["path"] for source in json.loads(client.artifacts.read_bytes(listing, max_bytes=10_000))}
    assert names == {"m.r.json", "logs/run_evaluation/r/m/a/report.json"}


def test_logs_are_found_by_the_reports_name(client: Client, take: Import, tmp_path: Path) -> None:
    """Model and run may hold dots; a name that fits two of the logs' folders is refused; a link is not followed."""
    logs = tmp_path / "run/logs/run_evaluation"
    write(logs / "r.1/gpt-4.1/a/report.json", said("a", False))
    report = report_of(resolved=["a"])
    assert "gpt-4.1" in refusal(client, take(report, name="gpt-4.1.r.1.json"))
    write(logs / "1.r.1/gpt-4/a/report.json", said("a", False))
    assert "fits the logs in both" in refusal(client, take(report, name="gpt-4.1.r.1.json"))
    (logs / "x").symlink_to(logs / "r.1")
    assert take(report, name="gpt-4.1.x.json").refused == []


def test_a_folder_gives_its_run_reports(client: Client, tmp_path: Path) -> None:
    """Predictions beside a report, and the reports of instances, are no runs; the logs lead to their report."""
    write(tmp_path / "run/m.r.json", report_of(resolved=["a"]))
    write(tmp_path / "run/preds.json", [{"instance_id": "a", "model_patch": "diff"}])
    write(tmp_path / "run/logs/run_evaluation/r/m/a/report.json", said("a", True))
    first = import_path(client, "swe-bench", tmp_path / "run")
    assert [job.outcome for job in first.jobs] == ["imported"]
    assert first.refused == []
    again = import_path(client, "swe-bench", tmp_path / "run/logs/run_evaluation")
    assert [(job.id, job.outcome) for job in again.jobs] == [(first.jobs[0].id, "unchanged")]
    (tmp_path / "run/m.r.json").unlink()
    assert "No run report" in import_path(client, "swe-bench", tmp_path / "run/logs/run_evaluation").refused[0].why


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no run report"),
        ("[]", "no run report"),
        ('{"schema_version": 1}', "no run report"),
        ('{"schema_version": 2}', "submitted_ids"),
        (json.dumps(report_of(resolved=["a"]))[:-40], "no run report"),
        (json.dumps(report_of(resolved=["a"]))[:-1] + ', "resolved_ids": []}', "'resolved_ids' twice"),
        (json.dumps(report_of(resolved=["a"]) | {"resolved_ids": [1]}), "no run report"),
        (json.dumps(report_of(resolved=["a"]) | {"total_instances": True}), "no run report"),
        (json.dumps(report_of()), "no task"),
        (json.dumps(report_of(resolved=["a" * 600])), "512"),
    ],
)
def test_a_hostile_report_is_refused(client: Client, take: Import, text: str, says: str) -> None:
    """One sentence, and nothing is written."""
    assert says in refusal(client, take(text))
