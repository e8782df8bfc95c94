"""SWE-bench: the run report `<model>.<run>.json`, with what its logs keep of each instance beside it.

What is read: the run report's lists of ids, its counts and its reasons; and of `logs/run_evaluation/<run>/<model>/`,
each instance's `report.json`, which must say the same. What is left out: the results of single tests, images and
containers. The instance's other files are kept as the trial's artifacts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.importers.files import find_files, head_of, read_whole, shown
from api.importers.run import Failure, File, Member, NoReward, Options, Run, Trial
from api.importers.strict_json import NotJson, read_value
from api.importers.swe_bench_logs import LOGS, Evidence, Outcome, instance_folders, is_logs
from ledger.errors import BadInput, NotFound

NAME = "swe-bench"
POLICIES: tuple[str, ...] = ("swe-bench",)

NAMES_SHOWN_MAX = 20

_FIRST_KEY = re.compile(
    rb'\s*\{\s*(?:"((total|submitted|completed|incomplete|resolved|unresolved|infra_failure|ambiguous_failure'
    rb'|empty_patch|error)_(instances|ids)|failure_reasons|unstopped_\w+|unremoved_images)"\s*:|"schema_version"\s*:\s*\d)'
)

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)] | UnsetType


class Report(msgspec.Struct, frozen=True):
    """The run report. Every id of the dataset stands in one list of outcomes; `submitted_ids` may hold further ones."""

    schema_version: Literal[2]
    submitted_ids: list[str]
    completed_ids: list[str]
    resolved_ids: list[str]
    unresolved_ids: list[str]
    error_ids: list[str]
    empty_patch_ids: list[str]
    incomplete_ids: list[str]
    infra_failure_ids: list[str] = []
    ambiguous_failure_ids: list[str] = []
    failure_reasons: dict[str, str] = {}
    total_instances: Count = UNSET
    submitted_instances: Count = UNSET
    completed_instances: Count = UNSET
    resolved_instances: Count = UNSET
    unresolved_instances: Count = UNSET
    infra_failure_instances: Count = UNSET
    ambiguous_failure_instances: Count = UNSET
    empty_patch_instances: Count = UNSET
    error_instances: Count = UNSET


def find(path: Path) -> Sequence[Path]:
    """The run report itself, those below a folder, or those beside its `logs`; whatever else is JSON is left out."""
    if path.is_dir() and is_logs(path.resolve()):
        found = [file for file in path.resolve().parent.parent.glob("*.json") if recognises(file)]
        if not found:
            raise NotFound(f"No run report stands beside the logs at {shown(path)}; it is called <model>.<run>.json.")
        return sorted(found)
    candidates = find_files(path, ".json", leave_out=LOGS)
    reports = [file for file in candidates if not head_of(file) or _FIRST_KEY.match(head_of(file))]
    return reports or candidates


def recognises(path: Path) -> bool:
    """A run report; or the folder of logs, which belongs to those beside it."""
    if path.is_dir():
        return is_logs(path)
    return path.suffix == ".json" and _FIRST_KEY.match(head_of(path)) is not None


def read(path: Path, options: Options) -> Iterator[Run]:
    """The one job that a run report tells of, one attempt at each instance of its dataset.

    Raises:
        BadInput: it is no run report, its lists contradict each other, or an instance's own report contradicts it.
    """
    data, source = read_whole(path, bytes_max=options.file_bytes_max)
    try:
        report = msgspec.convert(read_value(data), Report)
    except (NotJson, msgspec.ValidationError) as error:
        raise BadInput(f"{shown(path)} is no run report of SWE-bench (schema_version 2): {error}.") from error
    except BadInput as error:
        raise BadInput(f"{shown(path)}: {error}") from error
    outcomes = _outcomes(path, report)
    flags = {"times-missing"}
    as_reported: dict[str, str | int] = _counts(report)
    if any(as_reported[name] != count for name, count in _recounted(report, outcomes).items() if name in as_reported):
        flags.add("as-reported-differs")
    if foreign := sorted({*report.submitted_ids} - outcomes.keys()):
        flags.add("ids-not-in-dataset")
        as_reported["ids_not_in_dataset"] = _some(foreign)
    evidence = Evidence(path, options)
    for folder in instance_folders(path):
        if folder.name in outcomes:
            evidence.take(folder, outcomes[folder.name])
    trials = [
        trial
        for task, outcome in outcomes.items()
        if (trial := _trial(task, outcome, report.failure_reasons.get(task), evidence.files.get(task, ())))
    ]
    yield Run(
        tool=NAME,
        name=path.stem,
        attempts=1,
        attempt_max=1 if trials else 0,
        members=[Member(task) for task in outcomes],
        trials=lambda: iter(trials),
        failed_trials=sum(trial.status == "failed" for trial in trials),
        sources=[source, *evidence.sources],
        policy=options.policy or POLICIES[0],
        flags=sorted(flags | evidence.flags),
        as_reported=as_reported,
    )


def _outcomes(path: Path, report: Report) -> dict[str, Outcome]:
    """How each instance of the dataset came out, in the order of their ids. Raises BadInput where lists disagree."""
    lists: dict[Outcome, set[str]] = {
        "resolved": {*report.resolved_ids},
        "unresolved": {*report.unresolved_ids},
        "error": {*report.error_ids},
        "empty_patch": {*report.empty_patch_ids},
        "incomplete": {*report.incomplete_ids},
    }
    submitted, completed = {*report.submitted_ids}, {*report.completed_ids}
    refuse = _Contradictions(path)
    for (one, ids), (other, more) in combinations(lists.items(), 2):
        refuse.where(ids & more, f"both {one}_ids and {other}_ids name")
    # An instance whose own report was empty is among the completed and among the errors.
    measured = lists["resolved"] | lists["unresolved"]
    refuse.where(completed - measured - lists["error"], "completed_ids, but neither resolved nor unresolved_ids, names")
    refuse.where(measured - completed, "resolved_ids or unresolved_ids, but not completed_ids, names")
    refuse.where(lists["incomplete"] & submitted, "both incomplete_ids and submitted_ids name")
    ran = measured | lists["error"] | lists["empty_patch"]
    refuse.where(ran - submitted, "a list of outcomes, but not submitted_ids, names")
    return dict(sorted((task, outcome) for outcome, tasks in lists.items() for task in tasks))


class _Contradictions(NamedTuple):
    """Refuses a run report whose lists contradict each other."""

    path: Path

    def where(self, ids: set[str], lists: str) -> None:
        """Raises BadInput when there is any such id."""
        if ids:
            raise BadInput(f"{shown(self.path)} contradicts itself: {lists} {_some(sorted(ids))}.")


def _some(ids: Sequence[str]) -> str:
    """Ids to be read by a person, the first 20 of them."""
    more = len(ids) - NAMES_SHOWN_MAX
    return ", ".join(ids[:NAMES_SHOWN_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _counts(report: Report) -> dict[str, str | int]:
    """The numbers that the tool printed."""
    fields = {name: getattr(report, name) for name in Report.__struct_fields__ if name.endswith("_instances")}
    return {name: count for name, count in fields.items() if count is not UNSET}


def _recounted(report: Report, outcomes: Mapping[str, Outcome]) -> dict[str, int]:
    """The same numbers, counted in the lists."""
    lists = {name: getattr(report, name) for name in Report.__struct_fields__ if name.endswith("_ids")}
    counts = {f"{name.removesuffix('_ids')}_instances": len({*ids}) for name, ids in lists.items()}
    return {**counts, "total_instances": len(outcomes)}


def _trial(task: str, outcome: Outcome, reason: str | None, files: Sequence[File]) -> Trial | None:
    """The one attempt at an instance; None when nothing was submitted for it."""
    kept = tuple(files)
    match outcome:
        case "resolved":
            return Trial(task, 1, "succeeded", 1.0, files=kept)
        case "unresolved":
            return Trial(task, 1, "succeeded", 0.0, files=kept)
        case "error":
            failure = Failure("EvaluationError", "verifier", message=reason)
            return Trial(task, 1, "failed", NoReward("error"), failure, files=kept)
        case "empty_patch":
            return Trial(task, 1, "failed", NoReward("empty-patch"), Failure("EmptyPatch", "agent"), files=kept)
        case "incomplete":
            return None
