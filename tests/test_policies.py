"""The numbers that other tools make of the same trials: under their rule, beside ours, and never instead of ours."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.client import Client, connect
from api.importers import jsonl
from api.importers.importing import IMPORTERS, import_path
from api.importers.recording import import_run
from api.importers.run import Options
from api.settings import Settings
from api.under_policy import plain_name
from ledger.errors import BadInput
from projections import job_metrics
from projections.job_metrics import Attempt
from projections.metrics import measure_trials
from projections.policies import POLICIES, PolicyNumbers, apply_policy, policy_named
from projections.tally import Trial
from tests.test_cli import El, el
from tests.test_import_samples import SAMPLES, options_of
from tests.test_metrics import CASES as METRICS_CASES
from tests.test_metrics_three_ways import jsonl_of

__all__ = ["el"]  # a fixture

ENDED = {"succeeded", "failed", "canceled"}
Members = dict[str, list[Attempt]]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


def members_of(**rewards: list[float | None]) -> Members:
    """Members whose every trial ended; None is a trial that failed without a reward."""
    return {
        task: [Attempt(n, "succeeded" if r is not None else "failed", r) for n, r in enumerate(row, 1)]
        for task, row in rewards.items()
    }


def under(name: str, attempts: int, members: Members, *, total: int | None = None, **more: Any) -> dict[str, Any]:
    return apply_policy(POLICIES[name], attempts, total or len(members), members.items(), **more).numbers


SEED = members_of(a=[1.0, 0.0], b=[1.0, 1.0], c=[0.0, None])


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("unknown", {"score": 0.6, "pass": 0.6, "pass_at_k": 1.0, "pass_hat_k": 0.5}),
        ("harbor-0.25", {"mean": 0.5, "pass_at_k": {"2": 2 / 3}}),
        ("harbor-0.26", {"mean": 0.6, "pass_at_k": {}}),
        ("terminal-bench", {"accuracy": 0.5, "pass_at_k": {"2": 2 / 3}}),
        ("tau-1", {"avg_reward": 0.5, "pass_hat_k": {"1": 0.5, "2": 1 / 3}}),
        ("tau-2", {"avg_reward": 0.6, "pass_hat_ks": {"1": 0.5, "2": 1 / 3}}),
        ("swe-bench", {"resolved_rate": 0.5}),
    ],
)
def test_the_seeds_example_under_each_policy(name: str, numbers: dict[str, Any]) -> None:
    """The same six slots, one of them without a reward, give other numbers under other rules."""
    assert under(name, 2, SEED) == numbers


def test_a_dropped_trial_is_in_no_number() -> None:
    """tau-2 leaves out what ended by an infrastructure error, also when it carries a reward; then k is at most 1."""
    for reward in (None, 1.0):
        members = SEED | {"c": [SEED["c"][0], Attempt(2, "failed", reward)]}
        assert under("tau-2", 2, members, left_out={("c", 2)}) == {"avg_reward": 0.6, "pass_hat_ks": {"1": 0.5}}
    assert under("tau-2", 1, {"c": [Attempt(1, "failed")]}, left_out={("c", 1)}) == {
        "avg_reward": None,
        "pass_hat_ks": {},
    }


def test_a_task_with_no_reward_stays_or_goes() -> None:
    """Harbor 0.25 counts it as failed, 0.26 knows it no more."""
    members = members_of(a=[1.0, 1.0], b=[None, None])
    assert under("harbor-0.25", 2, members) == {"mean": 0.5, "pass_at_k": {"2": 0.5}}
    assert under("harbor-0.26", 2, members) == {"mean": 1.0, "pass_at_k": {"2": 1.0}}


@pytest.mark.parametrize(
    ("name", "ks"),
    [
        ("harbor-0.25", "2 4 5 8 10 15 16 20"),
        ("harbor-0.26", "2 4 5 8 10 15 16 20"),
        ("terminal-bench", "2 4 5 8 10 16"),
    ],
)
def test_the_k_that_a_tool_gives(name: str, ks: str) -> None:
    """Up to the smallest number of trials of a task: powers of two, and of fives what the tool gives."""
    members = members_of(a=[1.0] + 21 * [0.0], b=[1.0] * 20)
    assert list(under(name, 22, members)["pass_at_k"]) == ks.split()


def test_a_fraction_is_no_pass() -> None:
    """Harbor gives no pass@k where a reward is neither 0 nor 1; the others ask whether it is a 1."""
    members = members_of(a=[0.5, 1.0])
    assert under("harbor-0.25", 2, members) == {"mean": 0.75, "pass_at_k": {}}
    assert under("terminal-bench", 2, members) == {"accuracy": 0.5, "pass_at_k": {"2": 1.0}}
    assert under("tau-1", 1, members_of(a=[1 - 1e-7]))["pass_hat_k"] == {"1": 1.0}
    assert under("swe-bench", 1, members_of(a=[1 - 1e-7])) == {"resolved_rate": 0.0}


def test_what_was_never_run() -> None:
    """SWE-bench counts a slot never dispatched as 0; the other tools know only what they ran."""
    members = members_of(a=[1.0])
    assert under("swe-bench", 1, members, total=4) == {"resolved_rate": 0.25}
    assert under("harbor-0.25", 1, members, total=4)["mean"] == 1.0
    waiting = {"a": [Attempt(1)], "b": [Attempt(1, "running")]}
    for name in POLICIES.keys() - {"swe-bench"}:
        assert all(number in (None, {}) for number in under(name, 1, waiting).values())
    assert under("swe-bench", 1, waiting) == {"resolved_rate": 0.0}


def test_an_attempt_beyond_k_counts_where_the_tool_counts_it() -> None:
    """Tools know no k of ours: their means take every trial, and SWE-bench's slots grow by it."""
    members = members_of(a=[0.0, 1.0])
    assert under("harbor-0.25", 1, members) == {"mean": 0.5, "pass_at_k": {"2": 1.0}}
    assert under("tau-2", 1, members) == {"avg_reward": 0.5, "pass_hat_ks": {"1": 0.5}}
    assert under("swe-bench", 1, members) == {"resolved_rate": 0.5}


