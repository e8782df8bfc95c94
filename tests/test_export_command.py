"""`el export`: where a job may be written to, what is said about it, and that no secret leaves with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.exporters import optional
from api.exporters.exporting import FORMATS
from ledger.digests import digest_of_names
from ledger.errors import NotAllowed
from ledger.facts.catalogue import Parameter, RunnerPublished, Task
from tests.given_exports import SHA, exported, imported
from tests.test_cli import El, el  # noqa: F401 - a fixture
from tests.test_secrets_never_leak import NAME, VALUE, files_that_show

TEXTS = ("jsonl", "csv", "inspect")


@pytest.fixture
def job(el: El, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    """A job with every signal, and the folder it is exported in."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    return imported(connect(), tmp_path / "rows.jsonl")


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("out", [[], ["--out", "-"]])
def test_a_text_goes_to_standard_output(el: El, job: str, tmp_path: Path, form: str, out: list[str]) -> None:  # noqa: F811
    """With `-` or without a path it is the same bytes as the file, and nothing else."""
    printed = el("export", job[:8], "--format", form, *out)
    assert printed.code == 0
    assert el("export", job, "--format", form, "--out", "file").code == 0
    assert printed.out.encode() == Path("file").read_bytes()


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in TEXTS])
def test_what_is_no_text_does_not(el: El, job: str, form: str) -> None:  # noqa: F811
    """Bytes and folders need a path."""
    refused = el("export", job, "--format", form, "--out", "-")
    assert (refused.code, refused.out) == (1, "")
    assert "standard output" in refused.err


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_is_not_written_over_unasked(el: El, job: str, form: str) -> None:  # noqa: F811
    """What is there stays to the byte; `--force` replaces it; no half-written file is left."""
    Path("here").write_text("mine")
    refused = el("export", job, "-f", form, "--out", "here")
    assert (refused.code, Path("here").read_text()) == (4, "mine")
    assert "--force" in refused.err
    assert el("export", job, "-f", form, "--out", "here", "--force").code == 0
    assert Path("here").stat().st_size > 100
    assert list(Path().glob(".*.part")) == []


def test_eee_writes_both_files_or_none(el: El, job: str) -> None:  # noqa: F811
    """The same job has the same names: a second time is refused, also when only one of the two is there."""
    first = el("export", job, "-f", "eee", "--out", "shared", "--json").document["written"]
    assert el("export", job, "-f", "eee", "--out", "shared").code == 4
    Path(first[1]).unlink()
    assert el("export", job, "-f", "eee", "--out", "shared").code == 4
    assert not Path(first[1]).exists()
    assert el("export", job, "-f", "eee", "--out", "shared", "--force").code == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--format", "xlsx"], 1, "jsonl, csv, parquet, inspect, eee, mlflow"),
        (["--format", "csv", "--out", "no/such/file"], 3, "no folder no/such"),
        (["--format", "csv", "--out", "folder"], 1, "is a folder"),
        (["--format", "eee", "--out", "rows.jsonl"], 1, "is a file"),
        (["--format", "csv", "--json"], 1, "--out"),
    ],
)
def test_a_wrong_place_is_one_sentence(el: El, job: str, words: list[str], code: int, says: str) -> None:  # noqa: F811
    """What is wrong and what to do, and nothing written."""
    Path("folder").mkdir()
    refused = el("export", job, *words)
    assert (refused.code, refused.out) == (code, "")
    assert says in refused.err
    assert len(refused.err.splitlines()) == 1


def test_an_unknown_job_is_not_found(el: El, job: str) -> None:  # noqa: F811
    """No file is made for it."""
    assert el("export", "abcd1234", "-f", "csv", "--out", "x").code == 3
    assert not Path("x").exists()


def test_the_report_says_what_was_left_out(el: El, job: str) -> None:  # noqa: F811
    """As one document, as lines, and beside a text on standard error."""
    report = el("export", job, "-f", "eee", "--out", "e", "--json").document
    assert (report["id"], report["format"], report["attempts"], report["members"]) == (job, "eee", 2, 5)
    assert report["left_out"] == {"trials without a reward": 3}
    assert "left out: trials without a reward (3)" in el("export", job, "-f", "eee", "--out", "f").out


def test_jsonl_says_how_many_attempts_were_asked_for(el: El, tmp_path: Path) -> None:  # noqa: F811
    """Where k is not the largest attempt, only the option brings it back."""
    rows = [{"task": "a", "attempt": 1, "reward": 1}]
    job = imported(connect(), tmp_path / "rows.jsonl", rows, attempts=3)
    assert "--attempts 3" in el("export", job, "-f", "jsonl").err


@pytest.mark.parametrize(("module", "form"), [("pyarrow", "parquet"), ("mlflow.entities", "mlflow")])
def test_a_missing_library_is_told_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, module: str, form: str
) -> None:
    """One sentence that names the extra."""

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(optional.importlib, "import_module", absent)
    with pytest.raises(NotAllowed, match=rf"pip install 'evalledger\[{form}\]'"):
        optional.optional(module, extra=form)


def test_no_optional_library_is_loaded_unasked() -> None:
    """`el` starts without any of them, so it starts where they are not installed."""
    script = "import sys, api.cli.main; print(*{'pyarrow', 'mlflow', 'alembic', 'pytest'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "\n"


def secret_job(client: Client) -> str:
    """A job whose runner reads a secret, with a trial."""
    reads = (Parameter(NAME, required=True), Parameter("model"))
    client.publish_runner(RunnerPublished("r@1", "external", reads))
    client.publish_dataset("d@1", [Task("t", digest_of_names("t"))], runner="r@1")
    client.create_profile("team/p@1", {"model": "acme/m1"}, {NAME: VALUE})
    job = client.submit_job("d@1", profile="team/p@1", tags={"why": "=1+1"})
    with client.trial(job.id, "t", 1) as trial:
        trial.reward(1.0)
    return job.id


def test_no_export_holds_a_secret(el: El, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Its name leaves where a format names parameters; neither its value nor its fingerprint does."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = connect()
    job = secret_job(client)
    (fingerprint,) = client.job(job).secrets and client.ledger.state(f"job/{job}").manifest.secrets.values()
    out = tmp_path / "out"
    out.mkdir()
    for form in FORMATS:
        place: Any = (out / "mlflow").as_uri() if form == "mlflow" else out / form
        exported(client, job, form, place)
    assert len([path for path in out.rglob("*") if path.is_file()]) > len(FORMATS)
    assert files_that_show(out, VALUE, fingerprint) == []
    assert json.loads((out / "inspect").read_text())["metadata"]["evalledger"]["secrets"] == [NAME]


@pytest.mark.parametrize("form", FORMATS)
def test_names_of_any_script_survive(el: El, job: str, tmp_path: Path, form: str) -> None:  # noqa: F811
    """Slashes, spaces and Chinese stand in every format as they are."""
    place: Any = (tmp_path / "out").as_uri() if form == "mlflow" else tmp_path / "out"
    exported(connect(), job, form, place)
    files = [path.read_bytes() for path in [tmp_path / "out", *(tmp_path / "out").rglob("*")] if path.is_file()]
    for name in ("add/1", "任务 三"):
        assert any(name.encode() in data for data in files), name
    assert any(SHA.encode() in data for data in files) or form == "eee"
