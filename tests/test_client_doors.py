"""One suite for every door: whatever a client does on the store itself, it does over HTTP, on either database.

The methods, their answers, and what they refuse in which words are the same.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.client import Client
from api.el import El
from api.exporters.exporting import export_job
from api.http_client import HttpClient
from api.importers.importing import import_path
from api.importers.run import Options
from api.revising import NewReward
from ledger.application import ask
from ledger.errors import BadInput, ConcurrentWrite, Conflict, NotAllowed, NotFound, Refused
from ledger.facts.catalogue import Parameter, RunnerPublished, Task, dataset_stream, runner_stream
from ledger.facts.job import job_stream
from ledger.facts.trial import Slot, trial_stream
from ledger.rules import catalogue as catalogue_rules
from tests import import_runs, postgres
from tests.given import digest_of, faults_of_log
from tests.given_doors import Served, serving

DOORS = ("store-sqlite", "http-sqlite", "store-postgresql", "http-postgresql")
RUNNER = RunnerPublished("harness@1", "external", (Parameter("model", False, "none"), Parameter("token", False, "")))
TASKS = [Task(name, digest_of(name)) for name in ("add-1", "名字 与 空格", "a/b")]

Stores = Callable[[str], Served]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """One served store of each database, made when it is first asked for."""
    made: dict[str, Served] = {}
    with ExitStack() as stack:

        def store_of(database: str) -> Served:
            if database not in made:
                home = tmp_path_factory.mktemp(database)
                url = postgres.fresh_url() if database == "postgresql" else None
                made[database] = stack.enter_context(serving(home, url))
            return made[database]

        yield store_of


@pytest.fixture(params=DOORS)
def el(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[El]:
    """A fresh project behind each door."""
    door, _, database = request.param.partition("-")
    store = stores(database)
    fresh = store.project()
    if door == "store":
        yield fresh.client
    else:
        with fresh.el(home=tmp_path / "client") as client:
            yield client
    assert faults_of_log(store.workspace.engine, fresh.project) == []


def published(el: El) -> None:
    """The runner and the dataset in the catalogue."""
    el.publish_runner(RUNNER)
    el.publish_dataset("arith@1", TASKS, runner=RUNNER.ref)


def one_job(el: El, *, attempts: int = 2, **more: Any) -> str:
    """A job over three tasks."""
    published(el)
    return el.submit_job("arith@1", attempts=attempts, **more).id


def refusal(call: Callable[[], object]) -> tuple[type[Refused], str, tuple[str, ...]]:
    """What a call is refused with."""
    with pytest.raises(Refused) as refused:
        call()
    return type(refused.value), str(refused.value), tuple(getattr(refused.value, "differs", ()))


# --- the same methods ------------------------------------------------------------------------------------------------


def test_both_doors_have_the_same_methods_with_the_same_arguments() -> None:
    """Nothing that `El` promises is missing on a door, and nobody has to know which one it is.

    A method of one door alone is one that needs the store, or the connection.
    """
    for name, method in inspect.getmembers(El, inspect.isfunction):
        if name.startswith("_"):
            continue
        promised = inspect.signature(method).parameters
        for door in (Client, HttpClient):
            has = inspect.signature(getattr(door, name)).parameters
            for argument, parameter in promised.items():
                assert (has[argument].kind, has[argument].default) == (parameter.kind, parameter.default), (door, name)
            more = [has[argument].default for argument in has if argument not in promised]
            assert inspect.Parameter.empty not in more, (door, name)


# --- catalogue -------------------------------------------------------------------------------------------------------


def test_what_is_published_is_read_as_it_was_published(el: El) -> None:
    """Datasets, runners and profiles come back whole; the same again writes nothing; secrets never come back."""
    assert el.publish_runner(RUNNER).outcome == "written"
    assert el.publish_runner(RUNNER).outcome == "unchanged"
    first = el.publish_dataset("team/arith@1", TASKS, runner=RUNNER.ref)
    again = el.publish_dataset("team/arith@1", TASKS, runner=RUNNER.ref)
    assert (first.outcome, again.outcome, again.position) == ("written", "unchanged", first.position)
    assert el.create_profile("team/eval@1", {"model": "m", "n": 3, "t": 0.5, "on": True}, {"token": "s3cret-value"})
    assert [row.ref for row in el.datasets()] == ["team/arith@1"]
    assert el.dataset("team/arith@1").member_count == 3
    assert el.dataset_tasks("team/arith@1") == list(enumerate(TASKS))
    assert el.dataset_tasks("team/arith@1", after=0, limit=1) == [(1, TASKS[1])]
    assert (el.runners(), el.runner(RUNNER.ref)) == ([RUNNER], RUNNER)
    profile = el.profile("team/eval@1")
    assert el.profiles() == [profile]
    assert profile.params == {"model": "m", "n": 3, "t": 0.5, "on": True}
    assert type(profile.params["t"]) is float
    assert list(profile.secrets) == ["token"]
    assert "s3cret-value" not in repr(profile)


def test_refusals_are_the_same_sentences(el: El) -> None:
    """A refusal has its class, its sentence and what differs, whichever door it came through."""
    published(el)
    kind, sentence, _ = refusal(lambda: el.dataset("none@1"))
    assert kind is NotFound
    assert sentence == "There is no dataset none@1; `el dataset list` shows those there are."
    kind, sentence, _ = refusal(lambda: el.submit_job("none@1"))
    assert (kind, sentence) == (NotFound, "There is no dataset none@1; `el dataset list` shows those there are.")
    kind, sentence, differs = refusal(lambda: el.publish_dataset("arith@1", TASKS[:1], runner=RUNNER.ref))
    assert kind is Conflict
    assert "arith@1" in sentence
    assert differs
    assert refusal(lambda: el.publish_dataset("a@1", TASKS, runner="no@1"))[0] is NotFound
    assert refusal(lambda: el.dataset("no reference"))[0] is BadInput
    assert refusal(lambda: el.job("0000"))[:2] == (
        NotFound,
        "There is no job 0000; `el job list` shows those there are.",
    )
    assert refusal(lambda: el.get_trial("nothing"))[0] is NotFound
    job = one_job(el)
    kind, sentence, _ = refusal(lambda: el.result(job, policy="nobody's"))
    assert kind is BadInput
    assert "nobody's" in sentence
    assert refusal(lambda: el.retry(job, "no such task", reason="x"))[0] is NotFound
    with pytest.raises(NotFound):
        el.artifacts.read_bytes("0" * 64, max_bytes=10)


# --- a job's life ----------------------------------------------------------------------------------------------------


def test_a_job_from_its_submission_to_its_result(el: El) -> None:
    """Submitted, run in three attempts of which one dies, canceled for the rest: each number is as it should be."""
    job = one_job(el, profile=None, request_id="r/1", tags={"标签": "é"}, agent_run="run", agent_round=2)
    again = el.submit_job("arith@1", attempts=2, request_id="r/1", tags={"标签": "é"}, agent_run="run", agent_round=2)
    assert (again.id, again.outcome) == (job, "unchanged")
    assert refusal(lambda: el.submit_job("arith@1", attempts=3, request_id="r/1"))[0] is Conflict
    with el.trial(job, "add-1", 1) as trial:
        trial.artifact("out/答.txt", b"4")
        trial.structured_result(composite=0.5, dimensions={"style": -0.0})
        trial.reward(1.0)
    with pytest.raises(RuntimeError, match="lost"), el.trial(job, "名字 与 空格", 1) as trial:
        raise RuntimeError("lost")
    with el.trial(job, "a/b", 2) as trial:
        assert refusal(lambda: trial.no_reward("no such reason"))[0] is BadInput  # type: ignore[arg-type]
        trial.no_reward("not-a-number", b"{")
    assert refusal(lambda: el.trial(job, "add-1", 1).__enter__())[0] is NotAllowed
    answer = el.job(job[:8])
    assert (answer.id, answer.status, answer.tags) == (job, "running", {"标签": "é"})
    assert answer.endings == {"succeeded": 2, "failed": 1}
    result = el.result(job, tasks_limit=2)
    assert (result.score, result.score_counts.scored, result.score_counts.invalid) == (1.0, 1, 2)
    assert [task.task for task in result.tasks] == ["add-1", "名字 与 空格"]
    assert result.tasks_more
    assert [task.task for task in el.job_tasks(job, after=2).tasks] == ["a/b"]
    rows = el.trials(job)
    assert [(row.task, row.attempt) for row in rows] == [("add-1", 1), ("名字 与 空格", 1), ("a/b", 2)]
    assert el.trials(job, after=Slot(job, 1, "名字 与 空格")) == rows[2:]
    assert el.trials(job, limit=1) == rows[:1]
    assert [el.get_trial(row.trial_id) for row in rows] == rows
    assert [el.get_trial(row.trial_id[:8]) for row in rows] == rows
    assert refusal(lambda: el.get_trial(rows[0].trial_id[:3]))[0] is NotFound
    assert msgspec.json.decode(rows[0].structured or b"{}")["composite"] == 0.5
    kept = el.trial_contents(rows[0].trial_id)
    assert [(one.name, one.size) for one in kept] == [("out/答.txt", 1)]
    assert el.artifacts.read_bytes(kept[0].sha256 or "", max_bytes=10) == b"4"
    slot = el.retry(job, "add-1", reason="again")
    assert slot == Slot(job, 3, "add-1")
    assert el.cancel_job(job, reason="enough").outcome == "written"
    assert el.cancel_job(job, reason="enough").outcome == "unchanged"
    assert el.job(job).status == "canceled"
    assert [listed.id for listed in el.jobs(status="canceled").jobs] == [job]
    assert el.jobs(dataset="none@1").jobs == []


def test_what_takes_many_requests_is_one_answer(el: El, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is longer than a page has all that it has in one piece, corrected rewards too."""
    job = one_job(el)
    for task in TASKS:
        with el.trial(job, task.name, 1) as trial:
            trial.reward(0.0)
    rewards = [NewReward(task.name, 1, 1.0) for task in TASKS]
    el.regrade(job, rewards, verifier="judge@2", reason="the rubric was wrong")
    whole, tasks, trials, events = el.result(job), el.job_tasks(job), el.trials(job), el.events()
    monkeypatch.setattr("api.http_client.PAGE_ROWS_MAX", 1)
    monkeypatch.setattr("api.remote.transport.PAGE_ROWS_MAX", 1)
    paged = el.result(job)
    assert len(paged.revised) == paged.revised_total == 3
    assert sorted(paged.revised, key=lambda row: row.task) == sorted(whole.revised, key=lambda row: row.task)
    assert msgspec.structs.replace(paged, revised=whole.revised) == whole
    assert (el.job_tasks(job), el.trials(job), el.events()) == (tasks, trials, events)


