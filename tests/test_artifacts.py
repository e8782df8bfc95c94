"""Promises of the artifact store: a name never holds half a content, and what was returned is durable."""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ledger import artifacts
from ledger.artifacts import ArtifactStore
from ledger.digests import CHUNK_BYTES
from ledger.errors import BadInput, DamagedStore, NotFound, StoreUnreachable

DATA = b"what the trial left\n" * 1000
SHA = hashlib.sha256(DATA).hexdigest()
ABSENT = "0" * 64


class InPlaceStore(ArtifactStore):
    """The double: writes straight to the artifact's name."""

    def put_file(self, path: Path, *, max_bytes: int) -> NoReturn:
        data = path.read_bytes()
        place = place_of(self, hashlib.sha256(data).hexdigest())
        place.parent.mkdir(parents=True)
        with place.open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            os.fsync(file.fileno())
        raise AssertionError("the crash comes first")


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "project/artifacts")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.log"
    path.write_bytes(DATA)
    return path


def place_of(store: ArtifactStore, sha256: str) -> Path:
    return store.root / sha256[:2] / sha256[2:]


def artifacts_in(store: ArtifactStore) -> list[str]:
    """Every file that looks like an artifact."""
    found = (path.relative_to(store.root).as_posix().replace("/", "") for path in store.root.rglob("*"))
    return sorted(name for name in found if re.fullmatch("[0-9a-f]{64}", name))


def temps_in(store: ArtifactStore) -> list[Path]:
    return list((store.root / "temp").iterdir())


def die(*args: object, **kwargs: object) -> NoReturn:
    os._exit(9)


def in_a_process_that_dies(function_to_break: str, call: Callable[[], object]) -> None:
    """Run `call` in a child that loses power at its first `os.<function_to_break>`."""
    child = os.fork()
    if child == 0:
        setattr(os, function_to_break, die)
        try:
            call()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_what_is_put_can_be_read(store: ArtifactStore, source: Path) -> None:
    """Bytes and files come back as they were, under the sha256 of their content."""
    assert store.put_bytes(DATA) == store.put_file(source, max_bytes=len(DATA))
    stored = store.put_bytes(b"")
    assert (stored.sha256, stored.size) == (hashlib.sha256(b"").hexdigest(), 0)
    assert store.read_bytes(SHA, max_bytes=len(DATA)) == DATA
    assert store.verify(SHA).size == len(DATA)
    with store.open(SHA) as file:
        assert file.read() == DATA
    assert store.has(SHA)
    assert artifacts_in(store) == sorted([SHA, stored.sha256])
    assert temps_in(store) == []


def test_files_and_folders_are_private(store: ArtifactStore) -> None:
    """Nobody but the owner may read: files 0600, folders 0700."""
    store.put_bytes(DATA)
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in [store.root, *store.root.rglob("*")]}
    assert modes == {True: 0o700, False: 0o600}


