"""Whatever is sent to whichever route: an answer or a refusal with a sentence, never a 5xx, never a secret back."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from api.http import problems
from tests.asgi import Answer, send
from tests.fuzzing import PLANTED, Fuzzer, Made, echoes
from tests.given_requests import MINE, World

SEED = 20_261_129


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A store of the test's own: the requests write to it."""
    return World(tmp_path / "home")


def faults_of(answer: Answer, world: World, made: Made) -> list[str]:
    """What is wrong with an answer."""
    found = [f"echoes {what}" for what in echoes(answer.body + repr(answer.headers).encode(), world, made)]
    if answer.failed is not None:
        found.append(f"raised {answer.failed!r:.300}")
    if answer.status >= 500 or answer.status < 200:
        found.append(f"answered {answer.status}: {answer.body[:300]!r}")
    if (
        answer.status >= 400
        and made.method != "HEAD"
        and answer.headers.get("content-type") != "application/problem+json"
    ):
        found.append(f"refused with {answer.status} and no problem")
    return found


def fuzz(app: FastAPI, world: World, count: int) -> tuple[Counter[int], list[str]]:
    """How many requests were answered with each status, and the faults."""
    fuzzer = Fuzzer(app, world, SEED)
    statuses: Counter[int] = Counter()
    faults: list[str] = []

    async def run() -> None:
        for number in range(count):
            made = fuzzer.request()
            answer = await send(app, made.method, made.target, made.headers, made.chunks, cut=made.cut)
            statuses[answer.status] += 1
            for fault in faults_of(answer, world, made):
                faults.append(f"request {number}: {made.method} {made.target[:200]!r} {made.chunks!r:.300}: {fault}")

    asyncio.run(run())
    return statuses, faults


def test_no_request_is_answered_with_an_error_of_ours(world: World, request: pytest.FixtureRequest) -> None:
    """Thousands of requests over every route: no 5xx, every refusal a problem, no planted secret in any answer."""
    count = request.config.getoption("--fuzz-requests")
    statuses, faults = fuzz(world.app(), world, count)
    assert faults == [], f"{len(faults)} faults: {faults[:10]}"
    # The requests are no noise: many are taken, and many get past the door.
    assert sum(n for status, n in statuses.items() if status < 300) > count / 20
    assert {200, 201, 400, 401, 404, 413, 415, 422} <= set(statuses)


def test_the_stock_handler_would_echo_and_fail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: with validation errors as pydantic gives them, what was sent comes back."""
    app = world.app()

    def with_input(_request: object, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return JSONResponse({"detail": [{**one, "ctx": None} for one in error.errors()]}, 422)

    app.add_exception_handler(RequestValidationError, with_input)
    monkeypatch.setattr(problems, "without_keys", str)
    _, faults = fuzz(app, world, 300)
    assert any("no problem" in fault or "echoes" in fault for fault in faults)


# --- over a socket ---------------------------------------------------------------------------------------------------


@pytest.fixture
def port(world: World) -> Iterator[int]:
    """A real server, with the parser that `el serve` uses."""
    config = uvicorn.Config(world.app(), host="127.0.0.1", port=0, http="httptools", log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(20)


def spoken(port: int, data: bytes, *, hang_up: bool = False) -> bytes:
    """What a server says to some bytes, until it has answered or closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        if hang_up:
            connection.shutdown(socket.SHUT_WR)
        connection.settimeout(1.5)
        said = b""
        try:
            while chunk := connection.recv(65_536):
                said += chunk
                head, end, body = said.partition(b"\r\n\r\n")
                length = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if end and length and len(body) >= length[0]:
                    break
        except (TimeoutError, ConnectionResetError):
            pass
        return said


