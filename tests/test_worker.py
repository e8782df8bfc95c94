"""Promises of the worker: every slot runs once, whoever dies; what has ended stays; secrets stay out of the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.answers import Claim, Claimed, LeftBehind
from api.client import Client
from api.runners.claims import Claims
from api.runners.events import Away, Dispatched, Ended, Event, Reaped, Skipped, Waiting
from api.runners.patience import Patience
from api.runners.sources import Source
from api.runners.worker import Worker, slot_of_claim
from ledger import leases
from ledger.database import writing
from ledger.errors import NotAllowed, NotFound, ServerAway
from ledger.facts.catalogue import Parameter, RunnerPublished, Task
from ledger.facts.trial import (
    RewardRecorded,
    RewardRejected,
    Slot,
    TrialCanceled,
    TrialDispatched,
    TrialFailed,
    TrialReleased,
    TrialStarted,
    TrialSucceeded,
    trial_stream,
)
from tests.given_commands import client_at, is_alive, job_of, published, runner_of, task_folders, until
from tests.given_doors import Door, serving

ROOT = Path(__file__).parent.parent
SECRET = "sk-live-0123456789abcdef"

# A worker as a process of its own: home, job, slots, lease in seconds; says what happens, one line each.
WORKER = """
import os
import sys
from contextlib import nullcontext
from pathlib import Path
import api.runners.worker as worker_module
from api.client import Client
from api.runners.worker import Worker
from api.settings import Settings
from api.wiring import Workspace
home, job_id, slots, lease_s = sys.argv[1:]
client = Client(Workspace(Settings(home=Path(home))), "default")
if os.environ.get("EL_TEST_NO_GUARD"):
    worker_module.Guard = type("NoGuard", (), {"watching": lambda *_: nullcontext(), "close": lambda *_: None})
worker = Worker(client, name="w", slots=int(slots), lease_s=float(lease_s), on_event=lambda e: print(e, flush=True))
print(worker.run(job_id), flush=True)
"""


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return client_at(tmp_path / "el")


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Any]:
    """Starts worker processes; kills those that are left, and the processes of trials that noted themselves."""
    workers: list[subprocess.Popen[str]] = []

    def start(job_id: str, *, slots: int = 1, lease_s: float = 60.0) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", WORKER, str(tmp_path / "el"), job_id, str(slots), str(lease_s)]
        worker = subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.kill()
        worker.wait()
    for note in tmp_path.glob("pid.*"):
        if is_alive(int(note.read_text())):
            os.killpg(int(note.read_text()), signal.SIGKILL)


def facts_of(client: Client, job_id: str, task: str, attempt: int = 1) -> list[Any]:
    return [recorded.entry.fact for recorded in client.ledger.stream(trial_stream(job_id, task, attempt))]


def kinds_of(client: Client, job_id: str, task: str, attempt: int = 1) -> list[type]:
    return [type(fact) for fact in facts_of(client, job_id, task, attempt)]


def claims_of(client: Client, worker: str, lease_s: float = 60.0) -> Claims:
    return Claims(client, worker, lease_s, Patience(lease_s))


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def noting(tmp_path: Path, then: str = "true") -> str:
    """An agent that notes each execution of a trial as a line, and then does something."""
    return f"echo $EL_TASK/$EL_ATTEMPT >> {tmp_path}/ran; echo $$ > {tmp_path}/pid.$EL_TASK.$EL_ATTEMPT; {then}"


def require_each_once(ran: list[str], slots: set[str]) -> None:
    assert Counter(ran) == dict.fromkeys(slots, 1)


def until_said(worker: subprocess.Popen[str], what: str) -> None:
    assert worker.stdout
    assert any(what in line for line in iter(worker.stdout.readline, ""))


# --- running a job ------------------------------------------------------------------------------------------


def test_a_job_is_run_to_its_end(client: Client, tmp_path: Path) -> None:
    """Every slot is dispatched, started and ended under the worker's name, and the job ends by itself."""
    events: list[Event] = []
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path)), ["a", "b"], attempts=2)
    worker = Worker(client, name="w", slots=2, on_event=events.append)
    tally = worker.run(job_id)
    assert (tally.ended, tally.succeeded, tally.interrupted) == (4, 4, False)
    require_each_once(lines_of(tmp_path / "ran"), {"a/1", "a/2", "b/1", "b/2"})
    result = client.result(job_id)
    assert (result.status, result.score, result.pass_hat_k) == ("completed", 1.0, 1.0)
    dispatched = facts_of(client, job_id, "a")[0]
    assert dispatched.worker == worker.name
    assert worker.name.startswith("w-")
    assert Counter(type(event) for event in events) == {Dispatched: 4, Ended: 4}
    assert events.index(Dispatched(Slot(job_id, 1, "a"))) < events.index(Ended(Slot(job_id, 1, "a"), "succeeded", 1.0))
    again = Worker(client, slots=2).run(job_id)
    assert again.ended == 0
    assert len(lines_of(tmp_path / "ran")) == 4


