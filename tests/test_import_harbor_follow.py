"""Following a run of Harbor: trials are recorded as they end, and what stands at the end is what an import gives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.importers.following import Follower, follow_path
from api.importers.importing import import_path
from api.importers.run import Options
from api.settings import Settings
from ledger.errors import BadInput, Conflict, NotAllowed, NotFound
from ledger.facts.job import job_stream
from projections.following import rebuild
from projections.models import READ_MODELS
from tests.given_harbor import JOB_ID, begin_trial, error, locked, write, write_job, write_result, write_trial
from tests.test_cli import El, el  # noqa: F401 - a fixture

LOCK = [locked("a"), locked("b"), locked("a"), locked("b")]
EVALS = {"demo__m-1__acme/mini": {"n_trials": 3, "metrics": [{"mean": 0.25}], "pass_at_k": {}}}
Step = Callable[[], Any]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def story(job: Path) -> list[Step]:
    """A run of two tasks, two attempts each, step by step: two at a time, the later one may end first."""
    trial = partial(write_trial, job)
    return [
        lambda: write_job(job, LOCK, k=2, ended=False),
        lambda: (begin_trial(job, "a__1", "a"), begin_trial(job, "b__1", "b")),
        lambda: trial("b__1", "b", {"reward": 1}, start=2, files={"verifier/test-stdout.txt": "out"}),
        lambda: begin_trial(job, "a__2", "a"),
        lambda: trial("a__2", "a", {"x": 1, "y": 0.5}, start=3),
        lambda: write(job / "a__1/result.json", '{"id": "id-of-a__1", "task_na'),
        lambda: trial("a__1", "a", {"reward": 0}, start=1, exception_info=error("AgentTimeoutError")),
        lambda: trial("b__2", "b", None, start=4, exception_info=error("CancelledError")),
        lambda: write_result(job, 4, evals=EVALS),
    ]


def state_of(client: Client) -> dict[str, Any]:
    """Everything that a person can see of the only job, but when it was recorded and under which request."""
    (found,) = client.jobs().jobs
    trials = client.trials(found.id)
    facts = [[had.entry.fact for had in client.ledger.stream(f"trial/{found.id}/{t.attempt}/{t.task}")] for t in trials]
    result = client.result(found.id)
    return {
        "job": (found.id, found.dataset, found.attempts, found.members, found.status, found.endings, found.origin),
        "result": [getattr(result, name) for name in result.__struct_fields__ if name != "as_of"],
        "facts": facts,
    }


def plain(job: Path, home: Path, **options: Any) -> dict[str, Any]:
    """The state that a plain import of the finished folder leaves in another store."""
    client = connect(settings=Settings(home=home))
    assert import_path(client, "harbor", job, Options(**options)).refused == []
    return state_of(client)


def play(steps: Iterator[Step]) -> Callable[[float], None]:
    """Harbor, in the follower's pauses: one step at every second of them."""
    pauses = iter(range(1_000))

    def wait(_pause_s: float) -> None:
        if next(pauses) % 2:
            next(steps)()

    return wait


def test_a_followed_run_is_what_an_import_of_it_is(client: Client, job: Path, tmp_path: Path) -> None:
    """Same job, same facts of every trial in the same attempt, same numbers, flags and reported numbers."""
    before = client.ledger.head().size
    report = follow_path(client, "harbor", job, wait=play(iter(story(job))))
    (done,) = report.jobs
    assert (done.outcome, report.refused) == ("imported", [])
    assert state_of(client) == plain(job, tmp_path / "other")
    assert done.entries_written == client.ledger.head().size - before
    assert {"time-zone-unknown", "no-reward-key", "as-reported-differs"} <= set(done.flags)
    again = import_path(client, "harbor", job, Options())
    assert [(same.id, same.outcome, same.entries_written) for same in again.jobs] == [(done.id, "unchanged", 0)]
    assert [same.outcome for same in follow_path(client, "harbor", job).jobs] == ["unchanged"]
    live = state_of(client)
    rebuild(client.workspace.engine, client.project, READ_MODELS)
    assert state_of(client) == live


