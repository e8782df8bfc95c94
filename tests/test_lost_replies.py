"""Between client and server things get lost; the client sends again. Nothing is recorded twice, nothing is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import httpx
import msgspec
import pytest

from api.client import Client
from api.http_client import HttpClient
from api.importers.importing import import_path
from api.remote import transport
from api.remote.transport import Transport
from api.revising import NewReward
from ledger.digests import task_digest_of_json
from ledger.errors import EvalLedgerError, StoreError
from ledger.facts.catalogue import Parameter, RunnerPublished, Task
from ledger.facts.trial import ArtifactPersisted, RewardRecorded, TrialStarted, TrialSucceeded
from ledger.notes import Note, SigningKey
from tests import import_runs
from tests.given import digest_of, faults_of_log
from tests.given_doors import Served, serving
from tests.lossy_proxy import Loss, LossyProxy, Request

LOSSES: tuple[Loss, ...] = get_args(Loss)
RUNNER = RunnerPublished("harness@1", "external", (Parameter("token", False, ""),))
TASKS = [Task(name, digest_of(name)) for name in ("add-1", "add-2")]
WITNESS = SigningKey("witness.example", bytes(range(32)))
BIG = bytes(range(256)) * 20_000  # 5 MB: sent in several pieces, and on from where it broke


class Given(NamedTuple):
    """What a method is tried on: a client behind the proxy, one on the store, and a job with a claimed trial."""

    el: HttpClient
    store: Client
    folder: Path
    job: str
    trial: str
    token: int


Method = Callable[[Given], Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("lost")) as store:
        yield store


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between tries are not what is tried."""
    monkeypatch.setattr(transport, "PAUSE_S_MAX", 0.02)


def submit(given: Given) -> Any:
    return given.el.submit_job("arith@1", attempts=3).outcome


def retry(given: Given) -> Any:
    return given.el.retry(given.job, "add-1", reason="again").attempt


def claim(given: Given) -> Any:
    claimed = given.el.claim("w/1", slots=2, job_id=given.job, lease_s=60.0)
    return sorted((one.task, one.attempt, one.token) for one in claimed.claims)


def dispatch(given: Given) -> Any:
    return given.el.dispatch(given.job, "add-2", 2).token


def import_run(given: Given) -> Any:
    place = given.folder / "trials.jsonl"
    place.write_bytes(import_runs.jsonl()["trials.jsonl"])
    report = import_path(given.el, "jsonl", place)
    return [(job.id, job.outcome, job.entries_written) for job in report.jobs], report.refused


def follow_up(given: Given) -> Any:
    written = given.el.record("runner/other@1", lambda _state: [RunnerPublished("other@1", "external")])
    return len(written.facts)


def publish_dataset(given: Given) -> Any:
    return given.el.publish_dataset("other@1", [Task("x", task_digest_of_json(b"{}"))], runner=RUNNER.ref).ref


def publish_runner(given: Given) -> Any:
    return given.el.publish_runner(RunnerPublished("second@1", "external")).ref


def create_profile(given: Given) -> Any:
    return given.el.create_profile("p@1", {"model": "m"}, {"token": "s3cret"}).ref


def cancel(given: Given) -> Any:
    given.el.cancel_job(given.job, reason="enough")
    return given.el.job(given.job).status


def report(given: Given) -> Any:
    facts = [TrialStarted(), RewardRecorded(1.0), ArtifactPersisted("a", "a" * 64, 1), TrialSucceeded()]
    given.el.report(given.trial, facts[:2], token=given.token)
    given.el.report(given.trial, facts[2:], token=given.token)
    return given.el.get_trial(given.trial).reward


def heartbeat(given: Given) -> Any:
    return given.el.heartbeat(given.trial, given.token, lease_s=60.0).held


def put(given: Given) -> Any:
    return given.el.artifacts.put_bytes(BIG), given.el.artifacts.put_bytes(b"small")


def harness(given: Given) -> Any:
    with given.el.trial(given.job, "add-2", 1) as trial:
        trial.artifact("out", b"4")
        trial.reward(0.5)
    return given.el.result(given.job).score