def test_many_are_stored_in_order_with_one_sync_per_folder(
    store: ArtifactStore, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch syncs each file, renames all, and then syncs each folder once."""
    store.put_many([b"a", source], max_bytes=len(DATA))  # makes the folders
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def noted_replace(src: Path, dst: Path) -> None:
        calls.append("rename")
        replace(src, dst)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    stored = store.put_many([b"a", source, b"a"], max_bytes=len(DATA))
    assert [one.size for one in stored] == [1, len(DATA), 1]
    assert calls == ["file"] * 3 + ["rename"] * 3 + ["folder"] * 3
    assert [store.has(one.sha256) for one in stored] == [True] * 3


def test_a_batch_is_all_or_none_unless_the_caller_decides(store: ArtifactStore, tmp_path: Path) -> None:
    """A refused item leaves nothing of its batch; a caller that catches it keeps the others."""
    with pytest.raises(NotFound):
        store.put_many([b"a", tmp_path / "nothing"], max_bytes=9)
    assert artifacts_in(store) == []
    assert temps_in(store) == []
    with store.batch() as batch:
        kept = batch.add_bytes(b"a")
        with pytest.raises(NotFound):
            batch.add_file(tmp_path / "nothing", max_bytes=9)
        assert not store.has(kept.sha256)
    assert artifacts_in(store) == [kept.sha256]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_crash_leaves_no_half_artifact(store: ArtifactStore, source: Path, moment: str) -> None:
    """A process that dies while it stores leaves nothing that looks like an artifact, and a repeat mends it."""
    store.put_bytes(b"the folders are there")
    before = artifacts_in(store)
    in_a_process_that_dies(moment, lambda: store.put_file(source, max_bytes=len(DATA)))
    assert artifacts_in(store) == before
    assert len(temps_in(store)) == 1
    assert store.put_file(source, max_bytes=len(DATA)).sha256 == SHA
    assert store.verify(SHA).size == len(DATA)


def test_the_crash_test_sees_a_store_that_writes_in_place(store: ArtifactStore, source: Path) -> None:
    """The same crash with the double shows half a file under a whole name, so the test above can fail."""
    double = InPlaceStore(store.root)
    in_a_process_that_dies("fsync", lambda: double.put_file(source, max_bytes=len(DATA)))
    assert artifacts_in(double) == [SHA]
    with pytest.raises(DamagedStore):
        double.verify(SHA)


def test_a_failed_sync_is_not_called_stored(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk refuses, the caller is told, and the temporary file is gone."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    store.put_bytes(b"the folders are there")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnreachable, match="No space left"):
        store.put_bytes(DATA)
    assert not store.has(SHA)
    assert temps_in(store) == []


def test_sweep_takes_old_leftovers_only(store: ArtifactStore, source: Path) -> None:
    """Leftovers of a crash go when they are old; what is being written and every artifact stay."""
    assert store.sweep(before=0) == 0
    kept = store.put_bytes(b"the folders are there")
    in_a_process_that_dies("replace", lambda: store.put_file(source, max_bytes=len(DATA)))
    written_at = temps_in(store)[0].stat().st_mtime
    assert store.sweep(before=written_at) == 0
    assert store.sweep(before=written_at + 1) == 1
    assert artifacts_in(store) == [kept.sha256]


def test_a_file_over_the_limit_is_refused(store: ArtifactStore, source: Path) -> None:
    """One byte too many is refused with the limit in the sentence, and nothing stays."""
    with pytest.raises(BadInput, match=r"larger than 19,999 bytes"):
        store.put_file(source, max_bytes=len(DATA) - 1)
    assert artifacts_in(store) == []
    assert temps_in(store) == []


def test_a_file_that_grows_past_the_limit_is_refused(
    store: ArtifactStore, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds for the bytes read, not only for the size at the start."""

    def growing(file: object) -> Iterator[bytes]:
        yield DATA
        yield b"more"

    monkeypatch.setattr(artifacts, "chunks_of", growing)
    with pytest.raises(BadInput, match="larger than"):
        store.put_file(source, max_bytes=len(DATA))
    assert artifacts_in(store) == []
    assert temps_in(store) == []


def test_a_large_file_is_copied_whole(store: ArtifactStore, tmp_path: Path) -> None:
    """Files of several chunks come out the same."""
    big = os.urandom(CHUNK_BYTES * 2 + 7)
    (tmp_path / "big").write_bytes(big)
    stored = store.put_file(tmp_path / "big", max_bytes=len(big))
    assert store.read_bytes(stored.sha256, max_bytes=len(big)) == big


def test_only_ordinary_files_are_taken(store: ArtifactStore, source: Path, tmp_path: Path) -> None:
    """A link cannot smuggle in another file, and a fifo or device cannot block or fill the store."""
    (tmp_path / "link").symlink_to(source)
    os.mkfifo(tmp_path / "fifo")
    for odd in (tmp_path / "link", tmp_path / "fifo", tmp_path, Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(BadInput):
            store.put_file(odd, max_bytes=10**9)
    with pytest.raises(NotFound):
        store.put_file(tmp_path / "nothing", max_bytes=10**9)
    assert artifacts_in(store) == []


@pytest.mark.parametrize("name", ["", "../" * 21 + "x", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n", "٠" * 64])
def test_only_a_sha256_is_a_name(store: ArtifactStore, name: str) -> None:
    """No name can lead out of the folder."""
    for ask in (store.open, store.has, store.verify, store.remove):
        with pytest.raises(BadInput):
            ask(name)


def test_what_is_not_there_is_not_found(store: ArtifactStore) -> None:
    """A missing artifact is said to be missing, also when the whole folder is."""
    assert not store.has(ABSENT)
    assert not store.remove(ABSENT)
    with pytest.raises(NotFound, match=ABSENT):
        store.read_bytes(ABSENT, max_bytes=1)
    with pytest.raises(NotFound):
        store.verify(ABSENT)


def test_damage_is_seen_and_mended(store: ArtifactStore) -> None:
    """One flipped bit, a cut end and a longer file are damage; putting the content again mends it."""
    store.put_bytes(DATA)
    for damaged in (bytes([DATA[0] ^ 1]) + DATA[1:], DATA[:-1], DATA + b"x", b""):
        place_of(store, SHA).write_bytes(damaged)
        with pytest.raises(DamagedStore, match=SHA):
            store.verify(SHA)
        with pytest.raises(DamagedStore, match=SHA):
            store.read_bytes(SHA, max_bytes=len(DATA) + 1)
    store.put_bytes(DATA)
    assert store.verify(SHA).size == len(DATA)


def test_reading_is_bounded(store: ArtifactStore) -> None:
    """A reader never gets more than it asked for."""
    store.put_bytes(DATA)
    with pytest.raises(BadInput, match="larger than"):
        store.read_bytes(SHA, max_bytes=len(DATA) - 1)


def test_erasing_is_repeat_safe(store: ArtifactStore) -> None:
    """An erased artifact is gone; erasing again is harmless; the same content may come back."""
    store.put_bytes(DATA)
    assert store.remove(SHA)
    assert not store.remove(SHA)
    assert not store.has(SHA)
    assert store.put_bytes(DATA).sha256 == SHA


def test_a_folder_that_cannot_be_used_is_unreachable(tmp_path: Path) -> None:
    """A file where the folder should be gives the store's own error, not an OSError."""
    (tmp_path / "file").write_bytes(b"")
    store = ArtifactStore(tmp_path / "file")
    for call in (lambda: store.put_bytes(b"x"), lambda: store.open(ABSENT), lambda: store.remove(ABSENT)):
        with pytest.raises(StoreUnreachable):
            call()
