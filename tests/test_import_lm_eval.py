"""Importing lm-eval: one job for each of its tasks, the reward from one metric after one filter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.importers.importing import Report, import_path
from api.importers.run import Options
from api.settings import Settings
from projections.trials import TrialRow, structured_result, why_no_reward

Import = Callable[..., Report]
Row = dict[str, Any]
TIME = "2026-01-01T00-00-00.500000"


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def take(client: Client, tmp_path: Path) -> Import:
    """Import a run of tasks and their rows (or the text of their files), in a folder; the report."""

    def run(
        tasks: Mapping[str, Sequence[Row] | str],
        *,
        printed: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        fields: Mapping[str, Any] | None = None,
        folder: str = "run",
        time: str = TIME,
        **options: Any,
    ) -> Report:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        report = {
            "results": {task: {"alias": task, **(printed or {}).get(task, {})} for task in tasks},
            "versions": dict.fromkeys(tasks, 1.0),
            "n-samples": {task: {"original": 9, "effective": size} for task, size in (sizes or {}).items()},
            "date": 1767225600.5,
            "start_time": 1.5,
            "end_time": 2.5,
            **(fields or {}),
        }
        (path / f"results_{time}.json").write_text(json.dumps(report))
        for task, rows in tasks.items():
            text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
            (path / f"samples_{task}_{time}.jsonl").write_text(text)
        return import_path(client, "lm-eval", path, Options(**options))

    return run


def row(doc_id: Any, acc: Any = 1.0, *, name: str = "none", **fields: Any) -> Row:
    head = {"doc_id": doc_id, "doc": {"q": "?"}, "target": "x", "resps": [["r"]], "filter": name, "metrics": ["acc"]}
    return {**head, "doc_hash": f"{doc_id}", "acc": acc, **fields}


def trials(client: Client, report: Report, at: int = 0) -> dict[str, TrialRow]:
    assert report.refused == []
    return {found.task: found for found in client.trials(report.jobs[at].id)}


def refusal(client: Client, report: Report) -> str:
    assert report.jobs == []
    assert client.jobs().jobs == []
    assert client.datasets() == []
    return report.refused[0].why


def test_a_task_is_a_job_and_a_document_a_member(client: Client, take: Import) -> None:
    """Documents count from 0 to `n-samples.effective`; one without a line has no trial; perf counters are no times."""
    report = take({"qa": [row(0), row(2, 0.0)], "math": [row(0)]}, sizes={"qa": 4, "math": 1})
    assert [(job.dataset, job.attempts, job.members, job.flags) for job in report.jobs] == [
        ("qa@1.0", 1, 4, ("times-dropped",)),
        ("math@1.0", 1, 1, ("times-dropped",)),
    ]
    assert {task: found.reward for task, found in trials(client, report).items()} == {"0": 1.0, "2": 0.0}
    assert client.result(report.jobs[0].id).score_counts.missing == 2
    assert client.job(report.jobs[0].id).runner == "lm-eval@unknown"
    assert report.jobs[0].as_reported["date"] == "2026-01-01T00:00:00.500000+00:00"


def test_the_same_run_again_writes_nothing(take: Import) -> None:
    """From another folder too. There is no run id: other bytes are another job."""
    assert take({"qa": [row(0)]}).jobs[0].outcome == "imported"
    assert take({"qa": [row(0)]}, folder="copy").jobs[0].outcome == "unchanged"
    assert take({"qa": [row(0, 0.0)]}, folder="other").jobs[0].outcome == "imported"


def test_several_filters_need_a_name(client: Client, take: Import) -> None:
    """The others become dimensions; a task with one filter needs none; another name is another job of the same run."""
    rows = [row(0, 1.0, name="strict"), row(0, 0.0, name="flexible"), row(1, 0.0, name="strict")]
    tasks = {"math": rows, "qa": [row(0)]}
    assert "math has several filters: strict, flexible" in refusal(client, take(tasks))
    assert "filter 'x'; there are flexible, none, strict" in refusal(client, take(tasks, filter="x"))
    assert "math has several filters" in refusal(client, take(tasks, filter="none"))
    report = take(tasks, filter="strict")
    found = trials(client, report)
    assert (found["0"].reward, structured_result(found["0"]).dimensions) == (1.0, {"acc,flexible": 0.0})
    assert (found["1"].reward, found["1"].structured) == (0.0, None)
    other = take(tasks, filter="flexible")
    assert [job.outcome for job in other.jobs] == ["imported", "unchanged"]
    found = trials(client, other)
    assert (found["0"].reward, why_no_reward(found["1"])) == (0.0, "not-reported")


def test_several_metrics_need_a_name(client: Client, take: Import) -> None:
    """As with filters."""
    rows = [row(0, 1.0, metrics=["acc", "f1"], f1=0.25)]
    assert "qa has several metrics: acc, f1; name the reward's with `--metric`" in refusal(client, take({"qa": rows}))
    assert "metric 'x'" in refusal(client, take({"qa": rows}, metric="x"))
    found = trials(client, take({"qa": rows, "math": [row(0)]}, metric="f1"))
    assert (found["0"].reward, structured_result(found["0"]).dimensions) == (0.25, {"acc,none": 1.0})


@pytest.mark.parametrize(
    ("acc", "why"),
    [("NaN", "not-finite"), ("1e309", "not-finite"), ("null", "null"), ('"1.0"', "not-a-number"),
     ("true", "not-a-number"), ("[-3.5, 7]", "not-a-number")],
)  # fmt: skip
def test_what_is_no_number_is_no_reward(client: Client, take: Import, acc: str, why: str) -> None:
    """Nor is it zero; what stood there is kept and flagged."""
    report = take({"qa": json.dumps(row(0, "here")).replace('"here"', acc) + "\n"})
    assert why_no_reward(trials(client, report)["0"]) == why
    assert ("reward-rejected" in report.jobs[0].flags) == (why != "null")


def test_a_metric_that_a_line_lists_but_does_not_give_is_not_reported(client: Client, take: Import) -> None:
    """The line says that it was measured, and nothing more."""
    bare = {name: value for name, value in row(1).items() if name != "acc"}
    assert why_no_reward(trials(client, take({"qa": [row(0), bare]}))["1"]) == "not-reported"


def test_lines_without_filter_and_metrics_are_read_by_the_results(client: Client, take: Import) -> None:
    """As old versions wrote them; documents are then those of the lines, in their order."""
    old = [{"doc_id": number, "doc": {}, "target": 1, "acc": 0.5} for number in (3, 1)]
    report = take({"qa": old}, printed={"qa": {"acc,none": 0.5, "acc_stderr,none": "N/A"}})
    assert [(task, found.reward) for task, found in trials(client, report).items()] == [("1", 0.5), ("3", 0.5)]
    assert report.jobs[0].members == 2
    assert report.jobs[0].as_reported["acc_stderr,none"] == "N/A"


def test_a_document_beyond_the_size_is_flagged(take: Import) -> None:
    """It is a member all the same: its reward is there."""
    (job,) = take({"qa": [row(0), row(7)]}, sizes={"qa": 1}).jobs
    assert (job.members, "ids-not-in-dataset" in job.flags) == (2, True)


@pytest.mark.parametrize(("printed", "differ"), [(0.5, False), (0.5 + 1e-12, False), (0.51, True), (None, False)])
def test_printed_numbers_are_kept_and_compared(take: Import, printed: float | None, differ: bool) -> None:
    """The reward's metric beside our score; the rest is as reported only."""
    values = {} if printed is None else {"acc,none": printed}
    (job,) = take({"qa": [row(0), row(1, 0.0)]}, printed={"qa": {**values, "f1,none": 0.9}}).jobs
    assert ("as-reported-differs" in job.flags) == differ
    assert {name: job.as_reported[name] for name in ("metric", "filter", "f1,none")} == {
        "metric": "acc", "filter": "none", "f1,none": 0.9,
    }  # fmt: skip


