"""`el import` on the command line: what it prints, what it leaves unwritten, and how it ends."""

from __future__ import annotations

import inspect
import io
import json
import sys
from pathlib import Path

import pytest

from api.cli import importing, output
from api.importers.run import Options
from tests.import_runs import RUNS, write_run
from tests.test_cli import El, el  # noqa: F401 - a fixture


def line(**trial: object) -> str:
    return json.dumps({"task": "t", "attempt": 1, **trial}) + "\n"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with runs of two tools."""
    for tool in ("jsonl", "swe-bench"):
        write_run(RUNS[tool], tmp_path / "runs" / tool)
    return tmp_path / "runs"


def test_every_option_of_an_import_can_be_given() -> None:
    """The command has a parameter for each field of `Options`, and hands it on."""
    words = {"filter_": "filter", "no_artifacts": "keep_artifacts", "max_file_bytes": "file_bytes_max"}
    words |= {"max_archive_bytes": "archive_bytes_max", "max_archive_members": "archive_members_max"}
    given = {words.get(name, name) for name in inspect.signature(importing.import_).parameters}
    assert set(Options.__struct_fields__) <= given


def test_the_document_is_the_one_that_is_promised(el: El, runs: Path) -> None:  # noqa: F811
    """`--json` prints jobs and refused, each with exactly its fields, and nothing else."""
    (runs / "odd.json").write_text("{}")
    ran = el("import", "auto", str(runs), "--json")
    assert set(ran.document) == {"jobs", "refused"}
    fields = {"id", "dataset", "attempts", "members", "outcome", "entries_written", "flags", "as_reported"}
    assert [set(job) for job in ran.document["jobs"]] == [fields, fields]
    assert [set(refused) for refused in ran.document["refused"]] == [{"path", "outcome", "why"}]
    assert (ran.code, ran.err) == (1, "")


def test_the_exit_code_says_what_was_refused(el: El, tmp_path: Path) -> None:  # noqa: F811
    """0 when all is there; 1 when a run was refused, though others came; 4 when all that was refused is a conflict."""
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a.jsonl").write_text(line(reward=1))
    assert el("import", "jsonl", str(runs), "--dataset", "d@1").code == 0
    (runs / "b.jsonl").write_text(line(reward=0) + json.dumps({"task": "foreign"}) + "\n")
    ran = el("import", "jsonl", str(runs), "--dataset", "d@1")
    assert (ran.code, "unchanged: job" in ran.out, "conflict: " in ran.out) == (4, True, True)
    (runs / "c.jsonl").write_text("nonsense\n")
    ran = el("import", "jsonl", str(runs), "--dataset", "d@1")
    assert (ran.code, "1 jobs, 2 refused" in ran.out) == (1, True)


def test_a_dry_run_writes_nothing_and_says_what_it_would(el: El, runs: Path) -> None:  # noqa: F811
    """The jobs, sizes and flags of the import that follows, called planned."""
    planned = el("import", "auto", str(runs), "--dry-run")
    assert "entries to write" in planned.out
    assert "look at it" not in planned.out
    assert json.loads(el("job", "list", "--json").out)["jobs"] == []
    document = el("import", "auto", str(runs), "--dry-run", "--json").document
    done = el("import", "auto", str(runs), "--json").document
    assert [job["outcome"] for job in document["jobs"]] == ["planned", "planned"]
    assert [job | {"outcome": "imported"} for job in document["jobs"]] == done["jobs"]


def test_what_the_tool_says_is_printed(el: El, runs: Path) -> None:  # noqa: F811
    """Its numbers stand beside the job, harmless to a terminal; the flags are named."""
    out = el("import", "swe-bench", str(runs / "swe-bench")).out
    assert "resolved_instances 1" in out
    assert "flags: times-missing" in out
    (runs / "\x1b[31mred.jsonl").write_text("nonsense\n")
    assert "\x1b" not in el("import", "jsonl", str(runs)).out


def test_progress_is_shown_on_a_terminal_only(
    el: El,  # noqa: F811
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bar goes to standard error, and counts runs."""
    assert el("import", "auto", str(runs)).err == ""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with output.progress("importing runs", None) as done:
        done(1, 7)
    assert "importing runs" in terminal.getvalue()
    assert "1/7" in terminal.getvalue()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True
