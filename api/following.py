"""Read models follow the log on a server: one thread in each process, one follower at a time for each project.

On PostgreSQL a follower works under an advisory lock of its session, named for the project; who does not get it leaves
the project to the one who has it and looks again soon. The lock is held for one run of entries only and ends with the
session, so when a process dies the next one goes on from the last position. On SQLite there is one process.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Event, Thread
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from api.telemetry import Log, told_of
from api.wiring import Workspace
from ledger.database import log_heads, reading
from ledger.errors import EvalLedgerError, StoreUnreachable
from ledger.subscription import listener_of
from projections.following import catch_up, positions
from projections.models import READ_MODELS

POLL_S = 0.5  # how soon it looks again when nothing woke it: an append by another process may not, on SQLite
HELD_ELSEWHERE_S = 0.05  # how soon to look again at a project that another process is busy with
RETRY_S = 5.0  # how soon to try again what was stopped by an error
PACE_S = 0.2  # under load entries are followed together: a round costs nearly the same for one as for many
STOP_S_MAX = 10.0
# A run of entries is one transaction. On SQLite it keeps every writer out, so it is short.
RUN_ENTRIES = {"sqlite": 1_000, "postgresql": 10_000}


class Standing(NamedTuple):
    """The end of a project's log, and how far all its read models have come."""

    head: int
    reached: int


class Trouble(NamedTuple):
    """Why the read models of a project stand still, and when to try again (of `time.monotonic`)."""

    sentence: str
    retry_at: float


class BackgroundFollower:
    """Brings the read models of every project to the end of its log, for as long as it runs."""

    def __init__(self, workspace: Workspace, log: Log, *, poll_s: float = POLL_S) -> None:
        self._engine = workspace.engine
        self._log = log
        self._poll_s = poll_s
        self._moved = Condition()
        self._wake = Event()
        self._stopping = Event()
        self._reached: dict[str, int] = {}
        self._acknowledged: dict[str, int] = defaultdict(int)
        self._troubles: dict[str, Trouble] = {}
        self._unreachable = False
        self._awaited = Event()
        self._locks = _Locks(self._engine)
        self._listener = listener_of(self._engine)
        self._thread = Thread(target=self._run, name="follower", daemon=True)

    # --- from any thread ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the run of entries at hand, or leave it to be undone when it takes longer than `STOP_S_MAX`."""
        self._stopping.set()
        self._awaited.set()
        self.wake()
        with self._moved:
            self._moved.notify_all()
        if self._thread.is_alive():
            self._thread.join(STOP_S_MAX)

    @property
    def is_running(self) -> bool:
        """Whether its thread lives."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Look at once: something was written."""
        self._wake.set()

    def acknowledge(self, project: str, position: int) -> None:
        """This process answers for a write up to `position`: what it reads from now on has to hold it."""
        with self._moved:
            self._acknowledged[project] = max(self._acknowledged[project], position)
        self.wake()

    def acknowledged(self, project: str) -> int:
        """The last position that this process answered for in a project; 0 when there was none."""
        return self._acknowledged.get(project, 0)

    def wait_until(self, project: str, position: int, timeout_s: float) -> bool:
        """Wait until all read models of a project have reached a position.

        False when they have not in time, at once when they stand still (`trouble` says why).
        """
        until = time.monotonic() + timeout_s
        with self._moved:
            if self._reached.get(project, 0) >= position:
                return True
            self._awaited.set()
            self.wake()
            while self._reached.get(project, 0) < position:
                left_s = until - time.monotonic()
                if left_s <= 0 or project in self._troubles or self._stopping.is_set():
                    return False
                self._moved.wait(left_s)
            return True

    def trouble(self, project: str) -> str | None:
        """Why the read models of a project stand still, in one sentence; None when they do not."""
        found = self._troubles.get(project)
        return found.sentence if found else None

    @property
    def troubled(self) -> int:
        """How many projects' read models stand still."""
        return len(self._troubles)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._listener.add(None, self._wake)
        while not self._stopping.is_set():
            self._wake.clear()
            wait_s = self._poll_s
            try:
                wait_s = self._round()
            except StoreUnreachable as error:
                self._tell_unreachable(str(error))
            except Exception as error:  # what nobody foresaw must not end the thread: it would stand still in silence
                self._log.error("follower", outcome="failed", **told_of(error))
                wait_s = RETRY_S
            # Entries that come one after the other are followed together, unless somebody waits for them.
            self._awaited.wait(PACE_S)
            self._awaited.clear()
            self._wake.wait(wait_s)
        self._listener.remove(None, self._wake)
        self._locks.close()

    def _round(self) -> float:
        """Follow each project that moved by one run of entries; how long to wait before the next round, in seconds."""
        found = standings(self._engine)
        if self._unreachable:
            self._unreachable = False
            self._log.info("follower", outcome="the database answers again")
        self._tell({project: standing.reached for project, standing in found.items()})
        moved = held_elsewhere = False
        for project, standing in found.items():
            if self._stopping.is_set() or standing.reached >= standing.head or self._is_troubled(project):
                continue
            with self._locks.held(project) as mine:
                if mine:
                    moved |= self._follow(project, standing.reached)
                else:
                    held_elsewhere = True
        if moved:
            return 0.0
        return HELD_ELSEWHERE_S if held_elsewhere else self._poll_s

    def _follow(self, project: str, reached: int) -> bool:
        """One run of entries of one project; whether it got further."""
        limit = RUN_ENTRIES[self._engine.dialect.name]
        try:
            now = catch_up(self._engine, project, READ_MODELS, batch_entries=limit, upto=reached + limit)
        except StoreUnreachable:
            raise
        except EvalLedgerError as error:
            self._stand_still(project, str(error), {})
            return False
        except Exception as error:  # a fault of a read model stops its project, not the others
            self._stand_still(project, "A read model failed; the server's log says where.", told_of(error))
            return False
        if self._troubles.pop(project, None):
            self._log.info("follower", outcome="goes on", project=project)
        self._tell({project: now})
        return now > reached

    def _tell(self, reached: dict[str, int]) -> None:
        with self._moved:
            self._reached.update(reached)
            self._moved.notify_all()

    def _is_troubled(self, project: str) -> bool:
        found = self._troubles.get(project)
        return found is not None and found.retry_at > time.monotonic()

    def _stand_still(self, project: str, sentence: str, details: dict[str, object]) -> None:
        known = self._troubles.get(project)
        if known is None or known.sentence != sentence:
            self._log.error("follower", outcome="stands still", project=project, reason=sentence, **details)
        with self._moved:
            self._troubles[project] = Trouble(sentence, time.monotonic() + RETRY_S)
            self._moved.notify_all()

    def _tell_unreachable(self, sentence: str) -> None:
        if not self._unreachable:
            self._log.error("follower", outcome="waits for the database", reason=sentence)
        self._unreachable = True


