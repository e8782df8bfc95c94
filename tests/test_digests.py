"""Promises of the digests: the same content gives the same digest everywhere, and no two contents share one."""

import hashlib
import os
import socket
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import digests
from ledger.digests import (
    digest_of_names,
    framed,
    members_digest,
    task_digest_of_folder,
    task_digest_of_json,
)
from ledger.errors import BadInput, NotFound

NAME = attrgetter("name")

names = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=4)


def folder(root: Path, files: dict[str, bytes]) -> Path:
    root.mkdir(parents=True)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def unframed_digest(parts: Iterable[str]) -> str:
    """The double: the same digest without lengths."""
    return hashlib.sha256(b"by-name/1" + "".join(parts).encode()).hexdigest()


@given(names, names)
def test_different_parts_give_different_bytes(one: list[str], other: list[str]) -> None:
    """Two lists of parts are framed alike only when they are the same list."""
    assert (framed(*one) == framed(*other)) == (one == other)


@given(names.filter(lambda parts: len(parts) > 1 and parts[0] != ""))
def test_moving_a_letter_between_names_changes_the_digest(parts: list[str]) -> None:
    """A letter moved to the next name is another list, which a digest without lengths cannot see."""
    moved = [parts[0][:-1], parts[0][-1] + parts[1], *parts[2:]]
    assert unframed_digest(parts) == unframed_digest(moved)
    assert digest_of_names(*parts) != digest_of_names(*moved)
    assert members_digest([(parts[0], parts[1])]) != members_digest([(moved[0], moved[1])])


def test_the_formats_are_kept_for_good(tmp_path: Path) -> None:
    """Digests stand in facts: what version 1 gave, every later version gives. Worked out here by hand."""

    def part(raw: bytes) -> bytes:
        return len(raw).to_bytes(8, "big") + raw

    def sha(*raw: bytes) -> str:
        return hashlib.sha256(b"".join(raw)).hexdigest()

    task = folder(tmp_path / "t", {"b/run.sh": b"echo", "a.txt": b""})
    (task / "b/run.sh").chmod(0o755)
    empty, echo = hashlib.sha256(b"").digest(), hashlib.sha256(b"echo").digest()
    by_hand = sha(part(b"task-folder/1"), part(b"a.txt"), b"-", empty, part(b"b/run.sh"), b"x", echo)
    assert task_digest_of_folder(task) == by_hand
    assert task_digest_of_json(b'{"b": 1e2, "a": "\xc3\xa9"}') == sha(
        part(b"task-json/1"), part(b'{"a":"\\u00e9","b":100.0}')
    )
    assert digest_of_names("set", "task") == sha(part(b"by-name/1"), part(b"set"), part(b"task"))
    assert members_digest(iter([("t", "d"), ("u", "e")])) == sha(
        part(b"members/1"), part(b"t"), part(b"d"), part(b"u"), part(b"e")
    )


def test_members_are_an_ordered_list() -> None:
    """The order and the number of members count."""
    one, two = ("a", "1"), ("b", "2")
    assert len({members_digest(p) for p in ([], [one], [one, two], [two, one], [one, one])}) == 5


def test_a_name_without_utf8_form_is_refused_without_repeating_it() -> None:
    """A lone surrogate is bad input, and the message and its cause do not carry the text."""
    with pytest.raises(BadInput) as refusal:
        digest_of_names("hidden\ud800")
    assert "hidden" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":{"d":2,"c":3}}', b' { "b" : {"c":3, "d":2}, "a":1 }\n'),
        (b'{"a":"\xc3\xa9/"}', b'{"a":"\\u00E9\\/"}'),
        (b'{"a":100.0}', b'{"a":1e2}'),
    ],
)
def test_json_tasks_are_compared_by_what_they_say(one: bytes, other: bytes) -> None:
    """Order of keys, spaces, escapes and ways to write a number do not count."""
    assert task_digest_of_json(one) == task_digest_of_json(other)


def test_json_tasks_that_say_something_else_differ() -> None:
    """Types, order in lists, and places of values count."""
    lines = [b"{}", b'{"a":1}', b'{"a":1.0}', b'{"a":"1"}', b'{"a":true}', b'{"a":[1,2]}', b'{"a":[2,1]}']
    lines += [b'{"a":null}', b'{"a":{}}', b'{"a":123456789012345678901234567890}']
    assert len({task_digest_of_json(line) for line in lines}) == len(lines)


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"1", b"{", b'{"a":NaN}', b'{"a":1e400}', b'{"a":"\xff"}', b"{}{}", b'{"a":' * 99999]
)
def test_what_is_not_one_json_object_is_refused(line: bytes) -> None:
    """A line that is no JSON object is bad input, however it is broken."""
    with pytest.raises(BadInput):
        task_digest_of_json(line)


