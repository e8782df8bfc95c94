"""Promises of read models: live equals rebuilt, whatever the batches, the followers and the moment of a crash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from threading import Barrier, local
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from sqlalchemy.engine import Connection, Engine

from ledger.database import insert_into, reading, writing
from ledger.errors import NotFound, OutdatedReadModel, UnknownFact
from ledger.facts.access import ProjectCreated
from ledger.facts.catalogue import DatasetMembersAdded, DatasetPublished, Task
from ledger.facts.entry import Entry, Recorded
from ledger.facts.job import (
    JobCanceled,
    JobMembersSelected,
    JobOriginSealed,
    JobRetryRequested,
    JobSubmitted,
    Origin,
    job_stream,
)
from ledger.facts.trial import (
    RewardRecorded,
    TrialDispatched,
    TrialFailed,
    TrialReleased,
    TrialStarted,
    trial_stream,
)
from ledger.recorder import ProjectRecorder
from projections import catalogue, following, job_metrics, jobs, trials, work_queue
from projections.following import Batch, ReadModel, catch_up, rebuild, standings
from projections.models import READ_MODELS
from projections.replay import recompute
from tests.given import (
    JOB,
    NASTY_NAMES,
    dispatched,
    dump,
    entry,
    fresh_project,
    histories,
    history,
    manifest,
    measured,
    rows_of,
)

pytestmark = pytest.mark.both_databases

OF_TRIALS = [trials.MODEL, job_metrics.MODEL]
LONG = history(20260701, 400)


def record(engine: Engine, entries: Sequence[Entry]) -> str:
    """A fresh project with this log."""
    project = fresh_project()
    ProjectRecorder(engine, project).append_new(rows_of(*entries))
    return project


def rebuilt(engine: Engine, entries: Sequence[Entry], **options: Any) -> dict[str, str]:
    """What the read models hold when a log is followed all at once."""
    project = record(engine, entries)
    catch_up(engine, project, READ_MODELS)
    return dump(engine, project, READ_MODELS, **options)


# --- live equals rebuilt ---------------------------------------------------------------------------------------------


@settings(max_examples=25)
@for_all(histories(), st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=12))
def test_live_equals_rebuilt(engine: Engine, entries: list[Entry], steps: list[tuple[int, int]]) -> None:
    """Caught up after every few entries in batches of any size, or built again at once: the same bytes in every row."""
    project = fresh_project()
    recorder = ProjectRecorder(engine, project)
    rows = rows_of(*entries)
    while rows:
        for count, batch_entries in steps:
            recorder.append_new(rows[:count])
            rows = rows[count:]
            reached = catch_up(engine, project, READ_MODELS, batch_entries=batch_entries)
            assert reached == recorder.head().size
    live = dump(engine, project, READ_MODELS)
    rebuild(engine, project, READ_MODELS)
    assert dump(engine, project, READ_MODELS) == live
    assert rebuilt(engine, entries) == live


@settings(max_examples=40)
@for_all(histories(), st.integers(0, 2**32))
def test_the_order_of_arrival_does_not_count(engine: Engine, entries: list[Entry], seed: int) -> None:
    """However the streams of trials interleave, each in its own order: the same trials, members and tallies."""
    streams: dict[str, list[Entry]] = {}
    for one in entries:
        streams.setdefault(one.stream, []).append(one)
    order = [one.stream for one in entries if one.stream.startswith("trial/")]
    Random(seed).shuffle(order)
    shuffled = [one for one in entries if not one.stream.startswith("trial/")]
    shuffled += [streams[stream].pop(0) for stream in order]
    one, two = (record(engine, log) for log in (entries, shuffled))
    catch_up(engine, one, READ_MODELS)
    catch_up(engine, two, READ_MODELS, batch_entries=7)
    assert dump(engine, one, OF_TRIALS, without=["position"]) == dump(engine, two, OF_TRIALS, without=["position"])


@settings(max_examples=40)
@for_all(histories(), st.integers(1, 50))
def test_numbers_come_out_as_from_the_history_itself(engine: Engine, entries: list[Entry], batch_entries: int) -> None:
    """A job's metrics in the read model, and those replayed from the log alone, are the pure formulas', to the bit."""
    project = record(engine, entries)
    catch_up(engine, project, READ_MODELS, batch_entries=batch_entries)
    replayed = recompute(Recorded(position, entry) for position, entry in enumerate(entries, 1))
    with reading(engine) as connection:
        for job_id, expected in measured(entries).items():
            assert msgspec.json.encode(replayed[job_id]) == msgspec.json.encode(expected)
            found = job_metrics.result_of(connection, project, job_id)
            assert msgspec.json.encode(found.metrics) == msgspec.json.encode(expected)
            rows = trials.list_trials(connection, project, job_id, limit=10_000)
            endings: dict[str, int] = {}
            for row in rows:
                endings[row.status] = endings.get(row.status, 0) + 1
            assert found.endings == endings
            assert sum(found.lost.values()) == sum(trials.why_no_reward(row) is not None for row in rows)


@settings(max_examples=30)
@for_all(histories(), st.data())
def test_a_model_stops_where_it_is_told_to(engine: Engine, entries: list[Entry], data: st.DataObject) -> None:
    """Up to a position: exactly the rows of the log that ends there, and going on from it gives the rest."""
    upto = data.draw(st.integers(0, len(entries)))
    project = record(engine, entries)
    assert catch_up(engine, project, READ_MODELS, upto=upto, batch_entries=5) == upto
    assert dump(engine, project, READ_MODELS) == (
        rebuilt(engine, entries[:upto]) if upto else dump(engine, "", READ_MODELS)
    )
    assert catch_up(engine, project, READ_MODELS) == len(entries)
    assert catch_up(engine, project, READ_MODELS, upto=upto) == len(entries)
    assert dump(engine, project, READ_MODELS) == rebuilt(engine, entries)


def test_models_behind_catch_up_with_the_others(engine: Engine) -> None:
    """Models at any positions meet at the end; each has seen every entry once, in order."""
    project = record(engine, LONG)
    random = Random(5)
    for model in READ_MODELS:
        if model is not work_queue.MODEL:  # it looks into those before it
            catch_up(engine, project, [model], upto=random.randint(0, len(LONG)), batch_entries=17)
    assert catch_up(engine, project, READ_MODELS, batch_entries=23) == len(LONG)
    assert dump(engine, project, READ_MODELS) == rebuilt(engine, LONG)
    assert {s.position for s in standings(engine, project, READ_MODELS)} == {len(LONG)}


def test_one_model_is_rebuilt_alone(engine: Engine) -> None:
    """The rows of the others are not touched, nor are they applied again."""
    project = record(engine, LONG)
    seen: list[str] = []

    def spied(model: ReadModel) -> ReadModel:
        def apply(connection: Connection, project_id: str, batch: Batch) -> None:
            seen.append(model.name)
            model.apply(connection, project_id, batch)

        return model._replace(apply=apply)

    models = [spied(model) for model in READ_MODELS]
    catch_up(engine, project, models)
    before = dump(engine, project, models)
    for model in models:
        seen.clear()
        assert rebuild(engine, project, models, [model.name]) == len(LONG)
        assert set(seen) == {model.name}
        assert dump(engine, project, models) == before
    with pytest.raises(NotFound, match="no read model 'scores'"):
        rebuild(engine, project, models, ["scores"])


def test_projects_are_followed_apart(engine: Engine) -> None:
    """Rebuilding or following one project changes no row of another."""
    one, two = record(engine, LONG), record(engine, LONG[:50])
    catch_up(engine, two, READ_MODELS)
    before = dump(engine, two, READ_MODELS)
    catch_up(engine, one, READ_MODELS)
    rebuild(engine, one, READ_MODELS)
    assert dump(engine, two, READ_MODELS) == before
    assert [s.position for s in standings(engine, two, READ_MODELS)] == [50] * len(READ_MODELS)


# --- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_entries", [1, 13, 200])
def test_a_crash_between_batches_costs_nothing(engine: Engine, batch_entries: int) -> None:
    """A follower that dies after any batch goes on from there: nothing twice, nothing left out."""
    log = LONG[:60] if batch_entries == 1 else LONG
    project = record(engine, log)

    def dies(_position: int) -> None:
        raise KeyboardInterrupt

    crashes = 0
    while standings(engine, project, READ_MODELS)[0].position < len(log):
        with pytest.raises(KeyboardInterrupt):
            catch_up(engine, project, READ_MODELS, batch_entries=batch_entries, progress=dies)
        crashes += 1
    assert crashes == -(-len(log) // batch_entries)
    assert dump(engine, project, READ_MODELS) == rebuilt(engine, log)


@pytest.mark.parametrize("dying", range(len(READ_MODELS)))
def test_a_crash_within_a_batch_undoes_the_batch(engine: Engine, dying: int) -> None:
    """Rows and positions of all models of a batch commit together or not at all."""
    project = record(engine, LONG)
    catch_up(engine, project, READ_MODELS, upto=100)
    before = dump(engine, project, READ_MODELS)

    def dies(connection: Connection, project_id: str, batch: Batch) -> None:
        READ_MODELS[dying].apply(connection, project_id, batch)
        raise RuntimeError("the process dies here")

    models = list(READ_MODELS)
    models[dying] = models[dying]._replace(apply=dies)
    with pytest.raises(RuntimeError):
        catch_up(engine, project, models)
    assert dump(engine, project, READ_MODELS) == before
    assert {s.position for s in standings(engine, project, READ_MODELS)} == {100}
    catch_up(engine, project, READ_MODELS)
    assert dump(engine, project, READ_MODELS) == rebuilt(engine, LONG)


def test_a_model_of_another_definition_is_not_gone_on_with(engine: Engine) -> None:
    """Its rows would be of two kinds: it has to be rebuilt, and then it goes on."""
    project = record(engine, LONG)
    catch_up(engine, project, READ_MODELS, upto=50)
    newer = [m._replace(definition=2) if m is trials.MODEL else m for m in READ_MODELS]
    with pytest.raises(OutdatedReadModel, match="el projection rebuild trials"):
        catch_up(engine, project, newer)
    assert [s.name for s in standings(engine, project, newer) if s.outdated] == ["trials"]
    assert rebuild(engine, project, newer, ["trials"]) == len(LONG)
    assert not any(s.outdated for s in standings(engine, project, newer))
    assert dump(engine, project, READ_MODELS) == rebuilt(engine, LONG)


def test_a_rebuild_drops_nothing_that_it_cannot_build_again(engine: Engine) -> None:
    """While another read model is outdated, the rebuild of one is refused before its rows are gone."""
    project = record(engine, LONG)
    catch_up(engine, project, READ_MODELS)
    newer = [m._replace(definition=2) if m is trials.MODEL else m for m in READ_MODELS]
    with pytest.raises(OutdatedReadModel, match="el projection rebuild trials"):
        rebuild(engine, project, newer, ["job_metrics"])
    assert dump(engine, project, READ_MODELS) == rebuilt(engine, LONG)


def test_an_unknown_fact_stops_every_model_before_it(engine: Engine) -> None:
    """It is never skipped: what came before it is followed, and the position says where it stands."""
    project = record(engine, LONG[:30])
    (strange,) = rows_of(entry(ProjectCreated("x"), "dataset/x@1"))
    strange = strange._replace(tag="later", body=strange.body.replace(b"project-created", b"project-renamed"))
    recorder = ProjectRecorder(engine, project)
    recorder.append_new([strange, *rows_of(*LONG[30:40])])
    catch_up(engine, project, READ_MODELS, upto=30)
    with pytest.raises(UnknownFact, match=r"Entry 31 .*project-renamed"):
        catch_up(engine, project, READ_MODELS)
    assert {s.position for s in standings(engine, project, READ_MODELS)} == {30}


# --- several followers -----------------------------------------------------------------------------------------------

_counts = sa.Table(
    "test_counts",
    sa.MetaData(),
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("entries", sa.BigInteger),
)


def count(connection: Connection, project_id: str, batch: Batch) -> None:
    """A read model that only adds up, so that anything applied twice shows."""
    insert = insert_into(connection, _counts)
    more = {"entries": _counts.c.entries + insert.excluded.entries}
    connection.execute(
        insert.on_conflict_do_update(index_elements=["project_id"], set_=more),
        {"project_id": project_id, "entries": len(batch.entries)},
    )


COUNTER = ReadModel("counter", 1, (_counts,), count)


def counted_by_two(engine: Engine, project: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Two followers that both have read their first batch before either writes it."""
    _counts.create(engine, checkfirst=True)
    both_have_read, first = Barrier(2), local()
    batch_of = following.batch_of

    def read_together(entries: Any) -> Batch:
        if not getattr(first, "done", False):
            first.done = True
            both_have_read.wait(10)
        return batch_of(entries)

    monkeypatch.setattr(following, "batch_of", read_together)
    with ThreadPoolExecutor(2) as pool:
        follow = [pool.submit(catch_up, engine, project, [COUNTER], batch_entries=10) for _ in range(2)]
        for one in follow:
            one.result(30)
    with reading(engine) as connection:
        return connection.execute(sa.select(_counts.c.entries).where(_counts.c.project_id == project)).scalar_one()


