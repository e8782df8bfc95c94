"""Leaderboards: what is frozen, how it ranks, what has become of it since, and what moved it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone
from hashlib import sha256
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from api import leaderboards
from api.boards import Board
from api.client import Client
from api.importers.importing import import_path
from api.importers.run import Options
from ledger import codec
from ledger.database import reading
from ledger.digests import cohort_digest
from ledger.errors import BadInput, Conflict, NotAllowed, NotFound
from ledger.facts.job import JobSubmitted, job_stream
from ledger.facts.leaderboard import SnapshotAdded, leaderboard_stream
from ledger.facts.trial import RewardRevised
from ledger.rules import job as job_rules
from ledger.rules import leaderboard as rules
from projections import leaderboard, snapshots
from projections.following import catch_up, instant
from projections.leaderboard import Ranked, SnapshotRow
from projections.metrics import measure_trials
from projections.models import READ_MODELS
from projections.snapshots import fold_numbers, mean_composite, snapshot_numbers
from projections.tally import Trial
from tests.given import JOB, digest_of, entry, histories, history
from tests.given_boards import Bench, client_of
from tests.test_following import record
from tests.test_rules_leaderboard import snapshot

SEED: Mapping[str, list[float | None]] = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.0, None]}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """An embedded client on an empty home."""
    return client_of(tmp_path / "home")


@pytest.fixture
def bench(client: Client) -> Bench:
    """A dataset of three tasks."""
    return Bench(client)


def shown(board: Board) -> list[tuple[int | None, str]]:
    """Rank and name of each row."""
    return [(row.rank, row.name) for row in board.rows]


# --- what is frozen --------------------------------------------------------------------------------------------------


def test_a_result_is_frozen_exactly(bench: Bench) -> None:
    """The seed's example: every number as `job result` gives it, with what it covers and the position it holds at."""
    job = bench.job(SEED, model="gpt")
    before = bench.position
    added = bench.client.add_snapshot(job)
    result = bench.client.result(job)
    frozen, numbers = added.snapshot, added.snapshot.numbers
    assert (added.outcome, added.position, frozen.position) == ("written", before + 1, before)
    assert (frozen.name, frozen.status, frozen.dataset, frozen.attempts) == ("gpt", "failed", "set@1", 2)
    assert (numbers.score, numbers.pass_at_k, numbers.pass_hat_k, numbers.definition) == (0.6, 1.0, 0.5, "metrics/1")
    ours, theirs = (json.loads(msgspec.json.encode(answer)) for answer in (numbers, result))
    for name in ("score", "pass", "k", "score_counts", "interval_95", "denominators", "definition"):
        assert ours[name] == theirs[name]
    assert ours["score_bounds"] == theirs["score_bounds"]
    assert ours["curve"] == [[point["pass_at_k"], point["pass_hat_k"]] for point in theirs["curve"]]
    tasks = [(name, digest_of(name)) for name in "abc"]
    assert frozen.cohort == cohort_digest("set@1", "bench@1", 2, tasks)


def test_the_manifest_is_named_by_its_bytes_in_the_log(bench: Bench) -> None:
    """Whoever has the entry can check which manifest the row stands for."""
    job = bench.job(SEED)
    stream = job_stream(job)
    (body,) = bench.client.ledger.recorder.bodies_of([stream])[stream][:1]
    fact = msgspec.json.decode(body[1], type=dict[str, msgspec.Raw])["fact"]
    assert isinstance(codec.decode(*body).entry.fact, JobSubmitted)
    assert bench.client.add_snapshot(job).snapshot.manifest == sha256(bytes(fact)).hexdigest()


