"""Running the HTTP door: where it may listen, its one process on SQLite, and how it stops.

It stops in this order, within `shutdown_s`: no more connections are taken; streams end; requests at work get their
answer; the app's own lifespan ends (group commit, follower). What takes longer is cut off without an answer, so nothing
is acknowledged that may not be written.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

import uvicorn
from fastapi import FastAPI

from api.following import STOP_S_MAX
from api.http.heads import BoundedHeads
from api.telemetry import Log, LoggingBridge, Telemetry
from api.wiring import Workspace
from ledger.application import utc_now
from ledger.errors import BadInput, NotAllowed, StoreUnreachable
from ledger.facts.access import STREAM

BACKLOG = 1024
KEEP_ALIVE_S = 20
END_S = STOP_S_MAX + 5.0  # what the lifespan may take beyond the requests, before the process is ended the hard way


def check_binding(host: str, *, has_keys: bool, insecure_local: bool) -> None:
    """Refuse to listen where anybody could read and write without a key.

    Raises:
        NotAllowed: the address is not this machine's own and there is no key, or keys are not asked for.
    """
    local = is_loopback(host)
    if insecure_local and not local:
        raise NotAllowed(
            f"--insecure-local answers without keys, so only on 127.0.0.1 and not on {host}; leave one of them out."
        )
    if not insecure_local and not has_keys:
        also = ", or `el serve --insecure-local` to go without keys on this machine" if local else ""
        raise NotAllowed(
            "There is no key that opens the server; run `el key issue --name admin --scope admin` first" + also + "."
        )


def has_key(workspace: Workspace) -> bool:
    """Whether there is any key, of any project, that opens the server now."""
    now = utc_now()
    states = (workspace.unchecked_ledger(name).state(STREAM) for name in workspace.projects())
    return any(key.is_valid(now) for state in states if state for key in state.keys.values())


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nobody else can reach it; a name counts when all it stands for is."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {address[4][0] for address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    Raises:
        BadInput: the port is taken, or the host is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise BadInput(f"{host[:200]!r} is no address of this machine; give --host another one.") from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise BadInput(f"Port {port} of {host} is taken by another process; give --port another one.") from error
        raise BadInput(f"The server cannot listen on {host} port {port}: {error.strerror}.") from error
    return listening


@contextmanager
def only_process_of(workspace: Workspace) -> Iterator[None]:
    """On SQLite one process serves a store; on PostgreSQL any number does.

    Raises:
        NotAllowed: another one serves it already.
    """
    if workspace.engine.dialect.name != "sqlite":
        yield
        return
    path = workspace.home / "serve.lock"
    try:
        workspace.home.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnreachable(f"{path} cannot be made: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NotAllowed(
                f"Another `el serve` serves {workspace.home}; on SQLite one process does (PostgreSQL takes any number)."
            ) from error
        yield
    finally:
        os.close(lock)


def url_of(listening: socket.socket) -> str:
    """The URL of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def run(
    app: FastAPI,
    listening: socket.socket,
    *,
    telemetry: Telemetry,
    shutdown_s: float,
    forwarded_allow_ips: str,
    started: Callable[[], None],
) -> None:
    """Answer requests until SIGTERM or SIGINT, then stop in order; `started` is called when it listens.

    Raises:
        StoreUnreachable: the app could not start; the log says why.
    """
    _bridge_libraries(telemetry.log)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHeads,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=forwarded_allow_ips,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(shutdown_s),
        backlog=BACKLOG,
    )
    server = _Server(config, app, telemetry.log, started, end_within_s=shutdown_s + END_S)
    try:
        server.run(sockets=[listening])
    except SystemExit as error:
        raise StoreUnreachable("The server could not start; its log above says why.") from error


class _Server(uvicorn.Server):
    """uvicorn's server, which ends with 0 when it was asked to stop, tells streams of it, and always ends."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, log: Log, started: Callable[[], None], *, end_within_s: float
    ) -> None:
        super().__init__(config)
        self._app = app
        self._log = log
        self._tell_started = started
        self._end_within_s = end_within_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self._log.info("server", outcome="listens")
            self._tell_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; streams hear of it first, or they would be waited for."""
        self._log.info("server", outcome="stops", requests=len(self.server_state.tasks))
        last_resort = Timer(self._end_within_s, self._end_now)
        last_resort.daemon = True
        last_resort.start()
        self._app.state.stopping.set()
        await super().shutdown(sockets)
        self._log.info("server", outcome="stopped")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop when told to. uvicorn would raise the signal again at the end, and the process would die of it."""
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    def _end_now(self) -> None:
        # Threads that hang in the database would keep the process alive; none of their requests was answered.
        self._log.error("server", outcome="ended while requests were still at work")
        os._exit(1)


def _bridge_libraries(log: Log) -> None:
    root = logging.getLogger()
    root.handlers = [LoggingBridge(log)]
    root.setLevel(logging.WARNING)
