"""Refusals: each kind of error has its status and its problem type, and none repeats what it should not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from api.http.problems import problem_of
from api.problems import HTTP_KINDS, KINDS, error_class, kind_of
from ledger import errors
from ledger.errors import Conflict, EvalLedgerError, NotFound, StoreUnreachable
from tests.asgi import Browser
from tests.given_requests import World
from tests.given_things import SECRET, P, asking, refused

PAGE = Path(__file__).parent.parent / "docs" / "problems.md"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Somebody with a key for everything."""
    with asking(World(tmp_path_factory.mktemp("door"))) as browser:
        yield browser


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_error_has_its_status_and_type(browser: Browser, kind: type[EvalLedgerError]) -> None:
    """The table is what is answered, and the client finds the class again."""
    said = browser("GET", f"{P}/errors/{kind.__name__}")
    assert (said.status, said.problem) == (KINDS[kind].status, KINDS[kind].name)
    assert said.failed is None
    assert error_class(said.json()["type"]) is kind
    # What the store says when it cannot be reached may name folders and addresses of the server.
    assert (SECRET.encode() in said.body) == (kind is not StoreUnreachable)
    assert ("retry-after" in said.headers) == (said.status == 503)
    assert ("www-authenticate" in said.headers) == (said.status == 401)


def test_every_error_is_in_the_table() -> None:
    """Each class has its own line, or the one of the class above it; names are there once."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EvalLedgerError)]
    assert set(found) <= set(KINDS) | {errors.Refused}
    names = [kind.name for kind in {*KINDS.values(), *HTTP_KINDS.values()}]
    assert len(names) == len(set(names))
    assert kind_of(errors.Refused("x")).exit_code == 1


def test_what_differs_is_listed() -> None:
    """A conflict says where."""
    said = problem_of(Conflict("It stands already.", ["attempts: 1, not 2"]))
    assert msgspec.json.decode(said.body)["differs"] == ["attempts: 1, not 2"]


def test_a_key_in_a_sentence_is_taken_out() -> None:
    """Also where somebody used a key as a name."""
    said = bytes(problem_of(NotFound(f"There is no dataset el_{'a' * 38}@1.")).body)
    assert b"aaaa" not in said
    assert b"el_[key]@1" in said
    assert problem_of(NotFound("There is no \ud800.")).status_code == 404


def test_the_unforeseen_says_nothing(browser: Browser) -> None:
    """500 without a word of the error; a database that went away is 503."""
    said = browser("GET", f"{P}/errors/anything")
    assert refused(said, 500)["type"] == "/problems/unexpected"
    assert isinstance(said.failed, KeyError)  # so that the log has it
    assert refused(browser("GET", f"{P}/errors/sql"), 503)["type"] == "/problems/store-unreachable"
    refused(browser("GET", f"{P}/errors/http"), 400)


# --- the page --------------------------------------------------------------------------------------------------------


def reference() -> str:
    """The page on problems."""
    kinds = sorted({*KINDS.values(), *HTTP_KINDS.values()}, key=lambda kind: (kind.status, kind.name))
    lines = ["# Problems", "", "Written by `python -m tests.test_problems` from `api/problems.py`.", ""]
    lines += [
        "Whatever the server refuses is `application/problem+json` (RFC 9457): `type` (below), `title`, `status`, and",
        "`detail`, one sentence for a person. `differs` lists what differs where something conflicts; `errors` names",
        "the places that are wrong in a body or an address, never the values there. `type` is stable. A command that",
        "meets the same trouble ends with the exit code.", "",
    ]  # fmt: skip
    lines += ["| `type` | HTTP status | exit code | what it says |", "| --- | --- | --- | --- |"]
    lines += [f"| `{kind.type}` | {kind.status} | {kind.exit_code} | {kind.title} |" for kind in kinds]
    return "\n".join(lines) + "\n"


def test_the_page_of_problems_is_current() -> None:
    """docs/problems.md says what the table says."""
    assert PAGE.read_text() == reference()


if __name__ == "__main__":
    PAGE.write_text(reference())