def test_a_group_holds_no_documents(take: Import) -> None:
    """Its numbers are those of its tasks."""
    report = take(
        {"qa": [row(0)]}, fields={"group_subtasks": {"all": ["qa"], "qa": []}, "results": {"all": {}, "qa": {}}}
    )
    assert [job.dataset for job in report.jobs] == ["qa@1.0"]


@pytest.mark.parametrize("version", [None, True, "a b", [1], -1])
def test_without_a_version_the_dataset_is_named_by_its_members(take: Import, version: Any) -> None:
    """What is no part of a reference is not made one."""
    (job,) = take({"qa": [row(0)]}, fields={"versions": {"qa": version}}).jobs
    assert job.dataset.startswith("lm-eval/qa@")


def test_the_version_of_the_tool_is_its_own(client: Client, take: Import) -> None:
    """Where the file names it."""
    (job,) = take({"qa": [row(0)]}, fields={"lm_eval_version": "0.4.13"}).jobs
    assert client.job(job.id).runner == "lm-eval@0.4.13"


def test_one_dataset_for_several_tasks_is_refused(client: Client, take: Import) -> None:
    """Their documents have the same numbers, and are not the same."""
    assert "several tasks (qa, math)" in refusal(client, take({"qa": [row(0)], "math": [row(0)]}, dataset="x@1"))
    assert take({"qa": [row(0)]}, folder="one", dataset="x@1").jobs[0].dataset == "x@1"


def test_other_documents_are_another_dataset(take: Import) -> None:
    """`doc_hash` is part of the digest; the prompt, which a chat template changes, is not."""
    assert take({"qa": [row(0, arguments=1)]}, folder="a").refused == []
    assert take({"qa": [row(0, arguments=2)]}, folder="b").refused == []
    assert take({"qa": [row(0, doc_hash="other")]}, folder="c").refused[0].outcome == "conflict"


