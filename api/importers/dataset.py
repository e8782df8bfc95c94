"""Which dataset revision a run is on: one that is there already, or a new one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from api.el import El
from api.importers.run import Member, Run
from ledger.application import Rule
from ledger.digests import digest_of_names, framed, members_digest
from ledger.errors import BadInput, Conflict
from ledger.facts.catalogue import Task, dataset_stream
from ledger.rules import catalogue as rules
from ledger.rules.catalogue import Dataset
from ledger.rules.forms import checked_ref

PART_CHARS_MAX = 80
DIFFERS_MAX = 10


class Target(NamedTuple):
    """The dataset revision of a job: the job's tasks in its order, whether they are a part of it, and the rule that
    publishes it when it is not there yet."""

    ref: str
    tasks: Sequence[Task]
    members_digest: str
    subset: bool
    publish: Rule | None


def dataset_of(client: El, run: Run, ref: str | None, runner: str) -> Target:
    """The dataset revision that a run is on; without a reference, one named by the tool, the run and its members.

    Raises:
        BadInput: the run has no member, or the reference has no right form.
        Conflict: the revision is there with other tasks or another runner; names what differs.
    """
    if not run.members:
        raise BadInput("The run names no task; there is nothing to import.")
    name = checked_ref(ref).rpartition("@")[0] if ref else f"{ref_part(run.tool)}/{ref_part(run.name)}"
    tasks = [Task(member.task, _digest(run.tool, name, member)) for member in run.members]
    digest = members_digest((task.name, task.digest) for task in tasks)
    named = ref or f"{name}@{digest[:12]}"
    had: Dataset | None = client.state(dataset_stream(named))
    if ref is None and had and had.published and had.published.runner != runner:
        # Nobody asked for that name: the same tasks under another runner are a revision of their own.
        named = f"{name}@{hashlib.sha256(framed(digest, runner)).hexdigest()[:12]}"
        had = client.state(dataset_stream(named))
    ref = named
    if had is not None and had.published is not None:
        return _existing(run, ref, had, tasks, runner)
    by_name = any(member.digest is None for member in run.members)
    publish = partial(
        rules.publish_dataset,
        ref=ref,
        tasks=tasks,
        runner=runner,
        members_digest=digest,
        digests="by-name" if by_name else "content",
    )
    return Target(ref, tasks, digest, False, publish)


def ref_part(text: str) -> str:
    """A text as a part of a reference: what no reference may hold becomes '-'."""
    return re.sub(r"[^\w.+-]+", "-", text).lstrip("-.+")[:PART_CHARS_MAX] or "run"


def _existing(run: Run, ref: str, had: Dataset, tasks: Sequence[Task], runner: str) -> Target:
    seal = had.published
    assert seal is not None  # noqa: S101 - told to mypy; the caller has looked
    differs = [] if seal.runner == runner else [f"it pins the runner {seal.runner}, the run's is {runner}"]
    known = {task.name: task.digest for task in had.tasks}
    name = ref.rpartition("@")[0]
    for member, task in zip(run.members, tasks, strict=True):
        digest = known.get(task.name)
        if digest is None:
            differs.append(f"it has no task {task.name!r}")
        elif digest != task.digest and not (seal.digests == "by-name" and _may_be(run.tool, name, member, digest)):
            differs.append(f"its task {task.name!r} has another digest ({seal.digests})")
    if differs:
        more = len(differs) - DIFFERS_MAX
        raise Conflict(
            f"Dataset {ref} is there already and is not what this run was on; import it under another "
            "NAME@VERSION, or name the dataset's own runner with `--runner`.",
            differs[:DIFFERS_MAX] + ([f"and {more:,} more"] if more > 0 else []),
        )
    if len(tasks) == len(had.tasks):
        return Target(ref, had.tasks, seal.members_digest, False, None)
    selected = {task.name for task in tasks}
    part = [task for task in had.tasks if task.name in selected]
    return Target(ref, part, members_digest((task.name, task.digest) for task in part), True, None)


def _may_be(tool: str, name: str, member: Member, digest: str) -> bool:
    """Whether two digests by name can mean the same task: one of the two sides does not know the task's text."""
    if member.digest is not None:
        return False
    return member.text is None or digest == digest_of_names(tool, name, member.task)


def _digest(tool: str, name: str, member: Member) -> str:
    text = () if member.text is None else (member.text,)
    return member.digest or digest_of_names(tool, name, member.task, *text)
