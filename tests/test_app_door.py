"""What stands before every route: plain addresses, answers sent once, pages, who may come without a key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.http.addresses import ADDRESS_BYTES_MAX, HEADERS_BYTES_MAX
from api.http.gate import Gate
from api.http.problems import BadRequest
from ledger import errors
from tests.asgi import Browser
from tests.given_requests import MINE, World
from tests.given_things import SECRET, P, asking, outside, refused, things


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two projects with keys."""
    return World(tmp_path_factory.mktemp("door"))


@pytest.fixture(scope="module")
def browser(world: World) -> Iterator[Browser]:
    """Somebody with a key for everything."""
    with asking(world) as browser:
        yield browser


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        b"/things/..", b"/things/%2e%2e/keys", b"/..%2f..%2fetc", b"/%2e", b"/..%5c..", b"/things/%00", b"/things%0a",
        b"/things/%ff", b"/things/%c0%ae", b"/things/%ed%a0%80", b"/things/%", b"/things/%4", b"/things/%zz",
        b"/things\x00",
        b"/things?limit=%ff", b"/things?tag=%00", b"/things?limit=%", b"/things?tag=el_" + b"a" * 38,
        b"/el_" + b"a" * 38, b"/things?limit=1&limit=2", b"/things?" + SECRET.encode() + b"=1",
        b"/things?limit=" + SECRET.encode(),
        b"/things?limit=99999999999999999999999999", b"/things?min_position=-1", b"/things?cursor=" + SECRET.encode(),
    ],
)  # fmt: skip
def test_an_address_that_could_be_read_in_two_ways_is_refused(browser: Browser, target: bytes) -> None:
    """Traversal, NUL, broken escapes, other encodings, keys, unknown and repeated parameters: 400."""
    refused(browser("GET", P.encode() + target), 400)


def test_an_endless_address_or_head_is_refused(browser: Browser) -> None:
    """Each has a bound of its own."""
    refused(browser("GET", f"{P}/things?tag=" + "a" * ADDRESS_BYTES_MAX), 414)
    refused(browser("GET", f"{P}/things", headers={"x-long": "a" * HEADERS_BYTES_MAX}), 431)
    refused(browser("GET", f"{P}/things", headers={f"x-{n}": "" for n in range(200)}), 431)


def test_what_no_route_takes_is_a_problem_too(browser: Browser) -> None:
    """404 and 405 look like every refusal."""
    assert refused(browser("GET", f"{P}/nothing"), 404)["type"] == "/problems/not-found"
    assert refused(browser("GET", f"{P}/things/"), 404)["type"] == "/problems/not-found"
    said = browser("DELETE", f"{P}/things")
    assert refused(said, 405)["type"] == "/problems/method-not-allowed"
    assert said.headers["allow"]


# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_answer_is_not_sent_twice(browser: Browser) -> None:
    """Its ETag does not move with `as_of`; who has it gets 304, with the position."""
    said = browser("GET", f"{P}/things")
    tag = said.headers["etag"]
    assert tag.startswith('W/"')
    assert said.headers["el-as-of"] == "12"
    for condition in (tag, tag.removeprefix("W/"), f'"x", {tag}', "*"):
        again = browser("GET", f"{P}/things", headers={"if-none-match": condition})
        assert (again.status, again.body, again.headers["el-as-of"]) == (304, b"", "12")
    assert browser("GET", f"{P}/things", headers={"if-none-match": '"x"'}).status == 200
    assert browser("GET", f"{P}/things?limit=3", headers={"if-none-match": tag}).status == 200


def test_pages_follow_one_another(browser: Browser) -> None:
    """`El-Next` and `Link` lead on; after the last page there is neither."""
    seen: list[int] = []
    target = f"{P}/things?limit=2"
    for _ in range(3):
        said = browser("GET", target)
        seen += said.json()["said"]
        if "el-next" in said.headers:
            link = said.headers["link"]
            assert link.endswith('>; rel="next"')
            target = link[1:].partition(">")[0].partition("127.0.0.1")[2]
    assert seen == [0, 1, 2, 3, 4, 5]
    assert "el-next" not in said.headers
    assert "link" not in said.headers


def test_a_read_waits_for_a_position_to_a_bound(world: World) -> None:
    """What is not reached in time is answered 503, and may be asked again; what was never written is refused."""
    gate = Gate(world.workspace, insecure_local=False, follower=Behind(), committed=lambda _: None)
    assert gate.client(MINE, "local", min_position=1).datasets()
    with pytest.raises(errors.NotYet, match="position 2"):
        gate.client(MINE, "local", min_position=2).datasets()
    with pytest.raises(BadRequest, match="no such position"):
        gate.client(MINE, "local", min_position=10**9).datasets()


