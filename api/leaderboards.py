"""Leaderboards: a job's result is frozen on the one of its cohort, ranked with the others, and read as of any position.

A snapshot's numbers are those of one position of the log: read models that stand together are read in one transaction.
"""

from __future__ import annotations

from functools import partial, reduce
from hashlib import sha256
from time import sleep
from typing import TYPE_CHECKING, get_args

from sqlalchemy.engine import Connection

from api.asof import position_asked
from api.board_shaping import row_of, snapshot_of, summary_of, withdrawal_of
from api.boards import AddedSnapshot, Board, BoardList, SnapshotAnswer, WithdrawnSnapshot
from ledger import codec
from ledger.application import Rule
from ledger.digests import cohort_digest
from ledger.errors import BadInput, ConcurrentWrite, NotFound
from ledger.facts.job import JobSubmitted, job_stream
from ledger.facts.leaderboard import FrozenNumbers, SnapshotAdded, leaderboard_stream, snapshot_id_for
from ledger.rules import job as job_rules
from ledger.rules import leaderboard as rules
from projections import audit_trail, catalogue, jobs, snapshots
from projections import leaderboard as read_model
from projections.leaderboard import Order, SnapshotRow

if TYPE_CHECKING:
    from api.client import Client

DRAFTS_MAX = 20
DRAFT_PAUSE_S = 0.1
MODEL_CHARS_MAX = 200  # a longer text is no name, and would not fit an entry beside the curve of k = 1,000

AsOf = int | str | None


# --- adding and withdrawing ------------------------------------------------------------------------------------------


def add_snapshot(client: Client, job: str) -> AddedSnapshot:
    """Freeze a job's result; the same job again gives the saved snapshot, as it was saved."""
    job_id = client.job_id(job)
    saved = client.ask(partial(read_model.snapshot_of, project_id=client.project, job_id=job_id))
    if saved:
        return AddedSnapshot("unchanged", saved.position, snapshot_of(saved))
    drafted = _drafted(client, job_id)
    new, row = _recorded(client, drafted, partial(rules.add_snapshot, snapshot=drafted))
    return AddedSnapshot("written" if new else "unchanged", row.position, snapshot_of(row))


def withdraw_snapshot(client: Client, snapshot: str, *, reason: str) -> WithdrawnSnapshot:
    """Take a snapshot, named by its id or its job's, out of the ranking; it stays readable with the reason."""
    fact = _found(client, snapshot).fact
    rule = partial(rules.withdraw_snapshot, snapshot_id=fact.snapshot_id, reason=reason)
    new, row = _recorded(client, fact, rule)
    withdrawn = withdrawal_of(row)
    if withdrawn is None:
        raise ValueError("what was withdrawn is read back as withdrawn")
    return WithdrawnSnapshot("written" if new else "unchanged", withdrawn.position, snapshot_of(row), withdrawn)


def _recorded(client: Client, fact: SnapshotAdded, rule: Rule) -> tuple[bool, SnapshotRow]:
    """Whether a rule of a snapshot's leaderboard had anything new; and the snapshot as the log has it then.

    Read from the stream itself: on a server the read models follow a little later.
    """
    stream = leaderboard_stream(fact.cohort)
    written = client.ledger.record(stream, rule)
    row = read_model.row_in(client.ledger.stream(stream), fact.snapshot_id)
    if row is None:
        raise ValueError("what was recorded is read back")
    return bool(written.facts), row


def _drafted(client: Client, job_id: str) -> SnapshotAdded:
    """A job's result as it would be frozen now."""
    stream = job_stream(job_id)
    bodies = client.ledger.recorder.bodies_of([stream])[stream]
    past = codec.decode_all(bodies)
    job: job_rules.Job | None = reduce(lambda state, r: job_rules.evolve(state, r.entry.fact), past, None)  # type: ignore[arg-type]  # its own facts
    status = rules.ending_of(job)
    (submitted,) = (
        body for (_, body), (_, entry) in zip(bodies, past, strict=True) if isinstance(entry.fact, JobSubmitted)
    )
    manifest = sha256(codec.fact_bytes(submitted)).hexdigest()

    def draft(connection: Connection) -> SnapshotAdded | None:
        position = snapshots.common_position(connection, client.project)
        if position is None or position < past[-1].position:
            return None
        asked = jobs.get_job(connection, client.project, job_id).manifest
        tasks = job.selected if job else ()
        if not asked.subset:
            listed = catalogue.list_tasks(connection, client.project, asked.dataset)
            tasks = tuple(task for _, task in listed)
        cohort = cohort_digest(asked.dataset, asked.runner, asked.attempts, ((t.name, t.digest) for t in tasks))
        model = jobs.model_of(asked)
        return SnapshotAdded(
            snapshot_id=snapshot_id_for(job_id),
            job_id=job_id,
            cohort=cohort,
            position=position,
            status=status,
            manifest=manifest,
            dataset=asked.dataset,
            runner=asked.runner,
            attempts=asked.attempts,
            numbers=snapshots.numbers_of(connection, client.project, job_id),
            profile=asked.profile,
            model=model if model and len(model) <= MODEL_CHARS_MAX else None,
        )

    for _ in range(DRAFTS_MAX):
        if drafted := client.ask(draft):
            return drafted
        sleep(DRAFT_PAUSE_S)  # somebody rebuilds a read model, or brings it up to date in another process
    raise ConcurrentWrite("The read models do not stand together at the moment; try again later.")


