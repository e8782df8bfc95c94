"""Checkpoints: the signed size and root of a log, as C2SP tlog-checkpoint writes them (https://c2sp.org/tlog-checkpoint).

Whoever holds one can later tell whether the log still begins with what it said. They are no facts; the last of each
size is kept beside the log, so that old ones can be given. A log never signs what does not extend its last one.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.appending import Head
from ledger.database import insert_into, metadata, reading, writing
from ledger.errors import BadNote, Conflict, DamagedStore, ForkedLog, NotAllowed
from ledger.merkle import HASH_BYTES, InvalidProof, verify_consistency
from ledger.notes import Note, SigningKey, VerifierKey
from ledger.proofs import root_from
from ledger.recorder import ProjectRecorder
from ledger.tiles import Tiles

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("note", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)


class Checkpoint(NamedTuple):
    """What a checkpoint says: which log, how many entries, the root over them (32 bytes)."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Read a note's text; lines after the third, which anybody may add, are left out.

        Raises BadNote when it is no checkpoint.
        """
        lines = text.removesuffix("\n").split("\n")
        if len(lines) >= 3 and all(lines) and lines[1].isascii() and lines[1].isdigit() and len(lines[1]) < 20:
            with suppress(ValueError):
                found = cls(lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True))
                # Written in the one way to write it: else bits of it could change unseen.
                if text.startswith(found.text) and len(found.root) == HASH_BYTES:
                    return found
        raise BadNote("A checkpoint is three lines: whose log, how many entries, the root in base64; this is not.")


def opened(note: Note, *keys: VerifierKey) -> Checkpoint:
    """The checkpoint in a note signed by one of the keys at least. Raises BadNote when none has signed it."""
    if not note.signed_by(*keys):
        names = ", ".join(str(key) for key in keys) or "a key of this log"
        raise BadNote(f"The checkpoint is not signed by {names}.")
    return Checkpoint.parse(note.text)


def require_extends(seen: Checkpoint, now: Checkpoint, proof: Sequence[bytes]) -> None:
    """Check that a log goes on from a checkpoint that was seen of it.

    Raises ForkedLog, with sizes and roots of both, when it is shorter (rolled back) or was changed (a fork).
    """
    if now.origin != seen.origin or now.size < seen.size:
        raise forked(seen, now)
    try:
        verify_consistency(old_size=seen.size, new_size=now.size, old_root=seen.root, new_root=now.root, proof=proof)
    except InvalidProof:
        raise forked(seen, now) from None


def begins_with(tiles: Tiles, head: Head, seen: Checkpoint) -> bool:
    """Whether the log, which ends at `head`, begins with what a checkpoint says. Believes the tiles."""
    if seen.size >= head.size:
        return (seen.size, seen.root) == head
    tiles.extend(seen.size)
    return root_from(tiles.node, seen.size) == seen.root


def forked(seen: Checkpoint, now: Checkpoint) -> ForkedLog:
    """The refusal of a log that does not go on from what was seen of it, in which way, with sizes and roots of both."""
    both = f"seen were {_told(seen)}, now it has {_told(now)}"
    if now.origin != seen.origin:
        return ForkedLog(f"This is another log, or another epoch of it: {now.origin}, not {seen.origin}; {both}.")
    if now.size < seen.size:
        return ForkedLog(f"The log was rolled back: {both}. docs/trust.md says what to do about an old backup.")
    return ForkedLog(f"The log was changed, a fork: it does not extend what was seen of it; {both}.")


def require_never_signed(engine: Engine) -> None:
    """Refuse a new signing key for a store whose checkpoints were signed by one that is missing now.

    Raises NotAllowed.
    """
    with reading(engine) as connection:
        note = connection.execute(sa.select(checkpoints.c.note).limit(1)).scalar()
    if note is not None:
        raise NotAllowed(other_key(note.partition("\n")[0], None))


def other_key(signed: str, own: str | None) -> str:
    """The sentence for checkpoints signed under a name when the store's own key has another one, or there is none."""
    now = f"its signing key is {own}" if own else "there is no signing key"
    return (
        f"The store's checkpoints were signed as {signed[:200]}, and now {now}: put the signing.key back that belongs "
        "to the store (or set EL_SIGNING_KEY); if it is lost, `el audit checkpoint --new-key` goes on with another."
    )


def _told(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.size:,} entries with root {checkpoint.root.hex()}"