def test_the_same_job_again_gives_the_saved_snapshot(bench: Bench) -> None:
    """Also after a revision and a retry: not a byte of it changes, and nothing is written."""
    job = bench.job(SEED, model="gpt")
    first = bench.client.add_snapshot(job)
    bench.revise(job, "a", 2, 1.0)
    bench.client.retry(job, "c", reason="lost")
    bench.trial(job, "c", 3, 1.0)
    size = bench.position
    again = bench.client.add_snapshot(job[:8])
    assert again.outcome == "unchanged"
    assert msgspec.json.encode(again.snapshot) == msgspec.json.encode(first.snapshot)
    assert again.position == first.position
    assert bench.position == size


def test_what_may_not_stand_is_refused_with_the_reason(bench: Bench) -> None:
    """A job still running, one with nothing scored, one that is not there; nothing is written."""
    running = bench.job({"a": [1.0]}, ends=False)
    empty = bench.job({"a": [None], "b": [None], "c": [None]})
    size = bench.position
    with pytest.raises(NotAllowed, match="has not ended"):
        bench.client.add_snapshot(running)
    with pytest.raises(NotAllowed, match="Nothing of the job was scored"):
        bench.client.add_snapshot(empty)
    with pytest.raises(NotFound):
        bench.client.add_snapshot(JOB)
    assert bench.position == size


def test_failed_and_canceled_jobs_may_stand_with_what_they_have(bench: Bench) -> None:
    """Their status and what is missing stand beside the score."""
    failed = bench.job(SEED)
    canceled = bench.job({"a": [1.0, 1.0]}, ends=False)
    bench.end(canceled, job_rules.cancel_job, reason="too dear")
    for job in (failed, canceled):
        bench.client.add_snapshot(job)
    rows = bench.client.leaderboard(failed).rows
    assert [(row.status, row.missing) for row in rows] == [("canceled", 4), ("failed", 1)]


def test_a_composite_is_the_mean_over_the_scored_trials_if_each_has_one(bench: Bench) -> None:
    """In its own units; one scored trial without a composite, and there is none."""
    scored = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)]
    values = dict(zip(scored, (1.5, 2.0, 0.1, 7.0, -3.0), strict=True))
    whole = bench.job(SEED, composites=values | {("c", 2): 99.0})
    holed = bench.job(SEED, composites={slot: values[slot] for slot in scored[1:]})
    assert bench.client.add_snapshot(whole).snapshot.numbers.composite == math.fsum(values.values()) / 5
    assert bench.client.add_snapshot(holed).snapshot.numbers.composite is None


@pytest.mark.parametrize(
    ("composites", "mean"),
    [
        ([], None),
        ([None], None),
        ([1.0, None], None),
        ([1e308, 1e308], 1e308),
        ([0.1] * 10, 0.1),
        ([-1.0, 0.0, 1.0], 0.0),
        ([1e308, -1e308, 3.0], 1.0),
    ],
)
def test_a_mean_composite_is_exact(composites: list[float | None], mean: float | None) -> None:
    """Whatever the order and the size of the numbers; what would overflow a sum does not."""
    assert mean_composite(composites) == mean
    assert mean_composite(composites[::-1]) == mean


def test_a_job_of_a_thousand_attempts_fits_an_entry() -> None:
    """The whole curve of the largest k there is, of 7 members that pass now and then, and the longest model name."""
    passed = {str(number): [Trial(float(at % 7 < number), True) for at in range(1_000)] for number in range(7)}
    numbers = snapshot_numbers(measure_trials(1_000, 7, passed), [1 / 3])
    fact = msgspec.structs.replace(snapshot(1.0), numbers=numbers, model="\U0001f642" * 200, profile="x" * 200)
    (row,) = codec.encode([entry(fact, leaderboard_stream(fact.cohort))])
    assert len(codec.decode(1, row.body).entry.fact.numbers.curve) == 1_000
    assert len(row.body) < 0.9 * codec.ENTRY_BYTES_MAX


def test_a_text_too_long_for_a_name_is_no_model(bench: Bench) -> None:
    """The job's id stands in its place."""
    client = bench.client
    client.create_profile("long@1", {"MODEL_NAME": "x" * 201}, {})
    asked = client.submit_job("set@1", profile="long@1")
    bench.trial(asked.id, "a", 1, 1.0)
    bench.end(asked.id, job_rules.finish_job, failed_trials=0)
    assert client.add_snapshot(asked.id).snapshot.name == asked.id


