"""The neutral form there and back: what is exported is imported as the same values, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from api.client import Client
from api.exporters import reading
from api.exporters.exporting import export_job
from api.importers import jsonl
from api.importers.importing import import_path
from ledger.codec import encode
from ledger.facts.entry import Entry
from ledger.facts.job import JobSubmitted
from ledger.facts.trial import StructuredResultRejected, TrialFailed
from ledger.rules import trial as trial_rules
from tests.given import histories
from tests.given_exports import ROWS, client_without_sync, exported, imported, imported_file, other, told

# What the form has no place for, or names by an artifact that these histories only invent.
NOT_TOLD = ("judge", "lost", "redacted", "message", "raw_reward", "rejected_result", "duration_s", "exit_code")
numbers = count(1)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = client_without_sync(tmp_path_factory.mktemp("home"))
    yield client
    client.workspace.engine.dispose()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=histories(most=150))
def test_any_job_comes_back_as_it_was(client: Client, tmp_path: Path, entries: list[Entry]) -> None:
    """Rewards, statuses, reasons, dimensions, errors, files, times, gaps, k and attempts beyond it: all of it."""
    project = f"from{next(numbers)}"
    client.workspace.unchecked_ledger(project).recorder.append(encode(entries))
    before, after = Client(client.workspace, project), other(client, f"to{next(numbers)}")
    for manifest in [entry.fact for entry in entries if isinstance(entry.fact, JobSubmitted)]:
        path = tmp_path / f"{manifest.job_id}.jsonl"
        exported(before, manifest.job_id, "jsonl", path, force=True)
        job = imported_file(after, path, attempts=manifest.attempts)
        assert told(after, job, *NOT_TOLD) == told(before, manifest.job_id, *NOT_TOLD)
        had, has = before.result(manifest.job_id), after.result(job)
        assert (has.score_counts, has.curve, repr(has.score)) == (had.score_counts, had.curve, repr(had.score))
        assert (has.score_bounds, has.interval_95, has.pass_) == (had.score_bounds, had.interval_95, had.pass_)


def test_texts_come_back_too(client: Client, tmp_path: Path) -> None:
    """Messages and what stood in a reward's place have the same digests; exported again, the bytes are the same."""
    rows = [*ROWS, {"task": "d", "attempt": 1, "reward": 1, "dimensions": ["no", {"map": 1}]}]
    job = imported(client, tmp_path / "a.jsonl", rows)
    exported(client, job, "jsonl", tmp_path / "b.jsonl")
    after = other(client, "texts")
    again = imported_file(after, tmp_path / "b.jsonl")
    assert told(after, again) == told(client, job)
    exported(after, again, "jsonl", tmp_path / "c.jsonl")
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert [json.loads(line)["task"] for line in (tmp_path / "b.jsonl").open()][:2] == ["add/1", "add/1"]


@pytest.mark.parametrize("written", ["-0.0", "5e-324", "1.7976931348623157e308", "0.1", "0.30000000000000004"])
def test_a_reward_keeps_its_last_bit(client: Client, tmp_path: Path, written: str) -> None:
    """The number in the file is the number of the fact, the sign of zero too."""
    job = imported(client, tmp_path / "a.jsonl", [{"task": f"t{written}", "attempt": 1, "reward": float(written)}])
    exported(client, job, "jsonl", tmp_path / "b.jsonl")
    assert repr(json.loads((tmp_path / "b.jsonl").read_text())["reward"]) == repr(float(written))


def test_every_line_is_of_the_form(client: Client, tmp_path: Path) -> None:
    """The export uses no key that `el schema import-jsonl` does not name."""
    job = imported(client, tmp_path / "a.jsonl")
    exported(client, job, "jsonl", tmp_path / "b.jsonl")
    lines = (tmp_path / "b.jsonl").read_bytes().splitlines()
    assert len([msgspec.json.decode(line, type=jsonl.Row) for line in lines]) == len(ROWS)
    assert {"task": "never tried"} in [json.loads(line) for line in lines]


def test_a_part_of_a_job_is_in_memory_at_a_time(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of members make no difference to what is written, nor does k."""
    rows = [{"task": f"t{n}", "attempt": k, "reward": n} for n in range(7) for k in range(1, 4 + (n == 3))]
    job = imported(client, tmp_path / "a.jsonl", rows, attempts=2)
    exported(client, job, "jsonl", tmp_path / "b.jsonl")
    monkeypatch.setattr(reading, "MEMBERS_PER_PAGE", 2)
    monkeypatch.setattr(reading, "STREAMS_PER_SELECT", 3)
    seen: list[int] = []
    done = export_job(client, job, "jsonl", str(tmp_path / "c.jsonl"), seen=seen.append)
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert seen == [2, 4, 6, 7]
    assert (done.attempts, done.attempts_seen, done.members) == (2, 4, 7)


def test_what_has_no_place_is_counted(client: Client, tmp_path: Path) -> None:
    """An erased message, a judge summary and a rejected result without its text are named, not lost in silence."""
    rows = [{"task": "left", "attempt": 1, "error": {"type": "X", "message": "erase me"}}]
    job = imported(client, tmp_path / "a.jsonl", rows)
    (row,) = client.trials(job)
    stream = f"trial/{job}/1/left"
    client.ledger.record(stream, lambda s: trial_rules.redact_artifact(s, sha256=row.message or "", reason="asked for"))
    rejected = StructuredResultRejected("missing")
    client.ledger.record(stream, lambda s: trial_rules.record_structured_result(s, result=rejected))
    done = exported(client, job, "jsonl", tmp_path / "b.jsonl")
    assert done.left_out == {"messages": 1, "rejected results": 1}
    assert "erase me" not in (tmp_path / "b.jsonl").read_text()
    facts = [recorded.entry.fact for recorded in client.ledger.stream(stream)]
    assert any(isinstance(fact, TrialFailed) for fact in facts)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"reward": 1, "no_reward": "null"}, "only one of both"),
        ({"raw_reward": "x"}, "needs a `no_reward`"),
        ({"no_reward": "canceled"}, "contradicts the status succeeded"),
        ({"no_reward": "because"}, "because"),
    ],
)
def test_a_reason_must_fit_its_line(client: Client, tmp_path: Path, line: dict[str, str], says: str) -> None:
    """A reward and a reason for none, or a reason that contradicts the status, refuse the file."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"task": "a", "attempt": 1} | line) + "\n")
    (refused,) = import_path(client, "jsonl", path).refused
    assert says in refused.why


def test_a_slow_reader_keeps_nobody_waiting(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a job is read others can write, and what they write is not in what is read."""
    monkeypatch.setattr(reading, "STREAMS_PER_SELECT", 1)
    rows = [{"task": name, "attempt": 1, "status": "running"} for name in ("slow", "slower")]
    job = imported(client, tmp_path / "a.jsonl", rows)
    members = reading.read_job(client, job).members()
    assert [trial.status for trial in next(members).trials] == ["running"]
    client.ledger.record(f"trial/{job}/1/slower", lambda s: trial_rules.record_reward(s, reward=1.0))
    (trial,) = next(members).trials
    assert trial.reward is None
    assert [member.trials[0].reward for member in reading.read_job(client, job).members()] == [None, 1.0]
