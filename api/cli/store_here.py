"""Commands that work on the store itself, and say so where the environment names a server instead."""

from __future__ import annotations

from api.settings import Settings
from api.wiring import Workspace
from ledger.errors import NotAllowed


def store_here(command: str) -> Workspace:
    """The store that the environment names.

    Raises:
        NotAllowed: EL_API_URL names a server.
    """
    settings = Settings()
    if settings.api_url is not None:
        raise NotAllowed(
            f"`{command}` works on the store itself, not over HTTP; run it where the server runs, without EL_API_URL."
        )
    return Workspace(settings)
