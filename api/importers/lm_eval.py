"""lm-eval: `results_<time>.json` with `samples_<task>_<time>.jsonl` beside it for each task, written by --log_samples.

What is read: the printed metrics, versions and sizes of each task, and of each sample its document, filter, metrics and
`doc_hash`. What is left out: documents, prompts and answers, which stay in the source files; groups of tasks, which
hold no documents of their own; `start_time` and `end_time`, which are readings of a counter and no times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, field

from api.importers.dataset import ref_part
from api.importers.files import find_files, head_of, read_whole, shown
from api.importers.lm_eval_samples import NO_FILTER, LmEvalSamples, Pick
from api.importers.rewards import reward_of
from api.importers.run import Member, Options, Run, Source, Trial
from api.importers.strict_json import NotFinite, NotJson, read_value
from ledger.errors import BadInput
from ledger.facts.catalogue import Scalar
from projections import tally
from projections.metrics import measure_trials

NAME = "lm-eval"
POLICIES: tuple[str, ...] = ()

_FIRST_KEYS = re.compile(rb'\s*\{\s*"results"\s*:\s*\{')
_TIME = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
_TIME_OF = re.compile(rf".*_({_TIME})\.json")


class Size(msgspec.Struct, frozen=True):
    """How many documents of a task were evaluated."""

    effective: Annotated[int, Meta(ge=0, le=1_000_000)]


class Report(msgspec.Struct, frozen=True):
    """The results file, as far as it is read."""

    results: dict[str, dict[str, Any]]
    versions: dict[str, Any] = {}
    sizes: dict[str, Size] = field(name="n-samples", default_factory=dict)
    group_subtasks: dict[str, Any] = {}
    lm_eval_version: str | None = None
    date: Any = None
    start_time: Any = None
    end_time: Any = None


class _Task(NamedTuple):
    """One task of the run with its samples."""

    name: str
    samples: LmEvalSamples


def find(path: Path) -> Sequence[Path]:
    """The results file, or every one below a folder; whatever else is JSON there is left out."""
    candidates = find_files(path, ".json")
    return [file for file in candidates if recognises(file)] or candidates


def recognises(path: Path) -> bool:
    """JSON that begins as a results file does."""
    return path.suffix == ".json" and _FIRST_KEYS.match(head_of(path)) is not None


def read(path: Path, options: Options) -> Iterator[Run]:
    """One job for each task of a results file, all or none; memory grows with the samples, not with their texts.

    Raises:
        BadInput: the file is none, a task's samples are not there, contradict each other or have several metrics or
            filters of which none was named, or one dataset is named for several tasks.
    """
    data, source = read_whole(path, bytes_max=options.file_bytes_max)
    try:
        report = msgspec.convert(read_value(data), Report)
    except (NotJson, msgspec.ValidationError) as error:
        raise BadInput(f"{shown(path)} is no results file of lm-eval: {error}.") from error
    except BadInput as error:
        raise BadInput(f"{shown(path)}: {error}") from error
    tasks = [
        _Task(name, LmEvalSamples(file, options, _metrics_in(report.results.get(name, {}))))
        for name, file in _sample_files(path, report).items()
    ]
    if options.dataset and len(tasks) > 1:
        names = ", ".join(task.name for task in tasks)
        raise BadInput(f"The run has several tasks ({names}); each is its own dataset, so leave out `--dataset`.")
    picks = _picks(tasks, options)
    runs = [_run(task, pick, report, source) for task, pick in zip(tasks, picks, strict=True)]
    yield from runs


def _run(task: _Task, pick: Pick, report: Report, source: Source) -> Run:
    samples = task.samples
    trials = list(samples.trials(pick))
    flags = samples.flags | {"times-missing" if report.start_time is report.end_time is None else "times-dropped"}
    size = report.sizes.get(task.name)
    members = list(samples.hashes) if size is None else [str(number) for number in range(size.effective)]
    if foreign := samples.hashes.keys() - {*members}:
        flags.add("ids-not-in-dataset")
        members += [doc for doc in samples.hashes if doc in foreign]
    printed = report.results.get(task.name, {})
    if str(pick) in printed and not _equal(printed[str(pick)], _score(trials, len(members))):
        flags.add("as-reported-differs")
    version = report.versions.get(task.name)
    about = {
        "tool": NAME,
        "version": report.lm_eval_version,
        "metric": pick.metric,
        "filter": pick.filter,
        "date": _date(report.date),
    }
    several = len(samples.filters) > 1 or any(len(metrics) > 1 for metrics in samples.filters.values())
    return Run(
        tool=NAME,
        name=task.name,
        attempts=1,
        attempt_max=1 if trials else 0,
        members=[Member(doc, samples.hashes.get(doc)) for doc in members],
        trials=lambda: iter(trials),
        failed_trials=0,
        sources=[source, samples.source],
        tool_version=report.lm_eval_version,
        reward_from=f"metric {pick}" if several else None,
        dataset=_dataset(task.name, version),
        flags=sorted(flags),
        as_reported={**{name: text for name, text in about.items() if text}, **_as_reported(printed)},
    )


def _sample_files(path: Path, report: Report) -> Mapping[str, Path]:
    """The samples file of each task, in the order of the results; a group has none."""
    names = {file.name for file in path.parent.iterdir()}
    alone = sum(recognises(file) for file in path.parent.glob("*.json")) <= 1
    found: dict[str, Path] = {}
    missing: list[str] = []
    for task in dict.fromkeys([*report.results, *report.sizes]):
        time = _TIME_OF.fullmatch(path.name)
        own = f"samples_{task}_{time[1]}.jsonl" if time else None
        any_time = re.compile(rf"samples_{re.escape(task)}(?:_{_TIME})?\.jsonl")
        others = [name for name in names if any_time.fullmatch(name)]
        if own in names:
            found[task] = path.parent / own
        elif alone and len(others) == 1:
            found[task] = path.parent / others[0]
        elif task in report.sizes or not report.group_subtasks.get(task):
            missing.append(task)
    if missing:
        raise BadInput(
            f"Beside {shown(path)} there is no one samples file of its run for {', '.join(missing)}; "
            "lm-eval writes them with --log_samples."
        )
    if not found:
        raise BadInput(f"{shown(path)} names no task.")
    return found


def _picks(tasks: Sequence[_Task], options: Options) -> list[Pick]:
    """The metric and filter of each task. An option that no task knows is a misspelling."""
    known = [(metric, name) for task in tasks for name, metrics in task.samples.filters.items() for metric in metrics]
    for option, wanted, have in (
        ("metric", options.metric, {metric for metric, _ in known}),
        ("filter", options.filter, {name for _, name in known}),
    ):
        if wanted is not None and wanted not in have:
            raise BadInput(f"No task of the run has the {option} {wanted[:80]!r}; there are {', '.join(sorted(have))}.")
    picks = []
    for task in tasks:
        filters = task.samples.filters
        name = _one(task.name, "filter", filters, options.filter) or NO_FILTER
        metric = _one(task.name, "metric", filters.get(name, {}), options.metric) or ""
        picks.append(Pick(metric, name))
    return picks


def _one(task: str, what: str, have: Collection[str], wanted: str | None) -> str | None:
    """The only one there is, else the one that was asked for; None when there is none at all."""
    if len(have) <= 1:
        return next(iter(have), None)
    if wanted in have:
        return wanted
    raise BadInput(f"The task {task} has several {what}s: {', '.join(have)}; name the reward's with `--{what}`.")


def _metrics_in(printed: Mapping[str, Any]) -> list[str]:
    """The metrics that a task's results name, without their standard errors."""
    names = dict.fromkeys(key.partition(",")[0] for key in printed)
    return [name for name in names if name != "alias" and not name.endswith("_stderr")]


