"""The one shared path from a run of any tool to facts: one job, in one transaction, the same run never twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from api.client import Client
from api.importers.dataset import Target, dataset_of, ref_part
from api.importers.facts import Texts, rules_of
from api.importers.run import Run, Source
from ledger.application import Rule, ask
from ledger.digests import framed
from ledger.errors import BadInput, ConcurrentWrite, Conflict, EvalLedgerError
from ledger.facts.catalogue import RunnerPublished, Scalar, dataset_stream, runner_stream
from ledger.facts.job import JobSubmitted, Origin, job_id_for, job_stream
from ledger.facts.trial import trial_stream
from ledger.rules import catalogue as catalogue_rules
from ledger.rules import job as job_rules
from ledger.rules.forms import checked_ref

IMPORTER = "evalledger/1"
TRIALS_PER_BATCH = 1_000
TRIES_MAX = 5
LISTING_BYTES_MAX = 10_000_000

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


class _Asked(NamedTuple):
    """What identifies the job of a run: by content, or by the tool's own run id with the content as the request."""

    job_id: str
    request_id: str
    attempts: int
    runner: str
    dataset: str | None


def import_run(
    client: Client,
    run: Run,
    *,
    dataset: str | None = None,
    runner: str | None = None,
    attempts: int | None = None,
    keep_artifacts: bool = True,
    dry_run: bool = False,
) -> Imported:
    """Record a run as one job with all its facts, all or nothing. The same content again writes nothing.

    `dataset`, `runner` and `attempts` override what the run says. Without `keep_artifacts` the source files are named
    by their digests but not copied.

    Raises:
        BadInput: the run holds what the rules refuse.
        Conflict: the run id, or the dataset, is there already with other content; names what differs.
    """
    asked = _identify(client.project, run, dataset or run.dataset, runner, attempts)
    for _ in range(TRIES_MAX):
        if unchanged := _find_earlier(client, run, asked):
            return unchanged
        target = dataset_of(client.ledger, run, asked.dataset, asked.runner)
        listing = _listing(run.sources)
        manifest = _manifest(run, asked, target, hashlib.sha256(listing).hexdigest())
        texts = Texts(client.artifacts)
        batches = _batches(client, run if keep_artifacts else _without_files(run), manifest, target, texts)
        if dry_run:
            count = sum(len(ask(stream, None, rules)) for batch in batches for stream, rules in batch)
            return _imported(manifest, "planned", count)
        _keep_sources(client, run.sources if keep_artifacts else (), listing)
        try:
            count = client.ledger.record_new(_stored(batches, texts))
        except ConcurrentWrite:
            continue  # somebody recorded this run, its dataset or its runner meanwhile: look again
        return _imported(manifest, "imported", count)
    raise ConcurrentWrite("The same dataset is being published all the time; try again later.")


def _without_files(run: Run) -> Run:
    trials = run.trials
    return msgspec.structs.replace(
        run, trials=lambda: (msgspec.structs.replace(trial, files=()) if trial.files else trial for trial in trials())
    )


def _identify(project: str, run: Run, dataset: str | None, runner: str | None, attempts: int | None) -> _Asked:
    """The request is the content: the digests of the files and what else shapes the manifest; no path, no name."""
    runner = checked_ref(runner or f"{ref_part(run.tool)}@{ref_part(run.tool_version or 'unknown')}")
    k = run.attempts if attempts is None else attempts
    parts = framed(
        "import/1", run.tool, runner, dataset or "", str(k), run.policy or "", *sorted(s.sha256 for s in run.sources)
    )
    request_id = f"import/{run.tool}/{hashlib.sha256(parts).hexdigest()}"
    named = request_id if run.run_id is None else f"import/{run.tool}/run/{run.run_id}"
    return _Asked(job_id_for(project, named), request_id, k, runner, dataset)


