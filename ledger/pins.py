"""Pins: the last checkpoint that somebody has seen of a log, in a file of their own.

Keep it where those who can change the store cannot: then no change of the log, however consistent, goes unseen.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from ledger.artifacts import make_private_folder, sync_folder
from ledger.checkpoints import Checkpoint, begins_with, forked, opened
from ledger.digests import open_regular
from ledger.errors import BadNote, DamagedStore, ForkedLog, NotFound, StoreUnreachable
from ledger.notes import Note, VerifierKey
from ledger.recorder import ProjectRecorder
from ledger.tiles import Tiles

PIN_BYTES_MAX = 1_000_000


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint as it was seen, and the key that is trusted to sign the log's next ones."""

    key: str
    checkpoint: str

    @property
    def seen(self) -> Checkpoint:
        """What was seen. Raises BadNote when the key has not signed it: the file was changed."""
        return opened(Note.parse(self.checkpoint), VerifierKey.parse(self.key))


def read_pin(path: Path) -> Pin | None:
    """The pin in a file; None when there is no file. Raises DamagedStore for one that is no pin, or was changed."""
    try:
        with open_regular(path) as file:
            pin = msgspec.json.decode(file.read(PIN_BYTES_MAX), type=Pin)
        pin.seen  # noqa: B018 - raises unless the key has signed it
    except NotFound:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, BadNote) as error:
        raise DamagedStore(
            f"The pin {path} is damaged ({error}); put back a copy, or take it away to trust the log as it is now."
        ) from error
    return pin


def write_pin(path: Path, pin: Pin) -> None:
    """Put a pin in the place of the one before, durably. Raises StoreUnreachable when the file cannot be written."""
    temp = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        make_private_folder(path.parent)
        with open(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(pin), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temp.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temp.unlink()
        raise StoreUnreachable(f"The pin {path} cannot be written: {error.strerror or error}.") from error


def require_unforked(recorder: ProjectRecorder, path: Path) -> None:
    """Refuse to go on with a log that does not begin with what the pin in a file says; without a file, all is well.

    Compares with the tiles, so it costs a few reads and finds an old backup; `checking.py` reads the entries.

    Raises ForkedLog; DamagedStore when the pin was changed.
    """
    pin = read_pin(path)
    if pin is None:
        return
    seen, head = pin.seen, recorder.head()
    if not begins_with(Tiles(recorder), head, seen):
        refused = forked(seen, Checkpoint(seen.origin, head.size, head.root))
        raise ForkedLog(f"{refused} Nothing is recorded until `el audit epoch --reason ...` gives up what was lost.")
