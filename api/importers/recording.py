"""The one shared path from a run of any tool to facts: one job, in one transaction, the same run never twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Literal

import msgspec

from api.el import El
from api.importers.dataset import Target, dataset_of
from api.importers.facts import Texts, rules_of
from api.importers.identity import Asked, asked_of, differences, is_same
from api.importers.run import Options, Run, Source
from ledger.application import Rule, ask
from ledger.errors import BadInput, ConcurrentWrite, Conflict
from ledger.facts.catalogue import RunnerPublished, Scalar, dataset_stream, runner_stream
from ledger.facts.job import JobSubmitted, Origin, job_stream
from ledger.facts.trial import trial_stream
from ledger.rules import catalogue as catalogue_rules
from ledger.rules import job as job_rules

IMPORTER = "evalledger/1"
TRIALS_PER_BATCH = 1_000
TRIES_MAX = 5

Batch = list[tuple[str, Sequence[Rule]]]


class Imported(msgspec.Struct, frozen=True):
    """The job that a run is, and what the import came to; `entries_written` counts what would be, when planned."""

    id: str
    dataset: str
    attempts: int
    members: int
    outcome: Literal["imported", "unchanged", "planned"]
    entries_written: int
    flags: tuple[str, ...]
    as_reported: dict[str, Scalar]


def import_run(client: El, run: Run, options: Options) -> Imported:
    """Record a run as one job with all its facts, all or nothing. The same content again writes nothing.

    `dataset`, `runner` and `attempts` of the options override what the run says. Without `keep_artifacts` the source
    files are named by their digests but not copied.

    Raises:
        BadInput: the run holds what the rules refuse.
        Conflict: the run id, or the dataset, is there already with other content; names what differs.
    """
    asked = asked_of(client.project, run, options)
    for _ in range(TRIES_MAX):
        if unchanged := _find_earlier(client, run, asked):
            return unchanged
        target = dataset_of(client, run, asked.dataset, asked.runner)
        listing = listing_of(run.sources)
        manifest = manifest_of(asked, target, origin_of(run, asked, listing))
        texts = Texts(client.artifacts)
        batches = _batches(client, kept_of(run, options), manifest, target, texts)
        if options.dry_run:
            count = sum(len(ask(stream, None, rules)) for batch in batches for stream, rules in batch)
            return imported(manifest, "planned", count)
        keep_sources(client, run.sources if options.keep_artifacts else (), listing)
        try:
            count = client.record_new(stored(batches, texts))
        except ConcurrentWrite:
            continue  # somebody recorded this run, its dataset or its runner meanwhile: look again
        return imported(manifest, "imported", count)
    raise ConcurrentWrite("The same dataset is being published all the time; try again later.")


def kept_of(run: Run, options: Options) -> Run:
    """The run as it is kept: without the files of its trials, whose digests its sources tell, when none are wanted."""
    if options.keep_artifacts:
        return run
    trials = run.trials
    return msgspec.structs.replace(
        run, trials=lambda: (msgspec.structs.replace(trial, files=()) if trial.files else trial for trial in trials())
    )


def _find_earlier(client: El, run: Run, asked: Asked) -> Imported | None:
    """The job of this run, when it was imported before. Raises Conflict when it had other content then."""
    state: job_rules.Job | None = client.state(job_stream(asked.job_id))
    if state is None or state.manifest is None:
        return None
    if not is_same(client.project, run, asked, state):
        raise Conflict(
            f"The run {run.run_id!r} of {run.tool} was imported already, as job {asked.job_id}, with other content.",
            differences(client, run, asked, state),
        )
    origin = state.sealed.origin if state.sealed else state.manifest.origin
    return imported(msgspec.structs.replace(state.manifest, origin=origin), "unchanged", 0)


def origin_of(run: Run, asked: Asked, listing: bytes) -> Origin:
    """Where a run came from; its source files are named by their listing, which is an artifact."""
    extra = {"extra-trials"} if run.attempt_max > asked.attempts else set()
    return Origin(
        kind="import",
        tool=run.tool,
        tool_version=run.tool_version,
        importer=IMPORTER,
        policy=run.policy,
        sources=hashlib.sha256(listing).hexdigest(),
        flags=tuple(sorted({*run.flags} | extra)),
        as_reported=dict(run.as_reported),
    )


def manifest_of(asked: Asked, target: Target, origin: Origin) -> JobSubmitted:
    """What is asked for: the members of the target, k times each."""
    return JobSubmitted(
        job_id=asked.job_id,
        dataset=target.ref,
        runner=asked.runner,
        attempts=asked.attempts,
        member_count=len(target.tasks),
        members_digest=target.members_digest,
        subset=target.subset,
        request_id=asked.request_id,
        origin=origin,
    )


def first_batch(client: El, manifest: JobSubmitted, target: Target, *more: Rule) -> Batch:
    """What of the catalogue is missing, and the job with its manifest and what more its stream is asked."""
    first: Batch = []
    if client.state(runner_stream(manifest.runner)) is None:
        runner = RunnerPublished(manifest.runner, "external")
        first.append((runner_stream(manifest.runner), [partial(catalogue_rules.publish_runner, runner=runner)]))
    if target.publish:
        first.append((dataset_stream(target.ref), [target.publish]))
    selected = target.tasks if target.subset else ()
    submit = partial(job_rules.submit_job, manifest=manifest, selected=selected)
    return [*first, (job_stream(manifest.job_id), [submit, *more])]


def _batches(client: El, run: Run, manifest: JobSubmitted, target: Target, texts: Texts) -> Iterator[Batch]:
    """Every stream of the run: what of the catalogue is missing, the job, then its trials, many at a time."""
    # A stream is given once, so the job's end stands before its trials; one transaction shows both at once.
    finish = partial(job_rules.finish_job, failed_trials=run.failed_trials)
    yield first_batch(client, manifest, target, finish)
    job_id, trials = manifest.job_id, run.trials()
    digests = {task.name: task.digest for task in target.tasks}
    while some := list(islice(trials, TRIALS_PER_BATCH)):
        yield [
            (trial_stream(job_id, trial.task, trial.attempt), rules_of(trial, job_id, digests[trial.task], texts))
            for trial in some
        ]


def stored(batches: Iterator[Batch], texts: Texts) -> Iterator[Batch]:
    """The batches, each once the texts that its facts name are stored."""
    for batch in batches:
        texts.flush()
        yield batch


def listing_of(sources: Sequence[Source]) -> bytes:
    """The list of source files that the job names by its digest."""
    rows = [{"path": source.path, "sha256": source.sha256, "size": source.size} for source in sources]
    return msgspec.json.encode(sorted(rows, key=lambda row: str(row["path"])))


def keep_sources(client: El, sources: Sequence[Source], listing: bytes) -> None:
    """Store the list, and the files themselves. Raises BadInput when one is not what it was when it was read."""
    size_max = max((source.size for source in sources), default=0)
    _, *kept = client.artifacts.put_many([listing, *(source.file for source in sources)], max_bytes=size_max)
    for source, stored in zip(sources, kept, strict=True):
        if stored.sha256 != source.sha256:
            raise BadInput(f"{source.path} changed while it was read; import it again.")


def imported(manifest: JobSubmitted, outcome: Literal["imported", "unchanged", "planned"], count: int) -> Imported:
    origin = manifest.origin
    return Imported(
        manifest.job_id,
        manifest.dataset,
        manifest.attempts,
        manifest.member_count,
        outcome,
        count,
        origin.flags,
        origin.as_reported,
    )
