"""Everything the ledger can refuse, drawn as a tree.

EvalLedgerError
├── Refused               the request cannot be carried out as it stands
│   ├── BadInput          what was handed in does not have the right form
│   │   ├── BadNote       a checkpoint or a key is not written or signed as it should be
│   │   └── TooLarge      it is longer than what is taken
│   ├── NotAuthenticated  nobody is known by this key, or there is none
│   ├── NotAllowed        the form is right, but the state of things forbids it
│   │   ├── Forbidden     the key is good, but not for this
│   │   ├── ForkedLog     the log does not go on from what was seen of it
│   │   └── ClaimLapsed   the trial was claimed by somebody else since
│   ├── NotFound          there is no such thing in this project
│   └── Conflict          it is there already, with other content
│       └── ConcurrentWrite   somebody else wrote to the same stream first
└── StoreError            the store itself is the trouble
    ├── StoreUnreachable  the database or a file of it cannot be opened
    │   ├── ServerAway    the server does not answer
    │   └── NotYet        the read models have not come far enough in time
    ├── DamagedStore      what was read is not what was written
    ├── UnknownFact       an entry of a kind that this version cannot read
    ├── OutdatedReadModel a read model was built by another version
    └── OutdatedStore     the tables are those of another version

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


class BadNote(BadInput):
    """A signed note or a key is not written as one, or what it says is not signed by whom it should be."""


class TooLarge(BadInput):
    """What was handed in is longer than what is taken at once."""


class NotAuthenticated(Refused):
    """There is no key with the request, or none that is valid."""


class NotAllowed(Refused):
    """The request has the right form, but the state of things does not allow it."""


class Forbidden(NotAllowed):
    """The key is valid, but its scopes do not cover this."""


class ClaimLapsed(NotAllowed):
    """The lease ran out and the trial went on without this worker; what it reports does not count."""


class ForkedLog(NotAllowed):
    """The log was rolled back or changed: it does not go on from a checkpoint that was seen of it."""


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


class ServerAway(StoreUnreachable):
    """The server does not answer, or not now; trying again later may help."""


class NotYet(StoreUnreachable):
    """The read models did not reach the position asked for in time; ask again."""


class DamagedStore(StoreError):
    """What was read is not what was written."""


class UnknownFact(StoreError):
    """An entry is of a kind or shape that this version cannot read; the reader stops there and skips nothing."""


class OutdatedReadModel(StoreError):
    """A read model was built by another version of its definition and has to be rebuilt."""


class OutdatedStore(StoreError):
    """The tables of the store are those of an older or a newer version."""
