"""What stands before every route: strict JSON, plain addresses, bounded bodies, one form of refusal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from fastapi import FastAPI, Query, Response
from pydantic import Field
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from api.http.addresses import ADDRESS_BYTES_MAX, HEADERS_BYTES_MAX
from api.http.answering import answer
from api.http.bodies import Form, strict
from api.http.calls import List, Open, Read, Write
from api.http.gate import Gate
from api.http.problems import BadRequest, problem_of
from api.http.routes import Routes
from api.http.strict_json import DEPTH_MAX
from api.problems import HTTP_KINDS, KINDS, error_class, kind_of
from ledger import errors
from ledger.errors import Conflict, EvalLedgerError, NotFound, StoreUnreachable
from tests.asgi import Answer, Browser, send
from tests.given_requests import MINE, World

PAGE = Path(__file__).parent.parent / "docs" / "problems.md"
SECRET = "sk-never-repeat-me"
BODY_BYTES_MAX = 1_000_000

things = Routes("things")
outside = Routes("outside", project=False)


class Thing(Form):
    """Something to send."""

    name: str = Field(max_length=10)
    count: int = Field(default=1, ge=1, le=9)
    share: float = 0.5
    secrets: dict[str, Annotated[str, Field(max_length=5)]] = Field(default_factory=dict)


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """The same as a Struct."""

    token: int
    names: list[str] = []


class Said(msgspec.Struct):
    """What is answered."""

    said: Any
    as_of: int


@things.post("/things", scope="submit", answers=Said, body_bytes_max=BODY_BYTES_MAX)
def take(call: Write, body: Annotated[Thing, strict(Thing)]) -> Response:
    """Take a thing."""
    return answer(call, Said([body.name, call.request_id()], 1), status=201, position=7, location="/things/1")


@things.post("/entries", scope="submit", answers=Said)
async def take_entry(call: Write, body: Annotated[Entry, strict(Entry)]) -> Response:
    """Take an entry."""
    return answer(call, Said(body.token, 1))


@things.put("/raw", scope="submit", takes="application/octet-stream", body_bytes_max=1_000)
async def take_raw(call: Write) -> Response:
    """Take bytes."""
    return Response(str(len(b"".join([chunk async for chunk in call.chunks()]))))


@things.get("/things", scope="read", answers=Said, cursor=True)
def give(
    call: List,
    limit: Annotated[int, Query(ge=1, le=10)] = 2,
    tag: Annotated[list[str], Query()] = [],  # noqa: B006
) -> Response:
    """Give a page of numbers."""
    begin = call.after(int) or 0
    return answer(call, Said([*range(begin, begin + limit), *tag], 12), next=begin + limit if begin < 4 else None)


@things.get("/errors/{name}", scope="read")
def fail(call: Read, name: str) -> Response:
    """Raise what is named."""
    kind: Any = getattr(errors, name, None) or {"sql": OperationalError, "http": HTTPException}.get(name, KeyError)
    raise {"sql": lambda _: OperationalError(SECRET, {}, Exception(SECRET)), "http": lambda _: HTTPException(418)}.get(
        name, kind
    )(f"It is wrong with {SECRET}.")


@outside.get("/outside", scope="public", answers=Said)
def open_to_all(call: Open) -> Response:
    """Say something to anybody."""
    return answer(call, Said("hello", 0))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two projects with keys."""
    return World(tmp_path_factory.mktemp("door"))


@pytest.fixture(scope="module")
def app(world: World) -> FastAPI:
    """An app with the routes above."""
    return world.app(routes=(things, outside))


@pytest.fixture(scope="module")
def browser(app: FastAPI, world: World) -> Iterator[Browser]:
    """Somebody with a key for everything."""
    asking = Browser(app, key=world.keys["admin"])
    yield asking
    asking.close()


P = f"/v1/projects/{MINE}"


def refused(said: Answer, status: int) -> dict[str, Any]:
    """The problem that was answered; nothing of what was sent is in it."""
    assert (said.status, said.headers["content-type"]) == (status, "application/problem+json"), said
    assert SECRET.encode() not in said.body
    found: dict[str, Any] = said.json()
    assert found["status"] == status
    assert found["detail"]
    return found


# --- JSON ------------------------------------------------------------------------------------------------------------

DEEP = b'{"name":' * 100_000

