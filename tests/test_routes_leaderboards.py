"""Promises of the routes of leaderboards, over a socket, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import msgspec
import pytest

from api.http_client import HttpClient
from ledger.errors import BadInput, Conflict, NotAllowed, NotFound
from ledger.facts.leaderboard import SnapshotAdded
from tests import postgres
from tests.given import JOB
from tests.given_boards import SEED, Bench
from tests.given_doors import Door, Served, serving


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = postgres.fresh_url() if request.param == "postgresql" else None
    with serving(tmp_path_factory.mktemp("home"), url) as running:
        yield running


@pytest.fixture
def door(served: Served) -> Door:
    return served.project()


@pytest.fixture
def bench(door: Door) -> Bench:
    """Jobs made behind the server's back, and known to it."""
    return Bench(door.client)


def test_a_job_is_added_once_and_said_so_again(door: Door, bench: Bench) -> None:
    """201 with where it stands and the position; again 200 and the same snapshot to the byte, also after a revision."""
    job = bench.job(SEED, model="gpt")
    first = door.http.post("/leaderboards/snapshots", json={"job_id": job})
    assert first.status_code == 201
    saved = first.json()["snapshot"]
    assert first.headers["location"] == f"/v1/projects/{door.project}/leaderboards/snapshots/{saved['id']}"
    assert first.headers["el-position"] == str(first.json()["position"]) == str(bench.position)
    bench.revise(job, "a", 2, 1.0)
    again = door.http.post("/leaderboards/snapshots", json={"job_id": job})
    assert (again.status_code, again.json()["outcome"]) == (200, "unchanged")
    assert again.json()["snapshot"] == saved
    assert bench.position == first.json()["position"] + 1
    door.caught_up()
    read = door.get(f"/leaderboards/snapshots/{saved['id']}")
    assert (read["snapshot"], read["now"]["score"], read["as_of"]) == (saved, 0.8, bench.position)


def test_what_may_not_stand_is_a_problem_with_the_reason(door: Door, bench: Bench) -> None:
    """409 for a job that runs or has no reward, 404 for none, 422 for what is no request; nothing is written."""
    running = bench.job({"a": [1.0]}, ends=False)
    empty = bench.job({"a": [None], "b": [None], "c": [None]})
    size = bench.position
    assert "has not ended" in door.post("/leaderboards/snapshots", {"job_id": running}, 409)["detail"]
    assert "Nothing of the job" in door.post("/leaderboards/snapshots", {"job_id": empty}, 409)["detail"]
    door.post("/leaderboards/snapshots", {"job_id": JOB}, 404)
    for body in ({}, {"job_id": 1}, {"job_id": ""}, {"job_id": empty, "more": 1}, {"job_id": "x" * 37}):
        door.post("/leaderboards/snapshots", body, 422)
    assert bench.position == size


def test_rows_are_ranked_withdrawn_and_read_as_of(door: Door, bench: Bench) -> None:
    """The whole way over HTTP: add two, read, withdraw one with its reason, read then and now, and what moved."""
    good, weak = (bench.job({"a": [value], "b": [value]}, model=f"m{value}") for value in (1.0, 0.5))
    added = [door.post("/leaderboards/snapshots", {"job_id": job}, 201) for job in (weak, good)]
    cohort = added[0]["snapshot"]["cohort"]
    (summary,) = door.get("/leaderboards")["leaderboards"]
    assert (summary["cohort"], summary["snapshots"]) == (cohort, 2)
    rows = door.get(f"/leaderboards/{cohort}")["rows"]
    assert [(row["rank"], row["name"], row["score"], row["scored"], row["missing"]) for row in rows] == [
        (1, "m1.0", 1.0, 2, 1),
        (2, "m0.5", 0.5, 2, 1),
    ]
    assert rows[0]["job_link"] == f"/v1/projects/{door.project}/jobs/{good}"
    assert door.http.get(rows[0]["job_link"].replace(f"/v1/projects/{door.project}", "")).status_code == 200
    snapshot_id = rows[0]["snapshot_id"]
    gone = door.post(f"/leaderboards/snapshots/{snapshot_id}/withdraw", {"reason": "leaked"}, 200)
    assert (gone["outcome"], gone["withdrawn"]["reason"]) == ("written", "leaked")
    again = door.post(f"/leaderboards/snapshots/{snapshot_id}/withdraw", {"reason": "leaked"}, 200)
    assert again == gone | {"outcome": "unchanged"}
    other = door.post(f"/leaderboards/snapshots/{snapshot_id}/withdraw", {"reason": "other"}, 409)
    assert other["differs"] == ["reason: 'leaked', now 'other'"]
    rows = door.get(f"/leaderboards/{cohort}")["rows"]
    assert [(row["rank"], row["outside"]) for row in rows] == [(1, None), (None, "withdrawn")]
    then = door.get(f"/leaderboards/{cohort}", as_of=added[1]["position"])
    assert [row["rank"] for row in then["rows"]] == [1, 2]
    moves = door.get(f"/leaderboards/{cohort}/diff", **{"from": added[1]["position"]})["moves"]
    assert {move["name"]: [fact["tag"] for fact in move["facts"]] for move in moves} == {
        "m0.5": ["snapshot-withdrawn"],
        "m1.0": ["snapshot-withdrawn"],
    }


