"""MLflow: the run says what the job was, how much was measured, and carries the trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from api.client import Client
from ledger.errors import BadInput, Conflict, StoreUnreachable
from tests.given_exports import client_without_sync, exported, imported, imported_file, other, told


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = client_without_sync(tmp_path_factory.mktemp("home"))
    yield client
    client.workspace.engine.dispose()


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of plain files: it takes a tenth of the time that a database does."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "store").as_uri()


def only_run(uri: str, experiment: str) -> Any:
    tracking = MlflowClient(tracking_uri=uri)
    (run,) = tracking.search_runs([tracking.get_experiment_by_name(experiment).experiment_id])
    return run


def test_a_run_holds_the_job(client: Client, tmp_path: Path, uri: str) -> None:
    """Metrics under names MLflow takes, tags with coverage, and the trials as a file that can be imported."""
    job = imported(client, tmp_path / "a.jsonl", dataset="算术/a b@1".replace(" ", "-"))
    exported(client, job, "mlflow", uri)  # type: ignore[arg-type]  # a URI is no path
    run = only_run(uri, "算术/a-b@1")
    result = client.result(job)
    assert run.info.status == "FAILED"
    assert run.data.metrics["score"] == result.score
    assert (run.data.metrics["pass_at_2"], run.data.metrics["pass_pow_2"]) == (result.pass_at_k, result.pass_hat_k)
    tags = {name.removeprefix("evalledger."): value for name, value in run.data.tags.items()}
    assert (tags["job"], tags["k"], tags["dataset"]) == (job, "2", "算术/a-b@1")
    assert (tags["coverage.scored"], tags["coverage.missing"]) == ("5", "5")
    trials = Path(run.info.artifact_uri.removeprefix("file://"), "trials.jsonl")
    after = other(client, "mlflow")
    assert told(after, imported_file(after, trials)) == told(client, job)


def test_a_job_is_one_run_unless_forced(client: Client, tmp_path: Path, uri: str) -> None:
    """A second export is refused and names the run; `--force` adds another."""
    job = imported(client, tmp_path / "a.jsonl", [{"task": "once", "attempt": 1, "reward": 1}], dataset="once@1")
    exported(client, job, "mlflow", uri)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match=only_run(uri, "once@1").info.run_id):
        exported(client, job, "mlflow", uri)  # type: ignore[arg-type]
    exported(client, job, "mlflow", uri, force=True)  # type: ignore[arg-type]


def test_what_mlflow_refuses_is_one_sentence(client: Client, tmp_path: Path) -> None:
    """A store that MLflow does not take, or a file in the folder's place, is told, without the address."""
    job = imported(client, tmp_path / "a.jsonl", [{"task": "no", "attempt": 1, "reward": 1}], dataset="no@1")
    with pytest.raises(StoreUnreachable, match="MLflow does not take the run") as refusal:
        exported(client, job, "mlflow", "nosuch://user:password@host")  # type: ignore[arg-type]
    assert "password" not in str(refusal.value)
    with pytest.raises(BadInput, match="is a file"):
        exported(client, job, "mlflow", tmp_path / "a.jsonl")