def graded(given: Given) -> Any:
    facts = [RewardRecorded(1.0), TrialSucceeded()]
    given.el.report(given.trial, facts, token=given.token)
    return given.el.get_trial(given.trial)


def revise(given: Given) -> Any:
    graded(given)
    given.el.revise(given.trial, reward=0.5, verifier="judge@2", reason="the rubric was wrong")
    return given.el.get_trial(given.trial).reward


def regrade(given: Given) -> Any:
    trial = graded(given)
    rewards = [NewReward(trial.task, trial.attempt, 0.5)]
    given.el.regrade(given.job, rewards, verifier="judge@2", reason="the rubric was wrong")
    return given.el.result(given.job).revised_total


def add_snapshot(given: Given) -> Any:
    graded(given)
    given.el.cancel_job(given.job)
    given.el.add_snapshot(given.job)
    return [row.score for row in given.el.leaderboard(given.job).rows]


def withdraw_snapshot(given: Given) -> Any:
    add_snapshot(given)
    withdrawn = given.el.withdraw_snapshot(given.job, reason="a mistake").withdrawn
    return withdrawn.reason


def add_cosignatures(given: Given) -> Any:
    note = Note.parse(given.el.checkpoint().checkpoint)
    cosigned = note.with_signatures([WITNESS.cosign(note.text, 1_800_000_000)])
    return len(Note.parse(given.el.add_cosignatures(str(cosigned)).checkpoint).signatures)


def revoke_key(given: Given) -> Any:
    return given.el.revoke_key(given.store.issue_key("other", ["read"]).id).key.status


KEYED: tuple[Method, ...] = (submit, retry, claim, dispatch, import_run)
"""What would do something more when it is done again, but for the key that it carries."""

BY_CONTENT: tuple[Method, ...] = (
    follow_up, publish_dataset, publish_runner, create_profile, cancel, report, heartbeat, put, harness,
    revise, regrade, add_snapshot, withdraw_snapshot, add_cosignatures, revoke_key,
)  # fmt: skip
"""What says the same twice."""


@cache
def undisturbed(store: Served, folder: Path, method: Method) -> tuple[Any, Counter[tuple[str, str, int]]]:
    """What a method answers and leaves in the log when nothing is lost."""
    answer, log, _ = tried(store, folder / f"whole-{method.__name__}", method, nothing)
    return comparable(method, answer), log


def tried(store: Served, folder: Path, method: Method, loses: Callable[[Request], Loss | None]) -> Any:
    """What a method answers and what it leaves in the log, when things are lost on the way."""
    door = store.project()
    direct = door.client
    direct.publish_runner(RUNNER)
    direct.publish_dataset("arith@1", TASKS, runner=RUNNER.ref)
    job = direct.submit_job("arith@1", attempts=2, request_id="given").id
    (ours,) = direct.claim("w/0", slots=1, job_id=job, lease_s=600.0).claims
    folder.mkdir(parents=True)
    with LossyProxy(store.url, loses) as proxy, door.el(url=proxy.url, home=folder) as el:
        answer = method(Given(el, direct, folder, job, ours.trial_id, ours.token))
        lost = len(proxy.lost)
    assert faults_of_log(store.workspace.engine, door.project) == []
    return answer, left_by(direct), lost


def left_by(client: Client) -> Counter[tuple[str, str, int]]:
    """Every entry by its stream's kind, its tag and its version: ids are other ones in each project."""
    found: Counter[tuple[str, str, int]] = Counter()
    for row in client.events(limit=1_000):
        entry = msgspec.json.decode(row.body)
        kind, _, rest = entry["stream"].partition("/")
        found[kind, f"{row.tag} {rest.partition('/')[2]}", entry["version"]] += 1
    return found


