"""What all requests of one app share: the workspace, the keys, the clients by project and actor, and the follower."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Protocol

from api.client import Client
from api.http.cursors import Cursors
from api.http.keyrings import Keyrings
from api.http.problems import BadRequest, Fault
from api.http.reports import PAUSE_S, THREADS, Reports
from api.wiring import Workspace
from ledger.application import Asked, Group, Ledger, Written
from ledger.errors import NotYet
from ledger.grouping import GroupCommit

CLIENTS_MAX = 1_000
WAIT_S_MAX = 5.0


class Follower(Protocol):
    """Who keeps the read models up to date behind the requests."""

    def acknowledge(self, project: str, position: int) -> None:
        """This process answers for a write."""

    def acknowledged(self, project: str) -> int:
        """The last position that this process answered for."""

    def wait_until(self, project: str, position: int, timeout_s: float) -> bool:
        """Wait until the read models have reached a position; False when they have not in time."""

    def trouble(self, project: str) -> str | None:
        """Why the read models of a project stand still, if they do."""


class Gate:
    """One app's share of everything. Without a follower, reads bring the read models up to date themselves.

    `committed` is told how many writes each group commit had.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        insecure_local: bool,
        follower: Follower | None,
        committed: Callable[[int], None],
    ) -> None:
        self.workspace = workspace
        self._committed = committed
        self.insecure_local = insecure_local
        self.follower = follower
        self.keyrings = Keyrings(workspace)
        self.cursors = Cursors(workspace)
        self._clients: OrderedDict[tuple[str, str], Client] = OrderedDict()
        self._groups: dict[str, Group] = {}
        self._reports: dict[str, Reports] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="reports")
        self._lock = Lock()

    def client(self, project: str, actor: str, *, min_position: int = 0) -> Client:
        """A client for one request. Its reads wait until the read models hold `min_position` and what was written here.

        Raises:
            NotFound: there is no such project.
        """
        with self._lock:
            ready = self._clients.get((project, actor))
        if ready is None:
            ready = self._make(project, actor)
        client = copy.copy(ready)
        client.fresh = lambda position: self.reach(project, max(min_position, position))
        return client

    def close(self) -> None:
        """Wait until the reports that are being committed are."""
        self._threads.shutdown()

    def is_ready(self, project: str, actor: str) -> bool:
        """Whether a client for this actor is there already, to be had without any wait."""
        return (project, actor) in self._clients

    def reports(self, client: Client) -> Reports:
        """What takes the reports of a client's project."""
        with self._lock:
            if client.project not in self._reports:
                self._reports[client.project] = Reports(
                    partial(self._commit, client.ledger), client.ledger, self._threads
                )
            return self._reports[client.project]

    def reach(self, project: str, min_position: int = 0) -> None:
        """Wait until the read models of a project have reached a position, and what this process wrote.

        Raises:
            BadRequest: there is no such position: nothing that was written has it.
            NotYet: they have not in time.
        """
        if self.follower is None:
            self._check_position(min_position, self.workspace.caught_up(project))
            return
        wanted = max(min_position, self.follower.acknowledged(project))
        if self.follower.wait_until(project, wanted, 0):
            return
        self._check_position(min_position, self.workspace.unchecked_ledger(project).head().size)
        if not self.follower.wait_until(project, wanted, WAIT_S_MAX):
            why = self.follower.trouble(project)
            raise NotYet(why or f"The answers have not reached position {wanted:,} yet; ask again.")

    @staticmethod
    def _check_position(min_position: int, head: int) -> None:
        if min_position > head:
            fault = Fault("query min_position", f"the log ends at {head}")
            raise BadRequest(400, "The log of the project has no such position.", [fault])

    def acknowledge(self, project: str, position: int) -> None:
        """A write is about to be answered for: what is read here from now on holds it."""
        if self.follower is not None:
            self.follower.acknowledge(project, position)

    def _make(self, project: str, actor: str) -> Client:
        client = Client(self.workspace, project, actor=actor)
        with self._lock:
            if project not in self._groups:
                self._groups[project] = GroupCommit(
                    partial(self._commit, self.workspace.unchecked_ledger(project)), pause_s=PAUSE_S
                )
            client.ledger.group = self._groups[project]
            self._clients[project, actor] = client
            while len(self._clients) > CLIENTS_MAX:
                self._clients.popitem(last=False)
        return client

    def _commit(self, ledger: Ledger, asked: Sequence[Asked]) -> list[Written | Exception]:
        self._committed(len(asked))
        return ledger.record_each(asked)
