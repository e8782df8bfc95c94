"""Promises of reading a dataset: each task once, by name and content, or a sentence that says what is wrong."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.forms import dataset as dataset_form
from api.forms.dataset import read_dataset
from ledger.digests import task_digest_of_folder, task_digest_of_json
from ledger.errors import BadInput, NotFound
from ledger.facts.catalogue import Task


def jsonl(tmp_path: Path, *lines: bytes) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def folder(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as refused:
        read_dataset(path)
    return str(refused.value)


# --- folders ----------------------------------------------------------------------------------------------------------


def test_each_sub_folder_is_a_task_in_the_order_of_names(tmp_path: Path) -> None:
    """Names are those of the folders, sorted by their bytes; digests are those of the content."""
    root = folder(tmp_path / "set", {"b/x.txt": "1", "a/x.txt": "2", "加法/x.txt": "3", "B/x.txt": "4"})
    found = read_dataset(root)
    assert (found.kind, found.path) == ("folder", root)
    assert found.tasks == [Task(name, task_digest_of_folder(root / name)) for name in ("B", "a", "b", "加法")]


def test_the_same_content_elsewhere_gives_the_same_tasks(tmp_path: Path) -> None:
    """Where a dataset lies, its times and its modes beyond the run bit do not count; a changed byte does."""
    files = {"a/x.txt": "1", "b/deep/y.txt": "2"}
    one, other = folder(tmp_path / "one", files), folder(tmp_path / "other", dict(reversed(files.items())))
    os.utime(other / "a/x.txt", (0, 0))
    (other / "a/x.txt").chmod(0o640)
    assert read_dataset(one).tasks == read_dataset(other).tasks
    (other / "b/deep/y.txt").write_text("3")
    changed = [a.name for a, b in zip(read_dataset(one).tasks, read_dataset(other).tasks, strict=True) if a != b]
    assert changed == ["b"]


def test_what_is_no_task_folder_is_named_as_ignored(tmp_path: Path) -> None:
    """Loose files, hidden folders and __pycache__ are no tasks, and the answer says that they were passed over."""
    files = {"a/x": "1", "README.md": "read", "dataset.json": "{}", ".git/config": "", "__pycache__/x.pyc": ""}
    found = read_dataset(folder(tmp_path / "set", files))
    assert [task.name for task in found.tasks] == ["a"]
    assert found.ignored == (".git", "README.md", "__pycache__", "dataset.json")


def test_a_harbor_style_folder_is_told_by_its_task_toml(tmp_path: Path) -> None:
    """Every sub-folder holds a task.toml: the same digests, of kind harbor."""
    files = {f"{name}/{file}": name for name in "ab" for file in ("task.toml", "instruction.md", "tests/test.sh")}
    root = folder(tmp_path / "set", files)
    found = read_dataset(root)
    assert found.kind == "harbor"
    assert found.tasks == [Task(name, task_digest_of_folder(root / name)) for name in "ab"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a/task.toml": "", "docs/x.md": ""}, "'docs' does not"),
        ({"task.toml": "", "tests/test.sh": ""}, "give the folder above"),
        ({"instruction.md": "", "input/x": ""}, "give the folder above"),
        ({"README.md": "no tasks"}, "holds no task"),
    ],
)
def test_a_folder_that_is_probably_the_wrong_one_is_refused(tmp_path: Path, files: dict[str, str], told: str) -> None:
    """A folder that is itself a task, or holds other folders beside Harbor tasks, does not become odd tasks."""
    assert told in refusal(folder(tmp_path / "set", files))


def test_an_empty_task_folder_is_refused(tmp_path: Path) -> None:
    """No file in it, or only what does not count: there is no task there."""
    root = folder(tmp_path / "set", {"a/x": "1", "b/.git/config": ""})
    assert "b holds no file" in refusal(root)
    folder(root, {"b/x": "1"})
    (root / "c" / "d").mkdir(parents=True)
    assert "c holds no file" in refusal(root)


def test_links_are_refused_in_the_dataset_and_in_a_task(tmp_path: Path) -> None:
    """A link may lead anywhere, so it has no content that a digest could stand for; the way to a dataset may be one."""
    root = folder(tmp_path / "set", {"a/x": "1"})
    (tmp_path / "way").symlink_to(root)
    assert read_dataset(tmp_path / "way") == read_dataset(root)
    (root / "b").symlink_to(root / "a")
    assert "b is a symbolic link" in refusal(root)
    (root / "b").unlink()
    (root / "a" / "y").symlink_to(root / "a" / "x")
    assert "y is a symbolic link" in refusal(root)


# --- JSONL ------------------------------------------------------------------------------------------------------------


def test_each_line_is_a_task_in_the_order_of_lines(tmp_path: Path) -> None:
    """Named by `task`, else by `id`; blank lines, a byte-order mark and Windows line ends do not count."""
    lines = [b'\xef\xbb\xbf{"task": "b", "id": 7}\r', b"", b'  {"id": "a", "q": "\xe4\xba\x8c"}', b" \t", b""]
    found = read_dataset(jsonl(tmp_path, *lines))
    digests = [task_digest_of_json(line) for line in (b'{"task":"b","id":7}', b'{"id":"a","q":"\\u4e8c"}')]
    assert (found.kind, found.tasks) == ("jsonl", [Task("b", digests[0]), Task("a", digests[1])])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"task": "b", "x": 1, "x": 2}', "Line 2 of {path} has the key 'x' twice"),
        (b'{"task": "b", "x": {"y": 1, "y": 1}}', "Line 2 of {path} has the key 'y' twice"),
        (b'{"task": "a", "other": 1}', "Lines 1 and 2 of {path} both name the task 'a'"),
        (b'{"task": "b"', "Line 2 of {path} is not JSON"),
        (b'["b"]', "Line 2 of {path} is not a JSON object"),
        (b'{"task": "b\xff"}', "Line 2 of {path} is not text in UTF-8"),
        (b'{"id": 7}', 'Line 2 of {path} names its task by a number in `id`; write it as text, such as "id": "7"'),
        (b'{"id": true}', "Line 2 of {path} names its task by a number"),
        (b'{"task": null, "id": "b"}', "Line 2 of {path} has no text in `task`"),
        (b'{"name": "b"}', "Line 2 of {path} has neither `task` nor `id`"),
        (b'{"task": ""}', "Line 2 of {path}: The task name is empty"),
        (b'{"task": "a\\nb"}', "Line 2 of {path}: The task name"),
        (b'{"task": "\\ud800"}', "Line 2 of {path}: The task name"),
        (b'{"task": "' + b"n" * 513 + b'"}', "Line 2 of {path}: The task name has 513 characters"),
        (b'{"task": "b", "x": NaN}', "Line 2 of {path}: A task in a JSONL dataset cannot be read"),
        (b'{"task": "b", "x": 1e999}', "Line 2 of {path}: A task in a JSONL dataset cannot be read"),
        (b'{"task": "b", "x": "\\ud800"}', "Line 2 of {path}: A task in a JSONL dataset cannot be read"),
        (b'{"task": "b", "x": ' + b"9" * 5_000 + b"}", "Line 2 of {path} holds a number"),
        (b'{"task": "b", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "Line 2 of {path} is nested too deeply"),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else "",
)
def test_a_line_that_is_no_task_is_refused_by_its_number(tmp_path: Path, line: bytes, told: str) -> None:
    """The sentence says which line it is and what is wrong with it."""
    path = jsonl(tmp_path, b'{"task": "a"}', line)
    assert refusal(path).startswith(told.format(path=path))


def test_a_line_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the limit is refused before it is read whole; one at the limit is taken."""
    monkeypatch.setattr(dataset_form, "LINE_BYTES_MAX", 64)
    fits = b'{"task": "b", "x": "' + b"x" * 41 + b'"}\n'
    assert len(fits) == 64
    assert len(read_dataset(jsonl(tmp_path, b'{"task": "a"}', fits)).tasks) == 2
    assert "Line 2" in refusal(jsonl(tmp_path, b'{"task": "a"}', b" " + fits))


