"""Promises of artifacts over HTTP: verified, bounded, resumable on the way in; never rendered on the way out."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from api.uploads import KEPT_S, Uploads
from ledger.artifacts import TEMPS
from ledger.errors import NotAllowed
from tests.given_doors import Door, Served, serving

BIG = bytes(range(256)) * 4096 * 5  # 5 MiB
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def door(served: Served) -> Door:
    return served.project()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(door: Door, name: str, data: bytes, **headers: str) -> httpx.Response:
    return door.http.put(f"/artifacts/{name}", content=data, headers=BYTES | headers)


def left_over(door: Door) -> list[str]:
    folder = door.client.artifacts.root / TEMPS
    return sorted(one.name for one in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("data", [b"", b"4", BIG], ids=["empty", "short", "long"])
def test_what_is_put_is_read_back(door: Door, data: bytes) -> None:
    """201 first, 200 again; the bytes come back; nothing is left over."""
    name = sha(data)
    assert door.get(f"/artifacts/{name}/upload") == {"sha256": name, "stored": False, "offset": 0}
    first, again = put(door, name, data), put(door, name, data)
    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert first.json() == {"sha256": name, "stored": True, "offset": len(data)}
    assert door.http.get(f"/artifacts/{name}").content == data
    assert door.get(f"/artifacts/{name}/upload")["stored"]
    assert left_over(door) == []


@pytest.mark.parametrize("data", [b"4", BIG], ids=["short", "long"])
def test_other_content_than_the_name_says_is_refused(door: Door, data: bytes) -> None:
    """A wrong digest is a 422, and nothing of what was sent is kept."""
    refused = put(door, sha(b"other"), data)
    assert refused.status_code == 422
    assert door.http.get(f"/artifacts/{sha(b'other')}").status_code == 404
    assert left_over(door) == []
    assert put(door, "A" * 64, data).status_code == 422
    assert put(door, "..%2f" * 5, data).status_code in (400, 404, 422)


def test_pieces_are_put_together(door: Door) -> None:
    """Pieces with Content-Range end in the whole; a piece at the wrong place is a 409 that says where to go on."""
    name, half, total = sha(BIG), 2_000_000, len(BIG)
    first = put(door, name, BIG[:half], **{"Content-Range": f"bytes 0-{half - 1}/{total}"})
    assert (first.status_code, first.json()["offset"]) == (202, half)
    wrong = put(door, name, BIG[half + 5 :], **{"Content-Range": f"bytes {half + 5}-{total - 1}/{total}"})
    assert (wrong.status_code, wrong.json()["type"]) == (409, "/problems/conflict")
    assert door.get(f"/artifacts/{name}/upload")["offset"] == half
    last = put(door, name, BIG[half:], **{"Content-Range": f"bytes {half}-{total - 1}/{total}"})
    assert (last.status_code, last.json()["stored"]) == (201, True)
    assert door.http.get(f"/artifacts/{name}").content == BIG
    assert left_over(door) == []


@pytest.mark.parametrize(
    "told", ["bytes 0-9/5", "bytes 5-4/10", "bytes */10", "bytes 0-1/*", "0-1/2", f"bytes 0-9/{2**62}", "bytes 0-0/9"]
)
def test_a_range_that_cannot_be_is_refused(door: Door, told: str) -> None:
    """A Content-Range that contradicts itself, the body or the bound is a 4xx."""
    assert 400 <= put(door, sha(b"ab"), b"ab", **{"Content-Range": told}).status_code < 500


def test_a_broken_upload_goes_on_where_it_broke(door: Door) -> None:
    """A connection that is cut leaves what arrived; the rest, sent from the offset told, makes the artifact whole."""
    name, url = sha(BIG), urlsplit(door.base)
    with socket.create_connection((url.hostname, url.port)) as connection:
        head = (
            f"PUT {url.path}/artifacts/{name} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {door.key}\r\n"
            f"Content-Type: application/octet-stream\r\nContent-Length: {len(BIG)}\r\n\r\n"
        )
        connection.sendall(head.encode() + BIG[:3_000_000])
    offset = 0
    for _ in range(100):
        offset = door.get(f"/artifacts/{name}/upload")["offset"]
        if offset:
            break
        threading.Event().wait(0.05)
    threading.Event().wait(0.3)
    offset = door.get(f"/artifacts/{name}/upload")["offset"]
    assert 0 < offset <= 3_000_000
    rest = put(door, name, BIG[offset:], **{"Content-Range": f"bytes {offset}-{len(BIG) - 1}/{len(BIG)}"})
    assert rest.status_code == 201, rest.text
    assert door.http.get(f"/artifacts/{name}").content == BIG


def test_what_arrived_wrong_is_dropped_at_the_end(door: Door) -> None:
    """Pieces that do not add up to the name are refused when they are all there, and a new start is free."""
    name, total = sha(BIG), len(BIG)
    put(door, name, b"x" * 2_000_000, **{"Content-Range": f"bytes 0-1999999/{total}"})
    last = put(door, name, BIG[2_000_000:], **{"Content-Range": f"bytes 2000000-{total - 1}/{total}"})
    assert last.status_code == 422
    assert door.get(f"/artifacts/{name}/upload") == {"sha256": name, "stored": False, "offset": 0}
    assert put(door, name, BIG).status_code == 201


def test_two_who_send_the_same_at_once_leave_one_whole_artifact(door: Door) -> None:
    """Of several uploads of one content at once each succeeds or is told to wait; what is stored is whole."""
    name = sha(BIG)
    statuses: list[int] = []

    def send() -> None:
        with door.with_key(door.key) as http:
            statuses.append(http.put(f"/artifacts/{name}", content=BIG, headers=BYTES).status_code)

    senders = [threading.Thread(target=send) for _ in range(6)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert set(statuses) <= {200, 201, 409}
    assert {200, 201} & set(statuses)
    assert door.client.artifacts.verify(name).size == len(BIG)


def test_leftovers_are_swept_and_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that nobody went on with for a day makes room for the next; more than the bound are refused."""
    uploads = Uploads(door.client.artifacts)
    for number in range(3):
        with uploads.taking(sha(b"%d" % number), 0) as piece:
            piece.write(b"x")
    monkeypatch.setattr("api.uploads.UNFINISHED_MAX", 3)
    with pytest.raises(NotAllowed), uploads.taking(sha(b"more"), 0):
        pass
    old = door.client.artifacts.root / TEMPS / f"{sha(b'1')}.part"
    os.utime(old, (0, old.stat().st_mtime - KEPT_S - 60))
    with uploads.taking(sha(b"more"), 0) as piece:
        piece.write(b"x")
    assert uploads.offset(sha(b"1")) == 0


