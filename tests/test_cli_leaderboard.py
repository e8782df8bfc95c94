"""`el leaderboard`: what people see, what programs get, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.given_boards import SEED, Bench, client_of
from tests.test_cli import El, el  # noqa: F401 - a fixture


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Jobs in the home that `el` works in."""
    return Bench(client_of(tmp_path / "home"))


def test_a_board_shows_coverage_beside_each_score(el: El, bench: Bench) -> None:  # noqa: F811
    """Percentages for scores and bounds, the composite in its own units, gaps as gaps, the reason of what is gone."""
    composites = dict.fromkeys([("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)], 7.25)
    whole = bench.job({task: [1.0, 0.0] for task in "abc"}, model="claude", composites={})
    partly = bench.job(SEED, model="gpt", composites=composites)
    gone = bench.job({task: [1.0, 1.0] for task in "abc"}, model="leaky")
    for job in (whole, partly, gone):
        added = el("leaderboard", "add", job[:8])
        assert added.code == 0
    assert "score 100%, 6/6 attempts scored" in added.out
    assert "was already on" in el("leaderboard", "add", gone).out
    assert el("leaderboard", "withdraw", gone, "--reason", "saw the tests").code == 0
    bench.revise(partly, "a", 2, 1.0)
    shown = el("leaderboard", "show", partly).out
    lines = {name: line for line in shown.splitlines() for name in ("gpt", "claude", "leaky") if name in line.split()}
    assert lines["gpt"].split()[:9] == ["1", "gpt", "60%", "5/6", "1", "2/3", "50%", "to", "66.7%"]
    assert "7.25" in lines["gpt"]
    assert "revised since: now score 80%, 5/6 scored" in lines["gpt"]
    assert lines["claude"].split()[:6] == ["2", "claude", "50%", "6/6", "0", "3/3"]
    assert lines["leaky"].startswith("   –  leaky")
    assert lines["leaky"].endswith("withdrawn: saw the tests")
    assert shown.index("gpt") < shown.index("claude") < shown.index("leaky")
    floor = el("leaderboard", "show", partly, "--min-coverage", "0.9").out
    assert "at least 90% covered" in floor
    assert "not ranked: only 83.3% covered" in floor
    assert el("leaderboard", "show", partly, "--order", "lower-bound").out.splitlines()[1] == "ranked by lower bound"


def test_programs_get_one_document(el: El, bench: Bench) -> None:  # noqa: F811
    """`--json` on every verb, with the same keys as the routes answer."""
    job = bench.job(SEED, model="gpt")
    before = bench.position
    added = el("leaderboard", "add", job, "--json").document
    assert (added["outcome"], added["snapshot"]["numbers"]["score"]) == ("written", 0.6)
    cohort = added["snapshot"]["cohort"]
    assert el("leaderboard", "list", "--json").document["leaderboards"][0]["cohort"] == cohort
    assert el("leaderboard", "show", cohort[:8], "--json").document["rows"][0]["score_bounds"] == [0.5, 2 / 3]
    diff = el("leaderboard", "diff", cohort, "--from", str(before), "--json").document
    assert [fact["tag"] for fact in diff["moves"][0]["facts"]] == ["snapshot-added"]
    withdrawn = el("leaderboard", "withdraw", job, "--reason", "leaked", "--json").document
    assert withdrawn["withdrawn"]["reason"] == "leaked"
    json.dumps(withdrawn)


def test_a_diff_reads_as_moves_and_their_facts(el: El, bench: Bench) -> None:  # noqa: F811
    """Who moved from where to where, and under it position, actor and kind of each fact that did it."""
    first, second = (bench.job({"a": [value]}, model=f"m{value}") for value in (0.5, 0.75))
    el("leaderboard", "add", first)
    start = bench.position
    el("leaderboard", "add", second)
    bench.revise(first, "a", 1, 0.25)
    out = el("leaderboard", "diff", first, "--from", str(start)).out
    assert f"after position {start} up to {start + 2}: 2 rows moved" in out
    assert f"m0.5 ({first}): rank 1, score 50% -> rank 2, score 50%, now score 25%, 1/3 scored" in out
    assert f"m0.75 ({second}): not there -> rank 1, score 75%" in out
    facts = [line.split() for line in out.splitlines() if line.startswith("  ")]
    assert [(line[0], line[2], line[3]) for line in facts] == [
        (str(start + 1), "local", "snapshot-added"),
        (str(start + 1), "local", "snapshot-added"),
        (str(start + 2), "local", "reward-revised"),
    ]
    assert el("leaderboard", "show", first, "--as-of", str(start)).out.count("m0.") == 1


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["list"], 0, "`el leaderboard add JOB` begins one"),
        (["show", "0123abcd"], 3, "There is no leaderboard"),
        (["add", "0b6a3c1e-0000-5000-8000-000000000001"], 3, "There is no such job"),
        (["withdraw", "0123abcd", "--reason", "x"], 3, "There is no job"),
        (["withdraw", "0123abcd"], 2, "--reason"),
        (["show", "x", "--min-coverage", "2"], 2, "min-coverage"),
        (["show", "x", "--order", "best"], 1, "is no order"),
        (["list", "--as-of", "yesterday"], 1, "neither a position nor a time"),
        (["diff", "0123abcd", "--from", "1"], 3, "There is no leaderboard"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused_is_one_sentence(
    el: El,  # noqa: F811
    bench: Bench,
    words: list[str],
    code: int,
    sentence: str,
) -> None:
    """With its exit code, never a traceback."""
    ran = el("leaderboard", *words)
    assert ran.code == code
    assert sentence in ran.err + ran.out
    assert "Traceback" not in ran.err + ran.out
