"""`el` against a server: with EL_API_URL set the same commands print the same documents as on the store itself."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.cli.main import app, main
from api.keys import new_key
from tests.given_doors import ACTOR, Served, serving
from tests.test_cli import Ran
from tests.test_metrics import CASES
from tests.test_metrics_three_ways import jsonl_of

El = Callable[..., Ran]

RUNNER = {
    "schema_version": "evalledger.runner/v1",
    "name": "sh",
    "version": "1",
    "kind": "command",
    "parameters": [{"name": "MODEL", "default": "none"}, {"name": "TOKEN", "default": ""}],
    "agent": {"command": ["sh", "-c", "echo $MODEL; cat {task}/question.txt"]},
    "verifier": {"command": ["sh", "-c", "echo 1 > {output}/reward.txt"]},
}
PROFILE = {
    "schema_version": "envplatform.profile/v2",
    "secret_params": ["TOKEN"],
    "spec": {"params": {"MODEL": "m-1", "UNREAD": 1, "TOKEN": "s3cret-value-of-a-profile"}},
}

READING = (
    ("project", "show", "PROJECT"),
    ("dataset", "list"),
    ("dataset", "show", "tasks@1"),
    ("runner", "list"),
    ("runner", "show", "sh@1"),
    ("profile", "list"),
    ("profile", "show", "team/eval@1"),
    ("job", "list"),
    ("job", "get", "JOB"),
    ("job", "result", "JOB"),
    ("job", "result", "JOB", "--policy", "tau-1", "--tasks", "1"),
    ("job", "trials", "JOB"),
    ("trial", "get", "TRIAL"),
    ("trial", "events", "TRIAL"),
    ("trial", "artifacts", "TRIAL"),
    ("audit", "events", "--job", "JOB", "--limit", "5"),
    ("audit", "events", "--trial", "TRIAL"),
    ("leaderboard", "list"),
    ("leaderboard", "show", "JOB"),
    ("explain", "JOB", "--metric", "score"),
    ("replay", "--all"),
    ("projection", "status"),
    ("key", "list"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("cli")) as store:
        yield store


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> El:
    """`el` in whatever environment is set."""
    for name in ("EL_DATABASE_URL", "EL_DEBUG", "EL_API_URL", "EL_API_KEY"):
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
def at(monkeypatch: pytest.MonkeyPatch, store: Served, tmp_path: Path) -> Callable[[str], tuple[str, str]]:
    """Set the environment for a fresh project behind a door; its name and key."""

    def at(door: str) -> tuple[str, str]:
        fresh = store.project()
        monkeypatch.setenv("EL_PROJECT", fresh.project)
        monkeypatch.setenv("EL_ACTOR", ACTOR)
        if door == "store":
            monkeypatch.delenv("EL_API_URL", raising=False)
            monkeypatch.setenv("EL_HOME", str(store.workspace.home))
        else:
            monkeypatch.setenv("EL_API_URL", store.url)
            monkeypatch.setenv("EL_API_KEY", fresh.key)
            monkeypatch.setenv("EL_HOME", str(tmp_path / "client"))
        return fresh.project, fresh.key

    return at


def lived(run: El, folder: Path, project: str) -> tuple[list[Ran], list[Ran]]:
    """A whole life by commands: published, run, imported, ranked; what the writing and the reading ones printed."""
    folder.mkdir(exist_ok=True)
    for name in ("t1", "t2"):
        (folder / "tasks" / name).mkdir(parents=True, exist_ok=True)
        (folder / "tasks" / name / "question.txt").write_text(f"what is {name}?")
    (folder / "runner.json").write_text(json.dumps(RUNNER))
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    case = next(case for case in CASES if case["name"] == "seed-example")
    (folder / "seed.jsonl").write_text(jsonl_of(case))
    writing = [
        run("runner", "publish", str(folder / "runner.json"), "--json"),
        run("dataset", "publish", "tasks@1", str(folder / "tasks"), "--runner", "sh@1", "--json"),
        run("profile", "create", "team/eval", "1", "--file", str(folder / "profile.json"), "--json"),
        run("job", "submit", "-d", "tasks@1", "--profile", "team/eval@1", "--request-id", "r", "--dry-run", "--json"),
        run("job", "submit", "-d", "tasks@1", "--profile", "team/eval@1", "--request-id", "r", "--json"),
    ]
    job = writing[-1].document["id"]
    writing += [
        run("worker", "--once", "--jobs", "1", "--name", "w-1"),
        run("job", "watch", job),
        run("leaderboard", "add", job, "--json"),
        run("import", "jsonl", str(folder / "seed.jsonl"), "--dataset", "seed@1", "--json"),
        run("import", "jsonl", str(folder / "seed.jsonl"), "--dataset", "seed@1", "--json"),
    ]
    trial = run("job", "trials", job, "--json").document["trials"][0]["trial_id"]
    names = {"JOB": job, "TRIAL": trial, "PROJECT": project}
    reading = [run(*(names.get(word, word) for word in words), "--json") for words in READING]
    reading.append(run("trial", "log", trial))
    reading.append(run("export", job, "--format", "csv"))
    return writing, reading


# Of a job that no tool ran: submitted here, or over HTTP.
_ORIGIN = re.compile(r',?\s*"origin": *\{(\s*"kind": "api"\s*)?\}|"origin":\{"kind":"api"\},?')
# What the client gave a request, so that it could be sent again.
_OWN_KEY = re.compile(r',?\s*"key": *"once/[^"]*"')
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b|hmac[:-][0-9a-zA-Z:+/=_-]+")
_NUMBERS = re.compile(
    r'"(duration_s|published_us|recorded_us)": [0-9.e+-]+'
    r"|w-1-[0-9a-f]{6}"  # a worker's name and what makes it its own
    r"|(?<=,\*,\*,)[0-9.e+-]+"  # how long it took, in CSV after two times
)


def comparable(text: str, project: str) -> str:
    """What was printed, without what differs from project to project and from run to run."""
    text = _OWN_KEY.sub("", _ORIGIN.sub("", text.replace(project, "PROJECT")))
    ids: dict[str, str] = {}
    text = _UUID.sub(lambda found: ids.setdefault(found[0], f"id-{len(ids)}"), text)
    for pattern in (_TIME, _DIGEST, _NUMBERS):
        text = pattern.sub("*", text)
    return text


def test_the_same_commands_print_the_same_on_both_doors(run: El, at: Any, tmp_path: Path) -> None:
    """Every reading command gives the same document over HTTP as on the store, apart from ids and times."""
    printed: dict[str, list[list[str]]] = {}
    for door in ("store", "http"):
        project, _ = at(door)
        writing, reading = lived(run, tmp_path / "files", project)
        wrong = [ran for ran in writing + reading if ran.code != 0]
        assert wrong == []
        printed[door] = [comparable(ran.out, project).splitlines() for ran in reading + writing]
    for on_store, over_http in zip(printed["store"], printed["http"], strict=True):
        assert over_http == on_store


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("job", "get", "0000aaaa"), 3),
        (("dataset", "show", "none@1"), 3),
        (("job", "submit", "-d", "none@1"), 3),
        (("trial", "get", "none"), 3),
        (("dataset", "show", "no reference"), 1),
        (("audit", "events", "--trial", "none"), 3),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_refusals_are_the_same_sentence_and_exit_code(run: El, at: Any, words: tuple[str, ...], code: int) -> None:
    """What is refused is refused in the same words on both doors."""
    said = []
    for door in ("store", "http"):
        at(door)
        ran = run(*words)
        assert (ran.code, ran.out) == (code, "")
        said.append(ran.err)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "words",
    [("db", "check"), ("db", "init"), ("project", "create", "x"), ("serve",)],
    ids="-".join,
)
def test_what_works_on_the_store_says_so(run: El, at: Any, words: tuple[str, ...]) -> None:
    """A command about the store itself is refused in one sentence that says where to run it."""
    at("http")
    ran = run(*words)
    assert ran.code == 1
    assert "works on the store itself" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_every_command_is_tried_over_http_or_says_that_it_needs_the_store() -> None:
    """A noun that is added later has to be tried here too."""
    tried = {words[0] for words in READING} | {"import", "export", "worker", "db", "serve"}
    groups = {group.name for group in app.registered_groups} | {command.name for command in app.registered_commands}
    assert groups - tried == {"quickstart", "schema"}


def test_a_server_that_is_not_there_is_one_sentence(run: El, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5, the address, what to do; never the key."""
    _, key = at("http")
    monkeypatch.setenv("EL_API_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("api.remote.transport.PAUSE_S_MAX", 0.01)
    ran = run("job", "list")
    assert ran.code == 5
    assert "http://127.0.0.1:9 does not answer" in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert key not in ran.err


def test_a_wrong_key_is_told_and_not_shown(run: El, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that opens nothing: one sentence, and the key is not in it."""
    at("http")
    monkeypatch.setenv("EL_API_KEY", "el_nothing-that-opens-anything")
    ran = run("job", "list")
    assert ran.code != 0
    assert "key" in ran.err
    assert "nothing-that-opens" not in ran.err + ran.out


@pytest.mark.parametrize("key", ["el_a\nkey ada (admin); keep it now", "el_a\n", "el a", "el_\u00e9", "el_\x00"])
def test_a_key_that_cannot_be_sent_is_told_before_anything_is(
    run: El, at: Any, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """One sentence that names the setting and does not repeat the key; no server is asked."""
    at("http")
    if "\0" not in key:
        monkeypatch.setenv("EL_API_KEY", key)
    monkeypatch.setenv("EL_API_URL", "http://127.0.0.1:9")
    ran = run(*(("worker", "--once", "--key", key) if "\0" in key else ("job", "list")))
    assert ran.code == 1
    assert "EL_API_KEY" in ran.err
    assert key.splitlines()[0] not in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_worker_with_a_bad_key_does_not_say_it_is_waiting(run: El, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ready once the server has let it in."""
    at("http")
    monkeypatch.setenv("EL_API_KEY", new_key())
    ran = run("worker")
    assert ran.code != 0
    assert "waiting" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("url", "saying"),
    [
        ("ftp://host", "must look like https://host/path"),
        ("nonsense", "must look like https://host/path"),
        ("https://user:pass@host", "the key goes into EL_API_KEY"),
        ("http://evals.example.com", "could read the key"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(
    run: El, at: Any, monkeypatch: pytest.MonkeyPatch, url: str, saying: str
) -> None:
    """A key is never sent in the clear over other people's networks; a password in the address is not repeated."""
    at("http")
    monkeypatch.setenv("EL_API_URL", url)
    ran = run("job", "list")
    assert ran.code == 1
    assert saying in ran.err
    assert "pass@" not in ran.err
