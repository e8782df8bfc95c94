"""Following a project's log live, as server-sent events: every entry that fits, once and in order, for as long as one
listens.

A stream is a loop: read the next entries in one short transaction, send them, then wait for news. Nothing is held
between two reads, so a slow reader costs a task and nothing of the database. The position of the last entry sent is
all that a stream is; whoever comes back with it goes on behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from anyio import CapacityLimiter, to_thread

from api.client import Client
from api.http.calls import ReadCall
from api.http.gate import Gate
from ledger.database import reading
from ledger.errors import NotYet, StoreUnreachable
from projections.audit_trail import AuditRow
from projections.following import position_of
from projections.models import READ_MODELS

STREAMS_MAX = 200
BATCH_ENTRIES = 100
CHECK_S = 0.5
PING_S = 15.0
SEND_S_MAX = 30.0
END_S_MAX = 5.0  # how long a stream may take to end when the server stops, before it is cut
WATCH_S = 1.0
POLL_S = 0.1
READERS_MAX = 8
WATCHERS_MAX = 16

T = TypeVar("T")

# What of the log is wanted after a position, at most so many entries.
Question = Callable[[int, int], list[AuditRow]]


class Place(NamedTuple):
    """How far a stream has come, and how far the log was known when it looked last."""

    sent: int
    seen: int


class Live:
    """The streams of one app, and who watches for them whether the read models have moved on."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.open = 0
        self._readers = CapacityLimiter(READERS_MAX)
        self._watchers = CapacityLimiter(WATCHERS_MAX)
        self._waiting: dict[str, dict[asyncio.Event, int]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def full(self) -> bool:
        """Whether there are as many streams as one process keeps."""
        return self.open >= STREAMS_MAX

    async def follow(self, call: ReadCall, question: Question, after: int) -> AsyncIterator[bytes]:
        """The entries after a position as server-sent events, until the key is revoked or the server stops."""
        self.open += 1
        try:
            checked_s = time.monotonic()
            while not call.stopping.is_set():
                rows, seen = await self._read(call.client, question, after)
                for row in rows:
                    yield event_of(row)
                    after = row.position
                news = len(rows) == BATCH_ENTRIES
                after = after if news else max(after, seen)
                while not call.stopping.is_set():
                    if time.monotonic() - checked_s >= CHECK_S:
                        if not await call.still_allowed():
                            return
                        checked_s = time.monotonic()
                    if news:
                        break
                    news = await self._news(call, after)
        finally:
            self.open -= 1

    async def _read(self, client: Client, question: Question, after: int) -> tuple[list[AuditRow], int]:
        """The next entries, and the position before which there are no others; nothing while the store is away."""
        with suppress(NotYet, StoreUnreachable):
            rows = await self._in_thread(partial(question, after, BATCH_ENTRIES), self._readers)
            return rows, client.as_of
        return [], after

    async def _news(self, call: ReadCall, after: int) -> bool:
        """Wait until the read models have gone beyond a position; False when it is time to look at the key again."""
        news = asyncio.Event()
        waiting = self._waiting.setdefault(call.project, {})
        waiting[news] = after
        if call.project not in self._tasks:
            self._tasks[call.project] = asyncio.create_task(self._watch(call.project))
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), CHECK_S)
        finally:
            del waiting[news]
        return news.is_set()

    async def _watch(self, project: str) -> None:
        """Wake the streams of a project, as long as there are any."""
        waiting = self._waiting[project]
        idle_since_s = time.monotonic()
        try:
            while waiting or time.monotonic() - idle_since_s < 2 * CHECK_S:
                if waiting:
                    idle_since_s = time.monotonic()
                beyond = min(waiting.values(), default=0)
                reached = await self._in_thread(partial(self._reached, project, beyond), self._watchers)
                for news, after in list(waiting.items()):
                    if reached > after:
                        news.set()
                await asyncio.sleep(0)
        finally:
            del self._tasks[project]

    def _reached(self, project: str, beyond: int) -> int:
        """Where the read models stand, once they are beyond a position or some time is over."""
        follower = self.gate.follower
        try:
            if follower is None:
                reached = self.gate.workspace.caught_up(project)
            else:
                began_s = time.monotonic()
                if not follower.wait_until(project, beyond + 1, WATCH_S):
                    time.sleep(max(0.0, POLL_S - (time.monotonic() - began_s)))
                with reading(self.gate.workspace.engine) as connection:
                    reached = position_of(connection, project, READ_MODELS)
        except StoreUnreachable:
            reached = 0
        if reached <= beyond:
            time.sleep(POLL_S)
        return reached

    async def _in_thread(self, work: Callable[[], T], limiter: CapacityLimiter) -> T:
        return await to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)


def ping() -> bytes:
    """A comment that keeps a silent connection open; without an empty line, which some readers take for an event."""
    return b": ping\n"


def event_of(row: AuditRow) -> bytes:
    """An entry as one server-sent event: its position is the id, its tag the event, its stored bytes in the data."""
    # JSON as msgspec writes it has no line break in it, so the data is one line.
    return b'id: %d\nevent: %s\ndata: {"position":%d,"entry":%s}\n\n' % (
        row.position,
        row.tag.encode(),
        row.position,
        row.body,
    )
