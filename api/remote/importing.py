"""Streams of a server, for imports: the rules are asked here, the facts are sent, the server asks the rules again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO
from uuid import uuid4

import msgspec

from api.el import Batches
from api.pages import ImportTaken, StreamsAnswer
from api.remote.transport import Transport
from ledger.application import Rule, Written, ask, fold
from ledger.codec import decode_all
from ledger.digests import CHUNK_BYTES
from ledger.errors import ConcurrentWrite
from ledger.facts.entry import AnyFact, Recorded

STREAMS_PER_REQUEST = 500
SPOOLED_BYTES_MAX = 8_000_000
TRIES_MAX = 5


class Line(msgspec.Struct, frozen=True):
    """The facts of one stream, as they are sent."""

    stream: str
    facts: list[AnyFact]


class RemoteStreams:
    """The streams of one project of a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def read(self, streams: Sequence[str]) -> dict[str, list[Recorded]]:
        """The entries of many streams, each in version order."""
        found: dict[str, list[Recorded]] = {}
        left = list(dict.fromkeys(streams))
        while left:
            some, left = left[:STREAMS_PER_REQUEST], left[STREAMS_PER_REQUEST:]
            answer = self._transport.post("/streams", StreamsAnswer, {"streams": some})
            for stream, rows in answer.streams.items():
                found[stream] = decode_all((row.position, bytes(row.entry)) for row in rows)
            left = answer.left + left
        return found

    def record(self, stream: str, rules: Sequence[Rule], *, key: str | None) -> Written:
        """Ask the rules and record what they return on one stream."""
        key = key or own_key()
        for _ in range(TRIES_MAX):
            past = self.read([stream])[stream]
            facts = ask(stream, fold(stream, past), rules)
            if not facts:
                return Written(past[-1].position if past else 0, ())
            try:
                taken = self._send([Line(stream, facts)], "any", key)
            except ConcurrentWrite:
                continue
            (written,) = taken.written
            if written.new:
                return Written(written.position, tuple(facts[len(facts) - written.new :]))
            # Nothing new: somebody else was faster, or the reply to our own first try was lost.
            ours = tuple(one.entry.fact for one in self.read([stream])[stream] if one.entry.key == key)
            return Written(written.position, ours)
        raise ConcurrentWrite(f"The stream {stream} is being written to all the time; try again later.")

    def record_new(self, batches: Batches, *, key: str | None) -> int:
        """Record streams that do not exist yet, all or none; how many entries were written."""
        key = key or own_key()
        first: str | None = None
        count = 0

        def lines() -> Iterator[Line]:
            nonlocal first, count
            for batch in batches:
                for stream, rules in batch:
                    facts = ask(stream, None, rules)
                    first, count = first or stream, count + len(facts)
                    yield Line(stream, facts)

        try:
            return self._send(lines(), "new", key).entries
        except ConcurrentWrite:
            # They may be there because the reply to our own first try was lost: then they carry our key.
            if first is not None and any(one.entry.key == key for one in self.read([first])[first]):
                return count
            raise

    def _send(self, lines: Iterable[Line], streams: str, key: str) -> ImportTaken:
        """Send lines once all of them are known: a slow importer keeps nobody waiting."""
        with tempfile.SpooledTemporaryFile(SPOOLED_BYTES_MAX) as file:
            for line in lines:
                file.write(msgspec.json.encode(line) + b"\n")
            answer = self._transport.send(
                "POST",
                "/imports",
                params={"streams": streams, "key": key},
                headers={"Content-Type": "application/x-ndjson"},
                body=lambda: _from_start(file),
                size=file.tell(),
            )
        return self._transport.decode(answer, ImportTaken)


def own_key() -> str:
    """A key for one request, the same however often it is sent: what was recorded under it was recorded by us."""
    return f"once/{uuid4()}"


def _from_start(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        yield chunk