def test_two_followers_at_once_count_everything_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position moves only from where the batch began: the second follower gives its batch up."""
    assert counted_by_two(engine, record(engine, LONG), monkeypatch) == len(LONG)


def test_sabotage_moving_the_position_anyhow_counts_twice(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that only writes the new position takes the first batch a second time."""

    def anyhow(connection: Connection, project_id: str, models: Sequence[ReadModel], _start: int, end: int) -> None:
        for model in models:
            insert = insert_into(connection, following.positions)
            connection.execute(
                insert.on_conflict_do_update(
                    index_elements=["project_id", "follower"], set_={"position": insert.excluded.position}
                ),
                {"project_id": project_id, "follower": model.name, "position": end, "definition": model.definition},
            )

    monkeypatch.setattr(following, "_move", anyhow)
    assert counted_by_two(engine, record(engine, LONG), monkeypatch) > len(LONG)


def test_many_followers_and_a_writer_at_once(engine: Engine) -> None:
    """Four followers with batches of their own while the log grows: as if one had followed it."""
    project = fresh_project()
    recorder = ProjectRecorder(engine, project)
    rows = rows_of(*LONG)

    def follow(batch_entries: int) -> None:
        while catch_up(engine, project, READ_MODELS, batch_entries=batch_entries) < len(LONG):
            pass

    with ThreadPoolExecutor(4) as pool:
        following_ = [pool.submit(follow, batch_entries) for batch_entries in (7, 20, 33, 1_000)]
        for start in range(0, len(rows), 40):
            recorder.append_new(rows[start : start + 40])
        for one in following_:
            one.result(60)
    assert dump(engine, project, READ_MODELS) == rebuilt(engine, LONG)


