"""Promises of where task files lie: what is run is what was published, and a machine says when it does not have it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from api.runners import sources
from api.runners.sources import Source, TaskContentChanged, materialise, recall, remember
from ledger.digests import task_digest_of_folder, task_digest_of_json
from ledger.errors import DamagedStore, NotFound
from ledger.facts.catalogue import Task

REF = "team/arith@1"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "dataset"
    (folder / "add" / "tests").mkdir(parents=True)
    (folder / "add" / "question.txt").write_text("1+1?")
    (folder / "add" / "tests" / "run.sh").write_text("exit 0\n")
    (folder / "add" / "tests" / "run.sh").chmod(0o755)
    return folder


def jsonl(path: Path, *lines: bytes) -> Source:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return Source("jsonl", path)


def test_what_was_noted_is_recalled(tmp_path: Path, dataset: Path) -> None:
    """A note survives the process, and a later one for the same revision replaces it."""
    remember(tmp_path / "sources", REF, Source("jsonl", tmp_path / "old.jsonl"))
    remember(tmp_path / "sources", REF, Source("folder", dataset))
    assert recall(tmp_path / "sources", REF) == Source("folder", dataset)
    assert len(list((tmp_path / "sources").iterdir())) == 1


def test_a_relative_path_is_noted_as_absolute(tmp_path: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another command, started elsewhere, finds the same files."""
    monkeypatch.chdir(tmp_path)
    remember(tmp_path / "sources", REF, Source("folder", Path("dataset")))
    monkeypatch.chdir("/")
    assert recall(tmp_path / "sources", REF).path == dataset


def test_a_machine_that_does_not_know_says_what_to_do(tmp_path: Path) -> None:
    """Without a note the refusal names the revision and the command."""
    with pytest.raises(NotFound, match=r"team/arith@1 .* not known on this machine; .*`el dataset publish`"):
        recall(tmp_path / "sources", REF)


def test_files_that_are_gone_are_named(tmp_path: Path) -> None:
    """A note of files that were deleted is refused with where they lay."""
    remember(tmp_path / "sources", REF, Source("folder", tmp_path / "gone"))
    with pytest.raises(NotFound, match=r"lay at .*/gone and are gone"):
        recall(tmp_path / "sources", REF)


def test_a_damaged_note_is_told(tmp_path: Path, dataset: Path) -> None:
    """Half a note is no note."""
    remember(tmp_path / "sources", REF, Source("folder", dataset))
    (note,) = (tmp_path / "sources").iterdir()
    note.write_bytes(note.read_bytes()[:10])
    with pytest.raises(DamagedStore, match="is damaged"):
        recall(tmp_path / "sources", REF)


def test_a_task_folder_is_copied_with_its_run_bits(tmp_path: Path, dataset: Path) -> None:
    """The copy has the digest of the original, and what could be run can be run."""
    task = Task("add", task_digest_of_folder(dataset / "add"))
    materialise(Source("folder", dataset), task, tmp_path / "task")
    assert task_digest_of_folder(tmp_path / "task") == task.digest
    assert os.access(tmp_path / "task" / "tests" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "task" / "question.txt", os.X_OK)


@pytest.mark.parametrize("change", ["content", "run bit", "new file", "removed", "link", "fifo"])
def test_other_content_is_refused(tmp_path: Path, dataset: Path, change: str) -> None:
    """Whatever differs from what was published is refused, not run; a link or a fifo too."""
    task = Task("add", task_digest_of_folder(dataset / "add"))
    question = dataset / "add" / "question.txt"
    match change:
        case "content":
            question.write_text("1+2?")
        case "run bit":
            question.chmod(0o755)
        case "new file":
            (dataset / "add" / "more.txt").write_text("")
        case "removed":
            (dataset / "add").rename(dataset / "sub")
        case "link":
            (dataset / "add" / "link").symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(dataset / "add" / "fifo")
    with pytest.raises(TaskContentChanged, match="not what was published"):
        materialise(Source("folder", dataset), task, tmp_path / "task")


@pytest.mark.parametrize("name", ["..", ".", "add/tests", "../dataset/add"])
def test_a_task_name_cannot_lead_out_of_the_dataset(tmp_path: Path, dataset: Path, name: str) -> None:
    """Only a folder directly below the dataset's is a task."""
    with pytest.raises(TaskContentChanged, match="cannot be the name of a folder"):
        materialise(Source("folder", dataset), Task(name, "0" * 64), tmp_path / "task")


def test_a_line_becomes_a_file(tmp_path: Path) -> None:
    """The bytes of the task's line are its `task.json`; blank lines, a byte order mark and `id` names are taken."""
    source = jsonl(tmp_path / "d.jsonl", b'\xef\xbb\xbf{"task": "a", "q": 1}', b"", b'{"id": "b",  "q": 2}\r')
    for name, line in (("a", b'{"task": "a", "q": 1}'), ("b", b'{"id": "b",  "q": 2}')):
        materialise(source, Task(name, task_digest_of_json(line)), tmp_path / name)
        assert (tmp_path / name / "task.json").read_bytes() == line


def test_a_changed_or_missing_line_is_refused(tmp_path: Path) -> None:
    """The file is indexed again when it changes, and what changed is not run."""
    source = jsonl(tmp_path / "d.jsonl", b'{"task": "a", "q": 1}')
    task = Task("a", task_digest_of_json(b'{"task": "a", "q": 1}'))
    materialise(source, task, tmp_path / "before")
    jsonl(tmp_path / "d.jsonl", b'{"task": "0"}', b'{"task": "a", "q": 22}')
    with pytest.raises(TaskContentChanged, match="its sha256 is now"):
        materialise(source, task, tmp_path / "changed")
    jsonl(tmp_path / "d.jsonl", b'{"task": "b", "q": 1}')
    with pytest.raises(TaskContentChanged, match="No line of"):
        materialise(source, task, tmp_path / "missing")


def test_a_long_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further task of a JSONL file costs one line, not the whole file."""
    lines = [b'{"task": "t%d"}' % number for number in range(2_000)]
    source = jsonl(tmp_path / "d.jsonl", *lines)
    named: list[bytes] = []
    name_of = sources._name_of
    monkeypatch.setattr(sources, "_name_of", lambda line: named.append(line) or name_of(line))
    for number in (1_999, 0, 1_000):
        line = lines[number]
        materialise(source, Task(f"t{number}", task_digest_of_json(line)), tmp_path / str(number))
    assert len(named) == len(lines)