def test_a_job_with_a_failed_trial_fails_and_keeps_its_score(client: Client, tmp_path: Path) -> None:
    """A failed trial's reward counts, changed content counts as failed, and neither stops the others."""
    agent = 'test "$EL_TASK" != a'
    published(client, tmp_path / "d", runner_of(agent), ["a", "b", "c"])
    (tmp_path / "d" / "c" / "question.txt").write_text("another question")
    job_id = client.submit_job("tasks@1").id
    tally = Worker(client, slots=3).run(job_id)
    assert (tally.succeeded, tally.failed) == (1, 2)
    result = client.result(job_id)
    assert (result.status, result.score, result.score_counts.scored) == ("failed", 1.0, 2)
    ended = facts_of(client, job_id, "c")[-1]
    assert (ended.error_type, ended.phase) == ("TaskContentChanged", "setup")


def test_trials_run_at_the_same_time(client: Client, tmp_path: Path) -> None:
    """With four slots four trials overlap: each waits for the other three and none waits in vain."""
    (tmp_path / "here").mkdir()
    met = f"test $(ls {tmp_path}/here | wc -l) = 4"
    meet = f"touch {tmp_path}/here/$EL_TASK; for i in $(seq 500); do {met} && exit 0; sleep 0.02; done; exit 1"
    job_id = job_of(client, tmp_path / "d", runner_of(meet), ["a", "b", "c", "d"])
    assert Worker(client, slots=4).run(job_id).succeeded == 4


