"""Real and generated files in the tools' formats come out as `expected.json` beside them says, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.client import Client, connect
from api.importers.importing import IMPORTERS, import_path
from api.importers.run import Options
from api.settings import Settings
from ledger.facts.trial import Slot, trial_stream
from projections.trials import TrialRow, structured_result, why_no_reward

SAMPLES = Path(__file__).parent.parent.parent / "shared" / "samples"
TOOLS = [importer.NAME for importer in IMPORTERS]
SWITCHES = ("--merge-runs",)
TOOLS_OWN = ("failure_mode", "reward_key", "run", "termination_reason")  # the tool's own words beside ours
CASES = sorted(path.parent for tool in TOOLS for path in SAMPLES.glob(f"{tool}/*/expected.json"))

pytestmark = pytest.mark.skipif(not CASES, reason=f"the shared samples are not at {SAMPLES}")


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


def options_of(args: list[str]) -> Options:
    """The options that a case is imported with."""
    rest = iter(args)
    named: dict[str, Any] = {arg: True if arg in SWITCHES else next(rest) for arg in rest}
    return Options(**{arg.removeprefix("--").replace("-", "_"): value for arg, value in named.items()})


def all_trials(client: Client, job_id: str) -> list[TrialRow]:
    found: list[TrialRow] = []
    while page := client.trials(job_id, after=Slot(job_id, found[-1].attempt, found[-1].task) if found else None):
        found += page
    return found


def shown(row: TrialRow) -> dict[str, Any]:
    """A trial in the words of `expected.json`."""
    result = {"task": row.task, "attempt": row.attempt, "status": row.status, "reward": row.reward}
    if why := why_no_reward(row):
        result["why_no_reward"] = why
    if row.error_type:
        result["error"] = row.error_type
    if row.error_type:
        result["error"] = row.error_type
    if row.structured:
        result["dimensions"] = structured_result(row).dimensions
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_sample_gives_what_is_expected(case: Path, client: Client) -> None:
    """Jobs, numbers, flags and trials equal the expected ones; a second import writes nothing."""
    expected = json.loads((case / "expected.json").read_text())
    report = import_path(client, expected["tool"], case / expected["path"], options_of(expected["args"]))
    assert report.refused == []
    assert len(report.jobs) == len(expected["jobs"])
    by_name = {(job.dataset, job.as_reported.get("agent")): job for job in report.jobs}
    by_name |= {(job.dataset, None): job for job in report.jobs}
    for wanted in expected["jobs"]:
        job = by_name[wanted["dataset"], wanted.get("agent")]
        assert (job.outcome, job.attempts, job.members) == ("imported", wanted["attempts"], wanted["members"])
        assert set(wanted["flags"]) <= set(job.flags)
        result = json.loads(msgspec.json.encode(client.result(job.id)))
        numbers = {"score", "pass", "pass_at_k", "pass_hat_k", "curve"} & wanted.keys()
        assert {name: result[name] for name in numbers} == {name: wanted[name] for name in numbers}
        assert result["score_counts"] == {"extra": 0} | wanted["score_counts"]
        trials = {(row.task, row.attempt): shown(row) for row in all_trials(client, job.id)}
        for trial in wanted.get("trials", []):
            found = trials[trial["task"], trial["attempt"]]
            if "error" not in trial:
                found.pop("error", None)
            if "error" not in trial:
                found.pop("error", None)
            assert found == {name: value for name, value in trial.items() if name not in TOOLS_OWN}
    again = import_path(client, expected["tool"], case / expected["path"], options_of(expected["args"]))
    assert {(job.outcome, job.entries_written) for job in again.jobs} == {("unchanged", 0)}


def test_the_published_tau_bench_table_comes_out(client: Client) -> None:
    """pass^1..4 of the published gpt-4o airline run, to the three decimals of its README, each trial with its facts."""
    case = SAMPLES / "tau-bench/gpt-4o-airline"
    (job,) = import_path(client, "tau-bench", case / "input/gpt-4o-airline.json", Options(dataset="tau-airline@1")).jobs
    curve = client.result(job.id).curve
    assert [f"{point.pass_hat_k:.3f}" for point in curve] == ["0.420", "0.273", "0.220", "0.200"]
    rows = all_trials(client, job.id)
    assert len(rows) == 200
    entries = {recorded.position: recorded.entry for recorded in client.ledger.entries()}
    published = {(str(row["task_id"]), row["trial"] + 1): row["reward"] for row in _rows(case)}
    for row in rows:
        last = entries[row.position]
        assert last.stream == trial_stream(job.id, row.task, row.attempt)
        tags = [type(recorded.entry.fact).__struct_config__.tag for recorded in client.ledger.stream(last.stream)]
        assert tags == ["trial-dispatched", "trial-started", "reward-recorded", "trial-succeeded"]
        assert row.reward == published[row.task, row.attempt]


def _rows(case: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((case / "input/gpt-4o-airline.json").read_text())
    return rows
