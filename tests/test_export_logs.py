"""Inspect and Every Eval Ever: the shapes that their own readers were seen to take, and no number that is not ours."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from tests.given_exports import ROWS, client_without_sync, exported, imported, imported_file, other

FILE = re.compile(r"data/[^/]+/[^/]+/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.json")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = client_without_sync(tmp_path_factory.mktemp("home"))
    yield client
    client.workspace.engine.dispose()


def inspect_log(client: Client, job: str, path: Path) -> Any:
    exported(client, job, "inspect", path)
    return json.loads(path.read_text())


def test_an_inspect_log_holds_the_trials(client: Client, tmp_path: Path) -> None:
    """Sample = task, epoch = attempt, score = reward; an error is an error, and a gap has no score of that name."""
    job = imported(client, tmp_path / "a.jsonl")
    log = inspect_log(client, job, tmp_path / "a.json")
    assert (log["version"], log["status"], log["eval"]["config"]["epochs"]) == (2, "success", 2)
    assert log["eval"]["dataset"]["sample_ids"] == ["add/1", "=1+1", "任务 三", "never tried", "c"]
    samples = {(sample["id"], sample["epoch"]): sample for sample in log["samples"]}
    assert len(samples) == len(ROWS) - 1
    assert samples["add/1", 1]["scores"] == {
        "reward": {"value": 1.0}, "composite": {"value": 0.75}, "style": {"value": 0.5},
    }  # fmt: skip
    lost = samples["=1+1", 2]
    assert (lost["scores"], lost["error"]["message"], lost["error"]["traceback"]) == ({}, "-Lost()", "没有了\n")
    assert (samples["任务 三", 1]["scores"]["reward"]["value"], "error" in samples["任务 三", 1]) == (1.0, True)
    assert samples["c", 1]["error"]["message"] == "CancelledError()"


def test_every_object_of_an_inspect_log_has_what_inspect_requires(client: Client, tmp_path: Path) -> None:
    """The fields without a default in inspect_ai 0.3.285, as its models say."""
    log = inspect_log(client, imported(client, tmp_path / "a.jsonl"), tmp_path / "a.json")
    assert {"created", "task", "dataset", "model", "config"} <= set(log["eval"])
    for score in log["results"]["scores"]:
        assert {"name", "scorer"} <= set(score)
        assert all({"name", "value"} <= set(metric) for metric in score["metrics"].values())
    for sample in log["samples"]:
        assert {"id", "epoch", "input", "target"} <= set(sample)
        assert set(sample.get("error", {"message", "traceback", "traceback_ansi"})) == {
            "message", "traceback", "traceback_ansi",
        }  # fmt: skip


def test_an_inspect_log_is_imported_as_the_same_rewards(client: Client, tmp_path: Path) -> None:
    """Our own importer of Inspect logs reads rewards, gaps, statuses, members and k back."""
    job = imported(client, tmp_path / "a.jsonl")
    exported(client, job, "inspect", tmp_path / "a.json")
    after = other(client, "inspect")
    again = imported_file(after, tmp_path / "a.json", "inspect", scorer="reward")
    had, has = client.result(job), after.result(again)
    assert (has.score_counts, has.score, has.curve) == (had.score_counts, had.score, had.curve)
    assert (has.endings, has.as_reported["reward.evalledger.score"]) == (had.endings, had.score)


def test_trials_that_run_are_no_samples(client: Client, tmp_path: Path) -> None:
    """Inspect logs a sample once it has ended; what has not is counted as left out."""
    rows = [{"task": "a", "attempt": 1, "status": "running"}, {"task": "b", "attempt": 1, "reward": 1}]
    job = imported(client, tmp_path / "a.jsonl", rows)
    done = exported(client, job, "inspect", tmp_path / "a.json")
    assert [sample["id"] for sample in json.loads((tmp_path / "a.json").read_text())["samples"]] == ["b"]
    assert done.left_out == {"trials that have not ended": 1}


def test_a_dimension_never_takes_the_rewards_place(client: Client, tmp_path: Path) -> None:
    """A dimension that is called reward is a score of another name."""
    rows = [{"task": "a", "attempt": 1, "no_reward": "unscored", "dimensions": {"reward": 1, "composite": 2}}]
    log = inspect_log(client, imported(client, tmp_path / "a.jsonl", rows), tmp_path / "a.json")
    assert set(log["samples"][0]["scores"]) == {"dimensions.reward", "dimensions.composite"}


def eee(client: Client, job: str, folder: Path) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """The aggregate's path below the folder, the aggregate, and its samples."""
    done = exported(client, job, "eee", folder)
    aggregate = Path(done.written[0])
    lines = [json.loads(line) for path in done.written[1:] for line in Path(path).read_bytes().splitlines()]
    return aggregate.relative_to(folder).as_posix(), json.loads(aggregate.read_text()), lines


