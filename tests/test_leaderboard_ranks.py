"""Leaderboards: how rows rank, who sees them, and real boards of imported runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from api.client import Client
from api.importers.importing import import_path
from api.importers.run import Options
from ledger.errors import NotFound
from projections import leaderboard
from projections.leaderboard import Ranked, SnapshotRow
from tests.given_boards import SEED, Bench, client_of, shown
from tests.test_rules_leaderboard import snapshot


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """An embedded client on an empty home."""
    return client_of(tmp_path / "home")


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