def test_a_dataset_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More tasks than the limit are refused, on lines and in folders."""
    monkeypatch.setattr(dataset_form, "TASKS_MAX", 2)
    lines = [json.dumps({"task": name}).encode() for name in "abc"]
    assert len(read_dataset(jsonl(tmp_path, *lines[:2])).tasks) == 2
    assert "more than 2 tasks" in refusal(jsonl(tmp_path, *lines))
    assert "more than 2 sub-folders" in refusal(folder(tmp_path / "set", {f"{name}/x": "1" for name in "abc"}))


def test_nothing_there_and_nothing_in_it_are_refused(tmp_path: Path) -> None:
    """A path that leads nowhere is not found; an empty file holds no task; a fifo is never waited for."""
    with pytest.raises(NotFound, match="no dataset at"):
        read_dataset(tmp_path / "nowhere")
    assert "holds no task" in refusal(jsonl(tmp_path, b"\n \n"))
    os.mkfifo(tmp_path / "fifo")
    assert "only ordinary files" in refusal(tmp_path / "fifo")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(NotFound):
        read_dataset(tmp_path / "round")


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20), unique=True, min_size=1)
)
def test_any_names_are_kept_exactly(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    """Whatever Unicode a name holds, it comes back as it was written, in the order of lines."""
    path = jsonl(tmp_path_factory.mktemp("any"), *(json.dumps({"task": name}).encode() for name in names))
    assert [task.name for task in read_dataset(path).tasks] == names


def test_a_hundred_thousand_lines_in_seconds_and_little_memory(tmp_path: Path) -> None:
    """Lines are streamed: memory holds the names and digests, never the file (here 200 bytes a task beyond them)."""
    path = tmp_path / "large.jsonl"
    with open(path, "w") as file:
        for number in range(100_000):
            file.write(json.dumps({"task": f"task-{number}", "prompt": "p" * 1_000}) + "\n")
    told: list[int] = []
    began = time.process_time()
    found = read_dataset(path, progress=told.append)
    assert time.process_time() - began < 20
    assert len(found.tasks) == told[-1] == 100_000
    assert told == sorted(told)
    del found
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:10_000]))
    tracemalloc.start()
    read_dataset(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < path.stat().st_size / 2
