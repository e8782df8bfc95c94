"""One process of a trial: in a session of its own, with a time limit, its output caught, nothing left behind.

Not a security border: the process runs as the same user and reaches whatever that user reaches. Its memory, disk and
network are not limited. When the worker itself is killed, its guard ends what it had running (`guard.py`).
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, Literal, cast

import msgspec

CAPTURE_BYTES_MAX = 10 * 1024 * 1024
GRACE_S = 2.0
POLL_S = 0.05
POLL_SOON_S = 0.005  # nobody holds the pipes any more: the end is near
PIPE_BYTES = 65_536
READS_AFTER_END_MAX = 64


class Stop:
    """Asks a running trial to stop, from any thread; the first reason holds.

    `lost` says that the trial is no longer ours: its processes are killed all the same, but nothing is recorded.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.reason = ""
        self.lost = False

    def ask(self, reason: str) -> None:
        """Stop, for a reason that the trial's last fact will tell."""
        if not self._asked.is_set():
            self.reason = reason
            self._asked.set()

    def lose(self) -> None:
        """Stop, and record nothing more."""
        self.lost = True
        self._asked.set()

    def asked(self) -> bool:
        """Whether to stop."""
        return self._asked.is_set()


class Capture:
    """The beginning of what a process wrote, in a file without a name; `cut` when it wrote more than that."""

    def __init__(self, bytes_max: int) -> None:
        self.file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by its owner
        self.cut = False
        self._left = bytes_max

    def feed(self, chunk: bytes) -> None:
        """Keep what still fits."""
        self.cut = self.cut or len(chunk) > self._left
        self.file.write(chunk[: self._left])
        self._left -= min(len(chunk), self._left)


class StepEnd(msgspec.Struct):
    """How a process ended. `exit_code` only when it exited by itself; `error_type` only when it did not end well.

    error_type: `ExitCode`, `Timeout`, `Signal SIGKILL` (or another signal), `Canceled`, and, when it never ran,
    `CommandNotFound` or `CommandNotStarted`; `sentence` says the same to a person.
    """

    ran: bool = True
    exit_code: int | None = None
    error_type: str | None = None
    sentence: str = ""
    stdout: Capture | None = None
    stderr: Capture | None = None

    def close(self) -> None:
        """Drop what was caught."""
        for capture in (self.stdout, self.stderr):
            if capture:
                capture.file.close()


def run_step(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    stop: Stop,
    capture_bytes_max: int = CAPTURE_BYTES_MAX,
    grace_s: float = GRACE_S,
) -> StepEnd:
    """Run a process to its end, its time limit (SIGTERM, then SIGKILL after `grace_s`), or until `stop` asks.

    It gets exactly the environment `env` and no input. When it has ended, however it did, every process of its group
    is killed, and so is every process that still carries its EL_WORK_DIR (Linux), as one does that left the group.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - running the runner's command is the purpose
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return StepEnd(False, None, "CommandNotFound", f"The command {argv[0]!r} was not found on this machine.")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return StepEnd(False, None, "CommandNotStarted", f"The command {argv[0]!r} cannot be started: {reason}.")
    stdout, stderr = Capture(capture_bytes_max), Capture(capture_bytes_max)
    pipes = [(_pipe(process.stdout), stdout), (_pipe(process.stderr), stderr)]
    try:
        cause = _wait(process.pid, pipes, time.monotonic() + timeout_s, stop, grace_s)
    finally:
        # The process is not reaped yet, so its number, and the group's, cannot have gone to somebody else.
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
        _kill_marked(env.get("EL_WORK_DIR"))
        for pipe, capture in pipes:
            for _ in range(READS_AFTER_END_MAX):
                if not _drain(pipe, capture):
                    break
            pipe.close()
    exit_code = process.returncode if process.returncode >= 0 and cause is None else None
    error_type, sentence = _judge(process.returncode, cause, timeout_s)
    return StepEnd(True, exit_code, error_type, sentence, stdout, stderr)


def _wait(
    pid: int, pipes: Sequence[tuple[IO[bytes], Capture]], deadline: float, stop: Stop, grace_s: float
) -> Literal["timeout", "stop"] | None:
    """Read the pipes until the process has ended; what ended it, when it was us."""
    cause: Literal["timeout", "stop"] | None = None
    kill_at: float | None = None
    with selectors.DefaultSelector() as selector:
        for pipe, capture in pipes:
            selector.register(pipe, selectors.EVENT_READ, capture)
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            for key, _ in selector.select(POLL_S if selector.get_map() else POLL_SOON_S):
                if _drain(cast(IO[bytes], key.fileobj), key.data) is False:
                    selector.unregister(key.fileobj)
            now = time.monotonic()
            if kill_at is not None:
                if now >= kill_at:
                    _signal_group(pid, signal.SIGKILL)
            elif stop.asked() or now >= deadline:
                cause, kill_at = ("stop" if stop.asked() else "timeout"), now + grace_s
                _signal_group(pid, signal.SIGTERM)
    return cause


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - asked for with PIPE
    os.set_blocking(pipe.fileno(), False)
    return pipe


def _drain(pipe: IO[bytes], capture: Capture) -> bool | None:
    """Read once: True for something read, False at the end, None when there is nothing now."""
    try:
        chunk = os.read(pipe.fileno(), PIPE_BYTES)
    except BlockingIOError:
        return None
    capture.feed(chunk)
    return bool(chunk)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _kill_marked(work_dir: str | None) -> None:
    """Kill what left the group: processes whose environment still names this trial's folder."""
    if not work_dir or not os.path.isdir("/proc"):
        return
    mark = f"\0EL_WORK_DIR={work_dir}\0".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                environment = file.read()
            if mark in b"\0" + environment:
                os.kill(int(pid), signal.SIGKILL)


def _judge(returncode: int, cause: str | None, timeout_s: float) -> tuple[str | None, str]:
    if cause == "stop":
        return "Canceled", "The process was stopped."
    if cause == "timeout":
        return "Timeout", f"The process was stopped after its time limit of {timeout_s:g} s."
    if returncode < 0:
        name = _signal_name(-returncode)
        return f"Signal {name}", f"The process was killed by {name}."
    if returncode > 0:
        return "ExitCode", f"The process ended with exit code {returncode}."
    return None, ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