NOT_JSON = {
    "nothing": b"",
    "space": b" \n",
    "nan": b'{"name":"a","share":NaN}',
    "infinity": b'{"name":"a","share":-Infinity}',
    "too-large-float": b'{"name":"a","share":1e999}',
    "huge-int": b'{"name":"a","count":' + b"9" * 5_000 + b"}",
    "long-int": b'{"name":"a","count":92233720368547758080}',
    "below-int": b'{"name":"a","count":-9223372036854775809}',
    "lone-surrogate": rb'{"name":"\ud800"}',
    "surrogate-bytes": b'{"name":"\xed\xa0\x80"}',
    "nul-escape": rb'{"name":"a\u0000"}',
    "nul-byte": b'{"name":"a\0"}',
    "nul-key": rb'{"na\u0000me":"a"}',
    "deep-object": DEEP,
    "deep-array": b"[" * 100_000,
    "deep-but-whole": b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
    "cut": b'{"name":"' + SECRET.encode(),
    "two": b'{"name":"a"}{"name":"b"}',
    "twice": b'{"name":"a","name":"' + SECRET.encode() + b'"}',
    "twice-escaped": rb'{"name":"a","nam\u0065":"b"}',
    "twice-inside": b'{"name":"a","secrets":{"x":"1","x":"2"}}',
    "not-utf-8": b'{"name":"\xff"}',
    "utf-16": '{"name":"a"}'.encode("utf-16"),
    "bom": b'\xef\xbb\xbf{"name":"a"}',
    "comment": b'{"name":"a"} // b',
    "trailing-comma": b'{"name":"a",}',
    "single-quotes": b"{'name':'a'}",
}


@pytest.mark.parametrize("route", ["things", "entries"])
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_no_plain_json_is_malformed(browser: Browser, route: str, body: bytes) -> None:
    """NaN, infinities, surrogates, NUL, depth, huge numbers, keys named twice, cut texts: 400 with a sentence."""
    found = refused(browser("POST", f"{P}/{route}", body=body, headers={"content-type": "application/json"}), 400)
    assert found["type"] == "/problems/malformed"


WRONG_FORM: dict[str, tuple[Any, str]] = {
    "unknown": ({"name": "a", SECRET: 1}, "/"),
    "missing": ({}, "/name"),
    "text-for-number": ({"name": "a", "count": SECRET}, "/count"),
    "number-for-text": ({"name": 5}, "/name"),
    "float-for-int": ({"name": "a", "count": 1.5}, "/count"),
    "bool-for-int": ({"name": "a", "count": True}, "/count"),
    "too-long": ({"name": SECRET}, "/name"),
    "too-large": ({"name": "a", "count": 10}, "/count"),
    "inside": ({"name": "a", "secrets": {SECRET: SECRET}}, "/secrets/*"),
    "null": ({"name": None}, "/name"),
    "list": ([SECRET], "/"),
    "scalar": (SECRET, "/"),
}


@pytest.mark.parametrize(("body", "place"), WRONG_FORM.values(), ids=WRONG_FORM.keys())
def test_a_wrong_form_names_the_place_and_not_the_value(browser: Browser, body: Any, place: str) -> None:
    """422 says where and what is wrong; no value, no unknown name, nothing that was sent."""
    found = refused(browser("POST", f"{P}/things", json=body), 422)
    assert found["type"] == "/problems/bad-input"
    assert place in [fault["at"] for fault in found["errors"]]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"token": SECRET}, "/token"),
        ({"token": 1, SECRET: 1}, "/"),
        ({"token": 1, "names": ["a", 1]}, "/names/1"),
        (3, "/"),
    ],
)
def test_a_struct_is_as_strict_as_a_form(browser: Browser, body: Any, place: str) -> None:
    """The same for bodies that msgspec reads."""
    found = refused(browser("POST", f"{P}/entries", json=body), 422)
    assert [fault["at"] for fault in found["errors"]] == [place]


def test_a_good_body_is_taken(browser: Browser) -> None:
    """With its position, its place, and the name of the request."""
    said = browser(
        "POST", f"{P}/things", json={"name": "a:b", "secrets": {"x": "::"}}, headers={"idempotency-key": "r 1"}
    )
    assert (said.status, said.json()["said"]) == (201, ["a:b", "r 1"])
    assert (said.headers["el-position"], said.headers["location"]) == ("7", f"{P}/things/1")


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_a_body_of_another_kind_is_refused(browser: Browser, kind: str | None) -> None:
    """Only JSON is taken for JSON, said in so many words."""
    headers = {} if kind is None else {"content-type": kind}
    found = refused(browser("POST", f"{P}/things", body=b'{"name":"a"}', headers=headers), 415)
    assert found["type"] == "/problems/unsupported-media-type"


def test_a_charset_after_the_kind_is_fine(browser: Browser) -> None:
    """JSON is UTF-8 whatever is said; saying so is usual."""
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert browser("POST", f"{P}/things", body=b'{"name":"a"}', headers=headers).status == 201


