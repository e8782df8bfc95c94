"""No file makes an importer fall over: each ends in a correct import or in one sentence, soon, and nothing half."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from api.client import Client, connect
from api.importers.importing import IMPORTERS, Report, import_path
from api.importers.run import Options
from api.settings import Settings
from api.wiring import Workspace
from ledger.facts.access import STREAM
from ledger.rules.access import create_project
from tests.given import fresh_project
from tests.import_runs import INSPECT_EVAL, RUNS, Files, write_run
from tests.test_import_samples import CASES, options_of

TOOLS = [importer.NAME for importer in IMPORTERS]
FILES = {
    name: files
    for name, files in [*RUNS.items(), ("inspect .eval", INSPECT_EVAL)]
    if name.split(maxsplit=1)[0] in TOOLS
}

SECONDS_MAX = 2.0  # of processor time, for one hostile file
CUTS = 10
TOKENS_A_PLACE = 1  # all of them take ten minutes
DEEP = 100_000

# What is put in the place of each value of each file, in turn.
TOKENS = (
    b"null", b"true", b"0", b"-1", b"0.5", b"NaN", b"-Infinity", b"1e999", b"1" * 500, b"%d" % 2**70, b"-0.0",
    b'""', b'"text"', b'"%s"' % (b"n" * 300), b'"\\ud800"', b'"a\\u0000b"', b'"..\\/..\\/etc\\/passwd"', b'"1"',
    b'"2026-01-02T03:04:05"', b'"9999-12-31T23:59:59-23:59"', b"[]", b"{}", b"[[]]", b'{"a": 1}', b'[1, "1", null]',
    b'{"a": 1, "a": 2}', b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b"\xff\xfe", b"oops",
)  # fmt: skip

# What may lie where a file should; the first is nothing.
PUT: tuple[Callable[[Path], object], ...] = (
    lambda path: None,
    lambda path: path.symlink_to("/etc/passwd"),
    lambda path: path.symlink_to(path),
    os.mkfifo,
    Path.mkdir,
    Path.touch,
    lambda path: (path.write_bytes(b"{}"), path.chmod(0)),
)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    client = connect(settings=Settings(home=tmp_path / ".el"))
    sa.event.listen(client.ledger.recorder.engine, "connect", lambda db, _: db.execute("PRAGMA synchronous=OFF"))
    return client


def tool_of(name: str) -> str:
    return name.split(maxsplit=1)[0]


def ends_well(client: Client, tool: str, path: Path, **options: Any) -> Report:
    """Import what lies at a path; however it ends, it must be said in one sentence that can be printed."""
    started = time.process_time()
    report = import_path(client, tool, path, Options(keep_artifacts=False, **options))
    assert time.process_time() - started < SECONDS_MAX
    assert report.jobs or report.refused
    assert msgspec.json.encode(report)
    for refused in report.refused:
        assert 10 < len(refused.why) < 2_000, refused.why
        assert "\n" not in refused.why
        assert "Traceback" not in refused.why
        assert refused.why.rstrip(")").endswith(".") or refused.outcome == "conflict", refused.why
    return report


class Damaged:
    """A run in a folder of its own, where one file after the other is damaged and made whole again.

    Each damage is met by a project of its own, or the second one would be told as a conflict with the first.
    """

    def __init__(self, client: Client, tool: str, files: Files, folder: Path) -> None:
        self.client, self.tool, self.files, self.folder = client, tool, files, write_run(files, folder)

    def with_file(self, name: str, data: bytes, **options: Any) -> Report:
        """The import with other bytes in a file; a refusal has written nothing."""
        (self.folder / name).write_bytes(data)
        client = in_fresh_project(self.client.workspace)
        before = client.ledger.head()
        report = ends_well(client, self.tool, self.folder, **options)
        assert report.jobs or client.ledger.head() == before
        (self.folder / name).write_bytes(self.files[name])
        return report


def in_fresh_project(workspace: Workspace) -> Client:
    project = fresh_project()
    workspace.unchecked_ledger(project).record(STREAM, partial(create_project, name=project))
    return Client(workspace, project)


@pytest.fixture(params=FILES)
def damaged(request: pytest.FixtureRequest, client: Client, tmp_path: Path) -> Damaged:
    name = request.param
    return Damaged(client, tool_of(name), FILES[name], tmp_path / "run")


def test_the_small_runs_are_whole(damaged: Damaged) -> None:
    """What the damage is done to imports without a complaint, and a trial failed in it."""
    report = ends_well(damaged.client, damaged.tool, damaged.folder)
    assert report.refused == []
    (job,) = report.jobs
    assert job.members >= 2
    assert not {"source-incomplete", "reward-rejected", "duplicate-rows-dropped"} & set(job.flags)


def test_a_file_that_was_cut_anywhere(damaged: Damaged) -> None:
    """Cut at any byte, a file gives what is whole or is refused; with --strict the same holds."""
    for name, data in damaged.files.items():
        cuts = {0, 1, 2, len(data) - 1, len(data) - 2, *range(0, len(data), max(1, len(data) // CUTS))}
        for cut in sorted(cut for cut in cuts if 0 <= cut < len(data)):
            damaged.with_file(name, data[:cut])
        damaged.with_file(name, data[: len(data) // 2], strict=True)


def test_a_file_with_other_bytes_in_it(damaged: Damaged) -> None:
    """Bytes that were turned, NUL bytes, another encoding, and what follows the end."""
    chance = random.Random(1)
    for name, data in damaged.files.items():
        for _ in range(CUTS):
            at = chance.randrange(len(data))
            damaged.with_file(name, data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :])
        half = len(data) // 2
        for other in (
            b"\0" * 100,
            data[:half] + b"\0" + data[half:],
            data + b"\0\0",
            data + data,
            b"\xef\xbb\xbf" + data,
        ):
            damaged.with_file(name, other)
        damaged.with_file(name, data.decode("latin-1").encode("utf-16"))
        damaged.with_file(name, b"[" * DEEP)
        damaged.with_file(name, b'{"a":' * DEEP)


def test_a_value_of_another_kind_in_every_place(damaged: Damaged) -> None:
    """No field is trusted to hold what it should; a key that is missing or there twice neither."""
    chance = random.Random(damaged.tool)
    for name, rebuild, document in documents(damaged.files):
        for place in places(document):
            for token in chance.sample(TOKENS, TOKENS_A_PLACE):
                damaged.with_file(name, rebuild(replaced(document, place, token)))
            damaged.with_file(name, rebuild(without(document, place)))


def test_an_object_that_names_a_key_twice(damaged: Damaged) -> None:
    """In a file that is read, whichever key it is, the run is refused; nothing is imported by the last one winning."""
    refused = 0
    for name, rebuild, document in documents(damaged.files):
        for place in places(document):
            if place and isinstance(place[-1], str):
                report = damaged.with_file(name, rebuild(doubled(document, place)))
                refused += any("twice" in refusal.why for refusal in report.refused)
    assert refused >= 3


@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_no_file(client: Client, tmp_path: Path, tool: str) -> None:
    """A link, a fifo, a folder or nothing where a file should be: none is followed, none blocks."""
    for name in RUNS[tool]:
        for number, put in enumerate(PUT):
            folder = write_run(RUNS[tool], tmp_path / f"{number}")
            (folder / name).unlink()
            put(folder / name)
            ends_well(client, tool, folder)
            ends_well(client, tool, folder / name)
            shutil.rmtree(folder)
    (tmp_path / "link").symlink_to("/etc")
    for path in ("empty", "absent", "n" * 300, "link/passwd", "absent/" * 1_000, "\udcff", "line\nend"):
        if path == "empty":
            (tmp_path / path).mkdir()
        assert ends_well(client, tool, tmp_path / path).jobs == []
    assert not any("root:" in refused.why for refused in ends_well(client, tool, tmp_path / "link/passwd").refused)


@pytest.mark.parametrize("tool", TOOLS)
def test_names_of_files_are_any_bytes(client: Client, tmp_path: Path, tool: str) -> None:
    """A run in a folder whose name is no text imports, and everything said of it can be printed."""
    for name in (b"\xff\xfe", b"line\nend", "名 字".encode(), b"-rf", b"n" * 250):
        folder = write_run(RUNS[tool], tmp_path / os.fsdecode(name))
        assert ends_well(client, tool, folder).refused == []
    assert len(client.jobs().jobs) == 1


@pytest.mark.parametrize("name", FILES)
def test_a_file_beyond_the_caps(client: Client, tmp_path: Path, name: str) -> None:
    """The cap of a file holds for every tool, and the sentence names the option that raises it."""
    folder = write_run(FILES[name], tmp_path / "run")
    report = ends_well(client, tool_of(name), folder, file_bytes_max=20)
    assert report.jobs == []
    assert "--max-file-bytes" in report.refused[0].why


@pytest.mark.parametrize("name", FILES)
def test_the_same_run_is_one_job_wherever_it_lies(client: Client, tmp_path: Path, name: str) -> None:
    """Again, under another name, copied elsewhere, nested in another folder or run: nothing is written."""
    folder = write_run(FILES[name], tmp_path / "run")
    writes_nothing_again(client, tool_of(name), folder, Options(), tmp_path)


@pytest.mark.skipif(not CASES, reason="the shared samples are not there")
@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_same_sample_is_one_job_wherever_it_lies(client: Client, tmp_path: Path, case: Path) -> None:
    """The same for files as the tools left them."""
    expected = json.loads((case / "expected.json").read_text())
    if "input" not in expected["path"] or "jobs" not in expected:
        pytest.skip("the case does not import one folder")
    shutil.copytree(case / "input", tmp_path / "run")
    within = Path(expected["path"]).relative_to("input")
    writes_nothing_again(client, expected["tool"], tmp_path / "run" / within, options_of(expected["args"]), tmp_path)


def writes_nothing_again(client: Client, tool: str, path: Path, options: Options, scratch: Path) -> None:
    first = import_path(client, tool, path, options)
    assert first.refused == []
    ids, before = {job.id for job in first.jobs}, client.ledger.head()
    run = scratch / "run"
    within = path.relative_to(run)
    shutil.copytree(run, scratch / "other/elsewhere")
    run.rename(scratch / "renamed")
    if (scratch / "renamed" / within).is_dir():
        (scratch / "outer").mkdir()
        shutil.copytree(scratch / "renamed", scratch / "outer/deep/er/run")
        shutil.copytree(scratch / "renamed", scratch / "outer/again")
        assert again(client, tool, scratch / "outer", options) <= ids
    assert again(client, tool, scratch / "other/elsewhere" / within, options) == ids
    assert again(client, tool, scratch / "renamed" / within, options) == ids
    assert client.ledger.head() == before


def again(client: Client, tool: str, path: Path, options: Options) -> set[str]:
    report = import_path(client, tool, path, options)
    assert report.refused == []
    assert {(job.outcome, job.entries_written) for job in report.jobs} == {("unchanged", 0)}
    return {job.id for job in report.jobs}


# --- the JSON of a run, with one value changed -----------------------------------------------------------------------

Rebuild = Callable[[bytes], bytes]
Place = tuple[str | int, ...]

_RAW = "raw-token-here"
_TWICE = "key-that-is-there-twice"


def documents(files: Files) -> Iterator[tuple[str, Rebuild, Any]]:
    """Every JSON text of a run: its file, how to make the file of other bytes of that text, and the text's value."""
    for name, data in files.items():
        if name.endswith(".eval"):
            yield from ((name, _member_of(data, member), value) for member, value in _members(data))
        elif name.endswith(".jsonl"):
            lines = data.splitlines(keepends=True)
            for at, line in enumerate(lines):
                yield name, _line_of(lines, at), json.loads(line)
        elif name.endswith((".json", ".lock")):
            yield name, lambda text: text, json.loads(data)


