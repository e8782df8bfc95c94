"""Importing the neutral form: every line counts as it was written, or the file is refused with the line's number."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.importers import jsonl
from api.importers.importing import import_path
from api.importers.recording import Imported
from api.importers.run import Options
from api.settings import Settings
from ledger.errors import BadInput
from ledger.facts.trial import RewardRecorded, trial_stream
from projections.trials import TrialRow, structured_result, why_no_reward
from tests.given import NASTY_NAMES

SHA = "084c799cd551dd1d8d5c5f9a5d593b2e931f5e36122ee5c793c1d08a19839cc0"

Import = Callable[..., Imported]
Refuse = Callable[..., str]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def take(client: Client, tmp_path: Path) -> Import:
    """Import lines (text, bytes, or values to write as JSON) as one file; the job."""

    def run(*lines: Any, **options: Any) -> Imported:
        path = tmp_path / "trials.jsonl"
        path.write_bytes(b"".join(map(_line, lines)))
        report = import_path(client, "jsonl", path, Options(**options))
        assert report.refused == []
        return report.jobs[0]

    return run


@pytest.fixture
def refuse(client: Client, tmp_path: Path) -> Refuse:
    """Import lines that must be refused, with nothing written; the reason."""

    def run(*lines: Any, **options: Any) -> str:
        path = tmp_path / "trials.jsonl"
        path.write_bytes(b"".join(map(_line, lines)))
        before = client.ledger.head().size
        report = import_path(client, "jsonl", path, Options(**options))
        assert report.jobs == []
        assert client.ledger.head().size == before
        return report.refused[0].why

    return run


def _line(line: Any) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)).encode() + b"\n"


def trials(client: Client, job: Imported) -> dict[tuple[str, int], TrialRow]:
    return {(row.task, row.attempt): row for row in client.trials(job.id, limit=1_000)}


def one(client: Client, job: Imported) -> TrialRow:
    (row,) = trials(client, job).values()
    return row


def raw_of(client: Client, row: TrialRow) -> bytes:
    assert row.raw_reward is not None
    return client.artifacts.read_bytes(row.raw_reward, max_bytes=1_000)


@pytest.mark.parametrize(
    ("written", "why", "raw"),
    [
        ("null", "null", None),
        ("true", "not-a-number", b"true"),
        ('"0.5"', "not-a-number", b'"0.5"'),
        ("[1]", "not-a-number", b"[1]"),
        ('{"a": [NaN]}', "not-a-number", b'{"a": ["NaN"]}'),
        ("NaN", "not-finite", b"NaN"),
        ("-Infinity", "not-finite", b"-Infinity"),
        ("1e309", "not-finite", b"1e309"),
        ("1" + "0" * 320, "not-finite", b"1" + b"0" * 320),
        ("9" * 500, "not-finite", b"9" * 500),
    ],
)
def test_what_is_no_number_is_no_reward(
    client: Client, take: Import, written: str, why: str, raw: bytes | None
) -> None:
    """No reward is its own fact with its reason, and what stood there is kept as it was written."""
    job = take(f'{{"task": "a", "attempt": 1, "reward": {written}}}')
    row = one(client, job)
    assert (row.status, row.reward, why_no_reward(row)) == ("succeeded", None, why)
    assert (raw_of(client, row) if raw else row.raw_reward) == raw
    assert ("reward-rejected" in job.flags) == (raw is not None)


@pytest.mark.parametrize("written", ["-0.0", "5e-324", "0", "1", "-3", "1.7976931348623157e308", "0.9999999999"])
def test_every_finite_number_is_a_reward(client: Client, take: Import, written: str) -> None:
    """Rewards are recorded to the last bit, the sign of zero too; nearly 1 is not a pass."""
    job = take(f'{{"task": "a", "attempt": 1, "reward": {written}}}')
    facts = [recorded.entry.fact for recorded in client.ledger.stream(trial_stream(job.id, "a", 1))]
    (reward,) = (fact.reward for fact in facts if isinstance(fact, RewardRecorded))
    assert reward == float(written) == one(client, job).reward
    assert math.copysign(1, reward) == math.copysign(1, float(written))
    assert (client.result(job.id).pass_ is None) == (reward not in (0, 1))


@pytest.mark.parametrize(
    ("row", "status", "reward", "why"),
    [
        ({"reward": 1}, "succeeded", 1, None),
        ({}, "succeeded", None, "not-reported"),
        ({"error": {"type": "Lost"}}, "failed", None, "trial-error"),
        ({"error": {"type": "Lost"}, "reward": 1}, "failed", 1, None),
        ({"status": "failed"}, "failed", None, "trial-error"),
        ({"status": "canceled"}, "canceled", None, "not-reported"),
        ({"status": "canceled", "reward": 0.5}, "canceled", 0.5, None),
        ({"status": "running", "reward": 1}, "running", 1, None),
        ({"status": "running"}, "running", None, None),
        ({"status": "queued"}, "dispatched", None, None),
    ],
)
def test_status_and_reward_stay_apart(
    client: Client, take: Import, row: dict[str, Any], status: str, reward: float | None, why: str | None
) -> None:
    """A reward counts whatever the exit was, and no exit makes one up; what has not ended is flagged."""
    job = take({"task": "a", "attempt": 1} | row)
    found = one(client, job)
    assert (found.status, found.reward, why_no_reward(found)) == (status, reward, why)
    assert ("run-unfinished" in job.flags) == (status in ("running", "dispatched"))
    assert client.job(job.id).status == ("failed" if status == "failed" else "completed")


def test_an_error_is_told_in_its_parts(client: Client, take: Import) -> None:
    """Type, phase and exit code are facts; the message, which is free text, is an artifact."""
    error = {"type": "AgentTimeout", "exit_code": 124, "phase": "agent", "message": "took\ntoo long 太久"}
    row = one(client, take({"task": "a", "attempt": 1, "error": error}))
    assert (row.error_type, row.exit_code, row.phase) == ("AgentTimeout", 124, "agent")
    assert row.message is not None
    assert client.artifacts.read_bytes(row.message, max_bytes=100).decode() == error["message"]
    bodies = client.ledger.recorder.bodies(after=0, limit=100)
    assert not any("太久".encode() in body for _, body in bodies)


def test_dimensions_artifacts_and_times_are_kept(client: Client, take: Import) -> None:
    """The structured result, the files by their digests, and the tool's own times in UTC."""
    times = {"started_at": "2026-01-02T03:04:05+08:00", "ended_at": "2026-01-01T19:04:35.5Z"}
    files = [{"name": "out.txt", "sha256": SHA, "size": 3}]
    row = one(
        client, take({"task": "a", "attempt": 1, "dimensions": {"style": 0.5, "pace": 3}, "artifacts": files, **times})
    )
    assert structured_result(row).dimensions == {"style": 0.5, "pace": 3.0}
    assert (row.artifacts_kept, row.duration_s) == (1, 30.5)
    assert row.started_us == 1_767_294_245_000_000


