"""What outlives a worker that is killed: a small process that ends what the worker's trials had running.

The worker tells it the folder of each trial before the first process starts in it, and when it is over. When the pipe
between them closes and folders are left, the worker has died: the processes of those trials are killed, with all of
their sessions, and the folders removed. Linux only, where a process's environment tells its trial.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROUNDS_MAX = 20
ROUND_S = 0.05


class Guard:
    """The worker's end of it. Without /proc there is no guarding, and nothing is said about it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        if os.path.isdir("/proc/self"):
            self._process = subprocess.Popen(  # noqa: S603 - this file, run by this Python
                [sys.executable, "-I", "-S", os.path.abspath(__file__)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C on the terminal is not meant for it
            )

    @contextmanager
    def watching(self, root: Path) -> Iterator[None]:
        """Guard the trial whose `TrialFolder` has this root until the block ends."""
        self._tell("+", root)
        try:
            yield
        finally:
            self._tell("-", root)

    def close(self) -> None:
        """Nothing is left to guard."""
        if self._process and self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()

    def _tell(self, sign: str, root: Path) -> None:
        if self._process and self._process.stdin:
            # A guard that somebody killed is missed when the worker is killed too, and not before.
            with self._lock, suppress(OSError):
                self._process.stdin.write(f"{sign}{root}\n".encode())
                self._process.stdin.flush()


def end_all(roots: Collection[str]) -> None:
    """Kill every process of the trials in these folders, and remove the folders."""
    marks = [f"\0EL_WORK_DIR={root}/work\0".encode() for root in roots]
    for _ in range(ROUNDS_MAX):  # one that forks while it is looked for is found the next time
        found = {pid: session for pid, session, environment in _processes() if any(m in environment for m in marks)}
        sessions = set(found.values())
        doomed = {pid for pid, session, _ in _processes() if session in sessions} | found.keys()
        for pid in doomed - {os.getpid()}:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not doomed:
            break
        time.sleep(ROUND_S)
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)


def _processes() -> Iterator[tuple[int, int, bytes]]:
    """(id, session, environment) of the processes of this user that run."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:
                state, _, _, session, *_ = file.read().rsplit(b")", 1)[1].split()
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
            if state != b"Z":
                yield int(name), int(session), b"\0" + environment


def main() -> None:
    """Listen until the worker closes the pipe, by its own will or by dying; then end what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    roots: set[str] = set()
    for line in sys.stdin:
        sign, root = line[0], line[1:].rstrip("\n")
        (roots.add if sign == "+" else roots.discard)(root)
    end_all(roots)


if __name__ == "__main__":
    main()