def _line_of(lines: list[bytes], at: int) -> Rebuild:
    return lambda text: b"".join([*lines[:at], text + b"\n", *lines[at + 1 :]])


def _members(data: bytes) -> list[tuple[str, Any]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, json.loads(archive.read(name))) for name in archive.namelist()]


def _member_of(data: bytes, member: str) -> Rebuild:
    def rebuild(text: bytes) -> bytes:
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(made, "w") as file:
            for name in archive.namelist():
                file.writestr(name, text if name == member else archive.read(name))
        return made.getvalue()

    return rebuild


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where a value is, and every value in it; of a long list the first two."""
    yield at
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*at, key))
    elif isinstance(value, list):
        for number, part in enumerate(value[:2]):
            yield from places(part, (*at, number))


def replaced(document: Any, place: Place, token: bytes) -> bytes:
    """The text with a token in that place, which need not be JSON."""
    return json.dumps(_put(document, place, _RAW)).encode().replace(b'"%s"' % _RAW.encode(), token)


def without(document: Any, place: Place) -> bytes:
    """The text without the value in that place."""
    if not place:
        return b""
    inner = _at(document, place[:-1])
    left = {k: v for k, v in inner.items() if k != place[-1]} if isinstance(inner, dict) else []
    return json.dumps(_put(document, place[:-1], left)).encode()


def doubled(document: Any, place: Place) -> bytes:
    """The text with the key in that place there twice, with the same value."""
    inner = _at(document, place[:-1])
    text = json.dumps(_put(document, place[:-1], {**inner, _TWICE: inner[place[-1]]}))
    return text.replace(json.dumps(_TWICE), json.dumps(place[-1])).encode()


def _at(value: Any, place: Place) -> Any:
    for part in place:
        value = value[part]
    return value


def _put(value: Any, place: Place, new: Any) -> Any:
    if not place:
        return new
    key, *rest = place
    if isinstance(value, dict):
        return {name: _put(part, tuple(rest), new) if name == key else part for name, part in value.items()}
    return [_put(part, tuple(rest), new) if at == key else part for at, part in enumerate(value)]