def test_trials_are_recorded_as_they_end(client: Client, job: Path) -> None:
    """The job stands at once; each trial follows once nothing that it depends on can change."""
    follower = Follower(client, job, Options(), lambda line: None)
    seen = []
    for step in story(job):
        assert not follower.look()
        step()
        if (job / "config.json").exists() and not follower.look():
            follower.look()
            (found,) = client.jobs().jobs
            assert found.ended_at is None
            assert "run-unfinished" in found.origin["flags"]
            seen.append(sorted((trial.task, trial.attempt) for trial in client.trials(found.id)))
    b1, both = [("b", 1)], [("a", 1), ("a", 2), ("b", 1)]
    # a__2 ends first, but began after a__1; b__2 was canceled, and may be run again.
    assert seen == [[], [], b1, b1, b1, b1, both, both]


def test_a_run_is_followed_while_harbor_writes_it(client: Client, job: Path, tmp_path: Path) -> None:
    """In another thread, with nobody to say when; what was told is about jobs and trials."""
    told: list[str] = []
    steps = story(job)

    def harbor() -> None:
        for step in steps:
            step()
            time.sleep(0.05)

    writer = threading.Thread(target=harbor)
    writer.start()
    follow_path(client, "harbor", job, pause_s=0.01, tell=told.append)
    writer.join()
    assert state_of(client) == plain(job, tmp_path / "other")
    assert any("2 members x 2 attempts" in line for line in told)


def test_a_killed_follower_goes_on_where_it_was(job: Path, tmp_path: Path) -> None:
    """SIGKILL at any moment: the next one records what is missing, nothing twice."""
    home = tmp_path / ".el"
    command = [sys.executable, "-m", "tests.follow_harbor", str(home), str(job)]
    for number, step in enumerate(story(job)):
        if number % 2:
            step()
            continue
        follower = subprocess.Popen(command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True)
        step()
        assert follower.stdout is not None
        follower.stdout.readline()  # it has begun to look
        time.sleep(0.02 * number)
        os.kill(follower.pid, signal.SIGKILL)
        follower.wait()
    client = connect(settings=Settings(home=home))
    follow_path(client, "harbor", job)
    assert state_of(client) == plain(job, tmp_path / "other")


def test_an_import_ends_what_a_follower_left(client: Client, job: Path, tmp_path: Path) -> None:
    """Ctrl-C leaves the job as it is; a plain import of the finished folder records what is missing and seals it."""
    steps = iter(story(job))
    go_on = play(steps)
    pauses = iter(range(12))

    def stop(pause_s: float) -> None:
        if next(pauses, None) is None:
            raise KeyboardInterrupt
        go_on(pause_s)

    with pytest.raises(KeyboardInterrupt):
        follow_path(client, "harbor", job, wait=stop)
    assert client.jobs().jobs[0].status == "running"
    for step in steps:
        step()
    planned = import_path(client, "harbor", job, Options(dry_run=True)).jobs[0]
    before = client.ledger.head().size
    (done,) = import_path(client, "harbor", job, Options()).jobs
    assert (planned.outcome, planned.entries_written) == ("planned", done.entries_written)
    assert (done.outcome, done.entries_written) == ("imported", client.ledger.head().size - before)
    assert state_of(client) == plain(job, tmp_path / "other")


def test_two_followers_record_everything_once(client: Client, job: Path, tmp_path: Path) -> None:
    """Neither knows of the other."""
    first, second = (Follower(client, job, Options(), lambda line: None) for _ in range(2))
    for step in story(job):
        step()
        for follower in (first, second, second, first):
            follower.look()
    import_path(client, "harbor", job, Options())
    assert state_of(client) == plain(job, tmp_path / "other")


