"""Promises of the work protocol, on every door: a slot to one worker, reports in any order, nothing from the past."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from api.answers import Claim, LeftBehind
from api.client import Client
from api.el import El
from api.http_client import HttpClient
from api.settings import Settings
from api.wiring import Workspace
from ledger.errors import BadInput, ClaimLapsed, Conflict, NotAllowed, NotFound
from ledger.facts import trial as t
from ledger.facts.catalogue import Parameter, RunnerPublished, Task
from ledger.facts.trial import trial_stream
from ledger.rules import trial as rules
from projections.following import rebuild
from projections.models import READ_MODELS
from projections.replay import recompute
from tests import given_doors, postgres
from tests.given import SHA_A
from tests.given_commands import until
from tests.given_doors import Served, serving

ROOT = Path(__file__).parent.parent
SECRET = "sk-live-0123456789abcdef"
ENDED = (t.TrialSucceeded, t.TrialFailed, t.TrialCanceled)

# A harness as a process of its own: it claims one slot, suspends itself, and reports when it is woken.
HARNESS = """
import os, signal, sys
sys.path[:0] = ["tests"]
from pathlib import Path
from api.client import Client
from api.http_client import HttpClient
from api.settings import Settings
from api.wiring import Workspace
from ledger.facts.trial import RewardRecorded, TrialSucceeded
from ledger.rules import trial as rules
door, place, project, key, job_id, sabotaged = sys.argv[1:]
el = Client(Workspace(Settings(home=Path(place))), project) if door == "embedded" else (
    HttpClient(place, key=key, project=project))
if sabotaged == "yes":
    rules.require_claim = lambda state, *, token: []