def first_of_each(loss: Loss) -> Callable[[Request], Loss | None]:
    """Loses something of the first request to each route and with each method; what is sent again arrives."""
    seen: set[tuple[str, str]] = set()

    def loses(request: Request) -> Loss | None:
        route = request.method, request.path.partition("?")[0]
        if route in seen:
            return None
        seen.add(route)
        return loss

    return loses


def nothing(_request: Request) -> None:
    """Nothing is lost."""


def comparable(method: Method, answer: Any) -> Any:
    """An answer without the ids that differ from project to project."""
    if method is import_run:
        jobs, refused = answer
        return [job[1:] for job in jobs], refused
    return answer


@pytest.mark.parametrize(
    ("method", "loss"),
    [(method, loss) for method in KEYED for loss in LOSSES]
    + [(method, loss) for method in BY_CONTENT for loss in ("reply", "half the request")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_is_lost_on_the_way_is_neither_doubled_nor_missing(
    store: Served, tmp_path: Path, method: Method, loss: Loss
) -> None:
    """A method through a proxy that loses something of every route's first request: its answer and the log are as if
    nothing had been lost."""
    expected, log = undisturbed(store, store.workspace.home, method)
    answer, log_after_losses, lost = tried(store, tmp_path / "lossy", method, first_of_each(loss))
    assert lost > 0
    assert comparable(method, answer) == expected
    assert log_after_losses == log


@pytest.mark.parametrize("method", KEYED, ids=lambda method: method.__name__)
def test_without_its_key_a_repeat_does_it_again(
    store: Served, tmp_path: Path, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sabotage: another key for each try, and the promise above is broken: doubled, missing or refused."""
    expected, log = undisturbed(store, store.workspace.home, method)
    forget_keys(monkeypatch)
    try:
        answer, log_after_losses, _ = tried(store, tmp_path / "lossy", method, first_of_each("reply"))
    except EvalLedgerError:
        return
    assert (comparable(method, answer), log_after_losses) != (expected, log)


def forget_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the requests' own keys away."""
    monkeypatch.setattr("api.http_client.own_key", lambda: None)
    send = Transport.send

    def without_key(self: Transport, method: str, path: str, **said: Any) -> Any:
        said["params"] = {name: value for name, value in (said.get("params") or {}).items() if name != "key"}
        return send(self, method, path, **said)

    monkeypatch.setattr(Transport, "send", without_key)


@pytest.mark.parametrize(
    "strange",
    [
        lambda: httpx.Response(301, headers={"Location": "https://elsewhere.example"}, stream=httpx.ByteStream(b"")),
        lambda: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"nonsense")),
        lambda: httpx.Response(404, stream=httpx.ByteStream(b"<html>")),
    ],
    ids=["moved", "no gzip", "another server"],
)
def test_what_is_no_answer_of_such_a_server_is_said_in_one_sentence(strange: Callable[[], httpx.Response]) -> None:
    """A redirect, a torn encoding, a page for people: read whole or piece by piece, the error names the URL."""
    with HttpClient("http://127.0.0.1:9") as el:
        el._transport._http = httpx.Client(transport=httpx.MockTransport(lambda _request: strange()))
        for ask in (el.head, lambda: el.artifacts.read_bytes("a" * 64, max_bytes=10)):
            with pytest.raises(StoreError, match=r"not as an EvalLedger server does; check EL_API_URL"):
                ask()


def test_a_server_that_stays_away_is_named_in_one_sentence(store: Served) -> None:
    """After its tries the client says which server did not answer and what to do; the key is in no message."""
    door = store.project()
    with (
        LossyProxy(store.url, lambda _request: "the connection") as proxy,
        door.el(url=proxy.url) as el,
    ):
        with pytest.raises(EvalLedgerError) as away:
            el.jobs()
        assert len(proxy.requests) == transport.TRIES_MAX
    assert proxy.url in str(away.value)
    assert "EL_API_URL" in str(away.value)
    shown = [str(away.value), repr(el), repr(el._transport), repr(vars(el))]
    error: BaseException | None = away.value
    while error:
        shown.append(repr(error))
        error = error.__cause__ or error.__context__
    assert not any(door.key in text for text in shown)
