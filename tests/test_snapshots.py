"""The numbers of a snapshot: the same from the read models and from the entries, exact, and not too large to keep."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from ledger import codec
from ledger.database import reading
from ledger.facts.job import JobSubmitted
from ledger.facts.leaderboard import SnapshotAdded, leaderboard_stream
from ledger.facts.trial import RewardRevised
from projections import snapshots
from projections.following import catch_up
from projections.metrics import measure_trials
from projections.models import READ_MODELS
from projections.snapshots import fold_numbers, mean_composite, snapshot_numbers
from projections.tally import Trial
from tests.given import entry, histories, history
from tests.given_boards import SEED, Bench, client_of
from tests.test_following import record
from tests.test_rules_leaderboard import snapshot


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A dataset of three tasks."""
    return Bench(client_of(tmp_path / "home"))


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


def test_a_mean_composite_does_not_depend_on_the_order() -> None:
    """Also where a sum would be too large on the way in one order, and in another not."""
    small, large = [0.7, 0.8, 0.1], 1e308
    one, other = [large, large, -large, -large, *small], [large, -large, large, -large, *small]
    assert mean_composite(one) == mean_composite(other) == math.fsum(other) / 7


def test_a_job_of_a_thousand_attempts_fits_an_entry() -> None:
    """The whole curve of the largest k there is, of 7 members that pass now and then, and the longest model name."""
    passed = {str(number): [Trial(float(at % 7 < number), True) for at in range(1_000)] for number in range(7)}
    numbers = snapshot_numbers(measure_trials(1_000, 7, passed), [1 / 3])
    fact = msgspec.structs.replace(snapshot(1.0), numbers=numbers, model="\U0001f642" * 200, profile="x" * 200)
    (row,) = codec.encode([entry(fact, leaderboard_stream(fact.cohort))])
    assert len(codec.decode(1, row.body).entry.fact.numbers.curve) == 1_000
    assert len(row.body) < 0.9 * codec.ENTRY_BYTES_MAX


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
