"""`--as-of`, the same option for every command that reads."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.output import say

AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="POSITION|TIME", help="As it stood then; a time without zone is UTC.")
]


def say_as_of(asked: str | None, position: int) -> None:
    """Say which position an answer stands for, where one was asked for; a time may mean any."""
    if asked is not None:
        say(f"as of position {position:,}")