def _dataset(task: str, version: Any) -> str | None:
    """`<task>@<version>`; None where that is no reference, so that the dataset is named as any other."""
    if isinstance(version, bool) or not isinstance(version, str | int | float):
        return None
    parts = [task, str(version)]
    return "@".join(parts) if [ref_part(part) for part in parts] == parts else None


def _as_reported(printed: Mapping[str, Any]) -> dict[str, Scalar]:
    """The printed numbers of a task; what is no finite number stays as it was written."""
    found = {name: value.text if isinstance(value, NotFinite) else value for name, value in printed.items()}
    return {name: value for name, value in found.items() if name != "alias" and isinstance(value, str | int | float)}


def _score(trials: Sequence[Trial], members: int) -> float | None:
    rewards = {trial.task: trial.reward if isinstance(trial.reward, float) else None for trial in trials}
    return measure_trials(1, members, {task: [tally.Trial(reward, True)] for task, reward in rewards.items()}).score


def _equal(printed: Any, ours: float | None) -> bool:
    number = reward_of(printed)
    return isinstance(number, float) and ours is not None and math.isclose(number, ours, rel_tol=1e-9, abs_tol=1e-12)


def _date(seconds: Any) -> str | None:
    """When the run began, in UTC: seconds since 1970 in the file."""
    number = reward_of(seconds)
    try:
        return datetime.fromtimestamp(number, UTC).isoformat() if isinstance(number, float) else None
    except (OverflowError, ValueError, OSError):
        return str(number)
