"""Leaderboards: what is frozen, what may not stand, and that a job is there once."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest

from api import leaderboards
from api.client import Client
from ledger import codec
from ledger.digests import cohort_digest
from ledger.errors import NotAllowed, NotFound
from ledger.facts.job import JobSubmitted, job_stream
from ledger.facts.leaderboard import SnapshotAdded
from ledger.rules import job as job_rules
from ledger.rules import leaderboard as rules
from projections import snapshots
from tests.given import JOB, digest_of
from tests.given_boards import SEED, Bench, client_of


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A dataset of three tasks."""
    return Bench(client_of(tmp_path / "home"))


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


def test_a_text_too_long_for_a_name_is_no_model(bench: Bench) -> None:
    """The job's id stands in its place."""
    client = bench.client
    client.create_profile("long@1", {"MODEL_NAME": "x" * 201}, {})
    asked = client.submit_job("set@1", profile="long@1")
    bench.trial(asked.id, "a", 1, 1.0)
    bench.end(asked.id, job_rules.finish_job, failed_trials=0)
    assert client.add_snapshot(asked.id).snapshot.name == asked.id


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
