"""Everything the ledger can refuse, drawn as a tree.

EvalLedgerError
├── Refused               the request cannot be carried out as it stands
│   ├── BadInput          what was handed in does not have the right form
│   ├── NotAllowed        the form is right, but the state of things forbids it
│   ├── NotFound          there is no such thing in this project
│   └── Conflict          it is there already, with other content
│       └── ConcurrentWrite   somebody else wrote to the same stream first
└── StoreError            the store itself is the trouble
    ├── StoreUnreachable  the database or a file of it cannot be opened
    ├── DamagedStore      what was read is not what was written
    ├── UnknownFact       an entry of a kind that this version cannot read
    └── OutdatedReadModel a read model was built by another version

Each is raised with the one sentence a person reads: what is wrong and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence


class EvalLedgerError(Exception):
    """Something EvalLedger has to say; `str()` of it is the sentence."""


class Refused(EvalLedgerError):
    """The request cannot be carried out as it stands; nothing was written."""


class BadInput(Refused):
    """What was handed in does not have the right form."""


class NotAllowed(Refused):
    """The request has the right form, but the state of things does not allow it."""


class NotFound(Refused):
    """There is no such thing in this project."""


class Conflict(Refused):
    """The same name or key stands already with other content; `differs` names what differs."""

    def __init__(self, sentence: str, differs: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.differs = tuple(differs)


class ConcurrentWrite(Conflict):
    """Somebody else wrote to the same stream first; read it again and decide anew."""


class StoreError(EvalLedgerError):
    """The store itself is the trouble."""


class StoreUnreachable(StoreError):
    """The database or a file of it cannot be opened."""


class DamagedStore(StoreError):
    """What was read is not what was written."""


class UnknownFact(StoreError):
    """An entry is of a kind or shape that this version cannot read; the reader stops there and skips nothing."""


class OutdatedReadModel(StoreError):
    """A read model was built by another version of its definition and has to be rebuilt."""
