"""One job's numbers, three ways: by the formulas alone, through the ledger, and through an imported file."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.client import Client, connect
from api.importers.importing import import_path
from api.importers.run import Options
from api.settings import Settings
from ledger.application import Rule
from ledger.facts.catalogue import RunnerPublished, Task
from ledger.facts.trial import TrialCanceled, TrialDispatched, TrialFailed, TrialSucceeded, trial_id_for, trial_stream
from ledger.rules import trial as rules
from projections.metrics import measure_trials
from tests.given import digest_of
from tests.test_metrics import CASES, trials_of

NAMES = [case["name"] for case in CASES]
ENDINGS = {"succeeded": TrialSucceeded(), "failed": TrialFailed("Broken"), "canceled": TrialCanceled()}


def jsonl_of(case: dict[str, Any]) -> str:
    """A case as a file of the neutral form: its members first, then its trials. Import it with `--attempts k`."""
    rows = [{"task": member} for member in case["members"]]
    rows += [{"task": trial["member"]} | {k: v for k, v in trial.items() if k != "member"} for trial in case["trials"]]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def expect(case: dict[str, Any], answer: Any) -> None:
    """Every expected number is there, bit for bit; null is null and never 0."""
    found = json.loads(msgspec.json.encode(answer))
    expected = case["expected"]
    counts = found["score_counts"] | expected["score_counts"]
    assert {name: found[name] for name in expected} == expected | {"score_counts": counts}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """One ledger for all cases: they must not touch each other either."""
    return connect(settings=Settings(home=tmp_path_factory.mktemp("ways") / ".el"))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_by_the_formulas(case: dict[str, Any]) -> None:
    """The pure functions give the expected numbers."""
    expect(case, measure_trials(case["attempts"], len(case["members"]), trials_of(case)))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_through_the_ledger(case: dict[str, Any], client: Client) -> None:
    """The same trials as facts, read back by the read models, give the same numbers."""
    client.publish_runner(RunnerPublished("by-hand@1", "external"))
    dataset = f"{case['name']}@1"
    client.publish_dataset(dataset, [Task(name, digest_of(name)) for name in case["members"]], runner="by-hand@1")
    job_id = client.submit_job(dataset, attempts=case["attempts"]).id
    for trial in case["trials"]:
        task, attempt, status = trial["member"], trial["attempt"], trial["status"]
        dispatched = TrialDispatched(trial_id_for(job_id, task, attempt), job_id, task, digest_of(task), attempt)
        asked: list[Rule] = [partial(rules.dispatch, dispatched=dispatched)]
        if status != "queued":
            asked.append(rules.start)
        if "reward" in trial:
            asked.append(partial(rules.record_reward, reward=trial["reward"]))
        if status in ENDINGS:
            asked.append(partial(rules.end, ended=ENDINGS[status]))
        client.ledger.record(trial_stream(job_id, task, attempt), *asked)
    expect(case, client.result(job_id))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_through_an_imported_file(case: dict[str, Any], client: Client, tmp_path: Path) -> None:
    """The same trials in a file that somebody else wrote give the same numbers."""
    path = tmp_path / "trials.jsonl"
    path.write_text(jsonl_of(case))
    options = Options(dataset=f"imported-{case['name']}@1", attempts=case["attempts"])
    report = import_path(client, "jsonl", path, options)
    assert report.refused == []
    expect(case, client.result(report.jobs[0].id))
