"""Many clients of a server at once, in a process of their own, as cheap as Python can make them.

`python -m tests.benchmarks.load HOST PORT` reads requests from standard input, one JSON list of texts a client, and
writes the seconds that it all took and the latency of each request, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import uvloop


class Load(NamedTuple):
    """What clients met with: requests a second, and the latency that 99% of them kept to, in seconds."""

    rate: float
    p99_s: float


def put_load(host: str, port: int, clients: Sequence[Sequence[str]]) -> Load:
    """Send each client's requests one after the other, all clients at once; every answer must be a 2xx."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.load", host, str(port)],
        input="\n".join(json.dumps(list(requests)) for requests in clients),
        capture_output=True,
        text=True,
        check=True,
    )
    took_s, latencies = json.loads(done.stdout)
    latencies.sort()
    return Load(len(latencies) / took_s, latencies[int(len(latencies) * 0.99)])


def request(method: str, path: str, key: str, body: str = "") -> str:
    """A request as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n{body}"


async def _client(host: str, port: int, requests: Sequence[str], start: asyncio.Event) -> list[float]:
    reader, writer = await asyncio.open_connection(host, port)
    await start.wait()
    latencies = []
    for text in requests:
        began = perf_counter()
        writer.write(text.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise SystemExit(f"the server answered {head!r}")
        at = head.lower().index(b"content-length:") + 15
        await reader.readexactly(int(head[at : head.index(b"\r", at)]))
        latencies.append(perf_counter() - began)
    writer.close()
    return latencies


async def _main(host: str, port: int, clients: Sequence[Sequence[str]]) -> None:
    start = asyncio.Event()
    tasks = [asyncio.create_task(_client(host, port, requests, start)) for requests in clients]
    await asyncio.sleep(0.2)  # all connections stand
    began = perf_counter()
    start.set()
    latencies = [one for some in await asyncio.gather(*tasks) for one in some]
    json.dump([perf_counter() - began, latencies], sys.stdout)


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2]), [json.loads(line) for line in sys.stdin]))