def traps(key: str) -> dict[str, bytes]:
    """Bytes that parsers have fallen over."""
    jobs = f"/v1/projects/{MINE}/jobs".encode()
    head = b"Host: 127.0.0.1\r\nAuthorization: Bearer " + key.encode() + b"\r\n"
    json = head + b"Content-Type: application/json\r\n"
    post = b"POST " + jobs + b" HTTP/1.1\r\n"

    def get(target: bytes, more: bytes = b"") -> bytes:
        return b"GET " + target + b" HTTP/1.1\r\n" + head + more + b"\r\n"

    def body(data: bytes) -> bytes:
        return post + json + b"Content-Length: " + str(len(data)).encode() + b"\r\n\r\n" + data

    return {
        "nan": body(b'{"dataset":NaN}'),
        "1e999": body(b'{"dataset":"a@1","attempts":1e999}'),
        "surrogate": body(rb'{"dataset":"\ud800"}'),
        "nul": body(rb'{"dataset":"\u0000"}'),
        "deep": body(b"[" * 200_000),
        "not utf-8": body(b'{"dataset":"\xff\xfe"}'),
        "cut": post + json + b'Content-Length: 100\r\n\r\n{"dataset":',
        "percent ff": get(jobs + b"/%ff"),
        "percent 00": get(jobs + b"/%00"),
        "overlong": get(jobs + b"/%c0%ae%c0%ae"),
        "raw ff": get(jobs + b"/\xff"),
        "raw utf-8": get(jobs + "/é".encode()),
        "broken escape": get(jobs + b"/%zz"),
        "dots": get(jobs + b"/../keys"),
        "encoded dots": get(jobs + b"/%2e%2e/keys"),
        "query ff": get(jobs + b"?dataset=%ff"),
        "query raw": get(jobs + b"?dataset=\xff"),
        "fragment": get(jobs + b"#x"),
        "absolute": get(b"http://evil.example" + jobs),
        "star": b"OPTIONS * HTTP/1.1\r\n" + head + b"\r\n",
        "connect": b"CONNECT evil.example:443 HTTP/1.1\r\n" + head + b"\r\n",
        "no slash": get(b"x"),
        "long path": get(jobs + b"/" + b"a" * 20_000),
        "long header": get(jobs, b"X-Long: " + b"a" * 200_000 + b"\r\n"),
        "many headers": get(jobs, b"".join(b"X-%d: y\r\n" % n for n in range(2_000))),
        "header nul": get(jobs, b"X-Nul: a\x00b\r\n"),
        "header bytes": get(jobs, b"Idempotency-Key: \xff\xfe\r\n"),
        "header folded": get(jobs, b"X-Folded: a\r\n b\r\n"),
        "two hosts": get(jobs, b"Host: evil.example\r\n"),
        "two keys": get(jobs, b"Authorization: Bearer x\r\n"),
        "length x": post + json + b"Content-Length: x\r\n\r\n{}",
        "length -1": post + json + b"Content-Length: -1\r\n\r\n{}",
        "length huge": post + json + b"Content-Length: 99999999999999999999\r\n\r\n{}",
        "length beyond the bound": post + json + b"Content-Length: 999999999999\r\n\r\n{}",
        "length and chunks": post + json + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "two lengths": post + json + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        "chunk size": post + json + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "chunk huge": post + json + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
        "chunked gzip": post + json + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "websocket": get(
            jobs, b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
        ),
        "h2c": get(
            jobs, b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
        ),
        "http 2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "http 0.9": b"GET " + jobs + b"\r\n\r\n",
        "http 9": b"GET " + jobs + b" HTTP/9.9\r\n" + head + b"\r\n",
        "no method": b" " + jobs + b" HTTP/1.1\r\n\r\n",
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
        "nothing": b"\r\n\r\n\r\n",
        "noise": bytes(range(256)) * 20,
    }


def test_the_traps_of_decoding_over_a_socket(world: World, port: int) -> None:
    """Each is refused with 4xx, or the connection ends; never 5xx, never a key or a secret; and the server lives on."""
    faults = []
    for name, data in traps(world.keys["admin"]).items():
        for hang_up in (False, True) if name in ("cut", "chunk huge") else (False,):
            said = spoken(port, data, hang_up=hang_up)
            status = int(said[9:12]) if said.startswith(b"HTTP/1.") else 0
            if status >= 500 or (status and status < 400 and name not in HARMLESS):
                faults.append(f"{name}: {said[:300]!r}")
            if world.keys["admin"].encode() in said or PLANTED.encode() in said:
                faults.append(f"{name} echoes")
    assert faults == []
    alive = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    assert spoken(port, alive).startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))


# What a server may take as it is: a fragment and an absolute address name the same route, and headers that no route
# reads mean nothing.
HARMLESS = {
    "fragment",
    "absolute",
    "header folded",
    "header bytes",
    "two hosts",
    "websocket",
    "h2c",
    "http 0.9",
    "http 9",
}