def test_a_read_holds_what_this_process_wrote(world: World) -> None:
    """Without asking for it: the position of each write that was answered is waited for."""
    gate = Gate(world.workspace, insecure_local=False, follower=Behind(wrote=2), committed=lambda _: None)
    with pytest.raises(errors.NotYet, match="position 2"):
        gate.client(MINE, "local").datasets()


class Behind:
    """A follower that came to position 1 and no further."""

    def __init__(self, wrote: int = 0) -> None:
        self.wrote = wrote

    def acknowledge(self, project: str, position: int) -> None:
        """Take note."""

    def acknowledged(self, project: str) -> int:
        """What was written."""
        return self.wrote

    def wait_until(self, project: str, position: int, timeout_s: float) -> bool:
        """Whether it came so far."""
        return position <= 1

    def trouble(self, project: str) -> None:
        """None."""


@pytest.mark.parametrize("key", ["a", '"quoted one"', "x" * 200])
def test_a_request_may_have_a_name(browser: Browser, key: str) -> None:
    """Bare, or quoted as the draft standard has it."""
    said = browser("POST", f"{P}/things", json={"name": "a"}, headers={"idempotency-key": key})
    assert said.json()["said"][1] == key.strip('"')


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "é", '"'])
def test_a_name_of_a_request_has_a_form(browser: Browser, key: str) -> None:
    """1 to 200 printable ASCII characters."""
    if key == '"':
        assert browser("POST", f"{P}/things", json={"name": "a"}, headers={"idempotency-key": key}).status == 201
        return
    refused(browser("POST", f"{P}/things", json={"name": "a"}, headers={"idempotency-key": key}), 400)


# --- without a key ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local(world: World) -> Iterator[Browser]:
    """Somebody without a key, before a server that was started with --insecure-local."""
    asking = Browser(world.app(routes=(things, outside), insecure_local=True))
    yield asking
    asking.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "localhost:8000", "[::1]:8000"])
def test_without_a_key_this_machine_is_answered(local: Browser, host: str) -> None:
    """As the actor `local`, to the names of the machine itself."""
    assert local("GET", f"{P}/things", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    ("headers", "peer", "status"),
    [
        ({}, "192.168.1.7", 401),
        ({}, "::ffff:10.0.0.1", 401),
        ({}, "testclient", 401),
        ({"host": "evil.example"}, "127.0.0.1", 401),
        ({"host": "127.0.0.1.evil.example"}, "127.0.0.1", 401),
        ({"host": "localhost.evil.example:8000"}, "127.0.0.1", 401),
        ({"host": "evil.example@127.0.0.1"}, "127.0.0.1", 401),
        ({"host": ""}, "127.0.0.1", 401),
        ({"host": "[::1"}, "127.0.0.1", 401),
        ({"x-forwarded-for": "10.0.0.1"}, "127.0.0.1", 401),
        ({"forwarded": "for=10.0.0.1"}, "127.0.0.1", 401),
        ({"via": "1.1 proxy"}, "127.0.0.1", 401),
        ({"origin": "http://evil.example"}, "127.0.0.1", 403),
        ({"origin": "null"}, "127.0.0.1", 403),
        ({"origin": "http://127.0.0.1:9999"}, "127.0.0.1", 403),
        ({"sec-fetch-site": "cross-site"}, "127.0.0.1", 403),
        ({"sec-fetch-site": "same-site"}, "127.0.0.1", 403),
    ],
)
def test_without_a_key_nobody_else_is_answered(local: Browser, headers: dict[str, str], peer: str, status: int) -> None:
    """Not another machine, no proxy, no other name (DNS rebinding), no page from elsewhere."""
    refused(local("GET", f"{P}/things", headers=headers, peer=(peer, 1)), status)


def test_a_page_of_the_server_itself_may_ask(local: Browser) -> None:
    """The same origin is the same origin."""
    headers = {"host": "127.0.0.1:80", "origin": "http://127.0.0.1:80", "sec-fetch-site": "same-origin"}
    assert local("GET", f"{P}/things", headers=headers).status == 200


def test_a_key_is_looked_at_also_where_none_is_needed(local: Browser, world: World) -> None:
    """A wrong key is no key; and what is not there is not there."""
    refused(local("GET", f"{P}/things", headers={"authorization": "Bearer el_x"}), 401)
    refused(local("GET", f"{P}/things", headers={"authorization": f"Bearer {world.keys['revoked']}"}), 401)
    refused(local("GET", f"{P}/things", headers={"authorization": f"Bearer {world.keys['other']}"}), 404)
    refused(local("GET", "/v1/projects/nowhere/things"), 404)


def test_without_insecure_local_everybody_needs_a_key(browser: Browser) -> None:
    """Also on the machine itself."""
    asking = Browser(browser.app)
    refused(asking("GET", f"{P}/things"), 401)
    assert asking("GET", "/outside").status == 200
    asking.close()
