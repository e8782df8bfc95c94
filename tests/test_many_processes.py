"""Many servers on one PostgreSQL are one ledger: keys, writes and slots are the same on all, and one may die."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from api.http_client import HttpClient
from api.remote import transport
from api.runners.worker import Worker
from api.settings import Settings
from api.wiring import Workspace
from ledger.errors import NotAuthenticated, NotFound, ServerAway
from ledger.facts.trial import RewardRecorded, TrialDispatched, TrialSucceeded, trial_stream
from tests import postgres
from tests.given import faults_of_log
from tests.given_commands import job_of, runner_of, until
from tests.given_doors import Door, Process, Served

WRITERS = 6
TASKS_EACH = 15
KILLED_AFTER = 25  # reports that were answered
REVOKED_S = 1.0  # what is promised


class Servers:
    """Processes that serve one database from one home folder, and a store behind their backs."""

    def __init__(self, folder: Path) -> None:
        self.url = postgres.fresh_url()
        self.home = folder / "home"
        self.workspace = Workspace(Settings(home=self.home, database_url=self.url))
        self.started: list[Process] = []
        self.project()  # without any key they would not start

    def start(self, sabotage: str = "") -> Process:
        """One more."""
        self.started.append(Process(self.home, sabotage=sabotage, EL_DATABASE_URL=self.url))
        return self.started[-1]

    def project(self) -> Door:
        """A project that nobody has used."""
        return Served(self.workspace, "").project()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    for one in servers.started:
        one.process.kill()
        one.process.wait()
    servers.workspace.engine.dispose()


@pytest.fixture(scope="module")
def both(servers: Servers) -> list[str]:
    """The URLs of two that stay."""
    return [one.url for one in [servers.start(), servers.start()]]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between a client's tries are not what is tried."""
    monkeypatch.setattr(transport, "PAUSE_S_MAX", 0.02)


def opens(door: Door, key: str, url: str) -> bool:
    with HttpClient(url, key=key, project=door.project) as el:
        try:
            return el.head().name == door.project
        except (NotAuthenticated, NotFound):
            return False


def require_revoked_in_time(door: Door, url: str, other_url: str) -> None:
    """A key that is revoked on one server is refused by the other within a second."""
    assert opens(door, door.key, other_url)  # which so has the project's keys in memory
    with door.el(url=url) as admin:
        issued = admin.issue_key("ci", ["read"])
        until(lambda: opens(door, issued.key, other_url), within_s=REVOKED_S)
        admin.revoke_key(issued.id)
    until(lambda: not opens(door, issued.key, other_url), within_s=REVOKED_S)
    assert not opens(door, issued.key, url)


def test_a_key_of_one_opens_the_other_until_it_is_revoked(servers: Servers, both: list[str]) -> None:
    """Issued on one server it works on the other, revoked on one it is refused by the other, each within a second."""
    require_revoked_in_time(servers.project(), *both)


def test_keys_that_are_kept_for_longer_would_be_seen(servers: Servers, both: list[str]) -> None:
    """Twin: a server that reads keys again after a minute only fails the same check."""
    forgetful = "import api.http.keyrings as k; k.Keyrings.__init__.__kwdefaults__['fresh_s'] = 60"
    with pytest.raises(AssertionError, match="in time"):
        require_revoked_in_time(servers.project(), both[0], servers.start(forgetful).url)


def test_what_one_answered_for_the_other_shows(servers: Servers, both: list[str]) -> None:
    """Asked for the position of a write, the other server's read holds it; a page of one goes on at the other."""
    door = servers.project()
    with door.el(url=both[0]) as one, door.el(url=both[1]) as two:
        for number in range(20):
            writer, reader = (one, two) if number % 2 else (two, one)
            written = writer.create_profile(f"p{number:02}@1", {}, {})
            reader._transport.wrote(written.position)
            assert reader.profile(f"p{number:02}@1").ref == f"p{number:02}@1"
        first = one._transport.send("GET", "/profiles", params={"limit": 19})
        rest = two._transport.send("GET", "/profiles", params={"limit": 19, "cursor": first.headers["el-next"]})
        assert [profile["ref"] for profile in rest.json()["profiles"]] == ["p19@1"]


