"""Inspect: a log of one eval, as an `.eval` archive or as `.json`.

What is read: the header (status, dataset, epochs, versions), the printed results, and of each sample its id, epoch,
input, scores, error and times. What is left out: messages, events, outputs, explanations and usage, which are passed
over as they stream by, and stay in the log, which is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from api.importers.archives import Archive
from api.importers.files import Pieces, find_files, head_of, shown
from api.importers.inspect_results import Results, as_reported, differs
from api.importers.inspect_samples import SAMPLE_KEYS, Samples, id_text
from api.importers.json_stream import Picked, pick
from api.importers.run import Member, Options, Run, Source, Trial
from api.importers.strict_json import NotJson, read_value
from ledger.errors import BadInput
from projections import tally
from projections.metrics import measure_trials

NAME = "inspect"
POLICIES: tuple[str, ...] = ()

ARCHIVE = ".eval"
HEADERS = ("header.json", "_journal/start.json")  # the second is all there is of an eval that never ended
SAMPLES = "samples/"

_FIRST_KEYS = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"\w+"\s*,\s*"eval"\s*:')


class Dataset(msgspec.Struct, frozen=True):
    """The samples that the eval was to run, in its order."""

    name: str | None = None
    sample_ids: list[Any] | None = None


class Config(msgspec.Struct, frozen=True):
    """`limit` is a number of samples, or the first and the one after the last; `epochs` is our k."""

    limit: int | tuple[int, int] | None = None
    epochs: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class Scorer(msgspec.Struct, frozen=True):
    """A scorer of the eval; its name may have that of its package before it."""

    name: str


class Spec(msgspec.Struct, frozen=True):
    """`eval` of a log."""

    task: str = "eval"
    run_id: str | None = None
    eval_id: str | None = None
    task_id: str | None = None
    dataset: Dataset = Dataset()
    config: Config = Config()
    packages: dict[str, str] = {}
    scorers: list[Scorer] | None = None


class Header(msgspec.Struct, frozen=True):
    """A log without its samples."""

    eval: Spec
    status: str = "started"
    results: Results | None = None
    invalidated: bool = False


HEADER_KEYS = Header.__struct_fields__


def find(path: Path) -> Sequence[Path]:
    """The log, or every log below a folder; whatever else is JSON there is left out."""
    candidates = find_files(path, (ARCHIVE, ".json"))
    return [file for file in candidates if file.suffix == ARCHIVE or recognises(file)] or candidates


def recognises(path: Path) -> bool:
    """An `.eval` archive, or JSON that begins as a log does."""
    if path.suffix == ARCHIVE:
        return head_of(path).startswith(b"PK")
    return path.suffix == ".json" and _FIRST_KEYS.match(head_of(path)) is not None


def read(path: Path, options: Options) -> Iterator[Run]:
    """The one job that a log holds; memory grows with its samples, not with what they said.

    Raises:
        BadInput: it is no log, breaks a cap, has several scorers and none was named, or a sample contradicts another.
    """
    samples = Samples()
    if head_of(path).startswith(b"PK") or path.suffix == ARCHIVE:
        header, source = _from_archive(path, options, samples)
    else:
        header, source = _from_json(path, options, samples)
    if header.status != "success":
        samples.flags.add("run-unfinished")
    elif not samples.slots:
        raise BadInput(f"{shown(path)} holds no samples: it was written without them, so that no score can be checked.")
    if header.invalidated:
        samples.flags.add("samples-invalidated")
    scorer = _scorer(header, samples, options.scorer)
    trials = list(samples.trials(scorer))
    if not any(seen.sample.started_at for seen in samples.slots.values()):
        samples.flags.add("times-missing")
    members = _members(header, samples)
    results, version = header.results or Results(), header.eval.packages.get("inspect_ai")
    attempts = header.eval.config.epochs or 1
    k = options.attempts or attempts
    if differs(results, scorer, measure_trials(k, len(members), _by_member(trials, k))):
        samples.flags.add("as-reported-differs")
    about = {"tool": NAME, "version": version, "status": header.status, "scorer": scorer}
    yield Run(
        tool=NAME,
        name=header.eval.dataset.name or header.eval.task,
        attempts=attempts,
        attempt_max=max((trial.attempt for trial in trials), default=0),
        members=members,
        trials=lambda: iter(trials),
        failed_trials=sum(trial.status == "failed" for trial in trials),
        sources=[source],
        tool_version=version,
        run_id=_run_id(header.eval),
        reward_from=f"scorer {scorer}" if len(samples.scorers) > 1 else None,
        flags=sorted(samples.flags),
        as_reported={**{name: text for name, text in about.items() if text}, **as_reported(results)},
    )


def _from_archive(path: Path, options: Options, samples: Samples) -> tuple[Header, Source]:
    with Archive(path, options) as archive:
        names = archive.names
        name = next((name for name in HEADERS if name in names), None)
        if name is None:
            raise BadInput(f"{shown(path)} is no log of Inspect: it holds neither {' nor '.join(HEADERS)}.")
        header = _header(path, _whole(archive, name, HEADER_KEYS))
        for name in names:
            if name.startswith(SAMPLES) and name.endswith(".json"):
                samples.take(f"The member {name!r:.200}", _whole(archive, name, SAMPLE_KEYS))
        return header, archive.source


def _whole(archive: Archive, name: str, keys: Sequence[str]) -> Picked:
    """What is wanted of the object that a member holds."""
    try:
        (picked,) = pick(archive.pieces(name), keys)
    except NotJson as error:
        raise BadInput(f"The member {name!r:.200} of {shown(archive.path)}: {error}.") from error
    except BadInput as error:
        raise BadInput(f"The member {name!r:.200} of {shown(archive.path)}: {error}") from error
    if picked.cut:
        raise BadInput(f"The member {name!r:.200} of {shown(archive.path)} holds JSON that is cut before its end.")
    return picked


def _from_json(path: Path, options: Options, samples: Samples) -> tuple[Header, Source]:
    pieces = Pieces(path, bytes_max=options.file_bytes_max)
    number = 0
    try:
        for picked in pick(pieces, HEADER_KEYS, {"samples": SAMPLE_KEYS}):
            if picked.at:
                number += 1
                samples.take(f"Sample {number:,} of the log", picked)
    except NotJson as error:
        raise BadInput(f"{shown(path)} is no log of Inspect: {error}.") from error
    if picked.cut:
        if options.strict:
            raise BadInput(f"{shown(path)} is cut before its end.")
        samples.flags.add("source-incomplete")
    assert pieces.source is not None  # noqa: S101 - told to mypy; the pieces were read to the end
    return _header(path, picked), pieces.source


def _header(path: Path, picked: Picked) -> Header:
    try:
        return msgspec.convert(read_value(picked.text), Header)
    except (NotJson, msgspec.ValidationError) as error:
        cut = "; it is cut before its end" if picked.cut else ""
        raise BadInput(f"{shown(path)} is no log of Inspect: {error}{cut}.") from error


def _scorer(header: Header, samples: Samples, wanted: str | None) -> str | None:
    """The scorer whose word is the reward; None when the log has none at all."""
    planned = [scorer.name.rpartition("/")[2] for scorer in header.eval.scorers or []]
    names = list(samples.scorers) or list(dict.fromkeys(planned))
    if wanted is not None:
        if wanted not in (*names, *planned):
            raise BadInput(f"The log has no scorer {wanted[:80]!r}; it has {', '.join(names) or 'none'}.")
        return wanted
    if len(names) > 1:
        raise BadInput(f"The log has several scorers: {', '.join(names)}; name the reward's with `--scorer`.")
    return names[0] if names else None


def _members(header: Header, samples: Samples) -> list[Member]:
    """The samples that the eval was to run; those it ran beside them are members too, and flagged."""
    planned: dict[str, type] = {}
    for value in _within_limit(header.eval):
        task = id_text(value, "An entry of sample_ids")
        if planned.setdefault(task, type(value)) is not type(value):
            raise BadInput(f'sample_ids names both {task} and "{task}"; give them one spelling.')
    foreign = [task for task in samples.texts if task not in planned]
    if foreign and header.eval.dataset.sample_ids:
        samples.flags.add("ids-not-in-dataset")
    return [Member(task, samples.texts.get(task)) for task in (*planned, *foreign)]


def _within_limit(spec: Spec) -> Sequence[Any]:
    """The planned ids. Where a log lists the whole dataset, the limit says which of them."""
    ids, limit = spec.dataset.sample_ids or [], spec.config.limit
    first, end = limit if isinstance(limit, tuple) else (0, limit)
    return ids[first:end] if end is not None and len(ids) > end - first >= 0 else ids


def _run_id(spec: Spec) -> str | None:
    """A run may hold several evals; each has its own id, in old logs only that of its task."""
    parts = [part for part in (spec.run_id, spec.eval_id or spec.task_id) if part]
    return "/".join(parts) or None


def _by_member(trials: Sequence[Trial], k: int) -> dict[str, list[tally.Trial]]:
    found: dict[str, list[tally.Trial]] = {}
    for trial in trials:
        reward = trial.reward if isinstance(trial.reward, float) else None
        found.setdefault(trial.task, []).append(tally.Trial(reward, True, trial.attempt > k))
    return found
