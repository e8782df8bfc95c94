"""Promises of the routes for datasets, runners and profiles, over a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.given import digest_of
from tests.given_doors import Door, Served, serving

TASKS = [[name, digest_of(name)] for name in ("add-1", "add-2", "add-3")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def door(served: Served) -> Door:
    return served.project()


def test_a_revision_is_published_once_and_said_so_again(door: Door) -> None:
    """The first POST answers 201 with where it stands, the same again 200, other content 409 with what differs."""
    runner = {"ref": "script@1", "kind": "external"}
    assert door.post("/runners", runner, 201)["outcome"] == "written"
    dataset = {"ref": "team/arith@1", "runner": "script@1", "tasks": TASKS}
    first = door.http.post("/datasets", json=dataset)
    assert (first.status_code, first.headers["location"]) == (
        201,
        f"/v1/projects/{door.project}/datasets/team/arith/1",
    )
    assert first.headers["el-position"] == str(first.json()["position"])
    assert door.post("/datasets", dataset, 200)["outcome"] == "unchanged"
    conflict = door.post("/datasets", dataset | {"tasks": TASKS[:2]}, 409)
    assert conflict["type"].endswith("/conflict")
    assert conflict["differs"] == ["task 'add-3' is no longer there"]


def test_names_may_hold_a_slash(door: Door) -> None:
    """`team/arith@1` is read at its two-part name, `arith@1` at its own, and neither is taken for the other."""
    door.with_dataset("x", ref="team/arith@1")
    door.with_dataset("y", "z", ref="arith@1")
    assert door.get("/datasets/team/arith/1")["dataset"]["member_count"] == 1
    assert door.get("/datasets/arith/1")["dataset"]["member_count"] == 2
    assert door.get("/dataset-tasks/team/arith/1")["tasks"] == [[0, ["x", digest_of("x")]]]
    assert door.http.get("/datasets/team/1").status_code == 404
    assert door.http.get("/dataset-tasks/none/1").status_code == 404


def test_lists_come_in_pages(door: Door) -> None:
    """Following `El-Next` gives every row once, in order; a page ends the list when there is no further one."""
    for number in range(5):
        door.with_dataset("x", ref=f"set@{number}")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = door.http.get("/datasets", params={"limit": "2"} | cursor)
        seen += [row["ref"] for row in page.json()["datasets"]]
        if "el-next" not in page.headers:
            break
        cursor = {"cursor": page.headers["el-next"]}
    assert seen == [f"set@{number}" for number in range(5)]
    assert [row["ref"] for row in door.get("/datasets", after="set@2")["datasets"]] == ["set@3", "set@4"]
    assert [one[0] for one in door.get("/dataset-tasks/set/1", after=-1)["tasks"]] == [0]


def test_secrets_go_in_and_never_come_out(door: Door) -> None:
    """A profile's secret value is in no answer; a form that does not fit does not echo it either."""
    value = "sk-planted-0123456789"
    body = {"ref": "team/eval@1", "params": {"MODEL_NAME": "m"}, "secrets": {"KEY": value}}
    created = door.http.post("/profiles", json=body)
    read = door.http.get("/profiles/team/eval/1")
    listed = door.http.get("/profiles")
    assert (created.status_code, read.status_code, listed.status_code) == (201, 200, 200)
    assert list(read.json()["profile"]["secrets"]) == ["KEY"]
    refused = [
        door.http.post("/profiles", json=body | {"ref": "x"}),
        door.http.post("/profiles", json=body | {"secrets": {"KEY": [value]}}),
        door.http.post("/profiles", json=body | {"secrets": {"KEY": value + "\0"}}),
        door.http.post("/profiles", json=body | {value: 1}),
        door.http.post("/profiles", json=body | {"params": {"KEY": value}}),
    ]
    assert all(400 <= answer.status_code < 500 for answer in refused)
    assert not any(value in answer.text for answer in [created, read, listed, *refused])


def test_a_runner_cannot_lead_out_of_the_folder_of_a_trial(door: Door) -> None:
    """What is checked in a runner's file is checked over HTTP too."""
    step = {"command": ["true"]}
    runner = {"ref": "script@1", "kind": "command", "agent": step, "verifier": step}
    assert door.http.post("/runners", json=runner | {"structured_result": "../../etc/passwd"}).status_code == 422
    assert door.http.post("/runners", json=runner | {"outputs": ["/etc/*"]}).status_code == 422
    assert door.post("/runners", runner | {"parameters": [{"name": "M", "default": 1.5}]}, 201)
    assert door.get("/runners/script/1")["runner"]["parameters"] == [{"name": "M", "default": 1.5}]


def test_reads_say_when_and_are_not_sent_twice(door: Door) -> None:
    """A read answers `as_of` in body and header, and an ETag with which the same again is a 304 without a body."""
    door.with_dataset("x")
    first = door.http.get("/datasets/arith/1")
    assert first.headers["el-as-of"] == str(first.json()["as_of"])
    again = door.http.get("/datasets/arith/1", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "body",
    [
        '{"ref": "a@1", "runner": "r@1", "tasks": [["x", "short"]]}',
        '{"ref": "a@1", "runner": "r@1", "tasks": []}',
        '{"ref": "a@1", "runner": "r@1", "tasks": [["x"]]}',
        '{"ref": "a@1", "runner": "r@1", "tasks": [["x", "' + "a" * 64 + '"]], "more": 1}',
        '{"ref": "a@1", "runner": "r@1", "tasks": NaN}',
        '{"ref": "../../x@1", "runner": "shell@1", "tasks": [["x", "' + "a" * 64 + '"]]}',
        '{"ref": "a@1", "ref": "b@1", "runner": "shell@1", "tasks": [["x", "' + "a" * 64 + '"]]}',
    ],
)
def test_what_is_not_a_dataset_is_refused(door: Door, body: str) -> None:
    """Each is a 4xx problem with a sentence, and nothing is written."""
    door.with_dataset()
    before = door.client.head().entries
    answer = door.http.post("/datasets", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 404, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert door.client.head().entries == before