def test_eee_is_joined_by_ids_path_and_checksum(client: Client, tmp_path: Path) -> None:
    """The aggregate names its samples by path, sha256 and count; both carry the same ids, and the path is portable."""
    job = imported(client, tmp_path / "a.jsonl", dataset="team/算术@1")
    path, aggregate, samples = eee(client, job, tmp_path / "out")
    assert FILE.fullmatch(path)
    companion = aggregate["detailed_evaluation_results"]
    raw = (tmp_path / "out" / companion["file_path"]).read_bytes()
    assert companion["file_path"] == path.replace(".json", "_samples.jsonl")
    assert companion["checksum"] == hashlib.sha256(raw).hexdigest()
    assert companion["total_rows"] == len(samples) == 5
    assert {(line["evaluation_id"], line["model_id"]) for line in samples} == {
        (aggregate["evaluation_id"], aggregate["model_info"]["id"])
    }
    results = {result["evaluation_result_id"] for result in aggregate["evaluation_results"]}
    assert {line["evaluation_result_id"] for line in samples} <= results


def test_eee_tells_our_numbers_and_their_coverage(client: Client, tmp_path: Path) -> None:
    """Each number that could be given is there with its bounds; a trial without a reward has no score made up."""
    job = imported(client, tmp_path / "a.jsonl")
    _, aggregate, samples = eee(client, job, tmp_path / "out")
    result = client.result(job)
    scores = {r["metric_config"]["metric_name"]: r["score_details"] for r in aggregate["evaluation_results"]}
    assert scores["score"]["score"] == result.score
    assert scores["score"]["details"]["missing"] == str(result.score_counts.missing)
    assert scores["pass_pow_2"]["score"] == result.pass_hat_k
    assert [line["evaluation"] for line in samples][:2] == [
        {"score": 1.0, "is_correct": True}, {"score": 0.0, "is_correct": False},
    ]  # fmt: skip
    assert {line["sample_id"] for line in samples} == {"add/1", "=1+1", "任务 三", "c"}


def test_eee_has_the_fields_of_its_schema(client: Client, tmp_path: Path) -> None:
    """What version 0.3.0 requires is there, and its closed objects hold nothing else."""
    _, aggregate, samples = eee(client, imported(client, tmp_path / "a.jsonl"), tmp_path / "out")
    required = {
        "schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info", "eval_library",
        "evaluation_results",
    }  # fmt: skip
    assert required <= set(aggregate) <= required | {"evaluation_timestamp", "detailed_evaluation_results"}
    assert {"deployment_type", "model_availability"} <= set(aggregate["model_info"]["additional_details"])
    for result in aggregate["evaluation_results"]:
        assert {"lower_is_better", "score_type", "min_score", "max_score"} <= set(result["metric_config"])
        assert all(isinstance(value, str) for value in result["score_details"]["details"].values())
    needed = {
        "schema_version", "evaluation_id", "model_id", "evaluation_name", "sample_id", "interaction_type", "input",
        "answer_attribution", "evaluation",
    }  # fmt: skip
    allowed = needed | {"evaluation_result_id", "output", "messages", "performance", "error", "metadata"}
    for line in samples:
        assert needed <= set(line) <= allowed
        assert all(isinstance(value, str) for value in line["metadata"].values())


def test_eee_of_a_job_without_rewards_claims_nothing(client: Client, tmp_path: Path) -> None:
    """No score, no samples: never a zero."""
    job = imported(client, tmp_path / "a.jsonl", [{"task": "a", "attempt": 1, "error": {"type": "X"}}])
    _, aggregate, samples = eee(client, job, tmp_path / "out")
    assert (aggregate["evaluation_results"], samples) == ([], [])
    assert "detailed_evaluation_results" not in aggregate


def test_eee_scores_without_bounds_say_so(client: Client, tmp_path: Path) -> None:
    """A score of its own scale is not forced into 0 to 1."""
    job = imported(client, tmp_path / "a.jsonl", [{"task": "a", "attempt": 1, "reward": 73.5}])
    _, aggregate, _ = eee(client, job, tmp_path / "out")
    (result,) = aggregate["evaluation_results"]
    assert (result["metric_config"]["min_score"], result["metric_config"]["max_score"]) == ("-Infinity", "Infinity")
