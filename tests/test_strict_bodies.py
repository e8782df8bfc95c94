"""Bodies before every route: strict JSON, the declared form, bounded while they are read; nothing sent is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.http.strict_json import DEPTH_MAX
from tests.asgi import Browser, send
from tests.given_requests import World
from tests.given_things import BODY_BYTES_MAX, SECRET, P, asking, refused


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Somebody with a key for everything."""
    with asking(World(tmp_path_factory.mktemp("door"))) as browser:
        yield browser


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


def test_a_body_is_bounded_while_it_is_read(browser: Browser) -> None:
    """Too long by its header is refused unread; too long in chunks, once there is too much."""
    head = [(b"host", b"127.0.0.1"), (b"authorization", browser.headers["authorization"].encode())]
    head.append((b"content-type", b"application/json"))
    taken = 0

    def chunks() -> Iterator[bytes]:
        nonlocal taken
        for chunk in [b" " * 100_000] * 50:
            taken += 1
            yield chunk

    for framing, taken_max in [
        ((b"content-length", b"%d" % (BODY_BYTES_MAX + 1)), 0),
        ((b"transfer-encoding", b"chunked"), BODY_BYTES_MAX // 100_000 + 1),
    ]:
        refused(browser._runner.run(send(browser.app, "POST", f"{P}/things", [*head, framing], chunks())), 413)
        assert taken == taken_max
    kind = {"content-type": "application/octet-stream"}
    assert browser("PUT", f"{P}/raw", body=b"x" * 1_000, headers=kind).body == b"1000"
    refused(browser("PUT", f"{P}/raw", body=b"x" * 1_001, headers=kind), 413)


@pytest.mark.parametrize("length", ["5", "-1", "1e3", "٣", "99999999999999999999", "", "0x10"])
def test_a_body_is_as_long_as_it_says(browser: Browser, length: str) -> None:
    """A cut body, and a length that is none, are refused."""
    headers = {"content-length": length.encode().decode("latin-1"), "content-type": "application/json"}
    said = browser("POST", f"{P}/things", body=b'{"name":"a"}', headers=headers)
    assert said.status in (400, 413)
    refused(said, said.status)


def test_a_connection_that_ends_in_a_body_is_no_error_of_ours(browser: Browser) -> None:
    """Nothing was taken, and nothing went wrong here."""
    head = [(n.encode(), v.encode()) for n, v in browser.headers.items()] + [
        (b"content-type", b"application/json"), (b"content-length", b"100"),
    ]  # fmt: skip
    said = browser._runner.run(send(browser.app, "POST", f"{P}/things", head, [b'{"name"'], cut=True))
    refused(said, 400)
    assert said.failed is None
