"""Leaderboards: what has become of a row since, how a board stood then, and what moved it."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger import codec
from ledger.errors import BadInput, Conflict, NotFound
from projections import leaderboard
from projections.following import instant
from tests.given_boards import SEED, Bench, client_of, shown


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A dataset of three tasks."""
    return Bench(client_of(tmp_path / "home"))


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