def test_what_one_answered_the_other_builds_on(servers: Servers, both: list[str]) -> None:
    """Also what does something finds what a write on the other server made, when asked for the position of it."""
    door = servers.project().with_dataset("t0")
    with door.el(url=both[0]) as one, door.el(url=both[1]) as two:
        for number in range(20):
            writer, builder = (one, two) if number % 2 else (two, one)
            job = writer.submit_job("arith@1")
            builder._transport.wrote(job.position)
            assert builder.dispatch(job.id, "t0", 1).job_id == job.id


def test_workers_on_both_run_every_slot_once(servers: Servers, both: list[str], tmp_path: Path) -> None:
    """A worker on each server, one job: no slot twice, none left, and both have run some."""
    door = servers.project()
    names = [f"t{number}" for number in range(12)]
    job_id = job_of(door.client, tmp_path / "d", runner_of(f"echo $EL_TASK >> {tmp_path}/ran; sleep 0.1"), names)
    workers = [Worker(door.el(url=url), slots=2) for url in both]
    threads = [threading.Thread(target=worker.run, args=(job_id,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter((tmp_path / "ran").read_text().split()) == dict.fromkeys(names, 1)
    assert [worker.tally.ended > 0 for worker in workers] == [True, True]
    assert sum(worker.tally.succeeded for worker in workers) == len(names)
    assert door.client.job(job_id).status == "completed"


class Load:
    """Harnesses that report trials to a server, and, when it does not answer, the same again to the next one.

    A `careless` one takes what it has sent for done.
    """

    def __init__(self, door: Door, urls: Sequence[str], *, careless: bool = False) -> None:
        self.tasks = [f"t{number:03}" for number in range(WRITERS * TASKS_EACH)]
        self.acknowledged: list[str] = []
        self._door = door
        self._urls = urls
        self._careless = careless
        door.with_dataset(*self.tasks)
        self.job_id = door.client.submit_job("arith@1").id
        door.caught_up()
        self._threads = [threading.Thread(target=self._write, args=(number,), daemon=True) for number in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _write(self, number: int) -> None:
        doors = [self._door.el(url=url) for url in self._urls]
        doors = doors[number % 2 :] + doors[: number % 2]
        for task in self.tasks[number::WRITERS]:
            for el in doors[:1] if self._careless else doors:
                try:
                    claim = el.dispatch(self.job_id, task, 1, request_id=f"slot-{task}")
                    el.report(claim.trial_id, [RewardRecorded(1.0), TrialSucceeded(0)], token=claim.token)
                except ServerAway:
                    continue
                break
            else:
                if not self._careless:
                    return
            self.acknowledged.append(task)


def lost_or_doubled(door: Door, load: Load) -> list[str]:
    """The trials that were acknowledged and are not in the log exactly once, and trials that were given out twice."""
    wrong = []
    for task in load.tasks:
        kinds = Counter(type(one.entry.fact) for one in door.client.stream(trial_stream(load.job_id, task, 1)))
        ended = (kinds[RewardRecorded], kinds[TrialSucceeded])
        if kinds[TrialDispatched] > 1 or max(ended) > 1 or (task in load.acknowledged and ended != (1, 1)):
            wrong.append(task)
    return wrong


def killed_under(load: Load, server: Process) -> None:
    until(lambda: len(load.acknowledged) >= KILLED_AFTER, within_s=30)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    load.join()


def test_a_server_that_is_killed_takes_nothing_with_it(servers: Servers, both: list[str]) -> None:
    """Under load one server dies by kill -9: its clients go on at the other, nothing acknowledged is lost, nothing is
    there twice, and the other's numbers hold all of it.
    """
    door, victim = servers.project(), servers.start()
    load = Load(door, [victim.url, both[0]])
    killed_under(load, victim)
    assert sorted(load.acknowledged) == load.tasks
    assert lost_or_doubled(door, load) == []
    assert faults_of_log(servers.workspace.engine, door.project) == []
    started_s = time.monotonic()
    with door.el(url=both[0]) as el:
        el._transport.wrote(door.client.head().entries)
        result = el.result(load.job_id)
    assert time.monotonic() - started_s < 5
    assert (result.status, result.score, result.score_counts.scored) == ("completed", 1.0, len(load.tasks))


def test_what_was_sent_and_not_answered_would_be_missed(servers: Servers, both: list[str]) -> None:
    """Twin: clients that take sending for done, and do not go on elsewhere, have lost what they believe is there."""
    door, victim = servers.project(), servers.start()
    load = Load(door, [victim.url, both[0]], careless=True)
    killed_under(load, victim)
    assert lost_or_doubled(door, load)
