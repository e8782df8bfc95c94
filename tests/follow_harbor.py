"""A follower to be killed: `python -m tests.follow_harbor HOME JOB` looks without pause once it has said so."""

from __future__ import annotations

import sys
from pathlib import Path

from api.client import connect
from api.importers.following import Follower
from api.importers.run import Options
from api.settings import Settings


def main(home: str, job: str) -> None:
    """Look for ever, or until the run has ended."""
    follower = Follower(connect(settings=Settings(home=Path(home))), Path(job), Options(), lambda line: None)
    print("begun", flush=True)
    while not follower.look():
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
