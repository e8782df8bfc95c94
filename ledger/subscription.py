"""Following a log from outside a transaction: who waits is woken by an append, and looks again now and then anyway."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary

from eventsourcing.persistence import ApplicationRecorder, Notification, Subscription
from sqlalchemy.engine import Engine

from ledger.database import CHANNEL

POLL_S = 0.1  # how soon one looks again where an append by another process wakes nobody
POLL_WOKEN_S = 1.0  # and where it does: only what was lost on the way is found so
RECONNECT_S = 0.5


class Listener:
    """Sets events when something was appended to a project: in this process, and on PostgreSQL in any other one.

    On PostgreSQL a thread of its own holds one connection, from the first `add` to `close`, and opens another one when
    that is cut. A wake may come for nothing, and may be lost with a connection: wait at most `poll_s`, then look.
    """

    def __init__(self, engine: Engine) -> None:
        self._dialect, self._url = engine.dialect, engine.url  # not the engine: the listener lives as long as that
        self._events: dict[str | None, set[Event]] = {}
        self._lock = Lock()
        self._thread: Thread | None = None
        self._ended, self._end = -1, -1
        self._listening = False

    @property
    def poll_s(self) -> float:
        """How long to wait for an event at most, in seconds."""
        return POLL_WOKEN_S if self._listening else POLL_S

    def add(self, project_id: str | None, event: Event) -> None:
        """Set this event from now on, whenever something was appended to the project (None: to any project)."""
        with self._lock:
            self._events.setdefault(project_id, set()).add(event)
            if self._thread is None and self._dialect.name == "postgresql":
                self._ended, self._end = os.pipe()
                self._thread = Thread(target=self._listen, args=(self._ended,), name="el-listener", daemon=True)
                self._thread.start()

    def remove(self, project_id: str | None, event: Event) -> None:
        """Stop setting it."""
        with self._lock:
            events = self._events.get(project_id, set())
            events.discard(event)
            if not events:
                self._events.pop(project_id, None)

    def wake(self, project_id: str) -> None:
        """Something was appended to the project."""
        if self._events:
            with self._lock:
                events = (*self._events.get(project_id, ()), *self._events.get(None, ()))
            for event in events:
                event.set()

    def close(self) -> None:
        """End the thread and its connection; the next `add` begins anew."""
        with self._lock:
            thread, self._thread = self._thread, None
            ended, end = self._ended, self._end  # an `add` from here on makes others
        if thread:
            os.close(end)
            thread.join()
            os.close(ended)

    def _listen(self, ended: int) -> None:
        import psycopg  # noqa: PLC0415 - takes a while to load, and a ledger in a SQLite file needs none of it

        arguments, options = self._dialect.create_connect_args(self._url)
        while True:
            try:
                with psycopg.connect(*arguments, **options, autocommit=True) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._listening = True
                    self._wake_all()  # what was appended before now woke nobody
                    while not _waited_in_vain(connection, ended):
                        for told in connection.notifies(timeout=0):
                            self.wake(told.payload)
                    return
            except psycopg.Error:
                self._listening = False
                self._wake_all()  # so that they wait for less from now on
                if _has_ended(ended, RECONNECT_S):
                    return
            finally:
                self._listening = False

    def _wake_all(self) -> None:
        with self._lock:
            events = [event for some in self._events.values() for event in some]
        for event in events:
            event.set()


def _has_ended(ended: int, within_s: float) -> bool:
    return bool(_readable(ended, within_s=within_s))


def _waited_in_vain(connection: Any, ended: int) -> bool:
    """Wait for a message from the server or for the end; whether it was the end."""
    return ended in _readable(connection.fileno(), ended)


def _readable(*files: int, within_s: float | None = None) -> list[int]:
    """Which of the files there is something to read from. By `poll`: `select` takes none numbered 1,024 or higher."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return [file for file, _ in poll.poll(None if within_s is None else within_s * 1_000)]


_listeners: WeakKeyDictionary[Engine, Listener] = WeakKeyDictionary()
_making = Lock()


def listener_of(engine: Engine) -> Listener:
    """The one listener of this process on a database."""
    listener = _listeners.get(engine)
    if listener is None:
        with _making:
            listener = _listeners.setdefault(engine, Listener(engine))
    return listener


class PollingSubscription(Subscription[ApplicationRecorder]):
    """Follows a log by asking again: at once when it is woken, else every now and then."""

    BATCH = 500

    def __init__(
        self,
        recorder: ApplicationRecorder,
        listener: Listener,
        project_id: str,
        gt: int | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._waiting: list[Notification] = []
        self._waker = Event()
        self._listener = listener
        self._project_id = project_id
        listener.add(project_id, self._waker)

    def stop(self) -> None:
        """End the iteration, also one that is waiting in another thread."""
        super().stop()
        self._listener.remove(self._project_id, self._waker)
        self._waker.set()

    def __next__(self) -> Notification:
        """The next entry, waiting for it as long as needed."""
        while not self._has_been_stopped:
            if self._waiting:
                notification = self._waiting.pop()
                self._last_notification_id = notification.id
                return notification
            self._waker.clear()
            found = self._recorder.select_notifications(
                self._last_notification_id, self.BATCH, topics=self._topics, inclusive_of_start=False
            )
            self._waiting = list(reversed(found))
            if not found:
                self._waker.wait(self._listener.poll_s)
        raise StopIteration
