"""A process that follows, slowly, and says when it is at work: `begin T`, `end T` (T as all processes count it).

python -m tests.follower_process URL HOME [--no-lock]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api import following
from api.following import BackgroundFollower
from api.settings import Settings
from api.telemetry import make_log
from api.wiring import Workspace

WORK_S = 0.15


def main() -> None:
    """Follow until standard input ends."""
    url, home, *options = sys.argv[1:]
    whole = following.catch_up

    def slowly(*arguments: Any, **named: Any) -> int:
        say("begin")
        time.sleep(WORK_S)
        reached = whole(*arguments, **named)
        say("end")
        return reached

    following.catch_up = slowly  # type: ignore[attr-defined]
    if "--no-lock" in options:
        following._Locks.held = everybody  # type: ignore[method-assign]
    follower = BackgroundFollower(Workspace(Settings(home=Path(home), database_url=url)), make_log())
    say("ready")  # before anything else is said
    follower.start()
    sys.stdin.read()
    follower.stop()


@contextmanager
def everybody(_self: Any, _project: str) -> Iterator[bool]:
    """Sabotage: a lock that lets everybody in."""
    yield True


def say(what: str) -> None:
    sys.stdout.write(f"{what} {time.monotonic()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