def test_a_dry_run_writes_nothing(el: El) -> None:
    """What would be submitted is said, and the log does not grow."""
    published(el)
    before = el.head()
    planned = el.submit_job("arith@1", attempts=3, tasks=["add-1"], dry_run=True)
    assert (planned.outcome, planned.manifest.member_count, planned.manifest.subset) == ("planned", 1, True)
    assert el.head() == before


def test_a_retry_with_a_request_id_is_asked_once(el: El) -> None:
    """The same request again gives the same slot; without an id each call asks for one more."""
    job = one_job(el, attempts=1)
    first = el.retry(job, "add-1", reason="lost", request_id="q")
    assert el.retry(job, "add-1", reason="lost", request_id="q") == first
    assert el.retry(job, "add-1", reason="lost").attempt == first.attempt + 1


def test_the_trail_is_read_in_pages_and_by_condition(el: El) -> None:
    """Every entry once, in order, with its stored bytes; conditions leave out what they should."""
    job = one_job(el)
    with el.trial(job, "add-1", 1) as trial:
        trial.reward(0.25)
    rows = el.events()
    assert [row.position for row in rows] == list(range(1, el.head().entries + 1))
    assert [row for start in range(0, len(rows), 2) for row in el.events(after=start, limit=2)] == rows
    assert {row.actor for row in rows[2:]} == {"key:tests"}
    (rewarded,) = el.events(job_id=job[:8], tags=["reward-recorded"])
    assert json.loads(rewarded.body)["fact"]["reward"] == 0.25
    assert el.events(slot=Slot(job, 1, "add-1")) == [row for row in rows if row.task == "add-1"]
    assert el.events(task="add-1", actor="nobody") == []
    stream = trial_stream(job, "add-1", 1)
    assert [one.position for one in el.stream(stream)] == [row.position for row in rows if row.task == "add-1"]
    assert el.state(stream).reward == 0.25
    assert el.streams([stream, "trial/none"]) == {stream: el.stream(stream), "trial/none": []}
    assert {standing.position for standing in el.standings()} == {el.head().entries}


