"""`el import auto`, and folders of many runs: each run by its own importer, a bad one told, a nested copy skipped."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from api.client import Client, connect
from api.importers import importing, jsonl
from api.importers.importing import IMPORTERS, Report, import_path
from api.importers.run import Options, Run
from api.settings import Settings
from ledger.errors import BadInput
from tests.import_runs import RUNS, write_run

TOOLS = [importer.NAME for importer in IMPORTERS]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def lot(tmp_path: Path) -> Path:
    """A folder with a run of every tool."""
    for tool in TOOLS:
        write_run(RUNS[tool], tmp_path / "lot" / tool)
    return tmp_path / "lot"


def tools(client: Client, report: Report) -> list[str]:
    return sorted(str(client.job(job.id).origin["tool"]) for job in report.jobs)


def test_a_folder_with_runs_of_several_tools_imports_each_by_its_own(client: Client, lot: Path) -> None:
    """Every run is recognised by one importer, and gives the job that its importer gives when it is named."""
    report = import_path(client, "auto", lot)
    assert report.refused == []
    assert tools(client, report) == sorted(TOOLS)
    for tool in TOOLS:
        named = import_path(client, tool, lot / tool)
        assert [job.outcome for job in named.jobs] == ["unchanged"]
        assert named.jobs[0].id in {job.id for job in report.jobs}


@pytest.mark.parametrize("importer", IMPORTERS, ids=lambda importer: importer.NAME)
def test_a_run_is_recognised_by_one_importer(importer: importing.Importer, lot: Path) -> None:
    """What `find` gives for a tool's run, its importer recognises, and no other does."""
    for run in importer.find(lot / importer.NAME):
        assert [other.NAME for other in IMPORTERS if other.recognises(run)] == [importer.NAME]


def test_what_nobody_recognises_is_told(client: Client, lot: Path) -> None:
    """A file that may hold results is named, the runs beside it are imported; a readme is no result."""
    (lot / "notes.json").write_text('{"my": "notes"}')
    (lot / "README.md").write_text("about these runs")
    (lot / "link.jsonl").symlink_to(lot / "jsonl/trials.jsonl")
    report = import_path(client, "auto", lot)
    assert len(report.jobs) == len(TOOLS)
    assert {Path(refused.path).name for refused in report.refused} == {"notes.json", "link.jsonl"}
    assert "No importer recognises" in report.refused[0].why
    alone = import_path(client, "auto", lot / "notes.json")
    assert (alone.jobs, len(alone.refused)) == ([], 1)
    assert "nothing at" in import_path(client, "auto", lot / "absent").refused[0].why


def test_many_unknown_files_are_counted(client: Client, tmp_path: Path) -> None:
    """The first ten are named, the rest are a number."""
    for number in range(14):
        (tmp_path / f"{number:02}.json").write_text("{}")
    refused = import_path(client, "auto", tmp_path).refused
    assert len(refused) == 11
    assert "4 further files" in refused[-1].why


def test_a_file_that_two_importers_recognise_is_refused(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is guessed; both are named."""
    monkeypatch.setattr(importing, "IMPORTERS", (jsonl, jsonl))
    (report,) = import_path(client, "auto", write_run(RUNS["jsonl"], tmp_path / "run")).refused
    assert "Both jsonl and jsonl" in report.why


@pytest.mark.parametrize("options", [Options(policy="tau-1"), Options(merge_runs=True)])
def test_what_belongs_to_one_tool_needs_its_name(client: Client, lot: Path, options: Options) -> None:
    """With auto it would mean nothing for the others."""
    with pytest.raises(BadInput, match="name it instead"):
        import_path(client, "auto", lot, options)


def test_a_bad_run_is_told_and_the_rest_go_on(client: Client, lot: Path) -> None:
    """Each run is a transaction of its own; progress tells of each before it is read."""
    (lot / "jsonl/bad.jsonl").write_text('{"task": "a", "attempt": 0}\n')
    told: list[tuple[int, int]] = []
    report = import_path(client, "auto", lot, progress=lambda done, total: told.append((done, total)))
    assert len(report.jobs) == len(TOOLS)
    assert [Path(refused.path).name for refused in report.refused] == ["bad.jsonl"]
    assert told == [(done, len(TOOLS) + 1) for done in range(len(TOOLS) + 1)]
    assert len(client.jobs().jobs) == len(TOOLS)


class Folders:
    """An importer whose runs are folders, read as our own form, one run in another."""

    NAME = "folders"
    POLICIES: tuple[str, ...] = ()

    def find(self, path: Path) -> Sequence[Path]:
        return sorted(file.parent for file in path.rglob("trials.jsonl"))

    def recognises(self, path: Path) -> bool:
        return (path / "trials.jsonl").is_file()

    def read(self, path: Path, options: Options) -> Iterator[Run]:
        for run in jsonl.read(path / "trials.jsonl", options):
            yield msgspec.structs.replace(run, tool=self.NAME)


def test_a_copy_that_lies_in_another_run_is_skipped(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts once and the run that it is a copy of is flagged, wherever it lies; another nested run is its own."""
    monkeypatch.setattr(importing, "IMPORTERS", (Folders(),))
    for name, reward in (("a", 0), ("b", 1), ("b/deep/other", 2)):
        write_lines(tmp_path / "runs" / name, reward)
    shutil.copytree(tmp_path / "runs/a", tmp_path / "runs/b/deep/a")
    report = import_path(client, "folders", tmp_path / "runs")
    assert report.refused == []
    flags = {client.result(job.id).score: job.flags for job in report.jobs}
    assert flags == {0.0: ("nested-run-skipped",), 1.0: (), 2.0: ()}
    again = import_path(client, "folders", tmp_path / "runs")
    assert {(job.outcome, job.entries_written) for job in again.jobs} == {("unchanged", 0)}


def write_lines(folder: Path, reward: float) -> None:
    folder.mkdir(parents=True)
    (folder / "trials.jsonl").write_text(json.dumps({"task": "t", "attempt": 1, "reward": reward}) + "\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_cannot_be_read_is_told(client: Client, lot: Path) -> None:
    """Runs may lie in it: nothing is imported as if there were none."""
    (lot / "jsonl").chmod(0)
    assert "cannot be read" in import_path(client, "auto", lot).refused[0].why
    (lot / "jsonl").chmod(0o700)


def test_hidden_folders_are_not_looked_into(client: Client, lot: Path) -> None:
    """A ledger's own folder, or a repository's, beside the results is neither imported nor complained about."""
    (lot / ".el" / "sources").mkdir(parents=True)
    (lot / ".el" / "sources" / "note.json").write_text("{}")
    write_run(RUNS["jsonl"], lot / ".cache" / "jsonl")
    report = import_path(client, "auto", lot)
    assert report.refused == []
    assert tools(client, report) == sorted(TOOLS)


def test_a_schema_version_of_another_kind_is_not_swe_benchs(tmp_path: Path) -> None:
    """Others write their schema's version first too, as text: that file is nobody's, not a broken run report."""
    other = tmp_path / "aggregate.json"
    other.write_text('{"schema_version": "0.3.0", "evaluation_id": "x"}')
    assert [importer.NAME for importer in IMPORTERS if importer.recognises(other)] == []
    other.write_text('{"schema_version": 2, "total_instances": 1}')
    assert [importer.NAME for importer in IMPORTERS if importer.recognises(other)] == ["swe-bench"]
