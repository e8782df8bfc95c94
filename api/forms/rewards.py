"""A file of rewards from a new run of a verifier: JSON Lines, one trial a line."""

from __future__ import annotations

from pathlib import Path

import msgspec

from api.revising import NewReward
from ledger.digests import open_regular
from ledger.errors import BadInput

_decode = msgspec.json.Decoder(NewReward).decode


def read_new_rewards(path: Path) -> list[NewReward]:
    """The rewards in a file; empty lines are passed over.

    Raises:
        NotFound: there is no such file.
        BadInput: a line is not `{"task": TEXT, "attempt": WHOLE NUMBER, "reward": NUMBER}`; names the line.
    """
    found = []
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found.append(_decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise BadInput(
                    f'Line {number} of {path} is no reward; write {{"task": "add-1", "attempt": 1, "reward": 1}}.'
                ) from error
    return found