def test_hostile_content_is_not_rendered(door: Door) -> None:
    """A page with a script comes as bytes to save: octet-stream, attachment, nosniff, sandboxed."""
    page = b"<html><script>alert(1)</script>"
    put(door, sha(page), page)
    answer = door.http.get(f"/artifacts/{sha(page)}", headers={"Accept": "text/html"})
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="{sha(page)}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=4-", 206, b"456789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=10-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=0-1,4-5", 200, b"0123456789"),
        ("bytes=3-1", 200, b"0123456789"),
        ("lines=0-1", 200, b"0123456789"),
    ],
)
def test_a_range_is_read(door: Door, asked: str, status: int, content: bytes | None) -> None:
    """One range is answered as such, one that lies outside is a 416; several, or none that is one, give all."""
    data = b"0123456789"
    put(door, sha(data), data)
    answer = door.http.get(f"/artifacts/{sha(data)}", headers={"Range": asked})
    assert answer.status_code == status
    if content is None:
        assert answer.headers["content-type"] == "application/problem+json"
    else:
        assert answer.content == content


def test_an_artifact_of_another_project_is_not_there(served: Served, door: Door) -> None:
    """The same sha256 is a 404 in a project that never stored it."""
    put(door, sha(b"mine"), b"mine")
    assert served.project().http.get(f"/artifacts/{sha(b'mine')}").status_code == 404


def test_an_artifact_is_not_sent_twice(door: Door) -> None:
    """Its name is its ETag: who has it gets a 304."""
    put(door, sha(b"4"), b"4")
    answer = door.http.get(f"/artifacts/{sha(b'4')}", headers={"If-None-Match": f'"{sha(b"4")}"'})
    assert (answer.status_code, answer.content) == (304, b"")