@pytest.mark.parametrize("written", ["[1]", '{"style": "good"}', '{"style": NaN}', '{"style": true}'])
def test_dimensions_that_are_no_numbers_are_rejected_as_a_fact(client: Client, take: Import, written: str) -> None:
    """The trial and its reward stand; its structured result is rejected, and what stood there is kept."""
    row = one(client, take(f'{{"task": "a", "attempt": 1, "reward": 1, "dimensions": {written}}}'))
    assert row.reward == 1
    assert structured_result(row).why == "wrong-shape"
    assert client.artifacts.has(structured_result(row).raw)


def test_names_come_back_as_they_were(client: Client, take: Import) -> None:
    """Any name survives: slashes, spaces, quotes, direction marks, what a spreadsheet would run, 512 characters."""
    names = [*NASTY_NAMES, "=1+1", "任务/三 号"]
    job = take(*({"task": name, "attempt": 1, "reward": 1} for name in names))
    assert [result.task for result in client.result(job.id, tasks_limit=100).tasks] == names
    assert {task for task, _ in trials(client, job)} == set(names)


@pytest.mark.parametrize(
    ("attempts", "k", "extra", "complete"),
    [(None, 2, 0, 1), (3, 3, 0, 0), (1, 1, 1, 1)],
)
def test_k_is_the_largest_attempt_unless_said(
    client: Client, take: Import, attempts: int | None, k: int, extra: int, complete: int
) -> None:
    """Fewer than there are makes the higher ones extra, and their member is not complete."""
    rows = [{"task": "a", "attempt": 1, "reward": 1}, {"task": "a", "attempt": 2, "reward": 1}]
    job = take(*rows, {"task": "b", "attempt": 1, "reward": 0}, attempts=attempts)
    counts = client.result(job.id).score_counts
    assert (job.attempts, counts.extra, counts.complete_members) == (k, extra, complete)
    assert ("extra-trials" in job.flags) == bool(extra)


