"""Reading archives that others wrote: no cap, no name and no declaration of theirs is believed."""

from __future__ import annotations

import random
import resource
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.importers.archives import Archive
from api.importers.run import Options
from ledger.errors import BadInput, NotFound
from tests.zip_bytes import DEFLATED, STORED, ZSTD, Part, packed, zip_of, zstd

Write = Callable[..., Path]

EMPTY = b"PK\5\6" + bytes(18)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write an archive of members, or bytes as they are; its path."""

    def run(*parts: Part | bytes) -> Path:
        path = tmp_path / "a.zip"
        path.write_bytes(parts[0] if isinstance(parts[0], bytes) else zip_of(*parts))  # type: ignore[arg-type]
        return path

    return run


def content(path: Path, **options: Any) -> dict[str, bytes]:
    with Archive(path, Options(**options)) as archive:
        return {name: b"".join(archive.pieces(name)) for name in archive.names}


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        content(path, **options)
    return str(caught.value)


@pytest.mark.parametrize("method", [STORED, DEFLATED, ZSTD])
def test_members_come_as_they_went_in(write: Write, method: int) -> None:
    """All three methods, any size and name; folders are no members."""
    parts = {"a": b"", "题目 甲/b c": random.Random(1).randbytes(700_000), "z/..b/x..": b"ab" * 600_000}
    path = write(Part("folder/", b"", STORED), *(Part(name, data, method) for name, data in parts.items()))
    assert content(path) == parts


def test_members_may_be_read_in_turns(write: Write) -> None:
    """Reading one member does not lose another's place."""
    one, other = random.Random(1).randbytes(900_000), random.Random(2).randbytes(900_000)
    with Archive(write(Part("a", one), Part("b", other)), Options()) as archive:
        pairs = list(zip(archive.pieces("a"), archive.pieces("b"), strict=True))
    assert (b"".join(a for a, _ in pairs), b"".join(b for _, b in pairs)) == (one, other)


def test_several_zstd_frames_are_one_member(write: Write) -> None:
    """As the zstd command line would read them."""
    path = write(Part("a", b"onetwo", packed=zstd.compress(b"one") + zstd.compress(b"two")))
    assert content(path) == {"a": b"onetwo"}


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "a/..", "..", "/etc/passwd", "//host/x", "C:x", "c:/x", "\\x", "a\\..\\x", "a\0/../x", ""],
)
def test_a_member_that_leaves_its_folder_refuses_the_whole(write: Write, name: str) -> None:
    """Absolute, upwards, with a drive or a backslash: nothing of the archive is read."""
    assert "leaves its folder" in refusal(write(Part("good", b"1"), Part(name, b"2")))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_are_refused(write: Write, kind: int) -> None:
    """Only ordinary files and folders, whatever the entry is called."""
    assert "a link or a device" in refusal(write(Part("x", b"/etc/passwd", mode=kind | 0o777)))
    assert content(write(Part("x", b"1", mode=stat.S_IFREG | 0o600))) == {"x": b"1"}


def test_two_members_of_one_name_are_refused(write: Write) -> None:
    """Which one holds would be a guess."""
    assert "stands there twice" in refusal(write(Part("x", b"1"), Part("x", b"1")))


def test_an_encrypted_member_is_refused(write: Write) -> None:
    """There is no password to give."""
    assert "is encrypted" in refusal(write(Part("x", b"1", flags=0x801)))


def test_another_method_is_refused(write: Write) -> None:
    """By name of the member and number of the method."""
    assert "'x'" in refusal(write(Part("x", b"1", method=14)))


def test_what_members_declare_is_capped(write: Write) -> None:
    """One by one, together, and in number; the sentence names the option."""
    path = write(Part("a", b"x" * 900), Part("b", b"x" * 900))
    assert "--max-file-bytes" in refusal(path, file_bytes_max=899)
    assert "--max-archive-bytes" in refusal(path, archive_bytes_max=1_799)
    assert "--max-archive-members" in refusal(path, archive_members_max=1)
    assert len(content(path, file_bytes_max=900, archive_bytes_max=1_800, archive_members_max=2)) == 2


def test_the_archive_itself_is_capped(write: Write) -> None:
    """As any file."""
    assert "larger than 100 bytes" in refusal(write(Part("a", b"x" * 900, STORED)), file_bytes_max=100)


@pytest.mark.parametrize("method", [DEFLATED, ZSTD])
def test_a_bomb_ends_at_what_it_declared(write: Write, method: int) -> None:
    """A member that declares 10 bytes and unpacks to 200 MB is stopped after a piece, in little memory."""
    path = write(Part("x", b"", method, size=10, packed=packed(bytes(200_000_000), method)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "more than the 10 bytes" in refusal(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_a_zstd_window_that_asks_for_gigabytes_is_refused(write: Write) -> None:
    """A frame of a few bytes may ask for a window of 2 GB."""
    frame = b"\x28\xb5\x2f\xfd" + bytes([0x00, 21 << 3]) + bytes([0x01, 0x00, 0x00])
    assert "is damaged" in refusal(write(Part("x", b"", packed=frame)))


def test_what_is_less_than_declared_or_other_is_refused(write: Write) -> None:
    """A short member, a wrong checksum, packed bytes that are none."""
    assert "is cut" in refusal(write(Part("x", b"12345", STORED, size=6)))
    assert "is cut" in refusal(write(Part("x", b"1" * 99, packed=zstd.compress(b"1" * 99)[:-3])))
    assert "checksum" in refusal(write(Part("x", b"12345", crc=7)))
    assert "is damaged" in refusal(write(Part("x", b"12345", packed=b"oops, no zstd")))
    assert "is damaged" in refusal(write(Part("x", b"12345", DEFLATED, packed=b"\xff\xff\xff")))


def test_two_names_for_one_member_are_refused(write: Write) -> None:
    """The directory and the member itself must call it the same."""
    assert "another name" in refusal(write(Part("x", b"1", local_name="y")))


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip at all", EMPTY, b"PK\5\6" + b"\xff" * 18])
def test_what_is_no_archive_is_refused(write: Write, data: bytes) -> None:
    """An empty archive is one; it holds no member."""
    if data == EMPTY:
        assert content(write(data)) == {}
    else:
        assert "is no zip archive" in refusal(write(data))


def test_every_cut_of_an_archive_ends_in_a_sentence(write: Write) -> None:
    """Wherever it was cut, and whichever byte was changed, the answer is a refusal or the right content."""
    whole = zip_of(Part("a", b"12345" * 50), Part("b/c", b"x" * 99, DEFLATED))
    for length in range(len(whole)):
        assert refusal(write(whole[:length]))
    right = content(write(whole))
    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]
        try:
            found = content(write(changed))
        except BadInput:
            continue
        assert set(found.values()) <= set(right.values())


def test_a_directory_beyond_the_members_allowed_is_not_read(write: Write) -> None:
    """The number at the end of an archive is not believed: a long directory would fill the memory."""
    parts = [Part(f"{number:0200}", b"", STORED) for number in range(2_000)]
    whole = bytearray(zip_of(*parts))
    whole[-14:-10] = b"\1\0\1\0"
    assert "too long" in refusal(write(bytes(whole)), archive_members_max=10)


def test_a_link_to_an_archive_is_not_followed(write: Write, tmp_path: Path) -> None:
    """As with every source file."""
    link = tmp_path / "link.zip"
    link.symlink_to(write(Part("a", b"1")))
    assert "symbolic link" in refusal(link)
    with pytest.raises(NotFound):
        content(tmp_path / "none.zip")
