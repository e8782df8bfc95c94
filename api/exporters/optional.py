"""Libraries that only one format needs: loaded when it is asked for, with a clear word when they are not there."""

from __future__ import annotations

import importlib
from typing import Any

from ledger.errors import NotAllowed


def optional(module: str, *, extra: str) -> Any:
    """A module of an optional extra.

    Raises:
        NotAllowed: it is not installed; says what installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotAllowed(
            f"The format {extra} needs {module.partition('.')[0]}, which is not installed; "
            f"`pip install 'evalledger[{extra}]'` installs it (in a checkout: `uv sync --extra {extra}`)."
        ) from error
