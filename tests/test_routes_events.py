"""Promises of the audit routes and of imports over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ledger.digests import members_digest
from ledger.facts.job import job_id_for
from ledger.facts.trial import trial_id_for
from tests import postgres
from tests.given import digest_of
from tests.given_doors import Door, Served, serving

JOB = {"dataset": "arith@1", "attempts": 1}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = postgres.fresh_url() if request.param == "postgresql" else None
    with serving(tmp_path_factory.mktemp("home"), url) as running:
        yield running


@pytest.fixture
def door(served: Served) -> Door:
    return served.project().with_dataset("add-1", "add-2")


def positions(answer: Any) -> list[int]:
    return [event["position"] for event in answer["events"]]


def test_events_carry_the_stored_bytes(door: Door) -> None:
    """What stands behind `entry` is the body as it was hashed, byte for byte."""
    text = door.http.get("/events", params={"limit": 1000}).content
    bodies = door.client.ledger.recorder.bodies(after=0, limit=1000)
    for position, body in bodies:
        assert b'{"position":%d,"entry":%s}' % (position, body) in text
    assert positions(msgspec.json.decode(text)) == [position for position, _ in bodies]


def test_events_are_found_by_what_they_are_about(door: Door) -> None:
    """Each filter leaves the entries that fit; pages of one give each of them once."""
    job = door.post("/jobs", JOB, 201)["id"]
    other = door.post("/jobs", JOB, 201)["id"]
    claim = door.post("/work/claims", {"worker": "w", "job_id": job}, 200)["claims"][0]
    head = door.client.head().entries
    about_job = positions(door.get("/events", job=job))
    assert about_job == positions(door.get(f"/jobs/{job}/events"))
    assert len(about_job) == 2
    assert positions(door.get("/events", trial=claim["trial_id"])) == about_job[1:]
    assert positions(door.get(f"/trials/{claim['trial_id']}/events")) == about_job[1:]
    assert positions(door.get("/events", task=claim["task"])) == about_job[1:]
    assert positions(door.get("/events", stream=f"job/{other}")) == [about_job[0] + 1]
    assert positions(door.get("/events", tag=["job-submitted", "trial-dispatched"])) == sorted(
        [*about_job, about_job[0] + 1]
    )
    assert positions(door.get("/events", actor="key:tests", after=about_job[0] - 1)) == list(
        range(about_job[0], head + 1)
    )
    assert positions(door.get("/events", after=2, before=5)) == [3, 4]
    assert positions(door.get("/events", since="2100-01-01T00:00:00Z")) == []
    assert len(positions(door.get("/events", until="2100-01-01T00:00:00Z"))) == head
    assert door.http.get("/events", params={"since": "2100-01-01T00:00:00"}).status_code == 400
    seen: list[int] = []
    page = door.http.get("/events", params={"limit": 3})
    seen += positions(page.json())
    while cursor := page.headers.get("el-next"):
        page = door.http.get("/events", params={"limit": 3, "cursor": cursor})
        seen += positions(page.json())
    assert seen == list(range(1, head + 1))


def test_whole_streams_are_read_by_name(door: Door) -> None:
    """Every entry of the streams named, an empty list for one that is not there."""
    job = door.post("/jobs", JOB, 201)["id"]
    answer = door.post("/streams", {"streams": [f"job/{job}", "job/none"]}, 200)
    assert answer["streams"]["job/none"] == []
    assert [one["entry"]["fact"]["fact"] for one in answer["streams"][f"job/{job}"]] == ["job-submitted"]
    assert answer["left"] == []


# --- imports ---------------------------------------------------------------------------------------------------------


def lines(project: str, tasks: tuple[str, ...] = ("a", "b"), **manifest: Any) -> list[dict[str, Any]]:
    """An import of one job: its runner, dataset, manifest, and a trial for each task."""
    job_id = job_id_for(project, "run-1")
    pairs = [[task, digest_of(task)] for task in tasks]
    digest = members_digest((name, sha) for name, sha in pairs)
    submitted = {
        "fact": "job-submitted", "job_id": job_id, "dataset": "tool/x@1", "runner": "tool@1", "attempts": 1,
        "member_count": len(tasks), "members_digest": digest, "request_id": "run-1",
        "origin": {"kind": "import", "tool": "tool"},
    } | manifest  # fmt: skip
    sealed = {"fact": "dataset-published", "ref": "tool/x@1", "runner": "tool@1"}
    return [
        {"stream": "runner/tool@1", "facts": [{"fact": "runner-published", "ref": "tool@1", "kind": "external"}]},
        {
            "stream": "dataset/tool/x@1",
            "facts": [
                {"fact": "dataset-members-added", "tasks": pairs},
                sealed | {"member_count": len(tasks), "members_digest": digest},
            ],
        },
        {"stream": f"job/{job_id}", "facts": [submitted, {"fact": "job-completed"}]},
        *(
            {
                "stream": f"trial/{job_id}/1/{task}",
                "facts": [
                    {
                        "fact": "trial-dispatched", "trial_id": trial_id_for(job_id, task, 1), "job_id": job_id,
                        "task": task, "task_digest": digest_of(task), "attempt": 1,
                    },
                    {"fact": "reward-recorded", "reward": 1.0},
                    {"fact": "trial-succeeded"},
                ],
            }
            for task in tasks
        ),
    ]  # fmt: skip


def send(door: Door, rows: list[dict[str, Any]], streams: str = "new") -> Any:
    content = b"\n".join(msgspec.json.encode(row) for row in rows)
    headers = {"Content-Type": "application/x-ndjson"}
    return door.http.post("/imports", params={"streams": streams, "key": "k1"}, content=content, headers=headers)


def test_an_import_is_all_or_nothing(door: Door) -> None:
    """All streams are recorded in one go; again as new they are refused, else the rules find nothing new."""
    rows = lines(door.project)
    done = send(door, rows)
    assert done.status_code == 201, done.text
    assert done.json()["entries"] == 11
    job_id = rows[2]["stream"].removeprefix("job/")
    assert door.get(f"/jobs/{job_id}/result")["score"] == 1.0
    head = door.client.head().entries
    again = send(door, rows)
    assert (again.status_code, again.json()["type"]) == (409, "/problems/concurrent-write")
    anyhow = send(door, rows[:3], "any")
    assert (anyhow.status_code, anyhow.json()["entries"]) == (201, 0)
    assert {row["new"] for row in anyhow.json()["written"]} == {0}
    assert door.client.head().entries == head


def spoil(rows: list[dict[str, Any]], at: int, fact: int, **fields: Any) -> list[dict[str, Any]]:
    rows[at]["facts"][fact] |= fields
    return rows


def bad_imports(project: str) -> dict[str, list[dict[str, Any]]]:
    """Imports that no importer makes, by what is wrong with them."""
    good = lines(project)
    job_id = good[2]["stream"].removeprefix("job/")
    return {
        "a member the dataset has not": [*good, *lines(project, ("c",))[3:]],
        "a job of the server's own": spoil(lines(project), 2, 0, origin={"kind": "api"}),
        "another job's id": spoil(lines(project), 2, 0, job_id=job_id_for(project, "other")),
        "another member count": spoil(lines(project), 2, 0, member_count=3),
        "another digest of members": spoil(lines(project), 2, 0, members_digest="a" * 64),
        "an unknown dataset": spoil(lines(project), 2, 0, dataset="none@1"),
        "another trial's id": spoil(lines(project), 3, 0, trial_id=trial_id_for(job_id, "b", 1)),
        "another task's digest": spoil(lines(project), 3, 0, task_digest="a" * 64),
        "a dataset sealed for other tasks": spoil(lines(project), 1, 1, members_digest="a" * 64),
        "a runner that runs something": spoil(lines(project), 0, 0, kind="command"),
        "a fact in the wrong stream": [{"stream": good[3]["stream"], "facts": good[0]["facts"]}],
        "a stream twice": [*good, good[3]],
        "a key of its own": [{"stream": "project", "facts": [{"fact": "project-created", "name": "x"}]}],
        "a trial before its job": good[3:],
        "no facts": [{"stream": good[0]["stream"], "facts": []}],
        "an unknown fact": [{"stream": good[0]["stream"], "facts": [{"fact": "none"}]}],
        "nothing": [],
    }


@pytest.mark.parametrize("what", bad_imports("p"))
@pytest.mark.parametrize("streams", ["new", "any"])
def test_an_import_that_does_not_fit_together_is_refused(door: Door, what: str, streams: str) -> None:
    """What would break a read model, or get round the worker protocol, is a 4xx; nothing is written."""
    before = door.client.head().entries
    refused = send(door, bad_imports(door.project)[what], streams)
    assert 400 <= refused.status_code < 500, refused.text
    assert door.client.head().entries == before
    assert door.get("/jobs")["jobs"] == []


def test_an_import_does_not_report_on_jobs_that_run_here(door: Door) -> None:
    """Facts for a trial of a job submitted here go through the worker protocol with its tokens, not through imports."""
    job = door.post("/jobs", JOB, 201)["id"]
    claim = door.post("/work/claims", {"worker": "w", "job_id": job}, 200)["claims"][0]
    row = {"stream": f"trial/{job}/1/{claim['task']}", "facts": [{"fact": "reward-recorded", "reward": 1.0}]}
    assert send(door, [row], "any").status_code == 422
    assert send(door, [{"stream": f"job/{job}", "facts": [{"fact": "job-completed"}]}], "any").status_code == 422
