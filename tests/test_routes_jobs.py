"""Promises of the routes for jobs, their trials and the read models, over a socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.pages import StandingAnswer
from tests import postgres
from tests.given_doors import Door, Served, serving

JOB = {"dataset": "arith@1", "attempts": 2}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = postgres.fresh_url() if request.param == "postgresql" else None
    with serving(tmp_path_factory.mktemp("home"), url) as running:
        yield running


@pytest.fixture
def door(served: Served) -> Door:
    return served.project().with_dataset("add-1", "add-2", "add-3")


def test_the_same_request_gives_the_same_job(door: Door) -> None:
    """201 first, then 200 with the same job, whether the id comes in the body or the header; other content is 409."""
    first = door.post("/jobs", JOB | {"request_id": "r1"}, 201)
    assert first["manifest"]["origin"] == {"kind": "api"}
    assert door.post("/jobs", JOB | {"request_id": "r1"}, 200)["id"] == first["id"]
    assert door.post("/jobs", JOB, 200, **{"Idempotency-Key": "r1"})["id"] == first["id"]
    assert door.post("/jobs", JOB | {"request_id": "r1", "attempts": 3}, 409)["differs"] == ["attempts"]
    assert (
        door.http.post("/jobs", json=JOB | {"request_id": "r1"}, headers={"Idempotency-Key": "r2"}).status_code == 400
    )
    assert [job["id"] for job in door.get("/jobs")["jobs"]] == [first["id"]]


def test_a_dry_run_writes_nothing(door: Door) -> None:
    """What would be submitted is answered as planned, and the log is as long as before."""
    before = door.client.head().entries
    assert door.post("/jobs", JOB | {"dry_run": True}, 200)["outcome"] == "planned"
    assert door.client.head().entries == before


def test_one_reads_what_one_has_written(door: Door) -> None:
    """Every read that follows a write holds it."""
    for number in range(20):
        job = door.post("/jobs", JOB | {"request_id": f"r{number}"}, 201)
        assert door.get(f"/jobs/{job['id']}")["as_of"] >= job["position"]


def test_jobs_are_found_by_what_they_are(door: Door) -> None:
    """Each filter leaves the jobs that fit; several filters, and several tags, all have to fit."""
    door.post("/runners", {"ref": "m@1", "kind": "external", "parameters": [{"name": "MODEL_NAME"}]}, 201)
    door.post("/datasets", {"ref": "b@1", "runner": "m@1", "tasks": [["x", "a" * 64]]}, 201)
    door.post("/profiles", {"ref": "p@1", "params": {"MODEL_NAME": "acme/m1"}}, 201)
    plain = door.post("/jobs", JOB | {"tags": {"branch": "main", "n": "1"}, "agent_run": "run-1"}, 201)["id"]
    other = door.post("/jobs", JOB | {"tags": {"branch": "main", "n": "2"}}, 201)["id"]
    model = door.post("/jobs", {"dataset": "b@1", "profile": "p@1"}, 201)["id"]
    door.post(f"/jobs/{other}/cancel", {"reason": "too dear"}, 200)

    def found(**filters: Any) -> list[str]:
        return [job["id"] for job in door.get("/jobs", **filters)["jobs"]]

    assert found() == [model, other, plain]
    assert found(dataset="arith@1") == [other, plain]
    assert found(model="acme/m1") == found(profile="p@1") == [model]
    assert found(agent_run="run-1") == [plain]
    assert found(status="canceled") == [other]
    assert found(tag="branch=main") == [other, plain]
    assert found(tag=["branch=main", "n=1"]) == [plain]
    assert found(tag="branch=main", status="canceled", dataset="arith@1") == [other]
    assert found(tag="branch=none") == []
    assert door.http.get("/jobs", params={"tag": "no-pair"}).status_code == 400
    assert door.http.get("/jobs", params={"status": "lost"}).status_code == 400
    assert door.http.get("/jobs", params={"stat": "lost"}).status_code == 400


def test_pages_of_jobs_are_whole_while_jobs_are_added(door: Door) -> None:
    """Jobs submitted while one turns pages neither repeat nor hide any that were there."""
    ids = [door.post("/jobs", JOB, 201)["id"] for _ in range(5)]
    page = door.http.get("/jobs", params={"limit": 2})
    door.post("/jobs", JOB, 201)
    seen = [job["id"] for job in page.json()["jobs"]]
    while cursor := page.headers.get("el-next"):
        page = door.http.get("/jobs", params={"limit": 2, "cursor": cursor})
        seen += [job["id"] for job in page.json()["jobs"]]
    assert seen == ids[::-1]
    assert door.http.get("/jobs", params={"limit": 2, "cursor": "x" * 40}).status_code == 400


def test_a_job_is_run_over_the_protocol_and_read_back(door: Door) -> None:
    """Claim, heartbeat, report, result: what was reported is what is answered, attempt by attempt."""
    job = door.post("/jobs", JOB, 201)["id"]
    claims = door.post("/work/claims", {"worker": "w1", "slots": 2, "job_id": job}, 200)["claims"]
    assert [claim["attempt"] for claim in claims] == [1, 1]
    trial, token = claims[0]["trial_id"], claims[0]["token"]
    assert door.post(f"/work/{trial}/heartbeat", {"token": token}, 200) == {"held": True, "canceled": False}
    report = {
        "token": token,
        "facts": [{"fact": "reward-recorded", "reward": 0.5}, {"fact": "trial-started"}],
    }
    assert door.post(f"/work/{trial}/reports", report, 200)["new"] == [True, True]
    assert door.post(f"/work/{trial}/reports", report, 200)["new"] == [False, False]
    done = {"token": token, "facts": [{"fact": "trial-succeeded", "exit_code": 0}]}
    door.post(f"/work/{trial}/reports", done, 200)
    result = door.get(f"/jobs/{job}/result")
    assert (result["score"], result["score_counts"]["scored"], result["score_counts"]["total"]) == (0.5, 1, 6)
    assert door.get(f"/jobs/{job}/tasks", limit=1)["tasks"] == [
        {"task": "add-1", "attempts": [[1, "succeeded", 0.5, "verifier"]]}
    ]
    assert door.get(f"/trials/{trial}")["trial"]["reward"] == 0.5
    trials = door.get(f"/jobs/{job[:8]}/trials")["trials"]
    assert [(one["task"], one["attempt"]) for one in trials] == [("add-1", 1), ("add-2", 1)]
    page = door.http.get(f"/jobs/{job}/trials", params={"limit": 1})
    rest = door.get(f"/jobs/{job}/trials", cursor=page.headers["el-next"])
    assert [one["task"] for one in rest["trials"]] == ["add-2"]
    assert door.get("/work")["at_work"] == {job: 1}


def test_a_report_that_cannot_be_is_refused(door: Door) -> None:
    """Another token, an unknown fact, NaN, a fact that is not for reporting: refused, and nothing is written."""
    job = door.post("/jobs", JOB, 201)["id"]
    claim = door.post("/work/claims", {"worker": "w1", "job_id": job}, 200)["claims"][0]
    path, token = f"/work/{claim['trial_id']}/reports", claim["token"]
    reward = {"fact": "reward-recorded", "reward": 1.0}
    before = door.client.head().entries
    assert door.post(path, {"token": token, "facts": [{"fact": "reward-recorded"}]}, 422)
    assert door.post(path, {"token": token, "facts": [reward | {"more": 1}]}, 422)
    assert door.post(path, {"token": token, "facts": [{"fact": "job-completed"}]}, 422)
    assert door.post(path, {"token": token, "facts": []}, 422)
    json = {"Content-Type": "application/json"}
    nan = door.http.post(
        path, content='{"token": 1, "facts": [{"fact": "reward-recorded", "reward": NaN}]}', headers=json
    )
    huge = door.http.post(
        path, content='{"token": 1, "facts": [{"fact": "reward-recorded", "reward": 1e999}]}', headers=json
    )
    assert (nan.status_code, huge.status_code) == (400, 400)
    assert door.client.head().entries == before
    assert door.post(path, {"token": token + 1, "facts": [reward]}, 409)["type"].endswith("/claim-lapsed")
    assert door.get(f"/trials/{claim['trial_id']}")["trial"]["reward"] is None


def test_a_retry_is_asked_for_once(door: Door) -> None:
    """A retry adds the attempt beyond k; the same request id again adds none."""
    job = door.post("/jobs", JOB, 201)["id"]
    asked = {"task": "add-1", "reason": "lost", "request_id": "again"}
    first = door.post(f"/jobs/{job}/retries", asked, 201)
    assert (first["attempt"], first["task"]) == (3, "add-1")
    assert door.post(f"/jobs/{job}/retries", asked, 201)["attempt"] == 3
    assert door.post(f"/jobs/{job}/retries", {"task": "none", "reason": "x"}, 404)


def test_read_models_are_built_again(door: Door) -> None:
    """A rebuild ends at the end of the log, and reads are as before."""
    job = door.post("/jobs", JOB, 201)["id"]
    before = door.get(f"/jobs/{job}/result")
    reached = door.post("/projections/rebuild", {"names": ["jobs", "job_metrics"]}, 200)["position"]
    standings = [StandingAnswer(**one) for one in door.get("/projections")["projections"]]
    assert all(one.position == one.head == reached and not one.outdated for one in standings)
    assert door.get(f"/jobs/{job}/result") == before
    assert door.post("/projections/rebuild", {"names": ["none"]}, 404)