def standings(engine: Engine) -> dict[str, Standing]:
    """Where every project's log ends, and how far the furthest behind of its read models is; one query."""
    names = [model.name for model in READ_MODELS]
    of_models = sa.and_(positions.c.project_id == log_heads.c.project_id, positions.c.follower.in_(names))
    query = (
        sa.select(log_heads.c.project_id, log_heads.c.size, sa.func.min(positions.c.position), sa.func.count())
        .select_from(log_heads.outerjoin(positions, of_models))
        .group_by(log_heads.c.project_id, log_heads.c.size)
    )
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    return {project: Standing(head, low if count == len(names) else 0) for project, head, low, count in rows}


class _Locks:
    """The advisory locks of this process's follower, all on one connection that it keeps."""

    # Stores that share a database are told apart by their schema.
    _KEY = "hashtextextended('el follower ' || current_schema() || '/' || %s, 0)"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    @contextmanager
    def held(self, project: str) -> Iterator[bool]:
        """Whether this process may follow a project, for the length of the block."""
        if self._engine.dialect.name != "postgresql":
            yield True
            return
        try:
            mine = bool(self._ask("pg_try_advisory_lock", project))
        except sa.exc.DBAPIError as error:
            self.close()
            raise StoreUnreachable("The database does not answer.") from error
        try:
            yield mine
        finally:
            if mine:
                try:
                    self._ask("pg_advisory_unlock", project)
                except sa.exc.DBAPIError:
                    self.close()  # the lock ends with the session

    def close(self) -> None:
        """End the session, and with it every lock."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def _ask(self, function: str, project: str) -> object:
        if self._connection is None:
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._connection.exec_driver_sql(f"SELECT {function}({self._KEY})", (project,)).scalar()