# --- reading ---------------------------------------------------------------------------------------------------------


def get_snapshot(client: Client, snapshot: str) -> SnapshotAnswer:
    """A snapshot, named by its id or its job's, with what its job's numbers have become since."""
    row = _found(client, snapshot)

    def answer(connection: Connection, as_of: int) -> SnapshotAnswer:
        found = read_model.get_snapshot(connection, client.project, row.fact.snapshot_id)
        now = numbers_since(connection, client.project, found, None)
        return SnapshotAnswer(snapshot_of(found), now, withdrawal_of(found), as_of)

    return client.answer(answer)


def list_leaderboards(connection: Connection, reached: int, *, project: str, as_of: AsOf) -> BoardList:
    """Every leaderboard of a project, as it stood."""
    upto = None if as_of is None else position_asked(connection, project, as_of, reached=reached)
    rows = read_model.list_snapshots(connection, project, upto=upto)
    boards: dict[str, list[SnapshotRow]] = {}
    for row in rows:
        boards.setdefault(row.fact.cohort, []).append(row)
    return BoardList([summary_of(rows) for rows in boards.values()], reached if upto is None else upto)


def get_leaderboard(
    connection: Connection, reached: int, *, project: str, cohort: str, order: Order, min_coverage: float, as_of: AsOf
) -> Board:
    """A leaderboard, named by its cohort, the beginning of one, or a job or snapshot on it."""
    if order not in get_args(Order):
        raise BadInput(f"{order!r} is no order of a leaderboard; there are {' and '.join(get_args(Order))}.")
    if not 0 <= min_coverage <= 1:
        raise BadInput("The least coverage is a share of the requested attempts, from 0 to 1.")
    upto = None if as_of is None else position_asked(connection, project, as_of, reached=reached)
    cohort = read_model.find_cohort(connection, project, cohort)
    rows = read_model.list_snapshots(connection, project, cohort=cohort, upto=upto)
    if not rows:
        raise NotFound(f"There was no leaderboard {cohort[:12]} at position {upto:,} yet.")
    ranked = read_model.rank(rows, order=order, min_coverage=min_coverage)
    shown = [row_of(one, numbers_since(connection, project, one.row, upto), project) for one in ranked]
    first = rows[0].fact
    return Board(
        cohort=cohort,
        dataset=first.dataset,
        runner=first.runner,
        attempts=first.attempts,
        members=first.numbers.score_counts.total_members,
        order=order,
        min_coverage=min_coverage,
        rows=shown,
        as_of=reached if upto is None else upto,
    )


def numbers_since(connection: Connection, project: str, row: SnapshotRow, upto: int | None) -> FrozenNumbers | None:
    """A job's numbers at the position `upto` (now without one) where they are others than its snapshot's, else None."""
    fact = row.fact
    if not went_on(connection, project, fact, upto):
        return None
    numbers: FrozenNumbers | None
    if upto is None:
        numbers = snapshots.numbers_of(connection, project, fact.job_id)
    else:
        entries = snapshots.entries_of(connection, project, fact.job_id, upto=upto)
        numbers = snapshots.fold_numbers(entries, fact.job_id)
    return None if numbers == fact.numbers else numbers


def went_on(connection: Connection, project: str, fact: SnapshotAdded, upto: int | None) -> bool:
    """Whether a snapshot's job has entries after its numbers, up to the position `upto` if one is given."""
    before = None if upto is None else upto + 1
    later = audit_trail.events(connection, project, after=fact.position, before=before, limit=1, job_id=fact.job_id)
    return bool(later)


def _found(client: Client, text: str) -> SnapshotRow:
    """The snapshot that a text names: its id, its job's id, or the beginning of that."""

    def by_id_or_job(connection: Connection) -> SnapshotRow | None:
        found = read_model.snapshot_of(connection, client.project, text)
        return found or read_model.find_snapshot(connection, client.project, text)

    row = client.ask(by_id_or_job)
    if row is None:
        job_id = client.job_id(text)
        row = client.ask(partial(read_model.snapshot_of, project_id=client.project, job_id=job_id))
    if row is None:
        raise NotFound(f"{text} is on no leaderboard; `el leaderboard add JOB` puts a job on its own.")
    return row
