"""Where Harbor's files lie: which folder is a job, which a trial, and what a trial left. No link is followed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from api.importers.files import FILES_MAX, head_of, real_path, refuse_folder, shown
from api.importers.harbor_documents import DOCUMENTS, read_document
from api.importers.run import File, Options, Source
from api.importers.strict_json import NotFinite, NotJson, read_value
from ledger.digests import chunks_of, open_regular
from ledger.errors import BadInput, Refused
from ledger.facts.trial import ArtifactFailed

TRIAL_FILES_MAX = 1_000
REWARD_BYTES_MAX = 1_000_000
NAME_CHARS_MAX = 1_000

_JOB_OR_TRIAL = re.compile(
    rb'"(?:(job_name|n_attempts|n_total_trials|n_concurrent_trials)|(trial_name|task_name))"\s*:'
)

# Of a trial, and of each of its steps.
_KEPT: tuple[tuple[str, Literal["output", "stdout", "stderr", "reward"]], ...] = (
    ("verifier/test-stdout.txt", "stdout"),
    ("verifier/test-stderr.txt", "stderr"),
    ("verifier/reward.txt", "reward"),
    ("verifier/reward.json", "reward"),
    ("agent/trajectory.json", "output"),
)


class Collected(msgspec.Struct, frozen=True):
    """A line of `artifacts/manifest.json`."""

    destination: str
    status: str = "ok"


class Left(NamedTuple):
    """What a trial left: files to keep, the same as sources, and what could not be kept."""

    files: tuple[File, ...]
    sources: tuple[Source, ...]
    failed: tuple[ArtifactFailed, ...]


def kind_of(folder: Path) -> Literal["job", "trial"] | None:
    """Whose folder it is, by the first of Harbor's own keys in one of its documents."""
    for name in DOCUMENTS:
        if match := _JOB_OR_TRIAL.search(head_of(folder / name)):
            return "job" if match[1] else "trial"
    return None


def find_jobs(path: Path) -> Sequence[Path]:
    """The folder itself, and every job's folder below it. What a trial left is not looked into.

    Raises NotFound when nothing is there, BadInput when no job is, or more than 10,000.
    """
    path = real_path(path)
    if not path.is_dir():
        raise BadInput(f"{shown(path)} is a file; give the folder of the job.")
    if kind_of(path) == "trial":
        raise BadInput(f"{shown(path)} is one trial of a job; give the folder of the job.")
    found = []
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        if kind_of(folder) == "job":
            found.append(folder)
        waiting += [below for below in folders_in(folder) if kind_of(below) != "trial"]
        if len(found) > FILES_MAX:
            raise BadInput(f"{shown(path)} holds more than {FILES_MAX:,} runs; import a part of it at a time.")
    if not found:
        raise BadInput(
            f"{shown(path)} holds no job of Harbor: no folder with its config.json, lock.json or result.json."
        )
    return sorted(found)