def test_only_names_contents_and_the_run_bit_count(tmp_path: Path) -> None:
    """Times, other mode bits, empty folders and left-out names change nothing."""
    task = folder(tmp_path / "t", {"a/b.txt": b"b", "c": b"c"})
    before = task_digest_of_folder(task)
    os.utime(task / "c", (1, 1))
    (task / "c").chmod(0o600)
    (task / "empty/inner").mkdir(parents=True)
    folder(task / ".git", {"HEAD": b"x"})
    folder(task / "a/__pycache__", {"b.pyc": b"x"})
    (task / "a/.DS_Store").write_bytes(b"x")
    assert task_digest_of_folder(task) == before
    (task / "link").symlink_to(task)
    (task / "link").rename(tmp_path / "link")
    assert task_digest_of_folder(tmp_path / "link") == before


def test_the_run_bit_counts(tmp_path: Path) -> None:
    """A script that lost its run bit is another task."""
    task = folder(tmp_path / "t", {"run.sh": b""})
    before = task_digest_of_folder(task)
    (task / "run.sh").chmod(0o755)
    assert task_digest_of_folder(task) != before


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.text("ab", min_size=1, max_size=2), st.binary(max_size=2), max_size=3), max_size=6))
def test_different_folders_have_different_digests(
    tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, bytes]]
) -> None:
    """Any two folders with other names or contents differ, also when a byte only moved from one to the other."""
    root = tmp_path_factory.mktemp("trees")
    found = {
        task_digest_of_folder(folder(root / str(number), tree)): sorted(tree.items())
        for number, tree in enumerate(trees)
    }
    assert len(found) == len({tuple(sorted(tree.items())) for tree in trees})


def test_the_order_on_disk_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are sorted by the bytes of their whole path, whatever order the file system lists them in."""
    task = folder(tmp_path / "t", {"a/x": b"1", "a.x": b"2", "a-x": b"3", "é": b"4", "z": b"5"})
    listed = digests._entries
    found = set()
    for backwards in (False, True):
        monkeypatch.setattr(
            digests, "_entries", lambda path, backwards=backwards: sorted(listed(path), key=NAME, reverse=backwards)
        )
        found.add(task_digest_of_folder(task))
    assert len(found) == 1


def make_symlink(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def make_folder_link(path: Path) -> None:
    path.symlink_to(folder(path.parents[2] / "plain", {"f": b""}))


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)


@pytest.mark.parametrize("make", [make_symlink, make_folder_link, os.mkfifo, make_socket])
def test_what_is_no_file_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: object) -> None:
    """A link, fifo or socket inside a task stops the digest with a sentence that names it, and never blocks."""
    task = folder(tmp_path / "t", {"sub/ok": b""})
    monkeypatch.chdir(task / "sub")  # a socket's path must be short
    assert callable(make)
    make(task / "sub/odd")
    with pytest.raises(BadInput, match="sub/odd"):
        task_digest_of_folder(task)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Such a name has no form in a fact or on another machine."""
    task = folder(tmp_path / "t", {})
    (task / os.fsdecode(b"bad\xff")).write_bytes(b"")
    with pytest.raises(BadInput, match=r"bad\\xff has a name that is not UTF-8"):
        task_digest_of_folder(task)


def test_no_folder_and_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there, a file, and a folder over the limit each have their sentence."""
    task = folder(tmp_path / "t", {"a": b"", "b": b"", "c": b""})
    with pytest.raises(NotFound):
        task_digest_of_folder(tmp_path / "nothing")
    with pytest.raises(BadInput, match="as a folder"):
        task_digest_of_folder(task / "a")
    monkeypatch.setattr(digests, "MAX_TASK_FILES", 2)
    with pytest.raises(BadInput, match="more than 2 files"):
        task_digest_of_folder(task)


def test_a_file_larger_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    """The last byte of a big file counts."""
    big = b"x" * (digests.CHUNK_BYTES * 2)
    one, other = folder(tmp_path / "1", {"f": big + b"a"}), folder(tmp_path / "2", {"f": big + b"b"})
    assert task_digest_of_folder(one) != task_digest_of_folder(other)
