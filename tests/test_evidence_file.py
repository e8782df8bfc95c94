"""An evidence file is all its bytes: nothing may be added, left out, turned round or written otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from api.evidence_check import verify
from ledger.errors import BadInput
from tests.given_boards import SEED, Bench, client_of


@pytest.fixture(scope="module", params=[False, True], ids=["partial", "whole"])
def lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The evidence of a job, with its own entries or the whole log."""
    bench = Bench(client_of(tmp_path_factory.mktemp("evidence") / "home"))
    return list(bench.client.evidence(bench.job(SEED), whole=request.param))


def entry_of(line: bytes) -> bytes:
    """What follows an entry's position, with the end of the line."""
    return line.partition(b',"entry":')[2]


SPOILED: dict[str, Callable[[list[bytes]], bytes]] = {
    "text after the end": lambda lines: b"".join(lines) + b"and more\n",
    "an empty line after the end": lambda lines: b"".join(lines) + b"\n",
    "a byte after the end": lambda lines: b"".join(lines) + b"\0",
    "the last entry twice": lambda lines: b"".join([*lines, lines[-1]]),
    "an earlier entry again": lambda lines: b"".join([*lines, lines[1]]),
    "a later entry more": lambda lines: b"".join(lines) + b'{"position":1000000,"entry":' + entry_of(lines[-1]),
    "the last entry gone": lambda lines: b"".join(lines[:-1]),
    "all entries gone": lambda lines: lines[0],
    "cut within the last entry": lambda lines: b"".join(lines)[:-30],
    "cut before the last line's end": lambda lines: b"".join(lines)[:-1],
    "another last byte": lambda lines: b"".join(lines)[:-1] + b" ",
    "two entries exchanged": lambda lines: b"".join([*lines[:-2], lines[-1], lines[-2]]),
    "lines that end otherwise": lambda lines: b"".join(lines).replace(b"\n", b"\r\n"),
    "the same entry, written otherwise": lambda lines: b"".join(lines).replace(b',"version":', b', "version":', 1),
    "a field beside the entry": lambda lines: b"".join([*lines[:-1], lines[-1][:-2] + b',"more":1}\n']),
    "two entries in a line": lambda lines: b"".join([*lines[:-1], lines[-1][:-2] + b',"entry":' + entry_of(lines[-2])]),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_file_is_all_its_bytes(lines: list[bytes], tmp_path: Path, spoil: Callable[[list[bytes]], bytes]) -> None:
    """Nothing after the end, nothing twice, nothing turned round, cut or written otherwise: a fault, or no evidence."""
    file = tmp_path / "evidence.jsonl"
    file.write_bytes(b"".join(lines))
    assert faults_in(file) == []
    file.write_bytes(spoil(lines))
    assert faults_in(file)


def faults_in(file: Path) -> list[str]:
    with file.open("rb") as data:
        try:
            return verify(data).faults
        except BadInput as error:
            return [str(error)]


@pytest.mark.parametrize("data", [b"", b"\n", b"{}\n", b"null\n", b"\xff\n", b'{"format":"evalledger/evidence/2"}\n'])
def test_what_is_no_evidence_is_refused(data: bytes) -> None:
    """One sentence for a file of another kind."""
    with pytest.raises(BadInput):
        verify(data.splitlines(keepends=True))


def test_lines_that_are_no_entries_are_refused(lines: list[bytes]) -> None:
    """Cut, turned round, repeated or with something between: no evidence."""
    head, first, second, *rest = lines
    for wrong in ([second, first], [first, first], [first[:-2], second], [b"\n"], [first.replace(b":", b":0", 1)]):
        with pytest.raises(BadInput):
            verify([head, *wrong, *rest])
