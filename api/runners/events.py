"""What a worker tells whoever started it, so that a command line can show it. Told in the thread that called `run`."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from ledger.facts.trial import Slot


class Dispatched(NamedTuple):
    """A slot was claimed; its trial starts at once."""

    slot: Slot


class Ended(NamedTuple):
    """A trial ended. `error_type` of a failed one; `reward` is None when it has none."""

    slot: Slot
    outcome: Literal["succeeded", "failed", "canceled"]
    reward: float | None = None
    error_type: str | None = None


class Reaped(NamedTuple):
    """A trial that another worker had left behind: `released`, its slot is free again, or `failed`, LeaseLapsed."""

    slot: Slot
    became: Literal["released", "failed"]


class Waiting(NamedTuple):
    """Nothing is left to claim; so many trials of the job still run elsewhere."""

    elsewhere: int


class Ready(NamedTuple):
    """A worker that goes on until it is interrupted was let in, and looks for work from now on."""


class Skipped(NamedTuple):
    """A job's slots are left alone, for the reason in the sentence."""

    job_id: str
    sentence: str


class Interrupted(NamedTuple):
    """No more is claimed; so many trials still run. A second interruption stops them."""

    running: int


class Away(NamedTuple):
    """The server does not answer; it is asked again for at most so many seconds, None for as long as it takes."""

    sentence: str
    for_s: float | None


Event = Dispatched | Ended | Reaped | Waiting | Ready | Skipped | Interrupted | Away


class Tally(msgspec.Struct):
    """What a worker did: how its trials ended, what became of trials left behind, whether it was interrupted.

    `lost` counts trials that were taken from it because its lease had lapsed.
    """

    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    lost: int = 0
    reaped_failed: int = 0
    reaped_released: int = 0
    interrupted: bool = False

    @property
    def ended(self) -> int:
        """How many trials it brought to an end, however they ended."""
        return self.succeeded + self.failed + self.canceled