def _find_earlier(client: Client, run: Run, asked: _Asked) -> Imported | None:
    """The job of this run, when it was imported before. Raises Conflict when it had other content then."""
    state: job_rules.Job | None = client.ledger.state(job_stream(asked.job_id))
    if state is None or state.manifest is None:
        return None
    had = state.manifest
    if had.request_id != asked.request_id:
        differs = [
            f"{what}: {before}, now {now}"
            for what, before, now in (
                ("attempts", had.attempts, asked.attempts),
                ("runner", had.runner, asked.runner),
                ("dataset", had.dataset, asked.dataset or had.dataset),
                ("policy", had.origin.policy, run.policy),
            )
            if before != now
        ]
        raise Conflict(
            f"The run {run.run_id!r} of {run.tool} was imported already, as job {had.job_id}, with other content.",
            differs + _different_files(client, had.origin.sources, run.sources),
        )
    return _imported(had, "unchanged", 0)


def _different_files(client: Client, listing: str | None, sources: Sequence[Source]) -> list[str]:
    """Which source files differ from those of an earlier import, as far as its listing can still be read."""
    try:
        rows = msgspec.json.decode(client.artifacts.read_bytes(listing or "", max_bytes=LISTING_BYTES_MAX))
    except EvalLedgerError:
        return ["its source files, whose list is no longer there"]
    before = {row["path"]: row["sha256"] for row in rows}
    now = {source.path: source.sha256 for source in sources}
    if sorted(before.values()) == sorted(now.values()):
        return []
    return [
        *(f"file {path} is no longer there" for path in before if path not in now),
        *(f"file {path} is new" for path in now if path not in before),
        *(f"file {path} has other content" for path in now if path in before and before[path] != now[path]),
    ]


def _manifest(run: Run, asked: _Asked, target: Target, listing: str) -> JobSubmitted:
    extra = {"extra-trials"} if run.attempt_max > asked.attempts else set()
    origin = Origin(
        kind="import",
        tool=run.tool,
        tool_version=run.tool_version,
        importer=IMPORTER,
        policy=run.policy,
        sources=listing,
        flags=tuple(sorted({*run.flags} | extra)),
        as_reported=dict(run.as_reported),
    )
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


def _batches(client: Client, run: Run, manifest: JobSubmitted, target: Target, texts: Texts) -> Iterator[Batch]:
    """Every stream of the run: what of the catalogue is missing, the job, then its trials, many at a time."""
    first: Batch = []
    if client.ledger.state(runner_stream(manifest.runner)) is None:
        runner = RunnerPublished(manifest.runner, "external")
        first.append((runner_stream(manifest.runner), [partial(catalogue_rules.publish_runner, runner=runner)]))
    if target.publish:
        first.append((dataset_stream(target.ref), [target.publish]))
    # A stream is given once, so the job's end stands before its trials; one transaction shows both at once.
    selected = target.tasks if target.subset else ()
    submit = partial(job_rules.submit_job, manifest=manifest, selected=selected)
    finish = partial(job_rules.finish_job, failed_trials=run.failed_trials)
    yield [*first, (job_stream(manifest.job_id), [submit, finish])]
    job_id, trials = manifest.job_id, run.trials()
    digests = {task.name: task.digest for task in target.tasks}
    while some := list(islice(trials, TRIALS_PER_BATCH)):
        yield [
            (trial_stream(job_id, trial.task, trial.attempt), rules_of(trial, job_id, digests[trial.task], texts))
            for trial in some
        ]


def _stored(batches: Iterator[Batch], texts: Texts) -> Iterator[Batch]:
    """The batches, each once the texts that its facts name are stored."""
    for batch in batches:
        texts.flush()
        yield batch


def _listing(sources: Sequence[Source]) -> bytes:
    rows = [{"path": source.path, "sha256": source.sha256, "size": source.size} for source in sources]
    return msgspec.json.encode(sorted(rows, key=lambda row: str(row["path"])))


def _keep_sources(client: Client, sources: Sequence[Source], listing: bytes) -> None:
    size_max = max((source.size for source in sources), default=0)
    _, *kept = client.artifacts.put_many([listing, *(source.file for source in sources)], max_bytes=size_max)
    for source, stored in zip(sources, kept, strict=True):
        if stored.sha256 != source.sha256:
            raise BadInput(f"{source.path} changed while it was read; import it again.")


def _imported(manifest: JobSubmitted, outcome: Literal["imported", "unchanged", "planned"], count: int) -> Imported:
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