def test_a_retry_of_an_ended_job_is_run(client: Client, tmp_path: Path) -> None:
    """An attempt beyond k is a slot like any other."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path)))
    Worker(client, slots=1).run(job_id)
    client.retry(job_id, "t1", reason="the network was down")
    assert Worker(client, slots=1).run(job_id).ended == 1
    require_each_once(lines_of(tmp_path / "ran"), {"t1/1", "t1/2"})


def test_one_trial_is_one_write_at_its_end(client: Client, tmp_path: Path) -> None:
    """Reward, artifacts and end are recorded together: nobody sees an ended trial without its reward."""
    job_id = job_of(client, tmp_path / "d", runner_of("echo hello"))
    Worker(client, slots=1).run(job_id)
    entries = [recorded.entry for recorded in client.ledger.stream(trial_stream(job_id, "t1", 1))]
    assert [type(entry.fact) for entry in entries[:2]] == [TrialDispatched, TrialStarted]
    assert len({entry.at for entry in entries[2:]}) == 1
    assert isinstance(entries[-1].fact, TrialSucceeded)


# --- what cannot be run here --------------------------------------------------------------------------------


def test_a_job_whose_files_are_not_here_uses_up_no_slot(client: Client, tmp_path: Path) -> None:
    """Asked for by name it is refused with what to do; among others it is skipped, once, with the same sentence."""
    job_id = job_of(client, tmp_path / "d", runner_of("true"))
    (tmp_path / "d").rename(tmp_path / "elsewhere")
    with pytest.raises(NotFound, match="and are gone; put them back, or publish it here again"):
        Worker(client, slots=1).run(job_id)
    events: list[Event] = []
    assert Worker(client, slots=1, on_event=events.append).run().ended == 0
    assert [event.job_id for event in events if isinstance(event, Skipped)] == [job_id]
    assert facts_of(client, job_id, "t1") == []


def test_a_job_whose_secret_is_not_here_uses_up_no_slot(client: Client, tmp_path: Path) -> None:
    """Without the key that sealed it a secret cannot be opened, and the refusal says so."""
    runner = runner_of("true", parameters=[Parameter("KEY", True)])
    job_id = job_of(client, tmp_path / "d", runner, secrets={"KEY": SECRET})
    (tmp_path / "el" / "secret.key").write_text("00" * 32)
    with pytest.raises(Exception, match="KEY of profile profile@1 cannot be opened"):
        Worker(client_at(tmp_path / "el"), slots=1).run(job_id)
    assert facts_of(client, job_id, "t1") == []


def test_external_jobs_are_left_alone_and_starve_nobody(client: Client, tmp_path: Path) -> None:
    """However many slots of theirs stand first in the queue, the others are run."""
    client.publish_runner(RunnerPublished("external@1", "external"))
    client.publish_dataset("outside@1", [Task(f"x{n}", "0" * 64) for n in range(300)], runner="external@1")
    outside = [client.submit_job("outside@1").id for _ in range(3)]
    job_id = job_of(client, tmp_path / "d", runner_of("true"))
    assert Worker(client, slots=1).run().succeeded == 1
    assert client.job(job_id).status == "completed"
    assert client.work().waiting == sorted(outside)
    with pytest.raises(NotAllowed, match=r"its runner external@1 is external; report its trials"):
        Worker(client, slots=1).run(outside[0])


def test_jobs_take_turns(client: Client, tmp_path: Path) -> None:
    """A long job does not hold up a short one: after a run of its slots comes the next job."""
    job_of(client, tmp_path / "d", runner_of("echo $EL_JOB_ID >> " + f"{tmp_path}/ran"), [f"t{n}" for n in range(10)])
    client.submit_job("tasks@1")
    assert Worker(client, slots=1).run().succeeded == 20
    ran = lines_of(tmp_path / "ran")
    assert len(set(ran[:8])) == 2


# --- several workers ----------------------------------------------------------------------------------------


def test_two_processes_run_every_slot_once(client: Client, tmp_path: Path, spawn: Any) -> None:
    """Two workers on one SQLite file share a job between them: no slot twice, none left, and the job ends."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, "sleep 0.1")), [f"t{n}" for n in range(10)])
    workers = [spawn(job_id, slots=2) for _ in range(2)]
    said = [worker.communicate(timeout=30)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said
    require_each_once(lines_of(tmp_path / "ran"), {f"t{n}/1" for n in range(10)})
    assert client.job(job_id).status == "completed"
    by = Counter(facts_of(client, job_id, f"t{n}")[0].worker for n in range(10))
    assert len(by) == 2, by


def test_the_stream_is_what_keeps_a_slot_to_one_worker(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: workers that believe the queue, instead of asking the trial's stream, run slots twice."""
    wait = f"until test -e {tmp_path}/go; do sleep 0.02; done"
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, wait)), ["a", "b"])
    tasks = dict(client.dataset_tasks("tasks@1")).values()
    queue = [Claim(t.name, job_id, t.name, t.digest, 1, 1, "tasks@1", "sh@1", None, {}, [], "w", None) for t in tasks]
    given: set[str] = set()

    def believe(claims: Claims, _job_id: str, _slots: int) -> Claimed:
        first = claims.worker not in given
        given.add(claims.worker)
        return Claimed(queue if first else [], [])

    monkeypatch.setattr(Claims, "take", believe)
    monkeypatch.setattr(Claims, "start", lambda *_: True)
    monkeypatch.setattr(Claims, "end", lambda *_: True)
    workers = [Worker(client, slots=2) for _ in range(2)]
    threads = [threading.Thread(target=worker.run, args=(job_id,)) for worker in workers]
    for thread in threads:
        thread.start()
    until(lambda: len(lines_of(tmp_path / "ran")) == 4)
    for worker in workers:
        worker.interrupt()
    (tmp_path / "go").touch()
    for thread in threads:
        thread.join()
    with pytest.raises(AssertionError):
        require_each_once(lines_of(tmp_path / "ran"), {"a/1", "b/1"})


