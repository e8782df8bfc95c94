"""Requests to an app in this process, byte for byte: what no HTTP client would send can be sent, too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.types import ASGIApp, Message

PEER = ("127.0.0.1", 50_000)


class Answer(NamedTuple):
    """What an app answered. `failed` is the exception that it raised beside the answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    failed: BaseException | None = None

    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def problem(self) -> str:
        """The name of the problem that was answered."""
        assert self.headers["content-type"] == "application/problem+json", self
        found = self.json()
        assert found["status"] == self.status
        assert found["detail"].endswith((".", "]")) and found["title"]  # noqa: PT018
        return str(found["type"]).removeprefix("/problems/")


class Browser:
    """Sends requests to one app, one at a time, in an event loop of its own."""

    def __init__(self, app: ASGIApp, *, key: str | None = None, host: str = "127.0.0.1") -> None:
        self.app = app
        self.headers = {"host": host, **({"authorization": f"Bearer {key}"} if key else {})}
        self._runner = asyncio.Runner()

    def __call__(
        self,
        method: str,
        target: str | bytes,
        *,
        json: Any = None,
        body: bytes | Sequence[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        peer: tuple[str, int] = PEER,
    ) -> Answer:
        """Send one request. Headers that are None are left out."""
        sent = {**self.headers, **(headers or {})}
        if json is not None:
            body = msgspec.json.encode(json)
            sent.setdefault("content-type", "application/json")
        chunks = [body] if isinstance(body, bytes) else list(body or ())
        if body is not None and isinstance(body, bytes):
            sent.setdefault("content-length", str(len(body)))
        raw = [(name.encode(), value.encode("latin-1")) for name, value in sent.items() if value is not None]
        return self._runner.run(send(self.app, method, target, raw, chunks, peer=peer))

    def close(self) -> None:
        """End the event loop."""
        self._runner.close()


async def send(
    app: ASGIApp,
    method: str,
    target: str | bytes,
    headers: Sequence[tuple[bytes, bytes]],
    chunks: Iterable[bytes] = (),
    *,
    cut: bool = False,
    peer: tuple[str, int] = PEER,
    timeout_s: float = 30,
) -> Answer:
    """Send one request, each chunk once it is asked for; with `cut`, the connection ends after them, not the body."""
    raw = target.encode("utf-8", "surrogatepass") if isinstance(target, str) else target
    path, _, query = raw.partition(b"?")
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": _unquoted(path), "raw_path": path, "query_string": query, "root_path": "",
        "headers": list(headers), "client": peer, "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    waiting = _messages(chunks, cut=cut)
    said: dict[str, Any] = {"status": 0, "headers": {}, "body": b""}
    gone = asyncio.Event()

    async def receive() -> Message:
        if (message := next(waiting, None)) is not None:
            return message
        await gone.wait()  # nobody hangs up before the answer is there
        return {"type": "http.disconnect"}

    async def take(message: Message) -> None:
        if message["type"] == "http.response.start":
            said["status"] = message["status"]
            said["headers"] = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        elif message["type"] == "http.response.body":
            said["body"] += message.get("body", b"")

    failed = None
    try:
        await asyncio.wait_for(app(scope, receive, take), timeout_s)
    except Exception as error:
        failed = error
    finally:
        gone.set()
    return Answer(said["status"], said["headers"], said["body"], failed)


def _messages(chunks: Iterable[bytes], *, cut: bool) -> Iterator[Message]:
    for chunk in chunks:
        yield {"type": "http.request", "body": chunk, "more_body": True}
    yield {"type": "http.disconnect"} if cut else {"type": "http.request", "body": b"", "more_body": False}


def _unquoted(path: bytes) -> str:
    """A path as uvicorn hands it on."""
    return unquote(path.decode("latin-1"))
