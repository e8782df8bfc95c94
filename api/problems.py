"""One table for every door: what kind of trouble an error is, its exit code, its HTTP status, its problem type."""

from __future__ import annotations

from typing import NamedTuple

from ledger import errors
from ledger.errors import EvalLedgerError


class Kind(NamedTuple):
    """A kind of trouble. `name` ends the problem's `type` and outlives classes; `title` is for people."""

    name: str
    status: int
    exit_code: int
    title: str

    @property
    def type(self) -> str:
        """The stable `type` of RFC 9457, relative to the server."""
        return f"/problems/{self.name}"


# The most specific class wins. docs/problems.md is written from this table.
KINDS: dict[type[EvalLedgerError], Kind] = {
    errors.EvalLedgerError: Kind("refused", 400, 1, "The request was refused"),
    errors.BadInput: Kind("bad-input", 422, 1, "What was handed in does not have the right form"),
    errors.BadNote: Kind("bad-note", 422, 1, "A checkpoint or a key is not written or signed as it should be"),
    errors.TooLarge: Kind("too-large", 413, 1, "What was handed in is longer than what is taken"),
    errors.NotAuthenticated: Kind("not-authenticated", 401, 1, "There is no valid key with the request"),
    errors.NotAllowed: Kind("not-allowed", 409, 1, "The state of things does not allow it"),
    errors.Forbidden: Kind("forbidden", 403, 1, "The key does not cover this"),
    errors.ForkedLog: Kind("forked-log", 409, 1, "The log does not go on from what was seen of it"),
    errors.ClaimLapsed: Kind("claim-lapsed", 409, 1, "The claim on the trial has lapsed"),
    errors.NotFound: Kind("not-found", 404, 3, "There is no such thing"),
    errors.Conflict: Kind("conflict", 409, 4, "It stands already with other content"),
    errors.ConcurrentWrite: Kind("concurrent-write", 409, 4, "Somebody else wrote first"),
    errors.StoreError: Kind("store", 500, 5, "The store is in trouble"),
    errors.OutdatedStore: Kind("outdated-store", 503, 5, "The store is of another version"),
    errors.StoreUnreachable: Kind("store-unreachable", 503, 5, "The store cannot be reached"),
    errors.ServerAway: Kind("server-away", 503, 5, "The server does not answer"),
    errors.NotYet: Kind("not-yet", 503, 5, "The answer is not ready yet"),
    errors.DamagedStore: Kind("damaged-store", 500, 5, "What was read is not what was written"),
    errors.UnknownFact: Kind("unknown-fact", 500, 5, "An entry cannot be read by this version"),
    errors.OutdatedReadModel: Kind("outdated-read-model", 503, 5, "A read model has to be rebuilt"),
}

# What HTTP itself refuses, by status.
HTTP_KINDS: dict[int, Kind] = {
    400: Kind("malformed", 400, 1, "The request is malformed"),
    401: KINDS[errors.NotAuthenticated],
    403: KINDS[errors.Forbidden],
    404: KINDS[errors.NotFound],
    405: Kind("method-not-allowed", 405, 1, "The route does not have this method"),
    413: KINDS[errors.TooLarge],
    414: Kind("address-too-long", 414, 1, "The address is too long"),
    415: Kind("unsupported-media-type", 415, 1, "The body is not of the kind that is taken"),
    416: Kind("range-not-satisfiable", 416, 1, "The range lies outside of what there is"),
    422: KINDS[errors.BadInput],
    431: Kind("headers-too-large", 431, 1, "The headers are too long"),
    500: Kind("unexpected", 500, 5, "Something unexpected went wrong"),
    503: KINDS[errors.StoreUnreachable],
}


def kind_of(error: EvalLedgerError) -> Kind:
    """The kind of an error: that of its own class, else of the nearest class above it."""
    return next(KINDS[base] for base in type(error).__mro__ if base in KINDS)


def error_class(problem_type: str) -> type[EvalLedgerError] | None:
    """The class of error that a problem's `type` stands for; None for what only HTTP knows."""
    name = problem_type.rpartition("/")[2]
    return next((error for error, kind in KINDS.items() if kind.name == name), None)