def test_a_killed_worker_loses_only_what_it_was_at(client: Client, tmp_path: Path, spawn: Any) -> None:
    """After kill -9 the next worker waits for the lease, ends the started trial as LeaseLapsed, and runs the rest."""
    hang = f"test -e {tmp_path}/go || sleep 60"
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, hang)), ["a", "b"])
    dead = spawn(job_id, lease_s=4.0)  # outlasts the other trial, on a busy machine too
    until(lambda: lines_of(tmp_path / "ran") == ["a/1"])
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    (tmp_path / "go").touch()
    events: list[Event] = []
    tally = Worker(client, slots=1, lease_s=1.5, on_event=events.append).run(job_id)
    assert (tally.succeeded, tally.reaped_failed) == (1, 1)
    assert Waiting(1) in events
    assert facts_of(client, job_id, "a")[-1] == TrialFailed("LeaseLapsed", "agent")
    require_each_once(lines_of(tmp_path / "ran"), {"a/1", "b/1"})
    result = client.result(job_id)
    assert (result.status, result.score_counts.scored, result.lost) == ("failed", 1, {"agent": 1})


def test_a_slot_that_was_claimed_but_never_started_is_free_again(client: Client, tmp_path: Path) -> None:
    """Nothing was run for it, so nothing is lost: it is released and run by the next worker."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path)))
    (claim,) = claims_of(client, "dead", 0.3).take(job_id, 5).claims
    events: list[Event] = []
    tally = Worker(client, slots=1, lease_s=1.0, on_event=events.append).run(job_id)
    assert (tally.succeeded, tally.reaped_released) == (1, 1)
    assert Reaped(slot_of_claim(claim), "released") in events
    assert kinds_of(client, job_id, "t1")[:4] == [TrialDispatched, TrialReleased, TrialDispatched, TrialStarted]
    assert lines_of(tmp_path / "ran") == ["t1/1"]


def test_a_lease_that_is_held_is_left_alone(client: Client, tmp_path: Path) -> None:
    """A worker that is merely slow keeps its trial: nobody else claims or reaps it."""
    job_id = job_of(client, tmp_path / "d", runner_of("true"))
    slow, other = claims_of(client, "slow"), claims_of(client, "other")
    (claim,) = slow.take(job_id, 1).claims
    assert slow.take(job_id, 1) == Claimed([], [])
    assert other.take(job_id, 1) == Claimed([], [])
    assert other.look_about() == []
    assert slow.beat(claim).held
    assert slow.start(claim)


def test_of_a_worker_and_its_heir_one_is_recorded(client: Client, tmp_path: Path) -> None:
    """A worker that comes back too late can neither start nor end what was taken from it and given out again."""
    job_id = job_of(client, tmp_path / "d", runner_of("true"), ["a", "b"])
    late, heir = claims_of(client, "late", 0.05), claims_of(client, "heir")
    a, b = late.take(job_id, 2).claims
    assert late.start(a)
    time.sleep(0.06)
    left_behind = sorted(heir.look_about(), key=lambda one: one.task)
    assert left_behind == [LeftBehind(job_id, "a", 1, "failed"), LeftBehind(job_id, "b", 1, "released")]
    reward = [RewardRecorded(1.0)]
    assert not late.beat(a).held
    assert not late.end(a, reward)
    assert facts_of(client, job_id, "a")[2] == TrialFailed("LeaseLapsed", "agent")
    assert not late.start(b)
    (again,) = heir.take(job_id, 2).claims
    assert again.token > b.token
    assert heir.start(again)
    assert not late.start(b)
    assert not late.end(b, reward)
    evidence = RewardRejected("lapsed-claim", client.artifacts.put_bytes(b"1.0").sha256)
    assert facts_of(client, job_id, "a")[3:] == [evidence]
    assert kinds_of(client, job_id, "b")[:4] == [TrialDispatched, TrialReleased, TrialDispatched, TrialStarted]
    assert facts_of(client, job_id, "b")[4:] == [evidence]
    assert client.result(job_id).score is None


def test_a_living_worker_keeps_its_lease(client: Client, tmp_path: Path) -> None:
    """A trial may take much longer than a lease: the heartbeat renews it, so nobody gives the worker up for dead."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, "sleep 2")))
    worker = Worker(client, slots=1, lease_s=0.9)
    thread = threading.Thread(target=worker.run, args=(job_id,))
    thread.start()
    other = claims_of(client_at(tmp_path / "el"), "other")
    while thread.is_alive():
        assert other.look_about() == []
        thread.join(0.1)
    assert worker.tally.succeeded == 1