# --- against a reference that enumerates -----------------------------------------------------------------------------

rewards_of_a_kind = st.sampled_from(
    [st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0, 0.5, -1.0, 2.0]), st.floats(allow_nan=False, width=16)]
)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[int, int, Members]:
    """k, how many members there are, and the attempts of those that have any."""
    rewards = draw(rewards_of_a_kind).filter(lambda reward: abs(reward) < 1e4)
    status = st.sampled_from(["succeeded", "failed", "canceled", "running", "dispatched"])
    rows = draw(
        st.lists(st.dictionaries(st.integers(1, 6), st.tuples(status, st.none() | rewards), max_size=6), max_size=5)
    )
    members = {f"t{m}": [Attempt(n, *row) for n, row in sorted(some.items())] for m, some in enumerate(rows)}
    return draw(st.integers(1, 6)), max(1, len(rows)) + draw(st.integers(0, 2)), members


def share(values: list[float], k: int, good: Any) -> Fraction:
    subsets = list(combinations(values, k))
    return Fraction(sum(good(v == 1 for v in subset) for subset in subsets), len(subsets))


def mean(values: Any) -> float | None:
    values = [Fraction(value) for value in values]
    return float(sum(values, Fraction(0)) / len(values)) if values else None


def reference(name: str, k: int, total: int, members: Members) -> dict[str, Any]:
    """The rules once more, by lists of values: the missing filled in, every subset looked at."""
    told = {m: [a.reward for a in row if a.reward is not None or a.status in ENDED] for m, row in members.items()}
    filled = [[r or 0.0 for r in row] for row in told.values() if row]
    kept = [row for row in ([r for r in row if r is not None] for row in told.values()) if row]
    every = [r for row in (kept if name in ("harbor-0.26", "tau-2") else filled) for r in row]
    tasks = kept if name == "harbor-0.26" else filled
    least = min(map(len, tasks), default=0)

    def over_tasks(ks: Any, good: Any, tasks: list[list[float]] = tasks) -> dict[str, Any]:
        return {str(j): mean(share(row, j, good) for row in tasks) for j in ks if tasks}

    match name:
        case "harbor-0.25" | "harbor-0.26":
            binary = all(r in (0, 1) for r in every)
            return {
                "mean": mean(every),
                "pass_at_k": over_tasks({2, 4, 5} & {*range(least + 1)} if binary else (), any),
            }
        case "terminal-bench":
            ks = {2, 4, 5} & {*range(least + 1)}
            return {"accuracy": mean(r == 1 for r in every), "pass_at_k": over_tasks(ks, any)}
        case "tau-1":
            most = len(
                {a.attempt for row in members.values() for a in row if a.reward is not None or a.status in ENDED}
            )
            padded = [row + [0.0] * (most - len(row)) for row in filled]
            return {"avg_reward": mean(every), "pass_hat_k": over_tasks(range(1, most + 1), all, padded)}
        case "tau-2":
            return {"avg_reward": mean(every), "pass_hat_ks": over_tasks(range(1, min(k, least) + 1), all)}
        case _:
            slots = sum(max(k, len(row)) for row in members.values()) + k * (total - len(members))
            passed = sum(a.reward == 1 for row in members.values() for a in row)
            return {"resolved_rate": float(Fraction(passed, slots))}


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - {"unknown"}))
@given(job=jobs())
def test_formulas_equal_a_reference(name: str, job: tuple[int, int, Members]) -> None:
    """To the last bit: exact fractions, rounded once."""
    attempts, total, members = job
    assert under(name, attempts, members, total=total) == reference(name, attempts, total, members)


