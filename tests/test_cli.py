"""The command line: exit codes, one sentence for what is refused, one JSON document when asked."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from api.cli.main import main
from api.settings import Settings
from tests.test_metrics import CASES
from tests.test_metrics_three_ways import jsonl_of

SEED = next(case for case in CASES if case["name"] == "seed-example")


class Ran(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


El = Callable[..., Ran]


@pytest.fixture
def el(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> El:
    """`el`, in an empty home."""
    monkeypatch.setenv("EL_HOME", str(tmp_path / "home"))
    for name in ("EL_PROJECT", "EL_DATABASE_URL", "EL_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["el", *words])
        capsys.readouterr()
        try:
            main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code or 0
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run


@pytest.fixture
def seed_job(el: El, tmp_path: Path) -> str:
    """The seed's example, imported."""
    path = tmp_path / "seed.jsonl"
    path.write_text(jsonl_of(SEED))
    return str(el("import", "jsonl", str(path), "--dataset", "seed@1", "--json").document["jobs"][0]["id"])


def test_the_seeds_example_reads_as_the_seed_says(el: El, seed_job: str) -> None:
    """Coverage stands before the score; the numbers are the seed's; the missing attempt is a gap, not a zero."""
    out = el("job", "result", seed_job).out
    for words in ("score 60%", "5/6 attempts scored", "2/3 members complete", "pass@2 100%", "pass^2 50%"):
        assert words in out
    assert out.index("5/6 attempts scored") < out.index("score 60%")
    assert "– failed" in out


def test_a_number_is_explained_under_the_name_it_is_shown_by(el: El, seed_job: str) -> None:
    """`pass^2` of the result is asked for and answered as that; no line says the same thing twice."""
    explained = el("explain", seed_job, "--metric", "pass^2")
    assert explained.out.startswith("pass^2 50%  of job")
    assert "trial-succeeded\n" in explained.out
    assert el("explain", seed_job, "--metric", "pass_hat_k").out == explained.out
    refused = el("explain", seed_job, "--metric", "pass@3")
    assert refused.code == 1
    assert "k = 2" in refused.err
    (gap,) = [line for line in el("explain", seed_job).out.splitlines() if line.startswith("  #2 –")]
    assert "  failed  not counted: its reward was lost in an unknown phase  " in gap


def test_what_was_asked_of_a_time_says_for_which_position_it_stands(el: El, seed_job: str) -> None:
    """A time may mean any position: job, result and trial say which; without --as-of nothing is said."""
    trial = el("job", "trials", seed_job, "--json").document["trials"][0]["trial_id"]
    last = el("job", "result", seed_job, "--json").document["as_of"]
    for words in (("job", "result", seed_job), ("job", "get", seed_job), ("trial", "get", trial)):
        assert "as of position" not in el(*words).out
        assert el(*words, "--as-of", "2999-01-01").out.startswith(f"as of position {last}\n")
        assert el(*words, "--as-of", "2999-01-01", "--json").document["as_of"] == last


def test_a_trial_may_be_named_by_its_first_characters(el: El, seed_job: str) -> None:
    """As a job may; the whole id stands in the answer."""
    trial = el("job", "trials", seed_job, "--json").document["trials"][0]["trial_id"]
    for verb in ("get", "events", "artifacts", "log"):
        assert el("trial", verb, trial[:8]).out == el("trial", verb, trial).out
    revise = ("trial", "revise", trial[:8], "--reward", "0.5", "--verifier", "v@1", "--reason", "why")
    assert el(*revise).out == f"trial {trial} has the new reward\n"
    assert el("trial", "get", trial[:3]).code == 3


def test_a_correction_that_changes_nothing_says_that_it_was_not_recorded(el: El, seed_job: str, tmp_path: Path) -> None:
    """Another reason or verifier for the value that holds is no new fact, and nobody is left to believe it was."""
    (tmp_path / "r.jsonl").write_text('{"task": "A", "attempt": 2, "reward": 1}\n')
    regrade = ("job", "regrade", seed_job, "--rewards", str(tmp_path / "r.jsonl"), "--verifier", "v@1", "--reason")
    assert "recorded" not in el(*regrade, "one").out
    entries = len(el("audit", "events", "--json").document["events"])
    trial = el("job", "trials", seed_job, "--json").document["trials"][0]["trial_id"]
    reward = el("trial", "get", trial, "--json").document["reward"]
    revise = ("trial", "revise", trial, "--reward", str(reward), "--verifier", "v@1", "--reason", "another")
    for again in (el(*regrade, "another"), el(*revise)):
        assert again.code == 0
        assert "nothing was recorded, no reason either" in again.out
    assert len(el("audit", "events", "--json").document["events"]) == entries