def test_who_was_given_up_for_dead_records_nothing_more(client: Client, tmp_path: Path) -> None:
    """When its lease was taken, a worker kills the trial's processes and leaves the trial as the other ended it."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, "sleep 60")))
    worker = Worker(client, slots=1, lease_s=1.0)
    thread = threading.Thread(target=worker.run, args=(job_id,))
    thread.start()
    until(lambda: lines_of(tmp_path / "ran"))
    other = client_at(tmp_path / "el")
    with writing(other.ledger.engine) as connection:
        leases.give_up(connection, "default", trial_stream(job_id, "t1", 1))
    assert claims_of(other, "other").look_about() == [LeftBehind(job_id, "t1", 1, "failed")]
    pid = int((tmp_path / "pid.t1.1").read_text())
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert not is_alive(pid)
    assert worker.tally.lost == 1
    assert kinds_of(client, job_id, "t1") == [TrialDispatched, TrialStarted, TrialFailed]
    assert client.job(job_id).status == "failed"


def test_a_job_whose_last_reporter_died_before_saying_so_is_ended(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trial had ended but the job had not been: the next worker that looks about ends it."""
    job_id = job_of(client, tmp_path / "d", runner_of("true"))
    dead = claims_of(client, "dead")
    (claim,) = dead.take(job_id, 1).claims
    assert dead.start(claim)
    with monkeypatch.context() as dying:
        dying.setattr(Client, "finish_job", lambda *_, **__: False)
        assert dead.end(claim, [TrialSucceeded(0)])
    assert client.job(job_id).status == "running"
    assert Worker(client, slots=1).run().ended == 0
    assert client.job(job_id).status == "completed"


# --- stopping -----------------------------------------------------------------------------------------------


def test_ctrl_c_lets_running_trials_finish_and_nothing_ended_is_run_again(
    client: Client, tmp_path: Path, spawn: Any
) -> None:
    """One Ctrl-C: what runs is finished and recorded, nothing new is claimed; the next start runs only the rest."""
    wait = f"until test -e {tmp_path}/go; do sleep 0.02; done"
    names = ["a", "b", "c", "d"]
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, wait)), names)
    worker = spawn(job_id, slots=2)
    until(lambda: len(lines_of(tmp_path / "ran")) == 2)
    worker.send_signal(signal.SIGINT)
    until_said(worker, "Interrupted(running=2)")
    (tmp_path / "go").touch()
    assert worker.wait(timeout=10) == 0
    assert kinds_of(client, job_id, "a")[-1] is TrialSucceeded
    assert kinds_of(client, job_id, "c") == []
    assert client.job(job_id).status == "running"
    assert Worker(client, slots=2).run(job_id).succeeded == 2
    require_each_once(lines_of(tmp_path / "ran"), {f"{name}/1" for name in names})
    assert client.job(job_id).status == "completed"


def test_a_second_ctrl_c_stops_running_trials(client: Client, tmp_path: Path, spawn: Any) -> None:
    """They are canceled, their processes are dead, and what had not started is still to be run."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, "sleep 60")), ["a", "b"])
    worker = spawn(job_id)
    until(lambda: lines_of(tmp_path / "ran"))
    worker.send_signal(signal.SIGINT)
    until_said(worker, "Interrupted(running=1)")
    worker.send_signal(signal.SIGINT)
    assert worker.wait(timeout=10) == 0
    assert facts_of(client, job_id, "a")[-1] == TrialCanceled("interrupted")
    assert not is_alive(int((tmp_path / "pid.a.1").read_text()))
    assert kinds_of(client, job_id, "b") == []


def test_canceling_a_job_stops_its_trials(client: Client, tmp_path: Path) -> None:
    """Within seconds the processes are dead and the trials canceled; slots that wait are never dispatched."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, "sleep 60")), ["a", "b"])
    worker = Worker(client, slots=1)
    thread = threading.Thread(target=worker.run, args=(job_id,))
    thread.start()
    until(lambda: lines_of(tmp_path / "ran"))
    client_at(tmp_path / "el").cancel_job(job_id, reason="wrong model")
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert worker.tally.canceled == 1
    assert facts_of(client, job_id, "a")[-1] == TrialCanceled("job canceled")
    assert not is_alive(int((tmp_path / "pid.a.1").read_text()))
    assert kinds_of(client, job_id, "b") == []
    assert client.job(job_id).status == "canceled"


