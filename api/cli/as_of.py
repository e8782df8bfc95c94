"""`--as-of`, the same option for every command that reads."""

from __future__ import annotations

from typing import Annotated

import typer

AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="POSITION|TIME", help="As it stood then; a time without zone is UTC.")
]