@settings(max_examples=30)
@for_all(histories(), st.data())
def test_read_models_and_entries_freeze_the_same_bytes(engine: Engine, entries: list[Any], data: st.DataObject) -> None:
    """At any position of any history: what a snapshot takes from the read models, the job's entries alone give."""
    upto = data.draw(st.integers(0, len(entries)))
    project = record(engine, entries)
    catch_up(engine, project, READ_MODELS, upto=upto)
    with reading(engine) as connection:
        for job_id in {e.fact.job_id for e in entries[:upto] if isinstance(e.fact, JobSubmitted)}:
            assert snapshots.common_position(connection, project) == upto
            found = snapshots.numbers_of(connection, project, job_id)
            folded = fold_numbers(snapshots.entries_of(connection, project, job_id, upto=upto), job_id)
            assert msgspec.json.encode(found) == msgspec.json.encode(folded)


def test_every_snapshot_in_a_history_is_recomputed_at_its_position(engine: Engine) -> None:
    """From the log alone, whatever came after: the same bytes."""
    seen = 0
    for seed in range(40):
        entries = [codec.decode(at, row.body) for at, row in enumerate(codec.encode(history(seed, 120)), 1)]
        for position, recorded in entries:
            if isinstance(recorded.fact, SnapshotAdded):
                fact = recorded.fact
                past = [one for one in entries if one.position <= fact.position]
                assert msgspec.json.encode(fold_numbers(past, fact.job_id)) == msgspec.json.encode(fact.numbers)
                assert position > fact.position
                seen += 1
    assert seen > 20


def test_sabotage_a_snapshot_of_a_changed_log_is_found() -> None:
    """The twin of the test above: a reward that is not what it was gives other numbers."""
    found = False
    for seed in range(20):
        entries = [codec.decode(at, row.body) for at, row in enumerate(codec.encode(history(seed, 120)), 1)]
        for fact in [one.entry.fact for one in entries if isinstance(one.entry.fact, SnapshotAdded)]:
            changed = [_with_other_reward(one, fact.job_id) for one in entries if one.position <= fact.position]
            found |= fold_numbers(changed, fact.job_id) != fact.numbers
    assert found


def _with_other_reward(recorded: Any, job_id: str) -> Any:
    entry = recorded.entry
    if not isinstance(entry.fact, RewardRevised) or not entry.stream.startswith(f"trial/{job_id}/"):
        return recorded
    fact = msgspec.structs.replace(entry.fact, new=entry.fact.new / 2 + 0.125)
    return recorded._replace(entry=msgspec.structs.replace(entry, fact=fact))


# --- many clients at once --------------------------------------------------------------------------------------------


def add_at_once(home: Path, url: str, job: str, count: int) -> list[Any]:
    """What so many clients, each with a database connection pool of its own, are answered when they add one job."""
    barrier = Barrier(count)

    def add(_number: int) -> Any:
        client = client_of(home, database_url=url)
        barrier.wait()
        return client.add_snapshot(job)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(add, range(count)))


def facts_of(client: Client, kind: type) -> list[Any]:
    return [entry.fact for _, entry in client.ledger.entries() if isinstance(entry.fact, kind)]


@pytest.mark.both_databases
def test_sixteen_clients_add_one_job_and_make_one_snapshot(tmp_path: Path, store_url: str) -> None:
    """One of them writes it; all are answered with it."""
    bench = Bench(client_of(tmp_path, database_url=store_url))
    job = bench.job(SEED, model="gpt")
    added = add_at_once(tmp_path, store_url, job, 16)
    assert sorted(one.outcome for one in added) == ["unchanged"] * 15 + ["written"]
    assert len({msgspec.json.encode(one.snapshot) for one in added}) == 1
    assert len(facts_of(bench.client, SnapshotAdded)) == 1