def test_trouble_stops_the_worker_without_using_up_slots(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the artifacts cannot be kept, the trial that met it has failed, and no further slot is spent on it."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path)), ["a", "b", "c"])
    client.artifacts.root.parent.mkdir(parents=True, exist_ok=True)
    client.artifacts.root.write_text("a file where a folder should be")
    with pytest.raises(Exception, match="cannot be used"):
        Worker(client, slots=1).run(job_id)
    assert facts_of(client, job_id, "a")[-1] == TrialFailed("StoreUnreachable", "unknown")
    assert kinds_of(client, job_id, "b") == []


# --- secrets ------------------------------------------------------------------------------------------------


def test_no_byte_of_the_store_holds_a_secret(client: Client, tmp_path: Path) -> None:
    """A trial gets the value, and prints it everywhere; database, artifacts and notes hold it nowhere."""
    agent = 'test -n "$KEY" && echo $KEY && echo $KEY >&2 && echo $KEY > "$KEY.txt" && exit 1'
    verifier = 'echo "{\\"$KEY\\": 1, \\"reward\\": 1}" > {output}/reward.json'
    runner = runner_of(agent, verifier, outputs=["*.txt"], parameters=[Parameter("KEY", True), Parameter("MODEL")])
    job_id = job_of(client, tmp_path / "d", runner, secrets={"KEY": SECRET}, params={"MODEL": "m1"})
    assert Worker(client, slots=1).run(job_id).failed == 1
    assert facts_of(client, job_id, "t1")[-1].exit_code == 1
    files = [path for path in (tmp_path / "el").rglob("*") if path.is_file() and path.name != "secret.key"]
    contents = {path: path.read_bytes() for path in files}
    assert any(b"[secret]" in content for content in contents.values())
    assert any(b"m1" in content for content in contents.values())
    assert [path for path, content in contents.items() if SECRET.encode() in content] == []


def test_what_a_crash_left_half_written_is_swept(client: Client, tmp_path: Path) -> None:
    """A worker deletes temporary files of artifacts that nobody has written to for a day, and no younger ones."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path)), ["a"])
    temporaries = client.artifacts.root / "temp"
    temporaries.mkdir(parents=True)
    for name, age_s in (("old", 90_000), ("young", 10)):
        (temporaries / name).write_bytes(b"half")
        os.utime(temporaries / name, (time.time() - age_s,) * 2)
    Worker(client, slots=1).run(job_id)
    assert [path.name for path in temporaries.iterdir()] == ["young"]


# --- an unreachable server, a killed worker ------------------------------------------------------------


class Flaky:
    """A door that can be away: then every call on it fails as one on a server that does not answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.away = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)

        def call(*args: Any, **named: Any) -> Any:
            if self.away:
                raise ServerAway("The server does not answer.")
            return found(*args, **named)

        return call if callable(found) else found


def test_a_result_outlives_a_server_that_is_away_for_less_than_a_lease(client: Client, tmp_path: Path) -> None:
    """The trial ends while nobody answers; its result is reported when somebody does, and it was said once."""
    wait = f"until test -e {tmp_path}/go; do sleep 0.02; done"
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, wait)))
    el, events = Flaky(client), list[Event]()
    worker = Worker(el, slots=2, lease_s=20.0, on_event=events.append)  # type: ignore[arg-type]
    thread = threading.Thread(target=worker.run, args=(job_id,))
    thread.start()
    until(lambda: lines_of(tmp_path / "ran"))
    el.away = True
    (tmp_path / "go").touch()
    pid = int((tmp_path / "pid.t1.1").read_text())
    until(lambda: not is_alive(pid))
    until(lambda: [event for event in events if isinstance(event, Away)])
    time.sleep(0.5)
    el.away = False
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert [event for event in events if isinstance(event, Away)] == [Away("The server does not answer.", 20.0)]
    assert worker.tally.succeeded == 1
    assert client.result(job_id).score == 1.0


