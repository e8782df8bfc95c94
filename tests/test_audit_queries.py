"""The audit trail answers by job, trial, task, actor, tag, time and position: what a look at every entry would say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from random import Random

import pytest
import sqlalchemy as sa
from hypothesis import given as given_that
from hypothesis import settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from ledger.application import ACTOR_CHARS_MAX, Ledger
from ledger.codec import TAGS, encode
from ledger.database import reading
from ledger.errors import BadInput
from ledger.facts.access import STREAM
from ledger.facts.entry import Entry
from ledger.facts.trial import slot_of
from ledger.recorder import ProjectRecorder
from ledger.rules.access import create_project
from projections import audit_trail
from projections.following import catch_up, microseconds
from projections.models import READ_MODELS
from tests.given import fresh_project, history


@pytest.mark.both_databases
@settings(max_examples=10)
@given_that(st.integers(0, 2**32), st.booleans())
def test_every_filter_finds_what_a_look_at_all_entries_finds(engine: Engine, seed: int, skewed: bool) -> None:
    """Any conditions together, also when clocks went backwards; pages put together are the whole."""
    random = Random(seed)
    log = history(seed, 120)
    if skewed:
        log = [_at(entry, random.randint(-5_000, 5_000)) for entry in log]
    recorder = ProjectRecorder(engine, fresh_project())
    recorder.append_new(encode(log))
    catch_up(engine, recorder.project_id, READ_MODELS, batch_entries=random.choice([7, 1_000]))
    latest, times = -(2**63), []
    for entry in log:
        latest = max(latest, microseconds(entry.at))
        times.append(latest)
    for _ in range(12):
        sample = random.choice(log)
        bounds = sorted(random.choices(times, k=2))
        asked, fits = _conditions(random, sample, bounds)
        expected = [n for n, entry in enumerate(log, 1) if all(fit(entry, n, times[n - 1]) for fit in fits)]
        found: list[int] = []
        with reading(engine) as connection:
            while page := audit_trail.events(
                connection, recorder.project_id, after=found[-1] if found else 0, limit=5, **asked
            ):
                found += [row.position for row in page]
        assert found == expected


def _conditions(
    random: Random, sample: Entry, bounds: list[int]
) -> tuple[dict[str, object], list[Callable[..., bool]]]:
    """Some conditions that the sample meets, and the same as plain questions to (entry, position, time of the log)."""
    slot = slot_of(sample.stream) if sample.stream.startswith("trial/") else None
    tags = [TAGS[type(sample.fact)], "trial-started"]
    every: list[tuple[dict[str, object], Callable[..., bool]]] = [
        ({"actor": sample.actor}, lambda e, n, t: e.actor == sample.actor),
        ({"tags": tags}, lambda e, n, t: TAGS[type(e.fact)] in tags),
        ({"tags": tags[:1]}, lambda e, n, t: TAGS[type(e.fact)] == tags[0]),
        ({"stream": sample.stream}, lambda e, n, t: e.stream == sample.stream),
        ({"since_us": bounds[0], "until_us": bounds[1]}, lambda e, n, t: bounds[0] <= t < bounds[1]),
        ({"since_us": bounds[1]}, lambda e, n, t: t >= bounds[1]),
        ({"before": 40}, lambda e, n, t: n < 40),
    ]
    if slot:
        every += [
            ({"job_id": slot.job_id}, lambda e, n, t: slot.job_id in e.stream),
            (
                {"task": slot.task},
                lambda e, n, t: e.stream.startswith("trial/") and slot_of(e.stream).task == slot.task,
            ),
        ]
    chosen = random.sample(every, random.randint(1, 2))
    asked: dict[str, object] = {}
    fits = []
    for words, fit in chosen:
        if not set(words) & set(asked):
            asked |= words
            fits.append(fit)
    return asked, fits


def _at(entry: Entry, seconds: int) -> Entry:
    return Entry(
        entry.stream, entry.version, entry.at + timedelta(seconds=seconds), entry.actor, entry.fact, entry.schema
    )


def test_a_page_of_several_kinds_may_be_long(engine: Engine, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several kinds at once, more entries than one statement may name: all of them, in order, each once."""
    recorder = ProjectRecorder(engine, project)
    log = history(11, 300)
    monkeypatch.setattr(audit_trail, "POSITIONS_MAX", 7)
    recorder.append_new(encode(log))
    catch_up(engine, project, READ_MODELS)
    kinds = sorted({TAGS[type(entry.fact)] for entry in log})
    with reading(engine) as connection:
        rows = audit_trail.events(connection, project, limit=100_000, tags=[*kinds, kinds[0]])
    assert len(log) > 7 * 3
    assert [row.position for row in rows] == list(range(1, len(log) + 1))


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({"actor": "a"}, "audit_trail_actor"),
        ({"tags": ["reward-revised"]}, "audit_trail_tag"),
        ({"task": "a"}, "audit_trail_task"),
        ({"job_id": "a"}, "audit_trail_job"),
    ],
)
def test_every_filter_has_its_index(engine: Engine, project: str, asked: dict[str, object], index: str) -> None:
    """No page is found by walking through the whole trail (the plan of SQLite, as it says it)."""
    plans: list[str] = []

    def explain(connection: sa.Connection, _c: object, statement: str, parameters: object, *_: object) -> None:
        if statement.startswith("SELECT") and "audit_trail" in statement:
            raw = connection.connection.cursor()
            raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)  # type: ignore[arg-type]
            plans.append(str(raw.fetchall()))

    with reading(engine) as connection:
        sa.event.listen(connection, "before_cursor_execute", explain)
        audit_trail.events(connection, project, **asked)  # type: ignore[arg-type]
    assert plans
    assert all(index in plan and "SCAN" not in plan and "TEMP B-TREE" not in plan for plan in plans), plans


@pytest.mark.both_databases
def test_the_longest_actor_can_be_followed(engine: Engine, project: str) -> None:
    """An index holds the actor: what it has no room for is refused before it is recorded, and stops no follower."""
    random = Random(1)  # so that the index cannot pack it
    actor = "".join(chr(random.randrange(0x10000, 0x1FFFF)) for _ in range(ACTOR_CHARS_MAX))
    ledger = Ledger(engine, project, actor=actor)
    ledger.record(STREAM, partial(create_project, name=project))
    assert catch_up(engine, project, READ_MODELS) == 1
    with pytest.raises(BadInput, match="actor has 501 characters"):
        Ledger(engine, project, actor=f"{actor}x")
