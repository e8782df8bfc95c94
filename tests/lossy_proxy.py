"""A TCP proxy that loses things: replies after the server has acted on the request, or requests half way.

It takes one request of a connection, hands it to the server with `Connection: close`, and waits for the whole reply
before it loses it: by then whatever the request asked for was committed.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple, Self
from urllib.parse import urlsplit

Loss = Literal["reply", "half the reply", "half the request", "the connection"]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)


class Request(NamedTuple):
    """The first line of a request, and its number from 1."""

    number: int
    method: str
    path: str


class LossyProxy:
    """Stands between a client and the server at `url`; `loses` says of each request what of it is lost, if anything."""

    def __init__(self, url: str, loses: Callable[[Request], Loss | None]) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self.loses = loses
        self.requests: list[Request] = []
        self.lost: list[Request] = []
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client:
                self._carry(client)
        except OSError:
            pass

    def _carry(self, client: socket.socket) -> None:
        head, body = _whole_request(client)
        if not head:
            return
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        with self._lock:
            request = Request(len(self.requests) + 1, method, path)
            self.requests.append(request)
            loss = self.loses(request)
            if loss:
                self.lost.append(request)
        if loss == "the connection":
            _reset(client)
            return
        sent = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body
        with socket.create_connection(self._server) as server:
            if loss == "half the request":
                server.sendall(sent[: len(sent) - max(1, len(body) // 2)])
                server.shutdown(socket.SHUT_WR)
                _all_of(server)
                _reset(client)
                return
            server.sendall(sent)
            reply = _all_of(server)
        if loss == "reply":
            _reset(client)
        elif loss == "half the reply":
            client.sendall(reply[: len(reply) // 2])
            _reset(client)
        else:
            client.sendall(reply)


def _whole_request(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65_536)
        if not more:
            return b"", b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    found = _LENGTH.search(b"\r\n" + head)
    length = int(found[1]) if found else 0
    while len(body) < length:
        more = client.recv(1 << 20)
        if not more:
            return b"", b""
        body += more
    return head + b"\r\n\r\n", body


def _all_of(server: socket.socket) -> bytes:
    reply = b""
    while more := server.recv(1 << 20):
        reply += more
    return reply


def _reset(client: socket.socket) -> None:
    """Close so that the other side sees a reset, not an end."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
