"""Following a log from outside a transaction, as the eventsourcing library's subscriptions do."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

from eventsourcing.persistence import ApplicationRecorder, Notification, Subscription

POLL_S = 0.1


class Wakers:
    """Events that are set whenever something was appended in this process."""

    def __init__(self) -> None:
        self._events: set[Event] = set()

    def add(self, event: Event) -> None:
        """Set this event from now on."""
        self._events.add(event)

    def remove(self, event: Event) -> None:
        """Stop setting it."""
        self._events.discard(event)

    def wake(self) -> None:
        """Something was appended."""
        for event in tuple(self._events):
            event.set()


class PollingSubscription(Subscription[ApplicationRecorder]):
    """Follows a log by asking again: at once when this process has appended, else every tenth of a second."""

    BATCH = 500

    def __init__(
        self, recorder: ApplicationRecorder, wakers: Wakers, gt: int | None = None, topics: Sequence[str] = ()
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._waiting: list[Notification] = []
        self._waker = Event()
        self._wakers = wakers
        wakers.add(self._waker)

    def stop(self) -> None:
        """End the iteration, also one that is waiting in another thread."""
        super().stop()
        self._wakers.remove(self._waker)
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
                self._waker.wait(POLL_S)
        raise StopIteration