def test_a_model_is_not_built_from_one_that_is_being_rebuilt(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work queue looks into the catalogue: while somebody drops that, the queue waits instead of staying empty."""
    log = Log(engine, 1_000)
    tasks = (Task("add-1", "a" * 64), Task("add-2", "b" * 64))
    log.on("dataset/arith@1", DatasetMembersAdded(tasks), DatasetPublished("arith@1", "shell@1", 2, "c" * 64))
    log.on(job_stream(JOB), manifest(tasks, attempts=2))
    catch_up(engine, log.project, [model for model in READ_MODELS if model is not work_queue.MODEL])
    batch_of, dropped = following.batch_of, False

    def drops_the_catalogue_meanwhile(entries: Any) -> Batch:
        nonlocal dropped
        if not dropped:
            dropped = True
            rebuild_without_following(engine, log.project, catalogue.MODEL)
        return batch_of(entries)

    monkeypatch.setattr(following, "batch_of", drops_the_catalogue_meanwhile)
    with log.followed() as connection:
        assert dropped
        assert work_queue.count_open(connection, log.project, JOB) == 4


def rebuild_without_following(engine: Engine, project: str, model: ReadModel) -> None:
    """The first half of a rebuild, as another process would see it."""
    with writing(engine) as connection:
        where = (following.positions.c.project_id == project, following.positions.c.follower == model.name)
        connection.execute(following.positions.delete().where(*where))
        for table in model.tables:
            connection.execute(table.delete().where(table.c.project_id == project))


# --- what the models make of single cases ----------------------------------------------------------------------------


class Log:
    """A log that is written fact by fact and followed with any batch size."""

    def __init__(self, engine: Engine, batch_entries: int) -> None:
        self.engine, self.project, self.batch_entries = engine, fresh_project(), batch_entries
        self.versions: dict[str, int] = {}
        self.recorder = ProjectRecorder(engine, self.project)

    def on(self, stream: str, *facts: Any) -> None:
        rows = []
        for fact in facts:
            self.versions[stream] = self.versions.get(stream, 0) + 1
            rows += rows_of(entry(fact, stream, self.versions[stream]))
        self.recorder.append_new(rows)

    @contextmanager
    def followed(self) -> Iterator[Connection]:
        catch_up(self.engine, self.project, READ_MODELS, batch_entries=self.batch_entries)
        with reading(self.engine) as connection:
            yield connection


TASKS = tuple(Task(name, "a" * 64) for name in NASTY_NAMES[:4])
PART = manifest(TASKS, subset=True, attempts=2)
SLOT = trial_stream(JOB, TASKS[0].name, 1)
any_batches = pytest.mark.parametrize("batch_entries", [1, 2, 3, 1_000])


@any_batches
def test_a_job_whose_members_came_in_an_earlier_batch(engine: Engine, batch_entries: int) -> None:
    """Members selected in one batch, the seal in the next: the queue holds every slot all the same."""
    log = Log(engine, batch_entries)
    log.on(job_stream(JOB), JobMembersSelected(TASKS[:3]), JobMembersSelected(TASKS[3:]), PART)
    with log.followed() as connection:
        assert work_queue.count_open(connection, log.project, JOB) == 8
        assert jobs.list_members(connection, log.project, PART) == [task.name for task in TASKS]
        assert work_queue.open_slots(connection, log.project, limit=1)[0].attempt == 1


@any_batches
def test_a_released_slot_begins_anew_in_every_model(engine: Engine, batch_entries: int) -> None:
    """Nothing of the first dispatch is left: one trial, one attempt, out of the queue once."""
    log = Log(engine, batch_entries)
    log.on(job_stream(JOB), JobMembersSelected(TASKS), PART)
    first, second = dispatched(TASKS[0].name, worker="w1"), dispatched(TASKS[0].name, worker="w2")
    log.on(SLOT, first, TrialReleased("lost"))
    with log.followed() as connection:
        assert trials.list_trials(connection, log.project, JOB) == []
        assert work_queue.count_open(connection, log.project, JOB) == 8
        assert job_metrics.result_of(connection, log.project, JOB).endings == {}
    log.on(SLOT, second, TrialReleased("lost"), first, TrialStarted(), RewardRecorded(1.0), TrialFailed("E", "agent"))
    with log.followed() as connection:
        (row,) = trials.list_trials(connection, log.project, JOB)
        assert (row.status, row.worker, row.reward, row.error_type) == ("failed", "w1", 1.0, "E")
        assert work_queue.count_open(connection, log.project, JOB) == 7
        found = job_metrics.result_of(connection, log.project, JOB)
        assert (found.endings, found.lost, found.metrics.score_counts.scored) == ({"failed": 1}, {}, 1)
        assert jobs.get_job(connection, log.project, JOB).status == "running"


@any_batches
def test_a_canceled_job_has_no_open_slots(engine: Engine, batch_entries: int) -> None:
    """Also not by a release that comes after it, whatever stands in one batch with what."""
    log = Log(engine, batch_entries)
    log.on(job_stream(JOB), JobMembersSelected(TASKS), PART)
    log.on(SLOT, dispatched(TASKS[0].name))
    log.on(job_stream(JOB), JobCanceled("too dear"))
    log.on(SLOT, TrialReleased("called off"))
    with log.followed() as connection:
        assert work_queue.count_open(connection, log.project, JOB) == 0
        job = jobs.get_job(connection, log.project, JOB)
        assert (job.status, job.reason) == ("canceled", "too dear")


@any_batches
def test_a_retry_waits_in_the_queue_until_it_is_dispatched(engine: Engine, batch_entries: int) -> None:
    """One slot beyond k, counted as extra; of an imported job, whose slots nobody runs, none."""
    log = Log(engine, batch_entries)
    log.on(job_stream(JOB), JobMembersSelected(TASKS), PART, JobRetryRequested(TASKS[0], 3, "lost"))
    with log.followed() as connection:
        assert work_queue.count_open(connection, log.project, JOB) == 9
    log.on(trial_stream(JOB, TASKS[0].name, 3), dispatched(TASKS[0].name, 3), RewardRecorded(1.0))
    with log.followed() as connection:
        assert work_queue.count_open(connection, log.project, JOB) == 8
        assert job_metrics.result_of(connection, log.project, JOB).metrics.score_counts.extra == 1
    imported = Log(engine, batch_entries)
    seal = manifest(TASKS, subset=True, origin=Origin("import"))
    imported.on(job_stream(JOB), JobMembersSelected(TASKS), seal, JobRetryRequested(TASKS[0], 3, "lost"))
    with imported.followed() as connection:
        assert work_queue.count_open(connection, imported.project, JOB) == 0


@any_batches
def test_a_sealed_origin_stands_in_the_place_of_the_first(engine: Engine, batch_entries: int) -> None:
    """Of a job that was recorded while its tool still ran, the end tells where it came from; all else stays."""
    log = Log(engine, batch_entries)
    first = manifest(TASKS, subset=True, origin=Origin("import", "harbor", flags=("run-unfinished",)))
    whole = Origin("import", "harbor", as_reported={"mean": 0.5})
    log.on(job_stream(JOB), JobMembersSelected(TASKS), first, JobOriginSealed("r2", whole))
    with log.followed() as connection:
        assert jobs.get_job(connection, log.project, JOB).manifest == msgspec.structs.replace(first, origin=whole)


def test_every_kind_of_history_was_tried() -> None:
    """The long history holds what the cases above rest on: releases, retries, imports, parts, extra attempts."""
    kinds = {type(one.fact) for one in LONG}
    assert {TrialReleased, JobRetryRequested, JobMembersSelected, TrialDispatched} <= kinds
    asked = [one.fact for one in LONG if isinstance(one.fact, JobSubmitted)]
    assert len(asked) >= 2