# --- artifacts -------------------------------------------------------------------------------------------------------


def test_artifacts_are_put_and_read_by_their_digest(el: El, tmp_path: Path) -> None:
    """Bytes and files, small and of megabytes, alone and many, come back as they were; a repeat is harmless."""
    big = bytes(range(256)) * 12_000
    path = tmp_path / "big"
    path.write_bytes(big)
    stored = el.artifacts.put_many([b"", b"one", path], max_bytes=len(big))
    assert [one.size for one in stored] == [0, 3, len(big)]
    assert stored[2].sha256 == hashlib.sha256(big).hexdigest()
    assert el.artifacts.put_bytes(b"one") == stored[1]
    with el.artifacts.batch() as batch:
        assert batch.add_file(path, max_bytes=len(big)) == stored[2]
        other = batch.add_bytes(b"other")
    assert el.artifacts.read_bytes(other.sha256, max_bytes=5) == b"other"
    with el.artifacts.open(stored[2].sha256) as file:
        assert file.read() == big
    with pytest.raises(BadInput):
        el.artifacts.read_bytes(stored[2].sha256, max_bytes=100)
    with pytest.raises(BadInput):
        el.artifacts.put_many([path], max_bytes=100)
    with pytest.raises(NotFound):
        el.artifacts.put_many([tmp_path / "none"], max_bytes=100)
    with pytest.raises(BadInput):
        el.artifacts.read_bytes("../../etc/passwd", max_bytes=10)