def test_a_line_with_only_a_task_is_a_member(client: Client, take: Import) -> None:
    """A task that was never tried is in the denominator, with no trial."""
    job = take({"task": "a", "attempt": 1, "reward": 1}, {"task": "b"}, {"task": "a"})
    assert job.members == 2
    assert client.result(job.id).score_counts.missing == 1
    assert set(trials(client, job)) == {("a", 1)}


def test_the_same_row_twice_counts_once(client: Client, take: Import) -> None:
    """Copies of a row, in any spelling, are dropped and flagged."""
    job = take(
        {"task": "a", "attempt": 1, "reward": 1},
        {"task": "b", "attempt": 1, "reward": 0},
        '{"reward": 1.0, "attempt": 1, "status": "succeeded", "task": "a"}',
    )
    assert job.flags == ("duplicate-rows-dropped",)
    assert client.result(job.id).score_counts.scored == 2


@pytest.mark.parametrize("second", ["0", "null", "NaN", "true"])
def test_two_stories_of_one_slot_are_refused(refuse: Refuse, second: str) -> None:
    """Nobody but the person who has the file can say which holds; both lines are named."""
    why = refuse({"task": "a", "attempt": 1, "reward": 1}, "", f'{{"task": "a", "attempt": 1, "reward": {second}}}')
    assert "Line 3" in why
    assert "line 1" in why


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"task": 1, "attempt": 1}', "`str`, got `int`"),
        ('{"task": NaN, "attempt": 1}', "`str`"),
        ('{"task": "", "attempt": 1}', "length >= 1"),
        ('{"task": "a\\nb", "attempt": 1}', "control character"),
        ('{"task": "\\ud800", "attempt": 1}', "surrogate"),
        ('{"task": "a", "attempt": 0}', ">= 1"),
        ('{"task": "a", "attempt": "1"}', "`int"),
        ('{"task": "a", "attempt": true}', "`int"),
        ('{"task": "a", "attempt": 99999999999999999999}', "attempt"),
        ('{"task": "a", "reward": 1}', "`attempt`"),
        ('{"attempt": 1}', "`task`"),
        ('{"task": "a", "attempt": 1, "rewrad": 1}', "rewrad"),
        ('{"task": "a", "attempt": 1, "reward": 1, "reward": 0}', "'reward' twice"),
        ('{"task": "a", "attempt": 1, "dimensions": {"x": 1, "x": 1}}', "'x' twice"),
        ('{"task": "a", "attempt": 1, "status": "won"}', "won"),
        ('{"task": "a", "attempt": 1, "status": "succeeded", "error": {"type": "X"}}', "`error`"),
        ('{"task": "a", "attempt": 1, "status": "running", "ended_at": "2026-01-01T00:00:00Z"}', "running"),
        ('{"task": "a", "attempt": 1, "started_at": "2026-01-01T00:00:00"}', "timezone"),
        ('{"task": "a", "attempt": 1, "started_at": "0001-01-01T00:00:00+10:00"}', "UTC"),
        ('{"task": "a", "attempt": 1, "artifacts": [{"name": "x", "sha256": "zz", "size": 1}]}', "sha256"),
        ("[1, 2]", "got `array`"),
        ("nonsense", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"task": "a", "attempt": 1, "reward": ' + "[" * 990 + "]" * 990 + "}", "nested"),
        ('{"task": "\\', "no JSON"),
    ],
)
def test_a_bad_line_refuses_the_file(refuse: Refuse, line: str, says: str) -> None:
    """The reason names the line and what is wrong with it; nothing of the file is imported."""
    why = refuse({"task": "z", "attempt": 1, "reward": 1}, line, {"task": "y", "attempt": 1})
    assert "Line 2" in why
    assert says in why