def folders_in(folder: Path) -> Sequence[Path]:
    """The folders in a folder, by name, without links and hidden ones. Raises BadInput when it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")]
    except OSError as error:
        refuse_folder(error)
    return [folder / name for name in sorted(names)]


def left_by(trial: Path, options: Options) -> Left:
    """The files of a trial that are kept: what the verifier printed, the trajectory, and the collected artifacts.

    At most 1,000; beyond them, and beyond the cap of a file, it is said that they could not be kept.
    """
    files: list[File] = []
    sources: list[Source] = []
    failed: dict[str, ArtifactFailed] = {}
    for file in _candidates(trial, failed):
        if len(files) == TRIAL_FILES_MAX:
            failed["artifacts"] = ArtifactFailed("artifacts", "too-many")
            break
        try:
            if file.path.lstat().st_size > options.file_bytes_max:
                failed[file.name] = ArtifactFailed(file.name, "too-large")
                continue
            sources.append(_hashed(trial, file))
        except (Refused, OSError):
            failed[file.name] = ArtifactFailed(file.name, "unreadable")
            continue
        files.append(file)
    return Left(tuple(files), tuple(sources), tuple(failed.values()))


def rewards_differ(trial: Path, rewards: Any) -> bool:
    """Whether a reward file of the verifier says something else than the result, whichever file Harbor took."""
    told = rewards if isinstance(rewards, dict) else {}
    main = next(iter(told.values())) if len(told) == 1 else told.get("reward")
    text, value = _read(trial / "verifier/reward.txt"), _read(trial / "verifier/reward.json")
    if text is not None and not _same(_number(text), main):
        return True
    if value is None:
        return False
    try:
        written = read_value(value)
    except BadInput:
        written = {}
    if not isinstance(written, dict):
        return not _same(written, main)
    return written.keys() != told.keys() or any(not _same(written[key], told[key]) for key in told)


def _candidates(trial: Path, failed: dict[str, ArtifactFailed]) -> Iterator[File]:
    steps = folders_in(trial / "steps") if _is(trial / "steps", stat.S_ISDIR) else ()
    for base in (trial, *steps):
        for name, role in _KEPT:
            if _is(base / name, stat.S_ISREG) and _is((base / name).parent, stat.S_ISDIR):
                yield File(_name(trial, base / name), base / name, role)
        if _is(base / "artifacts", stat.S_ISDIR):
            yield from _artifacts(trial, base / "artifacts", failed)


def _artifacts(trial: Path, folder: Path, failed: dict[str, ArtifactFailed]) -> Iterator[File]:
    """The collected files as the manifest lists them, else all there are."""
    try:
        manifest, _ = read_document(folder / "manifest.json", list[Collected], below=trial, bytes_max=REWARD_BYTES_MAX)
    except Refused:
        manifest = [Collected(".")]
    seen: set[Path] = {folder / "manifest.json"}
    for entry in manifest:
        name = f"{_name(trial, folder)}/{shown(Path(entry.destination))}"[:NAME_CHARS_MAX]
        path = _inside(folder, entry.destination)
        if entry.status == "failed" or (entry.status == "ok" and path and not os.path.lexists(path)):
            failed.setdefault(name, ArtifactFailed(name, "missing"))
        elif entry.status == "ok" and path is None:
            failed.setdefault(name, ArtifactFailed(name, "not-a-file"))
        elif entry.status == "ok" and path:
            new = [file for file in _files_below(path) if file not in seen]
            seen.update(new)
            yield from (File(_name(trial, file), file) for file in new)


def _inside(folder: Path, destination: str) -> Path | None:
    """Where a collected file lies; None when that is outside of the folder, or behind a link."""
    if "\0" in destination:
        return None
    path = folder / destination
    if ".." in path.parts or not path.is_relative_to(folder):
        return None
    below = [part for part in (path, *path.parents) if part != folder and part.is_relative_to(folder)]
    return None if any(part.is_symlink() for part in below) else path


def _files_below(path: Path) -> Iterator[Path]:
    if _is(path, stat.S_ISREG):
        yield path
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


def _hashed(trial: Path, file: File) -> Source:
    digest, size = hashlib.sha256(), 0
    with open_regular(file.path) as content:
        for chunk in chunks_of(content):
            digest.update(chunk)
            size += len(chunk)
    return Source(f"{shown(Path(trial.name))}/{file.name}", file.path, digest.hexdigest(), size)


def _name(trial: Path, path: Path) -> str:
    return shown(path.relative_to(trial))[:NAME_CHARS_MAX]


def _is(path: Path, kind: Any) -> bool:
    try:
        return bool(kind(path.lstat().st_mode))
    except OSError:
        return False


def _read(path: Path) -> bytes | None:
    try:
        with open_regular(path) as file:
            return file.read(REWARD_BYTES_MAX)
    except (Refused, OSError):
        return None


def _number(text: bytes) -> Any:
    """What a text file says: a number, as JSON where it is that; anything else is none."""
    try:
        return read_value(text.strip() or b"null")
    except NotJson:
        pass
    except BadInput:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, NotFinite) and isinstance(other, NotFinite):
        return one.text == other.text
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
