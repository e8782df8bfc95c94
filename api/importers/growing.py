"""A run that is recorded while its tool still writes it: submitted at once, then trial by trial, sealed at its end.

Its job has the id that an import of the finished run would have, for both come of the tool's own id for the run. What
the run is made of is known at its end only: then the origin is sealed under the request that such an import would
carry, which from then on finds the same job, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice, takewhile
from typing import NamedTuple

import msgspec

from api.el import El
from api.importers.dataset import dataset_of
from api.importers.facts import Texts, rules_of
from api.importers.identity import Asked, asked_of, differing_terms
from api.importers.recording import (
    TRIALS_PER_BATCH,
    TRIES_MAX,
    Batch,
    Imported,
    first_batch,
    import_run,
    imported,
    keep_sources,
    kept_of,
    listing_of,
    manifest_of,
    origin_of,
)
from api.importers.run import Options, Run, Trial
from ledger.application import ask
from ledger.errors import ConcurrentWrite, Conflict, NotAllowed
from ledger.facts.catalogue import Task, dataset_stream
from ledger.facts.entry import AnyFact
from ledger.facts.job import JobSubmitted, job_stream
from ledger.facts.trial import (
    ArtifactFailed,
    ArtifactPersisted,
    ArtifactRedacted,
    RewardRevised,
    TrialDispatched,
    trial_stream,
)
from ledger.rules import job as job_rules

TASKS_AT_ONCE = 100


class Written(NamedTuple):
    """The job that a run grows into, how many trials are new in it, and how many entries were written."""

    job_id: str
    trials: int
    entries: int


def take_run(client: El, run: Run, options: Options) -> Imported:
    """Import a run; of one that was followed and is not sealed, what is missing, and its end.

    Raises:
        BadInput: the run holds what the rules refuse.
        Conflict: it is there already with other content; names what differs.
    """
    asked = asked_of(client.project, run, options)
    state = client.state(job_stream(asked.job_id))
    if not _is_growing(asked, state):
        return import_run(client, run, options)
    manifest = _same_terms(run, asked, state)
    listing = listing_of(run.sources)
    origin = origin_of(run, asked, listing)
    end = (
        partial(job_rules.seal_origin, request_id=asked.request_id, origin=origin),
        partial(job_rules.finish_job, failed_trials=run.failed_trials),
    )
    written = _record_trials(client, manifest, kept_of(run, options), dry_run=options.dry_run)
    sealed = msgspec.structs.replace(manifest, origin=origin)
    if options.dry_run:
        return imported(sealed, "planned", written.entries + len(ask(job_stream(asked.job_id), state, end)))
    keep_sources(client, run.sources if options.keep_artifacts else (), listing)
    facts = client.record(job_stream(asked.job_id), *end).facts
    return imported(sealed, "imported", written.entries + len(facts))


def record_so_far(client: El, run: Run, options: Options) -> Written:
    """Submit a run that goes on, and record those of its trials that are new. A run needs its tool's own id for it.

    All trials of a task that are known so far come together.

    Raises:
        Conflict: it was imported already, is followed on other terms, or a recorded trial is not what it was.
        NotAllowed: its job was ended here meanwhile.
    """
    asked = asked_of(client.project, run, options)
    stream, entries = job_stream(asked.job_id), 0
    for _ in range(TRIES_MAX):
        if client.state(stream) is not None:
            break
        target = dataset_of(client, run, asked.dataset, asked.runner)
        listing = listing_of(run.sources)
        manifest = manifest_of(asked, target, origin_of(run, asked, listing))
        manifest = msgspec.structs.replace(manifest, request_id=_request(asked))
        keep_sources(client, (), listing)
        try:
            entries = client.record_new([first_batch(client, manifest, target)])
        except ConcurrentWrite:
            continue  # somebody published the dataset or the runner, or submitted the same job: look again
    state = client.state(stream)
    if not _is_growing(asked, state):
        raise Conflict(f"The run {run.run_id!r} was imported already, as job {asked.job_id}; it cannot be followed.")
    if state.ended:
        raise NotAllowed(f"The job {asked.job_id} was {state.ended} here; its run is not followed any more.")
    written = _record_trials(client, _same_terms(run, asked, state), kept_of(run, options))
    return written._replace(entries=written.entries + entries)


def _request(asked: Asked) -> str:
    return f"import/following/{asked.job_id}"


def _is_growing(asked: Asked, state: job_rules.Job | None) -> bool:
    manifest = state.manifest if state else None
    return manifest is not None and manifest.request_id == _request(asked) and state is not None and not state.sealed


def _same_terms(run: Run, asked: Asked, state: job_rules.Job) -> JobSubmitted:
    """The manifest of a growing job. Raises Conflict when k, runner, dataset or policy are not what it says."""
    had = state.manifest
    assert had is not None  # noqa: S101 - told to mypy; the job is growing
    if terms := differing_terms(run, asked, state):
        raise Conflict(f"The run {run.run_id!r} is being followed on other terms, as job {had.job_id}.", terms)
    return had


def _record_trials(client: El, manifest: JobSubmitted, run: Run, *, dry_run: bool = False) -> Written:
    tasks = _tasks(client, manifest, run)
    for _ in range(TRIES_MAX):
        texts, trials, entries = Texts(client.artifacts), 0, 0
        try:
            for batch in _batches(client, manifest.job_id, run, tasks, texts):
                trials += len(batch)
                if dry_run:
                    entries += sum(len(ask(stream, None, rules)) for stream, rules in batch)
                    continue
                texts.flush()
                entries += client.record_new([batch])
        except ConcurrentWrite:
            continue  # another follower was faster: look again at what is there
        return Written(manifest.job_id, trials, entries)
    raise ConcurrentWrite(f"The job {manifest.job_id} is followed by somebody else at the same time.")


def _tasks(client: El, manifest: JobSubmitted, run: Run) -> Mapping[str, Task]:
    """The job's task for each member of the run.

    A tool may call a task otherwise once it has run: it is then the task of the same content.
    """
    state = client.state(job_stream(manifest.job_id))
    tasks = state.selected if manifest.subset else client.state(dataset_stream(manifest.dataset)).tasks
    by_name, by_digest = {task.name: task for task in tasks}, {task.digest: task for task in tasks}
    found = {member.task: by_name.get(member.task) or by_digest.get(member.digest) for member in run.members}
    if foreign := [f"task {name!r}" for name, task in found.items() if task is None]:
        raise Conflict(f"The run names tasks that its job {manifest.job_id} does not have.", foreign)
    return {name: task for name, task in found.items() if task}


def _batches(client: El, job_id: str, run: Run, tasks: Mapping[str, Task], texts: Texts) -> Iterator[Batch]:
    """What is not recorded yet, many trials at a time."""
    batch: Batch = []
    by_task = ((task, list(trials)) for task, trials in groupby(run.trials(), key=lambda trial: tasks[trial.task]))
    while some := list(islice(by_task, TASKS_AT_ONCE)):
        recorded = _recorded(client, job_id, some)
        compared = Texts(client.artifacts)  # never stored: what is recorded has its texts, what is new gets them below
        for task, trials in some:
            new = _missing(job_id, task, trials, recorded[task.name], compared)
            batch += [
                (trial_stream(job_id, task.name, trial.attempt), rules_of(trial, job_id, task.digest, texts))
                for trial in new
            ]
            if len(batch) >= TRIALS_PER_BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def _recorded(
    client: El, job_id: str, some: Sequence[tuple[Task, Sequence[Trial]]]
) -> Mapping[str, list[list[AnyFact]]]:
    """The facts of each recorded attempt of some tasks; of those beyond their trials, the first."""
    streams = {
        task.name: [trial_stream(job_id, task.name, attempt) for attempt in range(1, len(trials) + 2)]
        for task, trials in some
    }
    found = client.streams([stream for named in streams.values() for stream in named])
    pasts = {name: takewhile(bool, (found[stream] for stream in named)) for name, named in streams.items()}
    return {name: [[one.entry.fact for one in past] for past in attempts] for name, attempts in pasts.items()}


def _missing(
    job_id: str, task: Task, trials: Sequence[Trial], recorded: list[list[AnyFact]], texts: Texts
) -> list[Trial]:
    """The trials of a task that are not recorded, each in the next free attempt.

    Raises Conflict when a recorded one is not among them: it changed, or its folder is gone.
    """
    new, count = [], len(recorded)
    for trial in (msgspec.structs.replace(trial, task=task.name) for trial in trials):
        facts = ask(trial_stream(job_id, task.name, trial.attempt), None, rules_of(trial, job_id, task.digest, texts))
        same = next((had for had in recorded if _tells_the_same(had, facts)), None)
        if same is None:
            new.append(trial)
        else:
            recorded.remove(same)
    if recorded:
        raise Conflict(
            f"A trial of {task.name!r} was recorded in job {job_id} and is no longer what it was.", ["a recorded trial"]
        )
    return [msgspec.structs.replace(trial, attempt=number) for number, trial in enumerate(new, count + 1)]


def _tells_the_same(had: Sequence[AnyFact], facts: Sequence[AnyFact]) -> bool:
    """Whether recorded facts are those of a trial, in whatever attempt, and whatever was added since.

    Files count where both sides kept them.
    """
    told = [fact for fact in had if not isinstance(fact, _NOT_TOLD)]
    kept, files = ([fact for fact in some if isinstance(fact, ArtifactPersisted)] for some in (had, facts))
    return told == [fact for fact in facts if not isinstance(fact, _NOT_TOLD)] and (
        not kept or not files or kept == files
    )


_NOT_TOLD = (TrialDispatched, ArtifactPersisted, ArtifactFailed, ArtifactRedacted, RewardRevised)