@pytest.mark.parametrize("content", [b"", b"\n \n", b'{"task": "a"', b"\xef\xbb\xbf"])
def test_a_file_without_a_task_is_refused(refuse: Refuse, content: bytes) -> None:
    """An empty file is a mistake, not an empty job."""
    assert "no task" in refuse(content)


@pytest.mark.parametrize("tail", [b'{"task": "a", "attempt": 2, "rew', b'{"task": "\xe4\xbb'])
def test_a_cut_file_gives_what_is_whole(client: Client, take: Import, refuse: Refuse, tail: bytes) -> None:
    """The half line at the end is left out and flagged; with --strict nothing is imported."""
    whole = {"task": "a", "attempt": 1, "reward": 1}
    assert "Line 2" in refuse(whole, tail, strict=True)
    job = take(whole, tail)
    assert job.flags == ("source-incomplete",)
    assert client.result(job.id).score == 1


def test_a_last_line_without_its_end_is_whole(client: Client, take: Import) -> None:
    """No line end, a byte order mark, carriage returns and empty lines are no damage."""
    job = take(b'\xef\xbb\xbf{"task": "a", "attempt": 1, "reward": 1}\r\n\r\n{"task": "b", "attempt": 1, "reward": 0}')
    assert job.flags == ()
    assert client.result(job.id).score == 0.5


def test_a_file_beyond_the_cap_is_refused(refuse: Refuse) -> None:
    """No file is read without a limit; the limit is an option."""
    assert "larger than 10 bytes" in refuse({"task": "a", "attempt": 1, "reward": 1}, file_bytes_max=10)


def test_more_attempts_than_a_job_takes_are_refused(refuse: Refuse) -> None:
    """A typing error in an attempt number does not become a job of a million slots."""
    assert "1 to 1,000 attempts" in refuse({"task": "a", "attempt": 1_001, "reward": 1})


def test_two_artifacts_of_one_name_are_refused(refuse: Refuse) -> None:
    """What only the rules know is refused as well, with nothing written: neither dataset nor runner nor job."""
    files = [{"name": "x", "sha256": SHA, "size": size} for size in (1, 2)]
    assert "another artifact named 'x'" in refuse({"task": "a", "attempt": 1, "artifacts": files})


def test_the_schema_is_that_of_a_line() -> None:
    """What `el schema import-jsonl` prints names every key that is read, and allows no other."""
    row = jsonl.schema()["$defs"]["Row"]
    assert set(row["properties"]) == set(jsonl.Row.__struct_fields__)
    assert (row["required"], row["additionalProperties"]) == (["task"], False)


def test_an_unknown_tool_or_policy_is_refused(client: Client, tmp_path: Path) -> None:
    """The refusal names the tools there are, and the policies the tool knows."""
    with pytest.raises(BadInput, match=r"jsonl, .*tau-bench.*, or auto"):
        import_path(client, "harbour", tmp_path)
    with pytest.raises(BadInput, match="it has none"):
        import_path(client, "jsonl", tmp_path, Options(policy="tau-1"))
    with pytest.raises(BadInput, match="it knows tau-1"):
        import_path(client, "tau-bench", tmp_path, Options(policy="tau-2"))