@given(job=jobs())
def test_unknown_is_the_ordinary_result(job: tuple[int, int, Members]) -> None:
    """Our own policy gives what every result gives, for any job at any moment."""
    attempts, total, members = job
    trials = {m: [Trial(a.reward, a.status in ENDED, a.attempt > attempts) for a in r] for m, r in members.items()}
    ours = measure_trials(attempts, total, trials)
    found = under("unknown", attempts, members, total=total)
    assert list(found.values()) == [ours.score, ours.pass_, ours.pass_at_k, ours.pass_hat_k]


# --- through the ledger ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", METRICS_CASES[::7], ids=lambda case: case["name"])
def test_unknown_through_the_ledger(
    case: dict[str, Any], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading member by member, in many small reads, gives what the running tallies hold."""
    monkeypatch.setattr(job_metrics, "MEMBERS_PER_READ", 2)
    (tmp_path / "trials.jsonl").write_text(jsonl_of(case))
    options = Options(dataset="d@1", attempts=case["attempts"])
    (job,) = import_path(client, "jsonl", tmp_path / "trials.jsonl", options).jobs
    result = client.result(job.id, policy="unknown")
    assert result.policy is not None
    numbers = [result.score, result.pass_, result.pass_at_k, result.pass_hat_k]
    assert list(result.policy.numbers.values()) == numbers
    assert msgspec.structs.replace(result, policy=None) == client.result(job.id)


SAMPLES_WITH_POLICIES = [
    (path.parent, wanted, name)
    for path in sorted(SAMPLES.glob("*/*/expected.json"))
    if path.parent.parent.name in {importer.NAME for importer in IMPORTERS}
    for wanted in json.loads(path.read_text())["jobs"]
    for name in wanted.get("policies", ())
]


@pytest.mark.skipif(not SAMPLES_WITH_POLICIES, reason=f"the shared samples are not at {SAMPLES}")
@pytest.mark.parametrize(
    ("case", "wanted", "name"),
    SAMPLES_WITH_POLICIES,
    ids=[f"{case.parent.name}/{case.name} {name}" for case, _, name in SAMPLES_WITH_POLICIES],
)
def test_a_sample_under_a_policy(case: Path, wanted: dict[str, Any], name: str, client: Client) -> None:
    """What a tool's rule must give for a sample is given, bit for bit."""
    expected = json.loads((case / "expected.json").read_text())
    report = import_path(client, expected["tool"], case / expected["path"], options_of(expected["args"]))
    (job,) = (job for job in report.jobs if job.dataset == wanted["dataset"])
    under = client.result(job.id, policy=name).policy
    assert under is not None
    assert under.numbers == wanted["policies"][name]
    assert [compared.name for compared in under.compared if not compared.equal] == []


def imported(client: Client, path: Path, rows: list[dict[str, Any]], **changed: Any) -> str:
    """The id of a job that some tool ran and reported on."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run,) = jsonl.read(path, Options())
    return import_run(client, msgspec.structs.replace(run, **changed), Options()).id


ROWS: list[dict[str, Any]] = [
    {"task": task, "attempt": attempt.attempt, "status": attempt.status, "reward": attempt.reward}
    for task, row in SEED.items()
    for attempt in row
]
DIED = {"task": "d", "attempt": 1, "error": {"type": "infrastructure_error"}}


def test_the_error_type_says_what_is_left_out(client: Client, tmp_path: Path) -> None:
    """tau-2 drops the trials whose error is an infrastructure error, and no others."""
    rows = [
        *ROWS[:-1],
        DIED | {"task": "c", "attempt": 2},
        DIED,
        DIED | {"attempt": 2, "error": {"type": "user_error"}},
    ]
    under = client.result(imported(client, tmp_path / "a.jsonl", rows), policy="tau-2").policy
    assert under is not None
    assert under.numbers == {"avg_reward": 0.6, "pass_hat_ks": {"1": 1.5 / 4}}
    assert under.counts == {"total_simulations": 6, "total_tasks": 4}


def test_printed_numbers_stand_beside_ours(client: Client, tmp_path: Path) -> None:
    """Equal up to the last digits, different by how much, or of a k for which the policy has none; text is left out."""
    printed: dict[str, Any] = {
        "mean": 0.5, "pass_at_k.2": 0.6666666666666667, "pass@4": 0.7, "trials": 5, "note": "x", "run-1.pass@2": 1.0
    }  # fmt: skip
    job_id = imported(client, tmp_path / "a.jsonl", ROWS, policy="harbor-0.25", as_reported=printed)
    under = client.result(job_id, policy="harbor-0.25").policy
    assert under is not None
    found = {one.name: (one.ours, one.difference and round(one.difference, 9), one.equal) for one in under.compared}
    assert found == {
        "mean": (0.5, 0.0, True),
        "pass_at_k.2": (2 / 3, -0.0, True),
        "pass@4": (None, None, False),
        "trials": (6, 1.0, False),
    }
    other = client.result(job_id, policy="harbor-0.26").policy
    assert other is not None
    assert (other.reported_under, other.compared) == ("harbor-0.25", [])


def test_a_mean_under_the_numbers_own_name(client: Client, tmp_path: Path) -> None:
    """Harbor calls the mean `reward` where trials have several numbers; a `mean` goes before that."""
    for number, printed in enumerate([{"reward": 0.5, "style": 0.3}, {"mean": 0.5, "reward": 0.1}]):
        job_id = imported(
            client, tmp_path / f"{number}.jsonl", ROWS[number:], policy="harbor-0.25", as_reported=printed
        )
        under = client.result(job_id, policy="harbor-0.25").policy
        assert under is not None
        assert [one.name for one in under.compared] == [["reward"], ["mean"]][number]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("pass_at_k.2", "pass@2"),
        ("pass_at_k[10]", "pass@10"),
        ("pass_at_2", "pass@2"),
        ("pass@2", "pass@2"),
        ("pass_hat_ks.3", "pass^3"),
        ("pass_hat_1", "pass^1"),
        ("pass^1", "pass^1"),
        ("x.pass^1", "x.pass^1"),
        ("pass", "pass"),
        ("mean", "mean"),
        ("passed 2", "passed 2"),
    ],
)
def test_spellings_of_one_number(name: str, plain: str) -> None:
    """Tools spell a number for one k in many ways; whatever is none keeps its name."""
    assert plain_name(name) == plain


def test_a_zero_that_nobody_measured_is_told(client: Client, el: El, tmp_path: Path) -> None:
    """Where nothing was scored and the tool printed 0.0, the result says so; a count of 0 and a real 0.0 are silent."""
    lost = [{"task": "a", "attempt": 1, "error": {"type": "Lost"}}]
    told = {"mean": 0.0, "n_trials": 0, "cost_usd": 0.0, "acc_stderr,none": 0.0}
    job_id = imported(connect(), tmp_path / "a.jsonl", lost, as_reported=told | {"\x1b[2J": 0.0})
    out = el("job", "result", job_id).out
    assert "the tool reported 0.0 with nothing scored (mean, " in out
    assert "\x1b" not in out
    assert el("job", "result", job_id, "--json").document["remarks"]
    for rows, reported in ((ROWS, told), (lost, told | {"mean": 0.5})):
        job_id = imported(client, tmp_path / "b.jsonl", rows, as_reported=reported)
        assert client.result(job_id).remarks == []


def test_a_policy_on_the_command_line(el: El, tmp_path: Path) -> None:
    """The rule in words, the numbers, what the tool reported; in JSON all of it; a name that is none is refused."""
    reported = {"mean": 0.5, "pass_at_k.2": 0.5}
    job_id = imported(connect(), tmp_path / "a.jsonl", ROWS, policy="harbor-0.25", as_reported=reported)
    out = el("job", "result", job_id, "--policy", "harbor-0.25").out
    for words in (
        "score 60%", POLICIES["harbor-0.25"].rule, "  mean 50%\n", "  pass@2 66.7%\n", "mean 0.5, equal to ours",
        "pass_at_k.2 0.5, ours is 0.666667, 0.166667 more",
    ):  # fmt: skip
        assert words in out
    assert "with --policy harbor-0.25" in el("job", "result", job_id, "--policy", "harbor-0.26").out
    policy = el("job", "result", job_id, "--policy", "harbor-0.26", "--json").document["policy"]
    assert (policy["rule"], policy["numbers"]) == (POLICIES["harbor-0.26"].rule, {"mean": 0.6, "pass_at_k": {}})
    ran = el("job", "result", job_id, "--policy", "harbor")
    assert ran.code == 1
    assert all(name in ran.err for name in POLICIES)


def test_without_a_policy_no_member_is_read(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ordinary result costs the same at any size: only a policy reads member by member."""

    def refuse(*args: Any) -> Any:
        raise AssertionError("a member was read")

    job_id = imported(client, tmp_path / "a.jsonl", ROWS)
    monkeypatch.setattr(job_metrics, "members_of", refuse)
    assert client.result(job_id).policy is None


def test_every_policy_that_an_importer_records_can_be_read(client: Client) -> None:
    """What `el import --policy` takes, `el job result --policy` knows; any other name is refused before all else."""
    for importer in IMPORTERS:
        assert set(importer.POLICIES) <= POLICIES.keys()
    with pytest.raises(BadInput, match=r"no policy 'tau'; there are: unknown, harbor-0\.25, "):
        client.result("no such job", policy="tau")
    for name, policy in POLICIES.items():
        assert policy_named(name) is policy
        assert policy.rule.endswith(".")
        assert isinstance(apply_policy(policy, 1, 1, []), PolicyNumbers)