def test_patience_ends_with_the_lease(client: Client, tmp_path: Path) -> None:
    """Nobody waits for ever: after a lease without an answer the worker gives up, and says why."""
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path)))
    el = Flaky(client)
    el.away = True
    began = time.monotonic()
    with pytest.raises(ServerAway):
        Worker(el, slots=1, lease_s=1.0).run(job_id)  # type: ignore[arg-type]
    assert 1.0 <= time.monotonic() - began < 10
    assert facts_of(client, job_id, "t1") == []


def test_files_may_lie_elsewhere_on_this_machine(client: Client, tmp_path: Path) -> None:
    """A worker can be told where its copy of a dataset lies; what is in it is compared all the same."""
    job_id = job_of(client, tmp_path / "d", runner_of("true"), attempts=2)
    (tmp_path / "d").rename(tmp_path / "copy")
    files = {"tasks@1": Source("folder", tmp_path / "copy")}
    assert Worker(client, slots=2, files=files).run(job_id).succeeded == 2
    (tmp_path / "copy" / "t1" / "question.txt").write_text("another question")
    client.retry(job_id, "t1", reason="again")
    assert Worker(client, slots=2, files=files).run(job_id).failed == 1
    assert facts_of(client, job_id, "t1", 3)[-1].error_type == "TaskContentChanged"


def test_the_processes_of_a_killed_worker_die_with_it(client: Client, tmp_path: Path, spawn: Any) -> None:
    """After kill -9 nothing of its trial runs on, not what left the group or hides its environment; no folder stays."""
    far = f"(setsid sh -c 'echo $$ > {tmp_path}/pid.far; sleep 60' &)"
    bare = f"env -i sh -c 'echo $$ > {tmp_path}/pid.bare; exec sleep 60'"
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, f"{far}; {bare}")))
    worker = spawn(job_id)
    notes = [tmp_path / name for name in ("pid.t1.1", "pid.far", "pid.bare")]
    until(lambda: all(lines_of(note) for note in notes))
    pids = [int(note.read_text()) for note in notes]
    assert all(map(is_alive, pids))
    assert list(tmp_path.glob("el-trial-*"))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    until(lambda: not any(map(is_alive, pids)))
    until(lambda: not list(tmp_path.glob("el-trial-*")))