def test_the_trail_is_read_at_a_glance(el: El, seed_job: str) -> None:
    """Its lines have a bound, whatever a fact holds, and values are JSON, not Python."""
    out = el("audit", "events").out
    assert max(map(len, out.splitlines())) <= 200
    assert "…" in out
    assert not [word for word in ("={'", "=[{'", "=None", "=True", "=False") if word in out]


def test_an_empty_server_or_key_is_none(el: El, seed_job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`EL_API_URL= el job list` works on the store, as if it were not set."""
    monkeypatch.setenv("EL_API_URL", "")
    monkeypatch.setenv("EL_API_KEY", "")
    assert seed_job in el("job", "list").out
    assert Settings().api_key is None
    assert el("db", "check").code == 0


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 12], ids=lambda case: case["name"])
def test_a_case_through_the_command_line(el: El, tmp_path: Path, case: dict[str, Any]) -> None:
    """`el import jsonl`, then `el job result --json`, gives the expected values, to the last bit."""
    path = tmp_path / "case.jsonl"
    path.write_text(jsonl_of(case))
    words = ("import", "jsonl", str(path), "--attempts", str(case["attempts"]), "--dataset", "case@1", "--json")
    job = el(*words).document["jobs"][0]["id"]
    answer = el("job", "result", job, "--json").document
    expected = case["expected"] | {"score_counts": answer["score_counts"] | case["expected"]["score_counts"]}
    assert {name: answer[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["job", "get", "0b6a3c1e-0000-5000-8000-000000000001"], 3, "There is no job"),
        (["job", "get", "zz"], 3, "There is no job"),
        (["job", "result"], 3, "`el quickstart` makes one"),
        (["trial", "get", "nothing"], 3, "There is no trial"),
        (["dataset", "show", "arith@1"], 3, "There is no dataset arith@1"),
        (["dataset", "show", "arith"], 1, "write NAME@VERSION"),
        (["job", "submit", "--dataset", "arith@1"], 3, "There is no dataset arith@1"),
        (["job", "submit"], 2, "--dataset"),
        (["job", "submit", "--dataset", "a@1", "--attempts", "0"], 2, "attempts"),
        (["job", "list", "--project", "Other Team"], 1, "is no project name"),
        (["job", "list", "--project", "other"], 3, "`el project create other` makes it"),
        (["runner", "publish", "absent.json"], 3, "absent.json"),
        (["import", "no-tool", "x"], 1, "There is no importer"),
        (["import", "jsonl", "absent.jsonl"], 1, "absent.jsonl"),
        (["projection", "rebuild", "nothing"], 3, "There is no read model"),
        (["nonsense"], 2, "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_gets_one_sentence_and_an_exit_code(el: El, words: list[str], code: int, sentence: str) -> None:
    """What is refused says why and what to do, never a traceback."""
    ran = el(*words)
    assert ran.code == code
    assert sentence in ran.err + ran.out
    assert "Traceback" not in ran.err + ran.out


def test_a_store_that_cannot_be_opened_ends_with_5(el: El, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that is a file, and a file that is no database, are each told in a sentence."""
    (tmp_path / "file").write_text("no database at all, but long enough to be looked at as if it were one\n" * 20)
    monkeypatch.setenv("EL_DATABASE_URL", f"sqlite:///{tmp_path / 'file'}")
    ran = el("job", "list")
    assert (ran.code, "Traceback" in ran.err) == (5, False)
    monkeypatch.delenv("EL_DATABASE_URL")
    monkeypatch.setenv("EL_HOME", str(tmp_path / "file"))
    ran = el("job", "list")
    assert (ran.code, "Traceback" in ran.err) == (5, False)


@pytest.mark.parametrize(
    "words",
    [
        ["job", "list"],
        ["job", "get"],
        ["job", "result"],
        ["job", "trials"],
        ["dataset", "list"],
        ["dataset", "show", "seed@1"],
        ["runner", "list"],
        ["profile", "list"],
        ["project", "list"],
        ["project", "show", "default"],
        ["audit", "events"],
        ["projection", "status"],
        ["db", "check"],
        ["schema", "import-jsonl"],
    ],
    ids=" ".join,
)
def test_reading_commands_give_one_json_document(el: El, seed_job: str, words: list[str]) -> None:
    """With --json nothing else is on standard output."""
    assert seed_job
    flag = [] if words[0] == "schema" else ["--json"]
    ran = el(*words, *flag)
    assert ran.code == 0
    assert isinstance(ran.document, dict)


def test_an_import_twice_writes_nothing_the_second_time(el: El, seed_job: str, tmp_path: Path) -> None:
    """The same file is the same job, whatever it is called, and the second import says so."""
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes((tmp_path / "seed.jsonl").read_bytes())
    again = el("import", "jsonl", str(copy), "--dataset", "seed@1", "--json").document["jobs"][0]
    assert (again["id"], again["outcome"], again["entries_written"]) == (seed_job, "unchanged", 0)


def test_projects_do_not_see_each_other(el: El, seed_job: str) -> None:
    """A job of one project is not found from another, by id, list or trail."""
    el("project", "create", "other")
    assert el("job", "get", seed_job, "--project", "other").code == 3
    assert el("job", "list", "--project", "other", "--json").document["jobs"] == []
    assert [e["entry"]["fact"]["fact"] for e in el("audit", "events", "-p", "other", "--json").document["events"]] == [
        "project-created"
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "body = CAST(replace(body, '\"reward\":1.0', '\"reward\":0.0') AS BLOB)",
            "do not add up to the recorded root",
        ),
        ("body = replace(body, 'A', 'B')", "is not stored as bytes"),
        ("body = x'00'", "Entry 9 is not an entry"),
        ("stream_version = 99", "is version 99"),
        ("tag = 'trial-failed'", "says otherwise itself"),
    ],
)
def test_a_damaged_log_is_found(el: El, seed_job: str, tmp_path: Path, change: str, told: str) -> None:
    """`el db check` says what was changed behind the ledger's back, and ends with 1."""
    assert seed_job
    assert el("db", "check").code == 0
    with sqlite3.connect(tmp_path / "home" / "ledger.db") as store:
        store.execute(f"UPDATE entries SET {change} WHERE position = 9")
    ran = el("db", "check")
    assert ran.code == 1
    assert told in ran.out