@pytest.mark.both_databases
def test_sabotage_a_rule_that_forgets_makes_more_than_one(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of the test above: without the look at what is saved, the same job stands there several times."""
    bench = Bench(client_of(tmp_path, database_url=store_url))
    job = bench.job(SEED)
    draft = leaderboards._drafted
    barrier = Barrier(16)

    def draft_together(client: Client, job_id: str) -> SnapshotAdded:
        drafted = draft(client, job_id)
        barrier.wait()  # nobody has written yet, so that every client's own look before it finds nothing saved
        return drafted

    monkeypatch.setattr(leaderboards, "_drafted", draft_together)
    monkeypatch.setattr(rules, "add_snapshot", lambda _state, snapshot: [snapshot])
    add_at_once(tmp_path, store_url, job, 16)
    assert len(facts_of(bench.client, SnapshotAdded)) > 1


# --- ranks -----------------------------------------------------------------------------------------------------------


def row(name: str, *rewards: float | None, position: int = 1, withdrawn: bool = False) -> SnapshotRow:
    """A row of a leaderboard with these rewards of one task."""
    fact = msgspec.structs.replace(snapshot(*rewards), model=name, snapshot_id=name)
    gone = (position + 1, 0, "x", "r") if withdrawn else (None, None, None, None)
    return SnapshotRow(fact, position, 0, "local", *gone)


def places(ranked: list[Ranked]) -> list[tuple[str | None, int | None, str | None]]:
    return [(one.row.fact.model, one.rank, one.outside) for one in ranked]


def test_ties_share_a_rank_and_the_next_one_counts_them() -> None:
    """1, 2, 2, 4: among equal scores fewer missing stand first, then those added earlier."""
    rows = [
        row("last", 0.0, 0.0, position=1),
        row("two, one missing", 0.5, None, position=2),
        row("two, late", 0.5, 0.5, position=4),
        row("two, early", 0.0, 1.0, position=3),
        row("first", 1.0, None, position=9),
    ]
    assert places(leaderboard.rank(rows)) == [
        ("first", 1, None),
        ("two, early", 2, None),
        ("two, late", 2, None),
        ("two, one missing", 2, None),
        ("last", 5, None),
    ]
    assert [one.rank for one in leaderboard.rank(rows[:1] + rows[2:])] == [1, 2, 2, 4]


def test_the_lower_bound_ranks_by_what_is_certain() -> None:
    """Every missing reward as 0: a high score of little coverage falls; without bounds there is no rank."""
    rows = [row("bold", 1.0, None, None), row("careful", 0.5, 0.5, 0.5), row("unbounded", 7.0, 7.0)]
    assert places(leaderboard.rank(rows, order="score"))[0] == ("unbounded", 1, None)
    assert places(leaderboard.rank(rows, order="lower-bound")) == [
        ("careful", 1, None),
        ("bold", 2, None),
        ("unbounded", None, "no-bounds"),
    ]


def test_a_floor_of_coverage_takes_out_of_the_ranking_not_of_sight() -> None:
    """What covers less is shown below, without a rank; what covers exactly the floor is in."""
    rows = [row("half", 1.0, None), row("whole", 0.5, 0.5), row("gone", 1.0, 1.0, withdrawn=True)]
    assert places(leaderboard.rank(rows, min_coverage=0.9)) == [
        ("whole", 1, None),
        ("half", None, "below-coverage"),
        ("gone", None, "withdrawn"),
    ]
    assert places(leaderboard.rank(rows, min_coverage=0.5))[0] == ("half", 1, None)


@for_all(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=3, max_size=3).filter(any), max_size=8))
def test_a_rank_is_one_more_than_the_rows_above(rewards: list[list[float | None]]) -> None:
    """For any rewards: the definition of 1-2-2-4, whatever order the rows come in."""
    rows = [row(str(at), *some, position=at) for at, some in enumerate(rewards)]
    scores = {one.fact.model: one.fact.numbers.score for one in rows}
    for order in (rows, rows[::-1]):
        ranked = leaderboard.rank(order)
        for one in ranked:
            above = sum(score > scores[one.row.fact.model] for score in scores.values())
            assert one.rank == above + 1
        assert places(ranked) == places(leaderboard.rank(rows))


def test_models_and_profiles_may_differ_nothing_else(client: Client) -> None:
    """Another k, another part of the tasks, another dataset: each on a leaderboard of its own."""
    bench, other = Bench(client), Bench(client, ("a", "b", "c"), dataset="set@2")
    same = [bench.job(SEED, model=model) for model in ("gpt", "claude", None)]
    apart = [
        bench.job({"a": [1.0], "b": [1.0], "c": [1.0]}),
        bench.job({"a": [1.0, 1.0]}, tasks=["a", "b"]),
        other.job(SEED),
    ]
    for job in same + apart:
        client.add_snapshot(job)
    boards = client.leaderboards().leaderboards
    assert [board.snapshots for board in boards] == [3, 1, 1, 1]
    assert shown(client.leaderboard(same[0])) == [(1, "gpt"), (1, "claude"), (1, same[2])]


def test_only_the_project_sees_its_leaderboards(tmp_path: Path) -> None:
    """Not in a list, not by cohort, not by job, not by snapshot id; and nothing of it can be withdrawn."""
    home = tmp_path / "home"
    bench, stranger = Bench(client_of(home)), client_of(home, "other")
    added = bench.client.add_snapshot(bench.job(SEED)).snapshot
    assert stranger.leaderboards().leaderboards == []
    for name in (added.cohort, added.job_id, added.id):
        with pytest.raises(NotFound):
            stranger.leaderboard(name)
        with pytest.raises(NotFound):
            stranger.snapshot(name)
        with pytest.raises(NotFound):
            stranger.withdraw_snapshot(name, reason="mine")
        with pytest.raises(NotFound):
            stranger.leaderboard_diff(name, 0)
    with pytest.raises(NotFound):
        stranger.add_snapshot(added.job_id)


# --- since, as of, diff ----------------------------------------------------------------------------------------------


def test_a_row_whose_job_was_revised_shows_both_numbers(bench: Bench) -> None:
    """The frozen ones keep the rank, those of now stand beside them; a fact that changes no number is no revision."""
    job = bench.job(SEED, model="gpt")
    bench.client.add_snapshot(job)
    (before,) = bench.client.leaderboard(job).rows
    assert before.now is None
    bench.client.retry(job, "c", reason="lost")
    assert bench.client.leaderboard(job).rows[0].now is None
    bench.revise(job, "a", 2, 1.0)
    (after,) = bench.client.leaderboard(job).rows
    assert (after.score, after.scored, after.missing) == (0.6, 5, 1)
    assert after.now is not None
    assert (after.now.score, after.now.scored, after.now.missing) == (0.8, 5, 1)
    assert msgspec.structs.replace(after, now=None) == before
    now = bench.client.snapshot(job).now
    assert now is not None
    assert now.score == 0.8


def test_a_withdrawn_row_stays_readable_outside_the_ranking(bench: Bench) -> None:
    """With who, when and why; those behind move up; it cannot come back, and the job is not added anew."""
    jobs = [bench.job({"a": [reward]}, model=model) for model, reward in (("best", 1.0), ("next", 0.5))]
    for job in jobs:
        bench.client.add_snapshot(job)
    answer = bench.client.withdraw_snapshot(jobs[0], reason="泄漏 leaked")
    assert (answer.outcome, answer.position) == ("written", bench.position)
    assert (answer.withdrawn.reason, answer.withdrawn.by) == ("泄漏 leaked", "local")
    size = bench.position
    again = bench.client.withdraw_snapshot(answer.snapshot.id, reason="泄漏 leaked")
    assert again == msgspec.structs.replace(answer, outcome="unchanged")
    assert bench.client.add_snapshot(jobs[0]).outcome == "unchanged"
    with pytest.raises(Conflict, match="another reason"):
        bench.client.withdraw_snapshot(jobs[0], reason="other")
    assert bench.position == size
    board = bench.client.leaderboard(jobs[0])
    assert shown(board) == [(1, "next"), (None, "best")]
    assert board.rows[1].outside == "withdrawn"
    assert board.rows[1].withdrawn == answer.withdrawn


def story(bench: Bench, look: Callable[[], None] = lambda: None) -> tuple[list[str], list[int]]:
    """Four jobs on one leaderboard with revisions and a withdrawal between; the positions after each step."""
    rewards = {"one": 0.5, "two": 0.75, "three": 0.25, "four": 0.5}
    jobs = [bench.job({"a": [reward], "b": [reward]}, model=model) for model, reward in rewards.items()]
    marks = [bench.position]
    steps: list[Callable[[], Any]] = [
        lambda: bench.client.add_snapshot(jobs[0]),
        lambda: bench.client.add_snapshot(jobs[1]),
        lambda: bench.revise(jobs[0], "a", 1, 1.0),
        lambda: bench.client.add_snapshot(jobs[2]),
        lambda: bench.client.add_snapshot(jobs[3]),
        lambda: bench.client.withdraw_snapshot(jobs[1], reason="leaked"),
        lambda: bench.revise(jobs[0], "a", 1, 0.5),
        lambda: bench.revise(jobs[2], "b", 1, 0.0),
    ]
    for step in steps:
        step()
        look()
        marks.append(bench.position)
    return jobs, marks


def test_a_board_of_the_past_is_the_one_that_was_shown_then(bench: Bench) -> None:
    """At every position after every step, to the byte: what was answered then is what `as_of` answers now."""
    then: dict[int, bytes] = {}
    client = bench.client

    def look() -> None:
        boards = client.leaderboards()
        if boards.leaderboards:
            shown_now = [boards, client.leaderboard(boards.leaderboards[0].cohort)]
            then[bench.position] = msgspec.json.encode(shown_now)

    jobs, marks = story(bench, look)
    assert sorted(then) == marks[1:]
    cohort = client.leaderboards().leaderboards[0].cohort
    for position, answer in then.items():
        again = [client.leaderboards(as_of=position), client.leaderboard(cohort, as_of=str(position))]
        assert msgspec.json.encode(again) == answer
    assert client.leaderboards(as_of=marks[0]).leaderboards == []
    with pytest.raises(NotFound, match="at position"):
        client.leaderboard(jobs[0], as_of=marks[0])


def test_a_time_means_what_was_recorded_by_then(bench: Bench) -> None:
    """The time of an entry includes it, a moment before does not; zones are heeded; before all there is nothing."""
    job = bench.job(SEED)
    bench.client.add_snapshot(job)
    (row,) = bench.client.ask(lambda c: leaderboard.list_snapshots(c, "default"))
    at = instant(row.added_us)
    just_before = instant(row.added_us - 1)
    assert len(bench.client.leaderboard(job, as_of=at.isoformat()).rows) == 1
    east = at.astimezone(timezone(timedelta(hours=8)))
    assert len(bench.client.leaderboard(job, as_of=east.isoformat()).rows) == 1
    for early in (just_before.isoformat(), "1999-01-01", "0001-01-01T00:00:00+14:00"):
        with pytest.raises((NotFound, BadInput)):
            bench.client.leaderboard(job, as_of=early)


@pytest.mark.parametrize("as_of", ["yesterday", "-1", "1.5", "", "2026-13-01", "99999999999999999999", "９"])
def test_what_is_neither_position_nor_time_is_refused(bench: Bench, as_of: str) -> None:
    """In one sentence."""
    with pytest.raises(BadInput, match="neither a position nor a time"):
        bench.client.leaderboards(as_of=as_of)


def test_what_is_not_written_yet_is_refused(bench: Bench) -> None:
    """A position beyond the log has no answer, and is not silently the end."""
    with pytest.raises(BadInput, match="The log ends at position"):
        bench.client.leaderboards(as_of=bench.position + 1)


@pytest.mark.parametrize(
    "options", [{"order": "best"}, {"min_coverage": 1.5}, {"min_coverage": -0.1}, {"min_coverage": math.nan}]
)
def test_an_order_or_floor_that_is_none_is_refused(bench: Bench, options: dict[str, Any]) -> None:
    """In one sentence."""
    job = bench.job(SEED)
    bench.client.add_snapshot(job)
    with pytest.raises(BadInput):
        bench.client.leaderboard(job, **options)


def test_a_diff_names_the_rows_that_moved_and_the_facts_that_moved_them(bench: Bench) -> None:
    """A new row by its own fact; a rank by the snapshot that came or went above; a number by the trial's fact."""
    jobs, marks = story(bench)
    ids = dict(zip(("one", "two", "three", "four"), jobs, strict=True))

    def moved(start: int, end: int) -> dict[str, tuple[Any, Any, list[tuple[str, str]]]]:
        diff = bench.client.leaderboard_diff(jobs[0], marks[start], marks[end])
        assert (diff.from_, diff.to) == (marks[start], marks[end])
        names = {job: name for name, job in ids.items()}
        return {
            move.name: (
                move.before and (move.before.rank, move.before.outside, move.before.now and move.before.now.score),
                (move.after.rank, move.after.outside, move.after.now and move.after.now.score),
                [(fact.tag, names[fact.job_id]) for fact in move.facts],
            )
            for move in diff.moves
        }

    assert moved(0, 1) == {"one": (None, (1, None, None), [("snapshot-added", "one")])}
    assert moved(1, 2) == {
        "two": (None, (1, None, None), [("snapshot-added", "two")]),
        "one": ((1, None, None), (2, None, None), [("snapshot-added", "two")]),
    }
    assert moved(2, 3) == {"one": ((2, None, None), (2, None, 0.75), [("reward-revised", "one")])}
    assert moved(3, 5) == {
        "four": (None, (2, None, None), [("snapshot-added", "four")]),
        "three": (None, (4, None, None), [("snapshot-added", "three")]),
    }
    assert moved(5, 6) == {
        "one": ((2, None, 0.75), (1, None, 0.75), [("snapshot-withdrawn", "two")]),
        "four": ((2, None, None), (1, None, None), [("snapshot-withdrawn", "two")]),
        "three": ((4, None, None), (3, None, None), [("snapshot-withdrawn", "two")]),
        "two": ((1, None, None), (None, "withdrawn", None), [("snapshot-withdrawn", "two")]),
    }
    assert moved(6, 7) == {"one": ((1, None, 0.75), (1, None, None), [("reward-revised", "one")])}
    assert moved(7, 7) == {}
    whole = bench.client.leaderboard_diff(jobs[0], 0)
    assert (whole.to, len(whole.moves)) == (marks[-1], 4)
    for move in whole.moves:
        for fact in move.facts:
            (entry,) = [entry for position, entry in bench.client.ledger.entries() if position == fact.position]
            assert (codec.TAGS[type(entry.fact)], entry.actor) == (fact.tag, fact.by)


def test_a_diff_turned_round_is_refused(bench: Bench) -> None:
    """Rather than answered with nothing."""
    job = bench.job(SEED)
    bench.client.add_snapshot(job)
    with pytest.raises(BadInput, match="lies before the start"):
        bench.client.leaderboard_diff(job, bench.position, 1)


def test_a_long_list_of_facts_says_how_many_it_left_out(bench: Bench) -> None:
    """The first hundred are listed, the others are counted."""
    job = bench.job(SEED)
    bench.client.add_snapshot(job)
    for number in range(105):
        bench.revise(job, "a", 1, number / 1_000)
    (move,) = bench.client.leaderboard_diff(job, bench.position - 105).moves
    assert (len(move.facts), move.facts_left_out) == (100, 5)


# --- read models that move meanwhile ---------------------------------------------------------------------------------


def test_a_snapshot_is_not_taken_while_read_models_stand_apart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one of them is rebuilt its rows are of another position: the draft waits until they stand together."""
    job = bench.job(SEED)
    common, looks = snapshots.common_position, [None, None]

    def apart_at_first(*arguments: Any) -> int | None:
        return looks.pop() if looks else common(*arguments)

    monkeypatch.setattr(snapshots, "common_position", apart_at_first)
    monkeypatch.setattr("api.leaderboards.DRAFT_PAUSE_S", 0.0)
    assert bench.client.add_snapshot(job).outcome == "written"
    assert looks == []


def test_positions_that_differ_are_no_common_position(bench: Bench) -> None:
    """Read models that were brought to different ends have none."""
    bench.job(SEED)
    client = bench.client
    engine = client.workspace.engine
    catch_up(engine, "default", [model for model in READ_MODELS if model not in snapshots.MODELS[:1]])
    with reading(engine) as connection:
        assert snapshots.common_position(connection, "default") is None
    catch_up(engine, "default", READ_MODELS)
    with reading(engine) as connection:
        assert snapshots.common_position(connection, "default") == bench.position


# --- real boards -----------------------------------------------------------------------------------------------------


def imported_jobs(client: Client, tool: str, path: Path, *, dataset: str) -> list[str]:
    """The ids of the jobs that an import made."""
    return [job.id for job in import_path(client, tool, path, Options(dataset=dataset)).jobs]


SAMPLES = Path(__file__).parent.parent.parent / "shared" / "samples"


def test_two_imported_jobs_rank_as_their_numbers_say(tmp_path: Path, client: Client) -> None:
    """Two runs of one benchmark by two models, imported from files: ranked by score, each with its coverage."""
    for name, rewards in {"weak": (1.0, 0.0, None), "strong": (1.0, 1.0, 0.0)}.items():
        lines = [{"task": f"t{at}", "attempt": 1, "reward": reward} for at, reward in enumerate(rewards)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    imported = [
        imported_jobs(client, "jsonl", tmp_path / f"{name}.jsonl", dataset="bench@1") for name in ("weak", "strong")
    ]
    for (job,) in imported:
        client.add_snapshot(job)
    rows = client.leaderboard(imported[0][0]).rows
    assert [(row.rank, row.job_id, row.score, row.scored, row.missing) for row in rows] == [
        (1, imported[1][0], 2 / 3, 3, 0),
        (2, imported[0][0], 0.5, 2, 1),
    ]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample runs are not beside this repository")
def test_the_sample_runs_rank_as_their_table_says(client: Client) -> None:
    """Every sample whose jobs are of one cohort: ranked by the expected scores, with the expected counts."""
    ranked = 0
    for path in sorted(SAMPLES.glob("*/*/expected.json")):
        case = json.loads(path.read_text())
        expected = [job for job in case.get("jobs", ()) if job.get("score") is not None]
        if len(expected) < 2 or len({(job["dataset"], job["attempts"]) for job in expected}) > 1:
            continue
        options = dict(zip(case["args"][::2], case["args"][1::2], strict=True))
        jobs = imported_jobs(client, case["tool"], path.parent / case["path"], dataset=options["--dataset"])
        cohorts = {client.add_snapshot(job).snapshot.cohort for job in jobs}
        assert len(cohorts) == 1
        rows = client.leaderboard(cohorts.pop()).rows
        order = sorted(expected, key=lambda job: -job["score"])
        assert [(row.score, row.scored, row.missing) for row in rows] == [
            (job["score"], job["score_counts"]["scored"], job["score_counts"]["missing"]) for job in order
        ]
        assert [str(row.model).rpartition("/")[2] for row in rows] == [job["model"] for job in order]
        assert [row.rank for row in rows] == list(range(1, len(rows) + 1))
        ranked += 1
    assert ranked >= 1