(claim,) = el.claim("paused", job_id=job_id, lease_s=0.3).claims
print("claimed", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
try:
    el.report(claim.trial_id, [RewardRecorded(1.0), TrialSucceeded(0)], token=claim.token)
    print("recorded", flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
"""


class Door(NamedTuple):
    """A project behind a door. `el` is the door; `store` reaches the log and the read models themselves."""

    kind: str
    el: El
    store: Client
    behind: given_doors.Door

    def another(self) -> El:
        """A second client, as another process would have."""
        if self.kind == "embedded":
            return Client(Workspace(self.store.workspace.settings), self.el.project)
        return self.behind.el()

    def argv(self) -> list[str]:
        place = str(self.store.workspace.home) if self.kind == "embedded" else self.behind.served.url
        return [self.kind, place, self.el.project, self.behind.key]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("work")) as one:
        yield one


@pytest.fixture(scope="module")
def server_on_postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("work"), postgres.fresh_url()) as one:
        yield one


@pytest.fixture(params=["embedded", "http"])
def door(request: pytest.FixtureRequest) -> Door:
    on_postgresql = request.param == "http on postgresql"
    server: Served = request.getfixturevalue("server_on_postgresql" if on_postgresql else "server")
    behind = server.project()
    if request.param == "embedded":
        return Door("embedded", behind.client, behind.client, behind)
    return Door("http", behind.el(), behind.client, behind)


# What depends on how the store keeps writers apart is tried on PostgreSQL, too.
everywhere = pytest.mark.parametrize("door", ["embedded", "http", "http on postgresql"], indirect=True)


def job_of(el: El, count: int = 1, *, attempts: int = 1, runner: str = "harness@1") -> str:
    """A job of an external runner on so many tasks."""
    name = runner.partition("@")[0]
    el.publish_runner(RunnerPublished(runner, "external"))
    el.publish_dataset(f"{name}@1", [Task(f"t{n:03}", SHA_A) for n in range(count)], runner=runner)
    return el.submit_job(f"{name}@1", attempts=attempts).id


def facts_of(door: Door, claim: Claim) -> list[Any]:
    stream = trial_stream(claim.job_id, claim.task, claim.attempt)
    return [recorded.entry.fact for recorded in door.store.stream(stream)]


def one_claim(el: El, job_id: str, worker: str = "w", lease_s: float = 60.0) -> Claim:
    (claim,) = el.claim(worker, job_id=job_id, lease_s=lease_s).claims
    return claim


# --- claiming -----------------------------------------------------------------------------------------------


def test_a_claim_says_all_that_a_worker_needs(door: Door) -> None:
    """Task and digest, runner, parameters, names of secrets, token and lease; then the slot is nobody else's."""
    job_id = job_of(door.el, 2)
    assert door.el.work().waiting == [job_id]
    assert door.el.work(job_id).waiting == [job_id]
    claim = one_claim(door.el, job_id)
    assert (claim.job_id, claim.task, claim.attempt, claim.task_digest) == (job_id, "t000", 1, SHA_A)
    assert (claim.dataset, claim.runner, claim.worker) == ("harness@1", "harness@1", "w")
    assert (claim.token, claim.secrets, claim.parameters) == (1, [], {})
    assert claim.lease_until
    assert door.el.work(job_id).at_work == {job_id: 1}
    assert [c.task for c in door.el.claim("other", slots=5, job_id=job_id).claims] == ["t001"]
    assert door.el.claim("other", slots=5, job_id=job_id).claims == []


def test_slots_are_claimed_by_job_or_by_runner(door: Door) -> None:
    """Nobody is given what it may not be able to run: one of the two is named."""
    mine, other = job_of(door.el, 1), job_of(door.el, 1, runner="another@1")
    claims = door.el.claim("w", slots=9, runner="another@1").claims
    assert [claim.job_id for claim in claims] == [other]
    assert door.el.work().waiting == [mine]
    with pytest.raises(BadInput, match="Name the job or the runner"):
        door.el.claim("w")
    for bad in ({"slots": -1}, {"slots": 10**6}, {"lease_s": 0.0}, {"lease_s": 1e9}):
        with pytest.raises(BadInput):
            door.el.claim("w", job_id=mine, **bad)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        door.el.claim("w", job_id="00000000-0000-5000-8000-000000000000")


@everywhere
def test_the_same_claim_request_gives_the_same_claims(door: Door) -> None:
    """An answer that was lost on its way costs no slot."""
    job_id = job_of(door.el, 3)
    first = door.el.claim("w", slots=2, job_id=job_id, request_id="r1").claims
    assert sorted(first, key=lambda c: c.task) == sorted(
        door.el.claim("w", slots=2, job_id=job_id, request_id="r1").claims, key=lambda c: c.task
    )
    assert len(door.el.claim("w", slots=2, job_id=job_id, request_id="r2").claims) == 1


def test_a_slot_by_its_name_is_given_out_once(door: Door) -> None:
    """It is started at once; the same request again gives the same claim, another is refused."""
    job_id = job_of(door.el, 1)
    claim = door.el.dispatch(job_id, "t000", 1, request_id="r1")
    assert facts_of(door, claim)[1:] == [t.TrialStarted()]
    assert (claim.worker, claim.lease_until) == (None, None)
    assert door.el.dispatch(job_id, "t000", 1, request_id="r1") == claim
    for request_id in (None, "r2"):
        with pytest.raises(NotAllowed, match="dispatched already"):
            door.el.dispatch(job_id, "t000", 1, request_id=request_id)
    with pytest.raises(NotAllowed, match="beyond the 1"):
        door.el.dispatch(job_id, "t000", 2)
    with pytest.raises(NotFound):
        door.el.dispatch(job_id, "nothing", 1)


@everywhere
def test_eight_harnesses_at_once_get_every_slot_once(door: Door) -> None:
    """Some of them die with what they had claimed; the others run it, and the log has each slot ended once."""
    count = 25
    job_id = job_of(door.el, count, attempts=2)
    ran: list[tuple[str, int]] = []

    def harness(number: int) -> None:
        el, chance = door.another(), random.Random(number)
        alive = number >= 3
        lease_s = 60.0 if alive else 0.5
        while True:
            claims = el.claim(f"h{number}", slots=chance.randint(1, 4), job_id=job_id, lease_s=lease_s).claims
            if not alive and claims:
                return  # dies with slots in its hands, never heard of again
            if not claims:
                if not el.work(job_id).waiting and not el.work(job_id).at_work:
                    return
                time.sleep(0.05)
            for claim in claims:
                ran.append((claim.task, claim.attempt))
                reward = t.RewardRecorded(float(number % 2))
                el.report(claim.trial_id, [t.TrialStarted(), reward, t.TrialSucceeded(0)], token=claim.token)

    threads = [threading.Thread(target=harness, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert Counter(ran) == dict.fromkeys([(f"t{n:03}", a) for n in range(count) for a in (1, 2)], 1)
    ends, held = Counter[str](), Counter[str]()
    for _, entry in door.store.ledger.entries():
        if entry.stream.startswith("trial/"):
            ends[entry.stream] += isinstance(entry.fact, ENDED)
            held[entry.stream] += isinstance(entry.fact, t.TrialDispatched) - isinstance(entry.fact, t.TrialReleased)
    assert len(ends) == 2 * count
    assert set(ends.values()) == set(held.values()) == {1}
    assert door.el.job(job_id).status == "completed"


# --- reporting ----------------------------------------------------------------------------------------------

REPORTS: tuple[t.ReportedFact, ...] = (
    t.TrialStarted(),
    t.RewardRecorded(0.5, "reward.txt"),
    t.StructuredResultRecorded(0.5, {"cost": 1.0}),
    t.ArtifactFailed("log", "missing"),
    t.TrialFailed("Timeout", "agent"),
)


def test_reports_come_in_any_order_and_as_often_as_needed(door: Door) -> None:
    """One by one or together, first the end or last: each is new once, and all orders come to the same."""
    orders = random.Random(4).sample(list(permutations(REPORTS)), 6)
    job_id = job_of(door.el, len(orders))
    for order, claim in zip(orders, door.el.claim("w", slots=9, job_id=job_id).claims, strict=True):
        together = order[2:]
        for fact in order[:2]:
            assert door.el.report(claim.trial_id, [fact], token=claim.token).new == [True]
            assert door.el.report(claim.trial_id, [fact, fact], token=claim.token).new == [False, False]
        answer = door.el.report(claim.trial_id, [*together, order[0]], token=claim.token)
        assert answer.new == [*(True for _ in together), False]
        again = door.el.report(claim.trial_id, order, token=claim.token)
        assert again == type(again)(answer.position, [False] * len(order))
        row = door.el.get_trial(claim.trial_id)
        assert (row.status, row.error_type, row.reward, row.artifacts_failed) == ("failed", "Timeout", 0.5, 1)
    assert door.el.job(job_id).status == "failed"


def test_a_contradiction_is_refused_with_all_that_came_with_it(door: Door) -> None:
    """Facts of one report are recorded together or not at all, and what differs is named."""
    claim = one_claim(door.el, job_of(door.el))
    door.el.report(claim.trial_id, [t.RewardRecorded(1.0)], token=claim.token)
    with pytest.raises(Conflict, match="another reward") as refused:
        door.el.report(claim.trial_id, [t.TrialStarted(), t.RewardRecorded(0.0)], token=claim.token)
    assert refused.value.differs == ("reward: 1.0, now 0.0",)
    assert len(facts_of(door, claim)) == 2
    with pytest.raises(BadInput):
        door.el.report(claim.trial_id, [t.TrialStarted(), t.ArtifactPersisted("a", "sha", 1)], token=claim.token)
    assert len(facts_of(door, claim)) == 2


def test_only_what_became_of_a_trial_is_reported(door: Door) -> None:
    """Dispatches, corrections, erasures and evidence have ways of their own; a trial that is not there is not found."""
    claim = one_claim(door.el, job_of(door.el))
    bad: list[Any] = [
        t.TrialDispatched("id", claim.job_id, "t000", SHA_A, 1),
        t.RewardRevised(None, 1.0, "v@2", "because"),
        t.ArtifactRedacted(SHA_A, "because"),
        t.RewardRejected("lapsed-claim", SHA_A),
    ]
    for fact in bad:
        with pytest.raises(BadInput):
            door.el.report(claim.trial_id, [fact], token=claim.token)
    with pytest.raises(BadInput):
        door.el.report(claim.trial_id, [], token=claim.token)
    with pytest.raises(NotFound):
        door.el.report("00000000-0000-5000-8000-000000000000", [t.TrialStarted()], token=1)
    assert len(facts_of(door, claim)) == 1


def test_a_block_reports_on_its_trial(door: Door) -> None:
    """`with el.trial(...)` is the same on every door: what is reported stands, an exception becomes trial-failed."""
    job_id = job_of(door.el, 2)
    with door.el.trial(job_id, "t000", 1) as trial:
        kept = trial.artifact("answer.txt", b"4")
        trial.reward(1.0)
        trial.structured_result(composite=0.5)
    with pytest.raises(ZeroDivisionError), door.el.trial(job_id, "t001", 1) as trial:  # noqa: PT012
        trial.no_reward("error", b"what?")
        raise ZeroDivisionError
    assert door.el.artifacts.read_bytes(kept.sha256, max_bytes=10) == b"4"
    assert [row.status for row in door.el.trials(job_id)] == ["succeeded", "failed"]
    result = door.el.result(job_id)
    assert (result.status, result.score, result.lost) == ("failed", 1.0, {"agent": 1})


def test_a_block_may_say_itself_how_its_trial_ended(door: Door) -> None:
    """Its word stands: the end of the block adds no second one, and an exception after it is still the caller's."""
    job_id = job_of(door.el, 3)
    with door.el.trial(job_id, "t000", 1) as trial:
        trial.succeeded(exit_code=0)
    with door.el.trial(job_id, "t001", 1) as trial:
        trial.failed(ValueError("no answer"))
    with pytest.raises(ZeroDivisionError), door.el.trial(job_id, "t002", 1) as trial:  # noqa: PT012
        trial.succeeded(exit_code=0)
        raise ZeroDivisionError
    rows = door.el.trials(job_id)
    assert [(row.status, row.exit_code, row.error_type) for row in rows] == [
        ("succeeded", 0, None),
        ("failed", None, "ValueError"),
        ("succeeded", 0, None),
    ]


@everywhere
def test_a_heartbeat_keeps_the_lease_and_tells_that_the_job_was_canceled(door: Door) -> None:
    """As long as it comes in time nobody takes the trial over; afterwards it says that the trial is lost."""
    job_id = job_of(door.el)
    claim = one_claim(door.el, job_id, lease_s=0.6)
    for _ in range(4):
        time.sleep(0.3)
        assert door.el.heartbeat(claim.trial_id, claim.token, lease_s=0.6).held
        assert door.el.claim("other", slots=0).left_behind == []
    door.el.cancel_job(job_id)
    beat = door.el.heartbeat(claim.trial_id, claim.token, lease_s=0.1)
    assert (beat.held, beat.canceled) == (True, True)
    time.sleep(0.7)
    assert door.el.claim("other", slots=0).left_behind == [LeftBehind(job_id, "t000", 1, "released")]
    assert not door.el.heartbeat(claim.trial_id, claim.token).held


# --- what comes from the past -------------------------------------------------------------------------------


def lapsed(door: Door, job_id: str, *, started: bool) -> Claim:
    """A claim that was given up for dead."""
    claim = one_claim(door.el, job_id, "late", lease_s=0.05)
    if started:
        door.el.report(claim.trial_id, [t.TrialStarted()], token=claim.token)
    time.sleep(0.1)
    became = "failed" if started else "released"
    assert door.el.claim("heir", slots=0).left_behind == [LeftBehind(job_id, claim.task, 1, became)]
    return claim


@everywhere
@pytest.mark.parametrize("started", [True, False])
def test_a_report_under_a_lapsed_claim_counts_nowhere(door: Door, started: bool) -> None:
    """It is refused; its reward is kept once, as evidence, in the log and as an artifact; no answer changes."""
    job_id = job_of(door.el)
    claim = lapsed(door, job_id, started=started)
    before = door.el.result(job_id)
    for _ in range(3):
        with pytest.raises(ClaimLapsed, match="does not count"):
            door.el.report(claim.trial_id, [t.RewardRecorded(0.75), t.TrialSucceeded(0)], token=claim.token)
    evidence = facts_of(door, claim)[-1]
    assert evidence == t.RewardRejected("lapsed-claim", evidence.raw)
    assert door.el.artifacts.read_bytes(evidence.raw, max_bytes=100) == b"0.75"
    assert len(facts_of(door, claim)) == (4 if started else 3)
    after = door.el.result(job_id)
    assert (after.score_counts, after.score, after.endings, after.lost) == (
        before.score_counts,
        None,
        before.endings,
        before.lost,
    )
    if started:
        assert door.el.get_trial(claim.trial_id).no_reward is None
    with pytest.raises(ClaimLapsed):
        door.el.secrets(claim.trial_id, token=claim.token)


@everywhere
def test_evidence_leaves_the_heirs_trial_alone(door: Door) -> None:
    """The slot was given out again: what the heir reports is what the trial is, live, rebuilt and recomputed."""
    job_id = job_of(door.el)
    claim = lapsed(door, job_id, started=False)
    with pytest.raises(ClaimLapsed):
        door.el.report(claim.trial_id, [t.RewardRecorded(1.0)], token=claim.token)
    heir = one_claim(door.el, job_id, "heir")
    assert heir.token > claim.token
    with pytest.raises(ClaimLapsed):
        door.el.report(claim.trial_id, [t.RewardRecorded(0.9)], token=claim.token)
    with pytest.raises(ClaimLapsed):
        door.el.report(claim.trial_id, [t.RewardRecorded(0.9)], token=99)
    facts: list[t.ReportedFact] = [t.TrialStarted(), t.RewardRecorded(0.0), t.TrialSucceeded(0)]
    assert door.el.report(heir.trial_id, facts, token=heir.token).new == [True] * 3
    with pytest.raises(ClaimLapsed):
        door.el.report(claim.trial_id, [t.RewardRecorded(0.8)], token=claim.token)
    late = [fact for fact in facts_of(door, heir) if isinstance(fact, t.RewardRejected)]
    assert [fact.why for fact in late] == ["lapsed-claim"] * 3
    live = door.el.result(job_id)
    assert (live.status, live.score, live.pass_) == ("completed", 0.0, 0.0)
    if door.kind == "embedded":
        row = door.el.get_trial(heir.trial_id)
        rebuild(door.store.ledger.engine, door.el.project, READ_MODELS)
        assert door.el.result(job_id) == live
        assert door.el.get_trial(heir.trial_id) == row
    assert recompute(door.store.ledger.entries())[job_id].score == 0.0


def run_paused(door: Door, *, sabotaged: bool) -> tuple[str, float | None]:
    """Suspend a harness past its lease, let another take over, wake it: what it was told, and the score at the end."""
    job_id = job_of(door.el)
    argv = [sys.executable, "-c", HARNESS, *door.argv(), job_id, "yes" if sabotaged else "no"]
    harness = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert harness.stdout
    try:
        assert harness.stdout.readline() == "claimed\n"
        stat = Path(f"/proc/{harness.pid}/stat")
        until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T")
        until(lambda: door.el.claim("heir", slots=0).left_behind)
        heir = one_claim(door.el, job_id, "heir")
        door.el.report(heir.trial_id, [t.TrialStarted()], token=heir.token)
        os.kill(harness.pid, signal.SIGCONT)
        told = harness.communicate(timeout=30)[0].strip()
    finally:
        harness.kill()
        harness.wait()
    with suppress(Conflict):
        door.el.report(heir.trial_id, [t.RewardRecorded(0.0), t.TrialSucceeded(0)], token=heir.token)
    return told, door.el.result(job_id).score


def require_fenced(outcome: tuple[str, float | None]) -> None:
    assert outcome == ("ClaimLapsed", 0.0)


@everywhere
def test_a_paused_worker_cannot_overwrite_what_followed(door: Door) -> None:
    """Suspended past its lease and woken after another took the slot over, it is refused; the heir's reward holds."""
    require_fenced(run_paused(door, sabotaged=False))


def test_the_token_is_what_holds_off_a_paused_worker(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: where tokens are not compared, what the woken worker says is what stands."""
    if door.kind == "http":
        monkeypatch.setattr(rules, "require_claim", lambda _state, *, token: [])
    with pytest.raises(AssertionError):
        require_fenced(run_paused(door, sabotaged=True))


# --- secrets ------------------------------------------------------------------------------------------------


@everywhere
def test_secrets_are_given_under_a_claim_only(door: Door) -> None:
    """To whoever holds the claim, until the trial has ended; names only elsewhere, and never a value in the log."""
    door.el.publish_runner(RunnerPublished("secret@1", "external", (Parameter("KEY", True), Parameter("MODEL"))))
    door.el.publish_dataset("secret@1", [Task("t", SHA_A)], runner="secret@1")
    door.el.create_profile("p@1", {"MODEL": "m1"}, {"KEY": SECRET, "UNUSED": "another secret"})
    job_id = door.el.submit_job("secret@1", profile="p@1").id
    claim = one_claim(door.el, job_id)
    assert (claim.parameters, claim.secrets, claim.profile) == ({"MODEL": "m1"}, ["KEY"], "p@1")
    assert door.el.secrets(claim.trial_id, token=claim.token) == {"KEY": SECRET}
    with pytest.raises(ClaimLapsed):
        door.el.secrets(claim.trial_id, token=claim.token + 1)
    door.el.report(claim.trial_id, [t.TrialSucceeded(0)], token=claim.token)
    with pytest.raises(ClaimLapsed, match="has ended"):
        door.el.secrets(claim.trial_id, token=claim.token)
    bodies = [body for _, body in door.store.ledger.recorder.bodies(after=0, limit=1_000)]
    assert not [body for body in bodies if SECRET.encode() in body]


def test_a_slot_whose_secret_is_not_in_the_store_is_not_used_up(tmp_path: Path) -> None:
    """Whoever claims is told what is missing, and the slot still waits."""
    el = Client(Workspace(Settings(home=tmp_path)), "default")
    el.publish_runner(RunnerPublished("secret@1", "external", (Parameter("KEY", True),)))
    el.publish_dataset("secret@1", [Task("t", SHA_A)], runner="secret@1")
    el.create_profile("p@1", {}, {"KEY": SECRET})
    job_id = el.submit_job("secret@1", profile="p@1").id
    (tmp_path / "secret.key").write_text("00" * 32)
    el = Client(Workspace(Settings(home=tmp_path)), "default")
    with pytest.raises(Exception, match="KEY of profile p@1 cannot be opened"):
        el.claim("w", job_id=job_id)
    assert el.work().waiting == [job_id]
    assert el.stream(trial_stream(job_id, "t", 1)) == []


def test_the_harness_in_the_documentation_works(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of docs/workers.md run a job to its end as they stand."""
    block = (ROOT / "docs" / "workers.md").read_text().split("```python\n")[1].split("```")[0]
    job_id = job_of(door.el, 5)
    monkeypatch.setattr("api.client.connect", lambda: door.el)
    exec(block, {"run_my_agent": lambda task, _parameters: float(task != "t000")})
    result = door.el.result(job_id)
    assert (result.status, result.score) == ("completed", 0.8)


def test_both_doors_are_tried() -> None:
    """What stands above is about two classes, not one twice."""
    assert not issubclass(HttpClient, Client)