class Checkpoints:
    """The checkpoints of one project's log under one signing key. `origin` is the name of the log and of the key."""

    def __init__(self, recorder: ProjectRecorder, signer: SigningKey, origin: str) -> None:
        self._recorder = recorder
        self._signer = signer.named(origin)
        self.origin = origin
        self.tiles = Tiles(recorder)
        self._of_project = checkpoints.c.project_id == recorder.project_id

    @property
    def key(self) -> VerifierKey:
        """The public key that the log's checkpoints are signed with."""
        return self._signer.verifier()

    def make(self) -> Note:
        """Sign the log as it stands, bring its tiles up to there, and keep the checkpoint; the same size again is given
        as it was kept, with the cosignatures it has got.

        Raises:
            ForkedLog: the log does not extend the last checkpoint that was signed under this origin.
            NotAllowed: another key signed the last checkpoint.
            DamagedStore: entries, tiles and recorded root do not fit together.
        """
        last, head = self.last(), self._recorder.head()  # in this order: somebody else may move both on meanwhile
        now = Checkpoint(self.origin, head.size, head.root)
        self.tiles.extend(head.size)
        if root_from(self.tiles.node, head.size) != head.root:
            raise DamagedStore("The entries do not add up to the recorded root; `el audit verify` says where.")
        if last:
            seen = Checkpoint.parse(last.text)
            if not self._signed(last, seen):
                raise NotAllowed(other_key(seen.origin, self.origin))
            if seen == now:
                return last
            if seen.origin == self.origin and not begins_with(self.tiles, head, seen):
                raise forked(seen, now)
        note = Note(now.text, (self._signer.sign(now.text),))
        self._keep(head.size, note)
        return note

    def give_up_others(self) -> None:
        """Forget the checkpoints that other keys signed, so that this one signs from here on.

        Raises ForkedLog when the log does not extend one of them; those of earlier epochs it need not.
        """
        notes = [Note.parse(text) for _, text in self.kept()]
        others = [seen for note in notes if not self._signed(note, seen := Checkpoint.parse(note.text))]
        head, epoch = self._recorder.head(), self.origin.rpartition("/")[2]
        for seen in others:
            if seen.origin.rpartition("/")[2] == epoch and not begins_with(self.tiles, head, seen):
                raise forked(seen, Checkpoint(seen.origin, head.size, head.root))
        with writing(self._recorder.engine) as connection:
            for seen in others:
                connection.execute(checkpoints.delete().where(self._of_project, checkpoints.c.size == seen.size))

    def _signed(self, note: Note, seen: Checkpoint) -> bool:
        """Whether a kept note names this key as its signer, under the name of any epoch."""
        key_id = self.key._replace(name=seen.origin).id
        return any((one.name, one.key_id) == (seen.origin, key_id) for one in note.signatures)

    def last(self) -> Note | None:
        """The kept checkpoint of the largest size. Raises BadNote when it was changed."""
        query = sa.select(checkpoints.c.note).order_by(checkpoints.c.size.desc()).limit(1)
        with reading(self._recorder.engine) as connection:
            text = connection.execute(query.where(self._of_project)).scalar()
        return Note.parse(text) if text is not None else None

    def kept(self) -> list[tuple[int, str]]:
        """(size, note as it is stored) of every kept checkpoint, by size."""
        query = sa.select(checkpoints.c.size, checkpoints.c.note).order_by(checkpoints.c.size)
        with reading(self._recorder.engine) as connection:
            return [(row[0], row[1]) for row in connection.execute(query.where(self._of_project))]

    def add(self, note: Note) -> Note:
        """Take in what others have signed under a kept checkpoint; the note with all signatures.

        Raises Conflict when no such checkpoint was kept; BadNote when there would be more signatures than are read.
        """
        asked = Checkpoint.parse(note.text)
        this = sa.and_(self._of_project, checkpoints.c.size == asked.size)
        with writing(self._recorder.engine) as connection:
            # Locked: of two who add at once, the later one keeps what the other has added.
            text = connection.execute(sa.select(checkpoints.c.note).where(this).with_for_update()).scalar()
            if text is not None and (kept := Note.parse(text)).text == note.text:
                merged = Note.parse(str(kept.with_signatures(note.signatures)))  # what is kept can be read again
                connection.execute(checkpoints.update().where(this).values(note=str(merged)))
                return merged
        raise Conflict(f"No checkpoint of {asked.size:,} entries with root {asked.root.hex()} was made here.")

    def _keep(self, size: int, note: Note) -> None:
        row = {"project_id": self._recorder.project_id, "size": size, "note": str(note)}
        with writing(self._recorder.engine) as connection:
            insert = insert_into(connection, checkpoints)
            connection.execute(
                insert.on_conflict_do_update(
                    index_elements=["project_id", "size"], set_={"note": insert.excluded.note}
                ),
                row,
            )