def test_without_a_guard_they_run_on(
    client: Client, tmp_path: Path, spawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: it is the guard that ends them."""
    monkeypatch.setenv("EL_TEST_NO_GUARD", "1")
    job_id = job_of(client, tmp_path / "d", runner_of(noting(tmp_path, "sleep 60")))
    worker = spawn(job_id)
    until(lambda: lines_of(tmp_path / "pid.t1.1"))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    time.sleep(1.0)
    assert is_alive(int((tmp_path / "pid.t1.1").read_text()))


# --- over HTTP ----------------------------------------------------------------------------------------------

# So many workers, each a process forked from one that has loaded everything; says their pids, and how they ended.
REMOTE_WORKERS = """
import os
import sys
from pathlib import Path
from api.http_client import HttpClient
from api.runners.sources import Source
from api.runners.worker import Worker
url, key, project, job_id, files, lease_s, count = sys.argv[1:]
pids = []
for _ in range(int(count)):
    if not (pid := os.fork()):
        el = HttpClient(url, key=key, project=project)
        worker = Worker(el, slots=2, lease_s=float(lease_s), files={"tasks@1": Source("folder", Path(files))})
        print(worker.run(job_id), flush=True)
        sys.exit()
    pids.append(pid)
print(*pids, flush=True)
print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
"""


class Remote:
    """Workers on a job over HTTP, with a copy of its files."""

    def __init__(self, door: Door, job_id: str, files: Path, *, lease_s: float, count: int = 1) -> None:
        words = (door.served.url, door.key, door.project, job_id, files, lease_s, count)
        self._process = subprocess.Popen(
            [sys.executable, "-c", REMOTE_WORKERS, *map(str, words)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self._process.stdout
        self.pids = [int(pid) for pid in self._process.stdout.readline().split()]

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            for pid in self.pids:
                os.kill(pid, signal.SIGKILL)
            self._process.wait(10)

    def ended(self, within_s: float = 60.0) -> tuple[str, list[int]]:
        """What they said, and their exit codes."""
        said, _ = self._process.communicate(timeout=within_s)
        return said, [int(code) for code in said.splitlines()[-1].split()]


def test_a_suspended_worker_overwrites_nothing_when_it_wakes(tmp_path: Path) -> None:
    """Its trial was ended as lapsed while it slept: the reward it finds is evidence, and the job's result stands.

    Over HTTP: a process that is suspended in a transaction of its own keeps all others out of SQLite.
    """
    with serving(tmp_path / "el") as server:
        door = server.project()
        store = door.client
        wait = f"until test -e {tmp_path}/go; do sleep 0.02; done"
        job_id = job_of(store, tmp_path / "d", runner_of(noting(tmp_path, wait)))
        with Remote(door, job_id, tmp_path / "d", lease_s=1.0) as remote:
            until(lambda: lines_of(tmp_path / "pid.t1.1"), within_s=60)
            os.kill(remote.pids[0], signal.SIGSTOP)
            until(claims_of(store, "other").look_about, within_s=30)
            (tmp_path / "go").touch()
            pid = int((tmp_path / "pid.t1.1").read_text())
            until(lambda: not is_alive(pid))
            os.kill(remote.pids[0], signal.SIGCONT)
            said, _ = remote.ended()
        assert "lost=1" in said
        facts = facts_of(store, job_id, "t1")
        assert facts[2] == TrialFailed("LeaseLapsed", "agent")
        assert all(isinstance(fact, RewardRejected) and fact.why == "lapsed-claim" for fact in facts[3:])
        result = store.result(job_id)
        assert (result.status, result.score, result.score_counts.scored) == ("failed", None, 0)


def test_eight_remote_workers_run_every_slot_once_though_some_are_killed(tmp_path: Path) -> None:
    """Over HTTP, with their own copies of the files and a secret: each slot ends once and none is run twice."""
    with serving(tmp_path / "el") as server:
        door = server.project()
        el, store = door.el(), door.client
        runner = runner_of(
            noting(tmp_path, f"sleep 0.3; test ${{#KEY}} = {len(SECRET)}"), parameters=[Parameter("KEY", True)]
        )
        names = [f"t{n}" for n in range(24)]
        el.publish_runner(runner)
        el.publish_dataset("tasks@1", task_folders(tmp_path / "d", names), runner=runner.ref)
        el.create_profile("p@1", {}, {"KEY": SECRET})
        job_id = el.submit_job("tasks@1", profile="p@1").id
        with Remote(door, job_id, tmp_path / "d", lease_s=3.0, count=8) as remote:
            until(lambda: len(lines_of(tmp_path / "ran")) >= 4, within_s=60)
            for pid in remote.pids[:2]:
                os.kill(pid, signal.SIGKILL)
            said, codes = remote.ended(90)
        assert codes == [-signal.SIGKILL] * 2 + [0] * 6, said
        kinds = {name: [type(fact) for fact in facts_of(store, job_id, name)] for name in names}
        assert all(sum(kind in (TrialSucceeded, TrialFailed) for kind in kinds[name]) == 1 for name in names), kinds
        ran = Counter(lines_of(tmp_path / "ran"))
        assert set(ran.values()) == {1}, ran
        lapsed = [name for name in names if facts_of(store, job_id, name)[-1] == TrialFailed("LeaseLapsed", "agent")]
        assert len(lapsed) <= 4
        result = el.result(job_id)
        assert (result.score, result.score_counts.scored) == (1.0, len(names) - len(lapsed))
        assert result.status == ("failed" if lapsed else "completed")
        bodies = [body for _, body in store.ledger.recorder.bodies(after=0, limit=10_000)]
        assert not [body for body in bodies if SECRET.encode() in body]