def test_a_failed_trial_that_harbor_tries_again_waits(client: Client, job: Path, tmp_path: Path) -> None:
    """Its folder is deleted and written anew: only what stands at the end is a trial."""
    steps: list[Step] = [
        lambda: write_job(job, [locked("a")], ended=False, retries=2),
        lambda: write_trial(job, "a__1", "a", None, exception_info=error("NetworkConnectionError")),
        lambda: None,
        lambda: [(job / "a__1" / name).unlink() for name in ("result.json", "config.json", "lock.json")],
        lambda: write_trial(job, "a__1", "a", {"reward": 1}, start=5),
        lambda: write_result(job, 1),
    ]
    follow_path(client, "harbor", job, wait=play(iter(steps)))
    assert state_of(client) == plain(job, tmp_path / "other")
    assert client.result(client.jobs().jobs[0].id).score == 1.0


def test_a_result_that_turns_up_late_takes_the_next_attempt(client: Client, job: Path) -> None:
    """A folder that nobody could know of, with an earlier start: the trials are the same, their numbers are not."""
    steps: list[Step] = [
        lambda: write_job(job, LOCK, k=2, ended=False),
        lambda: write_trial(job, "a__2", "a", {"reward": 1}, start=9),
        lambda: write_trial(job, "a__1", "a", {"reward": 0}, start=1),
        lambda: write_result(job, 4),
    ]
    (done,) = follow_path(client, "harbor", job, wait=play(iter(steps))).jobs
    assert [trial.reward for trial in client.trials(done.id)] == [1.0, 0.0]
    assert import_path(client, "harbor", job, Options()).jobs[0].outcome == "unchanged"


def test_a_local_task_keeps_the_name_it_was_followed_under(client: Client, job: Path) -> None:
    """What it calls itself is known at its end only; it is the task of the same content."""

    def ended() -> None:
        folder = write_trial(job, "hello__1", "hello", {"reward": 1}, task_name="acme/hello")
        write(folder / "lock.json", locked("hello"))

    steps: list[Step] = [
        lambda: write_job(job, [locked("hello"), locked("b")], ended=False),
        ended,
        lambda: None,
        lambda: write_trial(job, "b__1", "b", {"reward": 1}),
        lambda: write_result(job, 2),
    ]
    (done,) = follow_path(client, "harbor", job, wait=play(iter(steps))).jobs
    assert [trial.task for trial in client.trials(done.id)] == ["b", "hello"]
    assert import_path(client, "harbor", job, Options()).jobs[0].outcome == "unchanged"


def test_a_run_of_an_old_version_is_recorded_at_its_end(client: Client, job: Path, tmp_path: Path) -> None:
    """Without a lock nobody knows its tasks before."""
    told: list[str] = []
    steps: list[Step] = [
        lambda: write_job(job, None, total=1, ended=False),
        lambda: write_trial(job, "a__1", "a", {"reward": 1}),
        lambda: write_result(job, 1),
    ]
    follow_path(client, "harbor", job, wait=play(iter(steps)), tell=told.append)
    assert told[1:] == ["the run has no lock.json, so its tasks are known at its end only; it is recorded then"]
    assert state_of(client) == plain(job, tmp_path / "other")


def test_two_agents_are_two_jobs_from_the_start(client: Client, job: Path) -> None:
    """As in an import."""
    other = {"name": "other", "model_name": "lab/m-2"}
    steps: list[Step] = [
        lambda: write_job(job, [locked("a"), locked("a", other)], ended=False),
        lambda: write_trial(job, "a__1", "a", {"reward": 1}),
        lambda: write_trial(job, "a__2", "a", {"reward": 0}, agent=other),
        lambda: write_result(job, 2),
    ]
    report = follow_path(client, "harbor", job, wait=play(iter(steps)))
    assert [client.result(done.id).score for done in report.jobs] == [1.0, 0.0]
    assert {done.outcome for done in import_path(client, "harbor", job, Options()).jobs} == {"unchanged"}


def test_a_recorded_trial_that_changes_is_a_conflict(client: Client, job: Path) -> None:
    """What was recorded stays; the follower ends, saying so. Nor is the run imported over it."""
    follower = Follower(client, job, Options(), lambda line: None)
    write_job(job, [locked("a"), locked("b")], ended=False)
    write_trial(job, "a__1", "a", {"reward": 1})
    for _ in range(2):
        follower.look()
    write_trial(job, "a__1", "a", {"reward": 0})
    again = Follower(client, job, Options(), lambda line: None)
    again.look()
    with pytest.raises(Conflict, match="no longer what it was"):
        again.look()
    write_result(job, 2)
    (refused,) = import_path(client, "harbor", job, Options()).refused
    assert refused.outcome == "conflict"


