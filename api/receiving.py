"""Imports that come over HTTP: facts by stream, checked as what an importer makes, then recorded in one transaction.

Rules look at one stream each. What holds between streams (a trial is of a member of its job, a job's members are its
dataset's) is seen to by the importers where they run; what comes from elsewhere is checked here, before the head of the
log is taken, so that nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any, Literal

import msgspec

from api.client import Client
from api.http.bodies import msgspec_fault
from api.http.strict_json import read_json
from api.pages import ImportTaken, StreamWritten
from ledger.application import Rule
from ledger.digests import members_digest
from ledger.errors import BadInput
from ledger.facts.catalogue import DatasetMembersAdded, DatasetPublished, RunnerPublished, Task, dataset_stream
from ledger.facts.entry import AnyFact
from ledger.facts.job import JobFact, JobMembersSelected, JobOriginSealed, JobSubmitted, is_job_id, job_stream
from ledger.facts.trial import Slot, TrialDispatched, TrialFact, slot_of, trial_id_for, trial_stream
from ledger.rules.asking import rules_returning
from ledger.rules.catalogue import Dataset
from ledger.rules.job import Job

IMPORT_BYTES_MAX = 1 << 30
LINE_BYTES_MAX = 64 << 20
LINES_MAX = 2_000_000
LINES_AT_ONCE_MAX = 10_000
STREAM_CHARS_MAX = 1_000
LINES_PER_BATCH = 1_000

Streams = Literal["new", "any"]


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of one stream, in their order."""

    stream: str
    facts: list[AnyFact]


_decode = msgspec.json.Decoder(Line).decode


def receive(client: Client, file: IO[bytes], streams: Streams, key: str | None) -> ImportTaken:
    """Record the lines of a file: streams that are all `new`, or, with `any`, what the rules find new in each.

    Raises:
        BadInput: a line does not have the right form, or is not what an import may record.
        ConcurrentWrite: a stream that should be new exists.
    """
    checks = Checks(client)
    count = 0
    for line in _lines(file):
        checks.check(line)
        count += 1
    if count == 0:
        raise BadInput("The import is empty; send a line for each stream.")
    if streams == "new":
        entries = client.record_new(_batches(_lines(file)), key=key)
        return ImportTaken(entries, client.head().entries, [])
    if count > LINES_AT_ONCE_MAX:
        raise BadInput(f"With streams=any there are at most {LINES_AT_ONCE_MAX:,} lines; send parts.")
    asked = [_asked(line) for line in _lines(file)]
    written = client.ledger.record_all(asked, key=key)
    rows = [StreamWritten(name, one.position, len(one.facts)) for (name, _), one in zip(asked, written, strict=True)]
    return ImportTaken(sum(row.new for row in rows), max(row.position for row in rows), rows)


