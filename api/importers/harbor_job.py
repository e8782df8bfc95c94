"""One job of Harbor as jobs of ours: one for each agent, model and source of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from api.importers.files import shown
from api.importers.harbor_documents import (
    CONFIG,
    LOCK,
    RESULT,
    Cut,
    JobConfig,
    JobLock,
    JobResult,
    TrialLock,
    read_document,
)
from api.importers.harbor_reported import as_reported, differs
from api.importers.harbor_trial import Found, Key, sha256_of, trial_of
from api.importers.run import Member, Options, Run, Source, Trial
from ledger.errors import BadInput, NotFound
from projections import metrics, tally

TOOL = "harbor"
POLICIES = ("harbor-0.25", "harbor-0.26")
LEFT_OUT_FROM = (0, 26)

T = TypeVar("T")


class Job:
    """The documents of a job, as far as they are there; `cut` names those that end before their JSON does.

    `read` raises BadInput for what cannot be read as what it should be; with `--strict`, also for what is cut.
    """

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.sources: list[Source] = []
        self.cut: list[str] = []
        self.config = self._read(CONFIG, JobConfig) or JobConfig()
        self.lock = self._read(LOCK, JobLock)
        self.result = self._read(RESULT, JobResult)

    @property
    def has_ended(self) -> bool:
        """Whether Harbor says so."""
        return self.result is not None and self.result.finished_at is not None

    def _read(self, name: str, form: type[T]) -> T | None:
        try:
            value, source = read_document(
                self.path / name, form, below=self.path, bytes_max=self.options.file_bytes_max
            )
        except NotFound:
            return None
        except Cut as cut:
            if self.options.strict:
                raise
            self.cut.append(name)
            self.sources.append(cut.source)
            return None
        self.sources.append(source)
        return value


class Group:
    """What one job of ours holds: its members with their digests, in the lock's order, and its trials by task."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.members: dict[str, str | None] = {}
        self.asked: Counter[str] = Counter()
        self.trials: dict[str, list[Found]] = {}
        self.names: dict[str, str] = {}
        self.undigested: set[str] = set()

    def add_locked(self, locked: TrialLock) -> None:
        """One trial that was asked for. Raises BadInput when the lock gives its task two digests."""
        name, digest = locked.task.name, sha256_of(locked.task.digest)
        self.asked[name] += 1
        if self.members.setdefault(name, digest) != digest:
            raise BadInput(f"{LOCK} gives the task {name!r} two digests; they are two tasks of one name.")
        if locked.task.digest is None:
            self.undigested.add(name)

    def add(self, found: Found, *, is_locked: bool) -> None:
        """One trial there is. Raises BadInput when it is not of a task in the lock, or its task has other content."""
        task, digest = found.task, found.locked_digest or found.checksum
        if is_locked:
            # A local task may name itself otherwise than its folder, after which the lock calls it.
            task = next((name for name in (found.task_in_lock, found.task) if name in self.members), "")
            if not task:
                raise not_in_lock(found)
            if self.names.setdefault(task, found.task) != found.task:
                raise BadInput(f"{found.name} calls its task {found.task!r}, another trial {self.names[task]!r}.")
            digest = digest if task in self.undigested else found.locked_digest
        had = self.members.setdefault(task, digest)
        if had is None and (not is_locked or task in self.undigested):
            self.members[task] = digest
        elif had is not None and digest is not None and had != digest:
            raise BadInput(f"{found.name}: its task {task!r} has another digest than elsewhere in this job.")
        self.trials.setdefault(task, []).append(found)


def runs_of(job: Job, trials: Sequence[Found], flags: set[str], *, own_names: bool = True) -> Iterator[Run]:
    """The jobs of ours, in the order of the lock, of the trials that have ended.

    With `own_names` a task is called as its trials call it, else, and without any trial, as the lock does: a local
    task may name itself otherwise than its folder.

    Raises:
        BadInput: the documents contradict each other; names which.
    """
    trials = _without_copies(trials, flags)
    groups: dict[Key, Group] = {}
    for locked in job.lock.trials if job.lock else ():
        key = Key(
            locked.agent.name or locked.agent.import_path or "unknown", locked.agent.model_name, locked.task.source
        )
        groups.setdefault(key, Group(key)).add_locked(locked)
    for found in trials:
        if job.lock and found.key not in groups:
            raise not_in_lock(found)
        groups.setdefault(found.key, Group(found.key)).add(found, is_locked=job.lock is not None)
    flags |= _flags_of(job)
    slots = sum(len(group.members) * _attempts(job, group) for group in groups.values())
    if job.result and job.result.n_total_trials not in (None, slots):
        flags.add("slots-differ")
    for group in groups.values():
        yield _run(job, group, flags, is_only=len(groups) == 1, own_names=own_names)