def test_what_models_write_cannot_steer_a_terminal(el: El, tmp_path: Path) -> None:
    """Escape sequences in an error's message are shown as harmless characters."""
    path = tmp_path / "hostile.jsonl"
    row = {"task": "t", "attempt": 1, "error": {"type": "Crash", "message": "\u001b[2Jgone\u0007"}}
    path.write_text(json.dumps(row))
    el("import", "jsonl", str(path))
    trial = el("job", "trials", "--json").document["trials"][0]["trial_id"]
    out = el("trial", "log", trial).out
    assert "gone" in out
    assert "\u001b" not in out


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("job result --tasks 1000 | head -1", 1),
        ("job result --json | head -1", 1),
        ("audit events --jsonl | head -1", 1),
        ("export $JOB --format csv | head -1", 1),
        ("job result | true", 0),
        ("job list | true", 0),
        ("audit events --jsonl | true", 0),
        ("export $JOB --format csv | true", 0),
    ],
)
def test_whoever_stops_reading_is_no_failure(el: El, seed_job: str, tmp_path: Path, command: str, lines: int) -> None:
    """`el ... | head -1` ends well, whatever the rest would have been, and also when nobody reads at all."""
    script = f"set -o pipefail; {Path(sys.executable).parent / 'el'} {command}"
    environ = {"PATH": os.environ["PATH"], "EL_HOME": str(tmp_path / "home"), "JOB": seed_job}
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == lines