def test_a_body_is_bounded_while_it_is_read(browser: Browser, app: FastAPI) -> None:
    """Too long by its header is refused unread; too long in chunks, once there is too much."""
    key = browser.headers["authorization"].encode()
    kind = (b"content-type", b"application/json")
    head = [(b"host", b"127.0.0.1"), (b"authorization", key), kind]
    taken = 0

    class Chunks(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            nonlocal taken
            for chunk in [b" " * 100_000] * 50:
                taken += 1
                yield chunk

    refused(
        browser(
            "POST", f"{P}/things", body=b"", headers={"content-length": "1000001", "content-type": "application/json"}
        ),
        413,
    )
    said = browser._runner.run(
        send(app, "POST", f"{P}/things", [*head, (b"transfer-encoding", b"chunked")], Chunks([b""]))
    )
    refused(said, 413)
    assert (
        browser("PUT", f"{P}/raw", body=b"x" * 1_000, headers={"content-type": "application/octet-stream"}).body
        == b"1000"
    )
    refused(browser("PUT", f"{P}/raw", body=b"x" * 1_001, headers={"content-type": "application/octet-stream"}), 413)


@pytest.mark.parametrize("length", ["5", "-1", "1e3", "٣", "99999999999999999999", "", "0x10"])
def test_a_body_is_as_long_as_it_says(browser: Browser, length: str) -> None:
    """A cut body, and a length that is none, are refused."""
    headers = {"content-length": length.encode().decode("latin-1"), "content-type": "application/json"}
    said = browser("POST", f"{P}/things", body=b'{"name":"a"}', headers=headers)
    assert said.status in (400, 413)
    refused(said, said.status)


def test_a_connection_that_ends_in_a_body_is_no_error_of_ours(browser: Browser, app: FastAPI) -> None:
    """Nothing was taken, and nothing went wrong here."""
    head = [(n.encode(), v.encode()) for n, v in browser.headers.items()] + [
        (b"content-type", b"application/json"), (b"content-length", b"100"),
    ]  # fmt: skip
    said = browser._runner.run(send(app, "POST", f"{P}/things", head, [b'{"name"'], cut=True))
    refused(said, 400)
    assert said.failed is None


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


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_error_has_its_status_and_type(browser: Browser, kind: type[EvalLedgerError]) -> None:
    """The table is what is answered, and the client finds the class again."""
    said = browser("GET", f"{P}/errors/{kind.__name__}")
    assert (said.status, said.problem) == (KINDS[kind].status, KINDS[kind].name)
    assert said.failed is None
    assert error_class(said.json()["type"]) is kind
    # What the store says when it cannot be reached may name folders and addresses of the server.
    assert (SECRET.encode() in said.body) == (kind is not StoreUnreachable)
    assert ("retry-after" in said.headers) == (said.status == 503)
    assert ("www-authenticate" in said.headers) == (said.status == 401)


def test_every_error_is_in_the_table() -> None:
    """Each class has its own line, or the one of the class above it; names are there once."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EvalLedgerError)]
    assert set(found) <= set(KINDS) | {errors.Refused}
    names = [kind.name for kind in {*KINDS.values(), *HTTP_KINDS.values()}]
    assert len(names) == len(set(names))
    assert kind_of(errors.Refused("x")).exit_code == 1


def test_what_differs_is_listed() -> None:
    """A conflict says where."""
    said = problem_of(Conflict("It stands already.", ["attempts: 1, not 2"]))
    assert msgspec.json.decode(said.body)["differs"] == ["attempts: 1, not 2"]


def test_a_key_in_a_sentence_is_taken_out() -> None:
    """Also where somebody used a key as a name."""
    said = bytes(problem_of(NotFound(f"There is no dataset el_{'a' * 38}@1.")).body)
    assert b"aaaa" not in said
    assert b"el_[key]@1" in said
    assert problem_of(NotFound("There is no \ud800.")).status_code == 404


def test_the_unforeseen_says_nothing(browser: Browser) -> None:
    """500 without a word of the error; a database that went away is 503."""
    said = browser("GET", f"{P}/errors/anything")
    assert refused(said, 500)["type"] == "/problems/unexpected"
    assert isinstance(said.failed, KeyError)  # so that the log has it
    assert refused(browser("GET", f"{P}/errors/sql"), 503)["type"] == "/problems/store-unreachable"
    refused(browser("GET", f"{P}/errors/http"), 400)


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


def test_without_insecure_local_everybody_needs_a_key(app: FastAPI) -> None:
    """Also on the machine itself."""
    asking = Browser(app)
    refused(asking("GET", f"{P}/things"), 401)
    assert asking("GET", "/outside").status == 200
    asking.close()


# --- the page --------------------------------------------------------------------------------------------------------


def reference() -> str:
    """The page on problems."""
    kinds = sorted({*KINDS.values(), *HTTP_KINDS.values()}, key=lambda kind: (kind.status, kind.name))
    lines = ["# Problems", "", "Written by `python -m tests.test_app_door` from `api/problems.py`.", ""]
    lines += [
        "Whatever the server refuses is `application/problem+json` (RFC 9457): `type` (below), `title`, `status`, and",
        "`detail`, one sentence for a person. `differs` lists what differs where something conflicts; `errors` names",
        "the places that are wrong in a body or an address, never the values there. `type` is stable. A command that",
        "meets the same trouble ends with the exit code.", "",
    ]  # fmt: skip
    lines += ["| `type` | HTTP status | exit code | what it says |", "| --- | --- | --- | --- |"]
    lines += [f"| `{kind.type}` | {kind.status} | {kind.exit_code} | {kind.title} |" for kind in kinds]
    return "\n".join(lines) + "\n"


def test_the_page_of_problems_is_current() -> None:
    """docs/problems.md says what the table says."""
    assert PAGE.read_text() == reference()


if __name__ == "__main__":
    PAGE.write_text(reference())