class Checks:
    """What holds between the streams of an import, line by line; what a line builds on stands before it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: set[str] = set()
        self._runners: set[str] = set()
        self._datasets: dict[str, tuple[DatasetPublished, dict[str, str]]] = {}
        self._members: dict[str, Mapping[str, str]] = {}

    def check(self, line: Line) -> None:
        """Refuse what no import records. Raises BadInput."""
        if line.stream in self._seen:
            raise BadInput(f"The stream {_shown(line.stream)} is named twice; give all its facts in one line.")
        self._seen.add(line.stream)
        kind, _, name = line.stream.partition("/")
        if not line.facts or len(line.stream) > STREAM_CHARS_MAX:
            raise _misplaced(line)
        match kind:
            case "trial":
                self._check_trial(line)
            case "job":
                self._check_job(line, name)
            case "dataset":
                self._check_dataset(line, name)
            case "runner":
                self._check_runner(line, name)
            case _:
                raise BadInput("An import records datasets, runners, jobs and trials only; leave the others out.")

    def _check_runner(self, line: Line, ref: str) -> None:
        for fact in line.facts:
            if not isinstance(fact, RunnerPublished) or fact.ref != ref:
                raise _misplaced(line)
            if fact.kind != "external" or fact.outputs or fact.structured_result:
                raise BadInput(f"An import brings runners of kind external only; publish {_shown(ref)} by itself.")
        self._runners.add(ref)

    def _check_dataset(self, line: Line, ref: str) -> None:
        *parts, seal = line.facts
        if not isinstance(seal, DatasetPublished) or seal.ref != ref:
            raise _misplaced(line)
        tasks = _tasks(line, parts, DatasetMembersAdded)
        if (seal.member_count, seal.members_digest) != (len(tasks), _digest(tasks)):
            raise BadInput(f"The tasks of {_shown(ref)} are not those that its last fact seals.")
        if seal.runner not in self._runners and self._client.state(f"runner/{seal.runner}") is None:
            raise BadInput(f"There is no runner {_shown(seal.runner)}; give its line before the dataset's.")
        self._datasets[ref] = (seal, {task.name: task.digest for task in tasks})

    def _check_job(self, line: Line, job_id: str) -> None:
        for fact in line.facts:
            if not isinstance(fact, JobFact) or (isinstance(fact, JobOriginSealed) and fact.origin.kind != "import"):
                raise _misplaced(line)
        at = next((at for at, fact in enumerate(line.facts) if isinstance(fact, JobSubmitted)), None)
        if at is None:
            self._members_of(job_id)
            return
        manifest = line.facts[at]
        if not isinstance(manifest, JobSubmitted) or manifest.job_id != job_id or not is_job_id(job_id):
            raise _misplaced(line)
        if manifest.origin.kind != "import" or manifest.profile or manifest.secrets:
            raise BadInput("An import records jobs that were run elsewhere, without a profile of this project.")
        selected = _tasks(line, line.facts[:at], JobMembersSelected)
        self._members[job_id] = self._checked_members(manifest, selected)

    def _checked_members(self, manifest: JobSubmitted, selected: Sequence[Task]) -> Mapping[str, str]:
        seal, tasks = self._dataset(manifest.dataset)
        members = {task.name: task.digest for task in selected} if manifest.subset else tasks
        fits = (
            manifest.runner == seal.runner
            and bool(selected) == manifest.subset
            and members.items() <= tasks.items()
            and manifest.member_count == (len(selected) if manifest.subset else seal.member_count)
            and manifest.members_digest == (_digest(selected) if manifest.subset else seal.members_digest)
        )
        if not fits:
            raise BadInput(f"The members of job {manifest.job_id} are not those of {_shown(manifest.dataset)}.")
        return members

    def _check_trial(self, line: Line) -> None:
        slot = _slot(line)
        if (digest := self._members_of(slot.job_id).get(slot.task)) is None:
            raise BadInput(f"The job {slot.job_id} has no member {_shown(slot.task)}.")
        wanted = (trial_id_for(slot.job_id, slot.task, slot.attempt), *slot, digest, None)
        for fact in line.facts:
            if not isinstance(fact, TrialFact):
                raise _misplaced(line)
            if isinstance(fact, TrialDispatched) and wanted != (
                fact.trial_id, fact.job_id, fact.attempt, fact.task, fact.task_digest, fact.worker,
            ):  # fmt: skip
                raise _misplaced(line)

    def _dataset(self, ref: str) -> tuple[DatasetPublished, dict[str, str]]:
        if ref not in self._datasets:
            had: Dataset | None = self._client.state(dataset_stream(ref))
            if had is None or had.published is None:
                raise BadInput(f"There is no dataset {_shown(ref)}; give its line before the job's.")
            self._datasets[ref] = (had.published, {task.name: task.digest for task in had.tasks})
        return self._datasets[ref]

    def _members_of(self, job_id: str) -> Mapping[str, str]:
        """The members of an imported job, by name with their digests."""
        if job_id not in self._members:
            had: Job | None = self._client.state(job_stream(job_id)) if is_job_id(job_id) else None
            if had is None or had.manifest is None or had.manifest.origin.kind != "import":
                raise BadInput(f"There is no imported job {_shown(job_id)}; give its line before those of its trials.")
            tasks = {task.name: task.digest for task in had.selected}
            self._members[job_id] = tasks if had.manifest.subset else self._dataset(had.manifest.dataset)[1]
        return self._members[job_id]


def _lines(file: IO[bytes]) -> Iterator[Line]:
    """The lines of a file from its start, decoded."""
    file.seek(0)
    number = 0
    while text := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(text) > LINE_BYTES_MAX or number > LINES_MAX:
            raise BadInput(f"An import has at most {LINES_MAX:,} lines of at most {LINE_BYTES_MAX:,} bytes each.")
        if text.isspace():
            continue
        if b"\\u0000" in text:
            read_json(text, what=f"Line {number}")  # says so if it is the character itself
        try:
            yield _decode(text)
        except msgspec.ValidationError as error:
            fault = msgspec_fault(error)
            raise BadInput(f"Line {number} does not have the right form: at {fault.at}, {fault.problem}.") from None
        except (ValueError, RecursionError):
            read_json(text, what=f"Line {number}")
            raise BadInput(f"Line {number} is no JSON.") from None


def _asked(line: Line) -> tuple[str, Sequence[Rule]]:
    return line.stream, rules_returning(line.facts)


def _batches(lines: Iterator[Line]) -> Iterator[Iterable[tuple[str, Sequence[Rule]]]]:
    while some := list(islice(lines, LINES_PER_BATCH)):
        yield [_asked(line) for line in some]


def _slot(line: Line) -> Slot:
    try:
        slot = slot_of(line.stream)
    except ValueError:
        raise _misplaced(line) from None
    if trial_stream(slot.job_id, slot.task, slot.attempt) != line.stream or not is_job_id(slot.job_id):
        raise _misplaced(line)
    return slot


def _tasks(line: Line, facts: Sequence[Any], kind: type[DatasetMembersAdded | JobMembersSelected]) -> list[Task]:
    if not all(isinstance(fact, kind) for fact in facts):
        raise _misplaced(line)
    return [task for fact in facts for task in fact.tasks]


def _digest(tasks: Sequence[Task]) -> str:
    return members_digest((task.name, task.digest) for task in tasks)


def _shown(name: str) -> str:
    return repr(name[:200])


def _misplaced(line: Line) -> BadInput:
    return BadInput(f"A fact of the line for {_shown(line.stream)} does not belong there, or is missing.")
