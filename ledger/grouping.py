"""Group commit: writes that arrive while another is being committed are committed together afterwards.

A commit waits for the disk; while it waits, the others line up. Whoever finds nobody committing commits once for all
that wait; those who line up meanwhile are handed on. So one sync pays for many writes, no thread stands by, and whoever
commits for others gets its own answer as soon as they do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from time import sleep
from typing import Generic, TypeVar

GROUP_MAX = 500
PAUSES_MAX = 10

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def _in_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name="group-commit").start()


class GroupCommit(Generic[Asked, Answer]):
    """Commits in groups of at most GROUP_MAX, in the order of arrival.

    `commit` writes a group in one transaction and answers each write by itself: with what it came to, or with the
    exception that is its outcome. When `commit` itself raises, nothing is known to be written; it is then called for
    each write of the group alone, so that one bad write takes no other with it.

    Where many write at once, a group waits, `pause_s` at a time and PAUSES_MAX times at the most, for as long as others
    keep coming: a commit costs nearly the same for one as for many. A write by itself never waits.

    `hand_on` has the next group committed elsewhere, by default in a thread that ends with it.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Asked]], Sequence[Answer | Exception]],
        *,
        pause_s: float = 0.0,
        hand_on: Callable[[Callable[[], None]], object] = _in_thread,
    ) -> None:
        self._commit = commit
        self._pause_s = pause_s
        self._hand_on = hand_on
        self._last = 1  # how many writes the last group had
        self._waiting: deque[tuple[Asked, Future[Answer]]] = deque()
        self._committing = Lock()

    def submit(self, asked: Asked) -> Future[Answer]:
        """Line up a write. It is committed when somebody calls `drive`, or after whoever is in there now."""
        future: Future[Answer] = Future()
        self._waiting.append((asked, future))
        return future

    def __call__(self, asked: Asked) -> Answer:
        """Write, and wait until it is durable; raises what it was refused with."""
        future = self.submit(asked)
        self.drive()
        return future.result()

    @property
    def is_driven(self) -> bool:
        """Whether somebody is committing now: what waits by now is committed without a further `drive`."""
        return self._committing.locked()

    def drive(self) -> None:
        """Commit a group of what waits, and hand on the rest; unless somebody is at it already, who then does that."""
        if not self._committing.acquire(blocking=False):
            return
        try:
            if self._waiting:
                self._gather()
                count = self._last = min(len(self._waiting), GROUP_MAX)
                group = [self._waiting.popleft() for _ in range(count)]
                # One whose caller went away before anything was written is left out.
                self._settle([one for one in group if one[1].set_running_or_notify_cancel()])
        finally:
            self._committing.release()
            # Looked at after the lock is free: a write may have lined up just before it was.
            if self._waiting:
                self._hand_on(self.drive)

    def _gather(self) -> None:
        """Wait while others keep lining up, when it is to be expected that they do."""
        seen = len(self._waiting)
        if not self._pause_s or max(seen, self._last) == 1:
            return
        for _ in range(PAUSES_MAX):
            sleep(self._pause_s)
            if len(self._waiting) == seen or seen >= GROUP_MAX:
                return
            seen = len(self._waiting)

    def _settle(self, group: Sequence[tuple[Asked, Future[Answer]]]) -> None:
        if not group:
            return
        try:
            answers = self._commit([asked for asked, _ in group])
        except Exception as error:
            if len(group) == 1:
                group[0][1].set_exception(error)
                return
            for one in group:
                self._settle([one])
            return
        except BaseException as error:
            for _, future in group:
                future.set_exception(error)
            raise
        for (_, future), answer in zip(group, answers, strict=True):
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