@pytest.mark.parametrize(
    "path",
    [
        "?order=best",
        "?min_coverage=1.5",
        "?min_coverage=nan",
        "?min_coverage=-1",
        "?as_of=yesterday",
        "?as_of=",
        "?as_of=99999999",
        "?unknown=1",
        "/diff",
        "/diff?from=9&to=1",
        "/diff?from=x",
    ],
)
def test_bad_parameters_are_problems(door: Door, bench: Bench, path: str) -> None:
    """4xx with a sentence, never a 500."""
    added = door.post("/leaderboards/snapshots", {"job_id": bench.job(SEED)}, 201)
    answer = door.http.get(f"/leaderboards/{added['snapshot']['cohort']}{path}")
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["detail"]


def test_only_publish_adds_and_withdraws_and_read_reads(served: Served) -> None:
    """A key that may submit, report and read may not put a result on a board; one that only publishes may not read."""
    door, publisher = served.project(("submit", "report", "read")), served.project(("publish",))
    job = Bench(door.client).job(SEED)
    assert door.http.post("/leaderboards/snapshots", json={"job_id": job}).status_code == 403
    assert door.http.post(f"/leaderboards/snapshots/{job}/withdraw", json={"reason": "x"}).status_code == 403
    assert door.http.get("/leaderboards").status_code == 200
    assert publisher.http.post("/leaderboards/snapshots", json={"job_id": job}).status_code == 404
    assert publisher.http.get("/leaderboards").status_code == 403
    own = Bench(publisher.client).job(SEED)
    assert publisher.http.post("/leaderboards/snapshots", json={"job_id": own}).status_code == 201


def test_another_projects_boards_are_not_there(served: Served, door: Door, bench: Bench) -> None:
    """404 by cohort, job and snapshot alike, on every route; and not in the list."""
    saved = door.post("/leaderboards/snapshots", {"job_id": bench.job(SEED)}, 201)["snapshot"]
    stranger = served.project()
    assert stranger.get("/leaderboards")["leaderboards"] == []
    for name in (saved["cohort"], saved["job_id"], saved["id"]):
        assert stranger.http.get(f"/leaderboards/{name}").status_code == 404
        assert stranger.http.get(f"/leaderboards/{name}/diff", params={"from": 0}).status_code == 404
    for name in (saved["job_id"], saved["id"]):
        assert stranger.http.get(f"/leaderboards/snapshots/{name}").status_code == 404
        stranger.post(f"/leaderboards/snapshots/{name}/withdraw", {"reason": "mine"}, 404)


def test_sixteen_clients_over_http_make_one_snapshot(served: Served, door: Door, bench: Bench) -> None:
    """One is answered 201, fifteen 200, all with the same snapshot."""
    job = bench.job(SEED)
    barrier = Barrier(16)

    def add(_number: int) -> Any:
        with door.with_key(door.key) as http:
            barrier.wait()
            return http.post("/leaderboards/snapshots", json={"job_id": job})

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(add, range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [201]
    assert len({msgspec.json.encode(answer.json()["snapshot"]) for answer in answers}) == 1
    assert sum(isinstance(entry.fact, SnapshotAdded) for _, entry in bench.client.ledger.entries()) == 1


def test_both_doors_answer_alike(served: Served, door: Door, bench: Bench) -> None:
    """Every method, its answer and its refusals: the same Structs and errors from the store and over HTTP."""
    job, running = bench.job(SEED, model="gpt"), bench.job({"a": [1.0]}, ends=False)
    with HttpClient(served.url, key=door.key, project=door.project) as http:
        added = http.add_snapshot(job)
        store = bench.client
        assert msgspec.structs.replace(added, outcome="unchanged") == store.add_snapshot(job) == http.add_snapshot(job)
        bench.revise(job, "a", 2, 1.0)
        door.caught_up()
        cohort = added.snapshot.cohort
        for _ in range(2):
            assert http.leaderboards() == store.leaderboards()
            assert http.snapshot(job) == store.snapshot(added.snapshot.id)
            options: dict[str, Any] = {"order": "lower-bound", "min_coverage": 0.5, "as_of": bench.position}
            assert http.leaderboard(cohort, **options) == store.leaderboard(cohort, **options)
            assert http.leaderboard(cohort[:8]) == store.leaderboard(job)
            assert http.leaderboard_diff(cohort, 1) == store.leaderboard_diff(cohort, 1, None)
            http.withdraw_snapshot(job, reason="泄漏")
        for client in (http, store):
            with pytest.raises(Conflict) as conflict:
                client.withdraw_snapshot(job, reason="other")
            assert conflict.value.differs == ("reason: '泄漏', now 'other'",)
            with pytest.raises(NotAllowed, match="has not ended"):
                client.add_snapshot(running)
            with pytest.raises(NotFound, match="There is no leaderboard"):
                client.leaderboard("0" * 64)
            with pytest.raises(BadInput, match="neither a position nor a time"):
                client.leaderboards(as_of="yesterday")
            with pytest.raises(BadInput, match="lies before"):
                client.leaderboard_diff(cohort, 5, 1)