def _run(job: Job, group: Group, flags: set[str], *, is_only: bool, own_names: bool) -> Run:
    key, k = group.key, _attempts(job, group)
    names = {task: group.names.get(task, task) if own_names else task for task in group.members}
    if len({*names.values()}) < len(names):
        raise BadInput(f"{LOCK} names two tasks that their trials call by one name.")
    ordered = [
        (names[task], attempt, found)
        for task, trials in group.trials.items()
        for attempt, found in enumerate(sorted(trials, key=lambda found: found.order), 1)
    ]
    any_trial = ordered[0][2] if ordered else None
    printed = job.result.stats.evals.get(_printed_as(key, any_trial)) if job.result else None
    own_flags = flags.union(*(found.flags for _, _, found in ordered))
    if printed and differs(printed, _measured(k, group)):
        own_flags.add("as-reported-differs")
    version = job.lock.harbor.version if job.lock else None
    job_id = job.result.id if job.result else next((f.job_id for _, _, f in ordered if f.job_id), None)
    return Run(
        tool=TOOL,
        name=(key.source or shown(Path(job.path.name))).rpartition("/")[2],
        attempts=k,
        attempt_max=max((attempt for _, attempt, _ in ordered), default=0),
        members=[Member(names[task], digest=digest) for task, digest in group.members.items()],
        trials=partial(_trials, ordered, job.options),
        failed_trials=sum(found.status == "failed" for _, _, found in ordered),
        sources=[*job.sources, *(source for _, _, found in ordered for source in found.sources)],
        tool_version=version,
        run_id=job_id and " | ".join([job_id, key.agent, key.model or "-", key.source or "adhoc"]),
        policy=job.options.policy or _policy(job, version),
        flags=sorted(own_flags),
        as_reported=as_reported(
            key,
            any_trial.agent_version if any_trial else None,
            printed,
            job.result.stats if job.result and is_only else None,
        ),
    )


def _trials(ordered: Sequence[tuple[str, int, Found]], options: Options) -> Iterator[Trial]:
    return (trial_of(found, task, attempt, options) for task, attempt, found in ordered)


def _attempts(job: Job, group: Group) -> int:
    """k: as the configuration says, else as often as a task was asked for, else as often as one was tried."""
    tried = max((len(trials) for trials in group.trials.values()), default=1)
    return job.config.n_attempts or max(group.asked.values(), default=tried)


def _measured(k: int, group: Group) -> metrics.Metrics:
    members = {
        task: [tally.Trial(found.reward, True, number > k) for number, found in enumerate(trials, 1)]
        for task, trials in group.trials.items()
    }
    return metrics.measure_trials(k, len(group.members), members)


def _flags_of(job: Job) -> set[str]:
    flags = set()
    if job.cut:
        flags.add("source-incomplete")
    if not job.has_ended:
        flags.add("run-unfinished")
    times = (job.result.started_at, job.result.finished_at) if job.result else ()
    if any(at is not None and at.tzinfo is None for at in times):
        flags.add("time-zone-unknown")
    return flags


def _policy(job: Job, version: str | None) -> str | None:
    """How this version counts a trial without a reward: those before locks as 0, others by their number if known."""
    if version is None:
        return None if job.lock or LOCK in job.cut else POLICIES[0]
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() and len(part) < 10 for part in parts[:2]):
        return None
    return POLICIES[(int(parts[0]), int(parts[1])) >= LEFT_OUT_FROM]


def _printed_as(key: Key, found: Found | None) -> str:
    if found:
        return found.printed_as
    model = (key.model or "").partition("/")[2] or key.model
    return "__".join(part for part in (key.agent, model, key.source or "adhoc") if part)


def _without_copies(trials: Sequence[Found], flags: set[str]) -> list[Found]:
    """Each trial once, by its id and by its name. Raises BadInput when two folders tell different things of one."""
    seen: dict[tuple[str, str], Found] = {}
    once = []
    for found in trials:
        keys = (("id", found.id), ("name", found.name))
        first = next((seen[key] for key in keys if key in seen), None)
        if first is None:
            once.append(found)
            seen |= dict.fromkeys(keys, found)
            continue
        if [source.sha256 for source in first.sources] != [source.sha256 for source in found.sources]:
            one, other = (shown(Path(trial.folder.name)) for trial in (first, found))
            raise BadInput(
                f"{one} and {other} say different things of the trial {found.name}; keep the folder that holds."
            )
        flags.add("duplicate-rows-dropped")
    return once


def not_in_lock(found: Found) -> BadInput:
    """The refusal of a trial that the lock does not ask for."""
    folder = shown(Path(found.folder.name))
    return BadInput(f"{LOCK} asks for no trial of {found.key.agent!r} at {found.task!r}, but {folder} is one.")