# --- imports and exports ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["jsonl", "swe-bench", "harbor"])
def test_a_run_of_a_tool_is_imported_once(el: El, tmp_path: Path, tool: str) -> None:
    """The first import writes every fact, the same again none; its numbers and artifacts can be read."""
    place = tmp_path / "run"
    for name, content in getattr(import_runs, tool.replace("-", "_"))().items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    planned = import_path(el, "auto", place, Options(dry_run=True))
    before = el.head()
    report = import_path(el, "auto", place)
    assert report.refused == planned.refused == []
    assert [job.outcome for job in report.jobs] == ["imported"]
    assert report.jobs[0].entries_written == planned.jobs[0].entries_written == el.head().entries - before.entries
    again = import_path(el, "auto", place)
    assert [(job.id, job.outcome, job.entries_written) for job in again.jobs] == [(report.jobs[0].id, "unchanged", 0)]
    assert el.result(report.jobs[0].id).score_counts.total >= 2
    job = el.job(report.jobs[0].id)
    assert job.origin["kind"] == "import"
    assert el.artifacts.read_bytes(str(job.origin["sources"]), max_bytes=10_000)


@pytest.mark.parametrize("form", ["jsonl", "csv", "eee"])
def test_a_job_is_exported(el: El, tmp_path: Path, form: str) -> None:
    """Each member in order, gaps as gaps; what was exported as jsonl is imported again with the same numbers."""
    job = one_job(el, attempts=1)
    with el.trial(job, "add-1", 1) as trial:
        trial.reward(0.5)
    with pytest.raises(ValueError, match="dead"), el.trial(job, "a/b", 1) as trial:
        raise ValueError("dead")
    out = tmp_path / "out"
    done = export_job(el, job, form, str(out))
    assert (done.members, done.attempts_seen) == (3, 1)
    if form == "jsonl":
        (again,) = import_path(el, "jsonl", out, Options(attempts=1, dataset="again@1")).jobs
        assert el.result(again.id).score_counts.scored == el.result(job).score_counts.scored == 1


# --- recording on streams, as importers do ---------------------------------------------------------------------------


def test_new_streams_are_recorded_all_or_none(el: El) -> None:
    """`record_new` refuses what is there already and writes nothing then; `record` adds only what is new."""
    runner = partial(catalogue_rules.publish_runner, runner=RUNNER)
    assert el.record_new([[(runner_stream(RUNNER.ref), [runner])]]) == 1
    size = el.head().entries
    other = RunnerPublished("other@1", "external")
    more = partial(catalogue_rules.publish_runner, runner=other)
    with pytest.raises(ConcurrentWrite):
        el.record_new([[(runner_stream("other@1"), [more])], [(runner_stream(RUNNER.ref), [runner])]])
    assert el.head().entries == size
    written = el.record(runner_stream("other@1"), more)
    assert written.facts == (other,)
    assert el.record(runner_stream("other@1"), more) == (written.position, ())
    changed = partial(catalogue_rules.publish_runner, runner=RunnerPublished("other@1", "external", outputs=("x",)))
    with pytest.raises(Conflict):
        el.record(runner_stream("other@1"), changed)
    assert ask(dataset_stream("none@1"), el.state(dataset_stream("none@1")), []) == []
    assert el.stream(job_stream("none")) == []
