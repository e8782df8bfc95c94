"""Rules of the catalogue: a published revision never changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, assert_never

import msgspec

from ledger.errors import BadInput, Conflict
from ledger.facts.catalogue import (
    DatasetFact,
    DatasetMembersAdded,
    DatasetPublished,
    ProfilePublished,
    RunnerPublished,
    Scalar,
    Task,
)
from ledger.rules.forms import (
    SHORT_TEXT_CHARS_MAX,
    checked_number,
    checked_ref,
    checked_sha256,
    checked_task_name,
    checked_text,
    same_values,
)

# Leaves room in an entry of 65,535 bytes for the envelope and for escapes in names.
TASKS_JSON_BYTES_MAX = 60_000
DIFFERS_MAX = 10


class Dataset(msgspec.Struct, frozen=True):
    """A dataset revision: its tasks so far, and the fact that sealed it."""

    tasks: tuple[Task, ...] = ()
    published: DatasetPublished | None = None


def evolve_dataset(state: Dataset | None, fact: DatasetFact) -> Dataset:
    """The dataset revision after one more fact."""
    state = state or Dataset()
    match fact:
        case DatasetMembersAdded():
            return msgspec.structs.replace(state, tasks=state.tasks + fact.tasks)
        case DatasetPublished():
            return msgspec.structs.replace(state, published=fact)
        case _:
            assert_never(fact)


def tasks_in_entries(tasks: Sequence[Task]) -> list[tuple[Task, ...]]:
    """Split tasks into runs, each as many as fit one entry, in their order."""
    runs: list[tuple[Task, ...]] = []
    run: list[Task] = []
    used = 0
    for task in tasks:
        # The digest, quotes, brackets and commas take 72 bytes; JSON may escape quotes and backslashes.
        size = 72 + len(task.name.encode()) + task.name.count('"') + task.name.count("\\")
        if run and used + size > TASKS_JSON_BYTES_MAX:
            runs.append(tuple(run))
            run, used = [], 0
        run.append(task)
        used += size
    if run:
        runs.append(tuple(run))
    return runs


def publish_dataset(
    state: Dataset | None,
    *,
    ref: str,
    tasks: Sequence[Task],
    runner: str,
    members_digest: str,
    digests: Literal["content", "by-name"] = "content",
) -> list[DatasetFact]:
    """Publish a dataset revision. The same content again is nothing new; other content is refused with what differs."""
    checked_ref(ref)
    checked_ref(runner)
    if not tasks:
        raise BadInput(f"Dataset {ref} has no task; a revision needs at least one.")
    seal = DatasetPublished(ref, runner, len(tasks), members_digest, digests)
    if state and state.published:
        if state.published == seal:
            return []
        raise Conflict(
            f"Dataset {ref} is published already with other content, and a published revision never changes; "
            "publish under a new version.",
            _dataset_differences(state, state.published, tasks, seal),
        )
    seen: set[str] = set()
    for task in tasks:
        checked_task_name(task.name)
        checked_sha256(task.digest)
        if task.name in seen:
            raise BadInput(f"Dataset {ref} names the task {task.name!r} twice; task names are unique in a dataset.")
        seen.add(task.name)
    return [*(DatasetMembersAdded(run) for run in tasks_in_entries(tasks)), seal]


def _dataset_differences(
    state: Dataset, published: DatasetPublished, tasks: Sequence[Task], seal: DatasetPublished
) -> list[str]:
    """What differs between a published revision and what was handed in, the first ten."""
    had = {task.name: task.digest for task in state.tasks}
    has = {task.name: task.digest for task in tasks}
    differs = [f"task {name!r} is no longer there" for name in had if name not in has]
    differs += [f"task {name!r} is new" for name in has if name not in had]
    differs += [f"task {name!r} has other content" for name in has if name in had and had[name] != has[name]]
    if published.runner != seal.runner:
        differs.append(f"the runner is {published.runner}, not {seal.runner}")
    if published.digests != seal.digests:
        differs.append(f"its digests are {published.digests}, not {seal.digests}")
    if not differs:
        differs.append("the tasks stand in another order")
    more = len(differs) - DIFFERS_MAX
    return differs[:DIFFERS_MAX] + ([f"and {more:,} more"] if more > 0 else [])


def evolve_runner(_state: RunnerPublished | None, fact: RunnerPublished) -> RunnerPublished:
    """The runner revision after its one fact."""
    return fact


def publish_runner(state: RunnerPublished | None, *, runner: RunnerPublished) -> list[RunnerPublished]:
    """Publish a runner revision."""
    checked_ref(runner.ref)
    if state == runner and same_values(_defaults(state), _defaults(runner)):
        return []
    if state:
        raise _revision_conflict("Runner", state, runner)
    if runner.kind == "command" and (runner.agent is None or runner.verifier is None):
        raise BadInput(f"Runner {runner.ref} is of kind command and needs an agent and a verifier command.")
    for step in (runner.agent, runner.verifier):
        if step and (not step.command or not step.command[0] or not 0 < step.timeout_s <= 86_400 * 7):
            raise BadInput(f"A step of runner {runner.ref} needs a command and a timeout of 0 to 604,800 seconds.")
    names = [parameter.name for parameter in runner.parameters]
    if len(set(names)) != len(names):
        raise BadInput(f"Runner {runner.ref} names a parameter twice; parameter names are unique.")
    for parameter in runner.parameters:
        check_parameter(parameter.name, parameter.default)
    return [runner]


def evolve_profile(_state: ProfilePublished | None, fact: ProfilePublished) -> ProfilePublished:
    """The profile revision after its one fact."""
    return fact


def publish_profile(state: ProfilePublished | None, *, profile: ProfilePublished) -> list[ProfilePublished]:
    """Publish a profile revision. Secrets are compared by fingerprint."""
    checked_ref(profile.ref)
    if state == profile and same_values(state.params, profile.params):
        return []
    if state:
        raise _revision_conflict("Profile", state, profile)
    for name, value in profile.params.items():
        check_parameter(name, value)
    for name in profile.secrets:
        check_parameter(name, None)
    return [profile]


def check_parameter(name: str, value: Scalar | None) -> None:
    """Refuse a parameter whose name or value has no form we can keep."""
    checked_text(name, what="parameter name", chars_max=200)
    if "=" in name:
        raise BadInput(f"The parameter name {name!r} holds '='; parameters reach a runner as environment variables.")
    if isinstance(value, str) and (len(value) > SHORT_TEXT_CHARS_MAX or "\0" in value):
        raise BadInput(f"The value of {name} holds a NUL or has more than {SHORT_TEXT_CHARS_MAX:,} characters.")
    if isinstance(value, float):
        checked_number(value, what=f"value of {name}")


def _defaults(runner: RunnerPublished) -> dict[str, Scalar | None]:
    return {parameter.name: parameter.default for parameter in runner.parameters}


def _revision_conflict(
    noun: str, had: RunnerPublished | ProfilePublished, has: RunnerPublished | ProfilePublished
) -> Conflict:
    """The refusal of other content under a published reference; names the fields, never a value."""
    before, after = msgspec.structs.asdict(had), msgspec.structs.asdict(has)
    differs: list[str] = []
    for field, old in before.items():
        new = after[field]
        if isinstance(old, dict):
            differs += [
                f"{field}.{name}"
                for name in sorted({*old, *new})
                if not same_values({name: old.get(name)}, {name: new.get(name)})
            ]
        elif old != new:
            differs.append(field)
    if isinstance(had, RunnerPublished) and isinstance(has, RunnerPublished) and not differs:
        differs.append("parameters")
    return Conflict(
        f"{noun} {had.ref} is published already with other content, and a published revision never changes; "
        "publish under a new version.",
        differs,
    )