def test_copies_count_once_and_contradictions_are_refused(client: Client, take: Import) -> None:
    """For each document and filter."""
    assert "Line 3 of samples_qa" in refusal(client, take({"qa": [row(0), row(1), row(0, target="y")]}))
    assert "another doc_hash" in refusal(client, take({"qa": [row(0), row(0, name="b", doc_hash="z")]}))
    assert 'both 0 and "0"' in refusal(client, take({"qa": [row(0), row("0", name="b")]}))
    report = take({"qa": [row(0), row(0)]})
    assert (len(trials(client, report)), "duplicate-rows-dropped" in report.jobs[0].flags) == (1, True)


def test_a_cut_samples_file_gives_what_is_whole(client: Client, take: Import) -> None:
    """Its last documents have no trial; with --strict nothing is imported."""
    text = json.dumps(row(0)) + "\n" + json.dumps(row(1))[:-5]
    assert "Line 2" in refusal(client, take({"qa": text}, sizes={"qa": 2}, strict=True))
    report = take({"qa": text}, sizes={"qa": 2})
    assert (len(trials(client, report)), report.jobs[0].members) == (1, 2)
    assert "source-incomplete" in report.jobs[0].flags


def test_samples_of_another_run_are_not_taken(client: Client, take: Import, tmp_path: Path) -> None:
    """Several runs lie in one folder: each takes the samples of its own time. A run alone takes the only ones."""
    take({"qa": [row(0)]}, time="2026-01-01T00-00-00.500000")
    report = take({"qa": [row(0, 0.0)]}, time="2026-01-02T00-00-00")
    assert [job.outcome for job in report.jobs] == ["unchanged", "imported"]
    (tmp_path / "run" / "samples_qa_2026-01-02T00-00-00.jsonl").unlink()
    report = import_path(client, "lm-eval", tmp_path / "run")
    assert [job.outcome for job in report.jobs] == ["unchanged"]
    assert "--log_samples" in report.refused[0].why
    (tmp_path / "run" / "results_2026-01-01T00-00-00.500000.json").rename(tmp_path / "results.json")
    assert len(import_path(client, "lm-eval", tmp_path / "run").jobs) == 1


@pytest.mark.parametrize("task", ["../qa", "qa_2026-01-01", "a/b"])
def test_a_tasks_name_leads_nowhere(client: Client, take: Import, task: str) -> None:
    """It names a file beside the results, or none."""
    fields = {"results": {task: {}}, "n-samples": {task: {"effective": 1}}}
    assert "no one samples file" in refusal(client, take({"qa": [row(0)]}, fields=fields))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"results": []}, "no results file"),
        ({"results": {}}, "names no task"),
        ({"n-samples": {"qa": {"effective": -1}}}, "n-samples"),
        ({"n-samples": {"qa": {"effective": 10**9}}}, "n-samples"),
        ({"n-samples": {"qa": 1}}, "n-samples"),
    ],
)
def test_a_hostile_results_file_is_refused(client: Client, take: Import, fields: dict[str, Any], says: str) -> None:
    """Never a traceback: one sentence, and nothing is written."""
    assert says in refusal(client, take({"qa": [row(0)]}, fields=fields))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]\n", "no sample of lm-eval"),
        ("{}\n", "`doc_id`"),
        ('{"doc_id": -1}\n', "doc_id"),
        ('{"doc_id": 1.5}\n', "doc_id"),
        ('{"doc_id": true}\n', "doc_id"),
        ('{"doc_id": 0, "metrics": "acc"}\n', "metrics"),
        ('{"doc_id": 0, "doc_id": 0}\n', "'doc_id' twice"),
        ('{"doc_id": 0, "doc": {"a": 1, "a": 1}}\n', "'a' twice"),
        ("oops\n", "no JSON"),
        ('{"doc_id": "\\ud800"}\n', "surrogate"),
        ('{"doc_id": 0, "doc": ' + "[" * 10_000 + "\n", "nested"),
    ],
)
def test_a_hostile_line_is_refused(client: Client, take: Import, text: str, says: str) -> None:
    """One sentence that names the line and its file."""
    why = refusal(client, take({"qa": text}))
    assert says in why
    assert f"Line 1 of samples_qa_{TIME}.jsonl" in why


def test_a_samples_file_is_no_run(client: Client, take: Import, tmp_path: Path) -> None:
    """What to give is the results file, or its folder; `auto` finds it and asks nothing of the samples."""
    take({"qa": [row(0)]})
    report = import_path(client, "lm-eval", tmp_path / "run" / f"samples_qa_{TIME}.jsonl")
    assert "no results file of lm-eval" in report.refused[0].why
    report = import_path(client, "auto", tmp_path / "run")
    assert ([job.outcome for job in report.jobs], report.refused) == (["unchanged"], [])


def test_files_beyond_the_cap_are_refused(client: Client, take: Import) -> None:
    """Results and samples alike."""
    assert "larger than 10 bytes" in refusal(client, take({"qa": [row(0)]}, file_bytes_max=10))
    assert "larger than 1,000 bytes" in refusal(client, take({"qa": [row(0, doc="x" * 999)]}, file_bytes_max=1_000))