def test_other_terms_are_a_conflict(client: Client, job: Path) -> None:
    """Another k, dataset or runner; a job that was ended here; a run that was imported while it went on."""
    write_job(job, [locked("a")], ended=False)
    assert not Follower(client, job, Options(), lambda line: None).look()
    for options in (Options(attempts=3), Options(dataset="x@1"), Options(runner="r@1")):
        with pytest.raises(Conflict, match="other terms"):
            Follower(client, job, options, lambda line: None).look()
    (found,) = client.jobs().jobs
    client.cancel_job(found.id)
    with pytest.raises(NotAllowed, match="canceled"):
        Follower(client, job, Options(), lambda line: None).look()
    other = write_job(job.parent / "other", [locked("a")], ended=False, job_id="another")
    assert import_path(client, "harbor", other, Options()).refused == []
    with pytest.raises(Conflict, match="cannot be followed"):
        Follower(client, other, Options(), lambda line: None).look()


def test_a_dataset_that_was_named_once_is_the_jobs(client: Client, job: Path) -> None:
    """With or without its name, the finished run is the same."""
    steps: list[Step] = [lambda: write_job(job, [locked("a")], ended=False), lambda: write_result(job, 1)]
    (done,) = follow_path(client, "harbor", job, Options(dataset="mini@1"), wait=play(iter(steps))).jobs
    for dataset in (None, "mini@1"):
        assert import_path(client, "harbor", job, Options(dataset=dataset)).jobs[0].outcome == "unchanged"
    assert import_path(client, "harbor", job, Options(dataset="mini@2")).refused[0].outcome == "conflict"
    sealed = client.ledger.stream(job_stream(done.id))
    assert len(sealed) == 3


def test_what_cannot_be_followed_is_told(client: Client, job: Path) -> None:
    """Another tool, a dry run, a folder of jobs, a trial, a file, nothing."""
    inner = write_job(job / "one", [locked("a")], job_id=JOB_ID)
    trial = write_trial(inner, "a__1", "a", {"reward": 1})
    for tool, path, options, says in (
        ("tau-bench", inner, Options(), "of harbor"),
        ("harbor", inner, Options(dry_run=True), "--dry-run"),
        ("harbor", job, Options(), "holds jobs"),
        ("harbor", trial, Options(), "no job"),
        ("harbor", inner / "config.json", Options(), "no job"),
    ):
        with pytest.raises(BadInput, match=says):
            follow_path(client, tool, path, options)
    with pytest.raises(NotFound):
        follow_path(client, "harbor", job / "nowhere")


def test_the_command_follows_and_can_be_stopped(
    el: El,  # noqa: F811
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What happens goes to standard error; Ctrl-C ends with 130 and leaves the job to be gone on with."""
    write_job(job, [locked("a")], ended=False)
    pauses = iter([write_trial, None])

    def wait(_pause_s: float) -> None:
        step = next(pauses)
        if step is None:
            raise KeyboardInterrupt
        step(job, "a__1", "a", {"reward": 1})

    monkeypatch.setattr(follow_path, "__kwdefaults__", {**(follow_path.__kwdefaults__ or {}), "wait": wait})
    ran = el("import", "harbor", str(job), "--follow", "--json")
    assert (ran.code, ran.out) == (130, "")
    assert "1 members x 1 attempts" in ran.err
    assert "goes on" in ran.err
    write_result(job, 1)
    (done,) = el("import", "harbor", str(job), "--follow", "--json").document["jobs"]
    assert (done["outcome"], done["as_reported"]["agent"]) == ("imported", "demo")
    ran = el("import", "jsonl", str(job), "--follow")
    assert (ran.code, "of harbor" in ran.err) == (1, True)
