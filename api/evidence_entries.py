"""The entries of an evidence file: its lines taken apart in batches, and the root that their exact bytes lead to."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from operator import lt
from typing import NamedTuple

import msgspec

from ledger.checkpoints import Checkpoint
from ledger.errors import BadInput
from ledger.merkle import Frontier, InvalidProof, leaf_hashes
from ledger.proofs import root_of_joint

BATCH_ENTRIES = 1_024
_AROUND = len('{"position":,"entry":')


class Place(msgspec.Struct, gc=False):
    """Of an entry, which one it is of which stream."""

    stream: str
    version: int


class _Line(msgspec.Struct, gc=False):
    """A line of the file: where an entry stands, and what the entry itself says of its place."""

    position: int
    entry: Place


class Batch(NamedTuple):
    """Some entries, in order: where each stands, what it says of itself, and its line as it is written."""

    positions: list[int]
    places: list[Place]
    lines: list[bytes]

    def body(self, number: int) -> bytes:
        """The exact bytes of one entry: {"position":17,"entry":...} is as long around it as its position."""
        return self.lines[number][_AROUND + len(str(self.positions[number])) : -2]

    def leaves(self) -> list[bytes]:
        """The leaf hash of each. The bytes are cut out one at a time: to hold them all would cost as much again."""
        start, end = (_AROUND + len(str(self.positions[at])) for at in (0, -1))
        if start != end:
            return leaf_hashes([self.body(number) for number in range(len(self.lines))])
        hash_ = sha256
        return [hash_(b"\x00" + line[start:-2]).digest() for line in self.lines]


_decode_line = msgspec.json.Decoder(_Line).decode


def batches(lines: Iterator[bytes]) -> Iterator[Batch]:
    """Step 1 of a check, of the entries. A line that is written in another way has another body, so another hash."""
    before = 0
    while batch := list(islice(lines, BATCH_ENTRIES)):
        try:
            found = list(map(_decode_line, batch))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"Within the entries after {before:,} stands a line that is no entry ({error}).") from error
        if not batch[-1].endswith(b"\n"):  # only a file's last line can lack its end
            raise BadInput("The last line was cut.")
        positions = [line.position for line in found]
        if positions[0] <= before or not all(map(lt, positions, positions[1:])):
            raise BadInput(f"The entries after {before:,} do not stand in the order of the log.")
        before = positions[-1]
        yield Batch(positions, [line.entry for line in found], batch)


class Leaves:
    """Step 4 of a check: the leaves of the entries, and the root that they lead to."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._frontier = Frontier.empty()
        self._leaves: list[bytes] = []
        self._indexes: list[int] = []
        self._dense = True
        self.count = 0

    def take(self, batch: Batch) -> None:
        """Take entries in."""
        leaves = batch.leaves()
        self.count += len(leaves)
        if self._whole:
            self._dense = self._dense and batch.positions[-1] == self.count
            self._frontier = self._frontier.extend(leaves)
        else:
            self._leaves += leaves
            self._indexes += [position - 1 for position in batch.positions]

    def faults(self, checkpoint: Checkpoint, proof: Sequence[str]) -> Iterator[str]:
        """Whether the entries, with the hashes of the proof, lead to the checkpoint's root."""
        try:
            hashes = [base64.b64decode(text, validate=True) for text in proof]
            if [base64.b64encode(hash_).decode() for hash_ in hashes] != list(proof):
                raise InvalidProof("A hash is not written as it should be.")
            if self._whole:
                root = self._frontier.root() if self._dense and not hashes else b""
                size = self._frontier.size
            else:
                size = checkpoint.size
                root = root_of_joint(leaves=self._leaves, indexes=self._indexes, size=size, proof=hashes)
        except (InvalidProof, binascii.Error, ValueError) as error:
            yield f"the entries are not proven to be in the log: {error}"
            return
        if (size, root) != (checkpoint.size, checkpoint.root):
            yield "the entries do not lead to the root of the checkpoint: one of them, or the proof, was changed"
