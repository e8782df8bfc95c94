"""Recompute stored numbers from the log alone, at any position, and say what differs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

import msgspec
from sqlalchemy.engine import Connection

from api.asof import position_asked
from api.under_policy import answer_under
from ledger import codec
from ledger.checking import check_log
from ledger.errors import BadInput, NotFound, StoreError
from ledger.facts.entry import Entry
from ledger.facts.job import JobSubmitted
from ledger.facts.leaderboard import FrozenNumbers, SnapshotAdded
from ledger.recorder import ProjectRecorder
from projections import jobs
from projections.as_of import OF_A_JOB, job_as_of, log_as_of
from projections.comparing import (
    Difference,
    differing_numbers,
    differing_rows,
    differing_snapshot,
    job_entries,
)
from projections.metrics import DEFINITION
from projections.models import READ_MODELS
from projections.policies import Policy, policy_named
from projections.snapshots import JobFold

DIFFERENCES_MAX = 1_000


class Compared(msgspec.Struct, frozen=True):
    """What the log was compared with."""

    read_models: bool
    snapshots: int
    log: bool


class Replayed(msgspec.Struct, frozen=True):
    """What a replay came to. `numbers` are the jobs' at `as_of`, by id; at most DIFFERENCES_MAX differences are told.

    `compared` says what the log was compared with: the read models (only where they stand at that position), and how
    many snapshots, each at its own position.
    """

    as_of: int
    definition: str
    jobs: int
    numbers: dict[str, FrozenNumbers]
    compared: Compared
    differences: list[Difference]


def replay(
    stored: Connection,
    reached: int,
    *,
    recorder: ProjectRecorder,
    job_id: str | None = None,
    as_of: int | str | None = None,
    definition: str | None = None,
    policy: str | None = None,
) -> Replayed:
    """Recompute one job, or all of a project, at a position or a time; `stored` sees the read models, at `reached`.

    One job costs what its own entries cost. All of a project costs about three readings of its log: one to check it,
    one job by job, and one to make the read models again, in a temporary file as large as they are. In memory are the
    attempts of one job at a time.

    Raises:
        BadInput: there is no such definition or policy, or nothing at that position.
        NotFound: there was no such job then.
    """
    if definition not in (None, DEFINITION):
        raise BadInput(f"There are no formulas {definition[:80]!r}; there is {DEFINITION}.")
    rule = None if policy is None else policy_named(policy)
    at = reached if as_of is None else position_asked(stored, recorder.project_id, as_of, reached=reached)
    live = at == reached
    differences = _log_faults(recorder) if job_id is None else []
    snapshots = _snapshots(recorder, at)
    found: dict[str, FrozenNumbers] = {}
    for one in [job_id] if job_id else _jobs(recorder, at):
        try:
            numbers = _fold(recorder, one, at, snapshots.get(one), differences)
        except StoreError as error:
            differences.append(Difference("log", one, str(error), "", "", []))
            continue
        if numbers is None:
            raise NotFound(f"There was no job {one} at position {at:,}; `el job list` shows those there are now.")
        found[one] = numbers
        if live:
            differences += differing_numbers(stored, recorder, one, numbers)
    if live:
        try:
            differences += _read_models(stored, recorder, at, job_id, found, rule)
        except StoreError as error:
            differences.append(Difference("log", recorder.project_id, str(error), "", "", []))
    compared = Compared(live, sum(one in found for one in snapshots), job_id is None)
    return Replayed(at, DEFINITION, len(found), found, compared, differences[:DIFFERENCES_MAX])


def _fold(
    recorder: ProjectRecorder, job_id: str, upto: int, added: SnapshotAdded | None, differences: list[Difference]
) -> FrozenNumbers | None:
    """A job's numbers from its entries; on the way, what its snapshot holds is compared at the snapshot's position."""
    fold, passed = JobFold(job_id), added is None
    for position, entry in job_entries(recorder, job_id, upto=upto):
        if added and not passed and position > added.position:
            differences += differing_snapshot(recorder, added, fold)
            passed = True
        fold.apply(entry)
    if added and not passed:
        differences += differing_snapshot(recorder, added, fold)
    return fold.numbers()


def _read_models(
    stored: Connection,
    recorder: ProjectRecorder,
    at: int,
    job_id: str | None,
    jobs_found: Collection[str],
    policy: Policy | None,
) -> list[Difference]:
    """Rows of read models, and numbers under a policy, against those made again."""
    models = OF_A_JOB if job_id else READ_MODELS
    remaking = job_as_of(recorder, job_id, at) if job_id else log_as_of(recorder, at)
    with remaking as remade:
        tables = [table for model in models for table in model.tables]
        found = list(islice(differing_rows(stored, remade, recorder, tables, job_id), DIFFERENCES_MAX))
        if policy:
            for one in jobs_found:
                before, after = (
                    answer_under(at_hand, recorder.project_id, jobs.get_job(at_hand, recorder.project_id, one), policy)
                    for at_hand in (stored, remade)
                )
                found += [
                    Difference(
                        "read-model", one, f"{policy.name}: {name}", str(before.numbers.get(name)), str(value), []
                    )
                    for name, value in after.numbers.items()
                    if before.numbers.get(name) != value
                ]
    return found


def _log_faults(recorder: ProjectRecorder) -> list[Difference]:
    return [Difference("log", recorder.project_id, fault, "", "", []) for fault in check_log(recorder).faults]


def _jobs(recorder: ProjectRecorder, upto: int) -> Iterator[str]:
    """Every job that was submitted by then, from the log alone."""
    return (entry.fact.job_id for entry in _facts(recorder, "job/", upto) if isinstance(entry.fact, JobSubmitted))


def _snapshots(recorder: ProjectRecorder, upto: int) -> dict[str, SnapshotAdded]:
    """The snapshot of each job that had one by then."""
    facts = (entry.fact for entry in _facts(recorder, "leaderboard/", upto))
    return {fact.job_id: fact for fact in facts if isinstance(fact, SnapshotAdded)}


def _facts(recorder: ProjectRecorder, under: str, upto: int) -> Iterator[Entry]:
    positions = recorder.positions_of([], under=under, upto=upto)
    for row in recorder.bodies_at(positions):
        try:
            yield codec.decode(*row).entry
        except StoreError:
            continue  # the check of the log names it
