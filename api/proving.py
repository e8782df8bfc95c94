"""What a log can show of itself: checkpoints, tiles, proofs; and looking at them from outside, through either door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from api.answers import CheckpointAnswer, ConsistencyAnswer, InclusionAnswer
from ledger.appending import Head
from ledger.checking import Checked, check_log
from ledger.checkpoints import Checkpoint, Checkpoints, begins_with, forked, opened, other_key, require_extends
from ledger.errors import BadInput, BadNote, ForkedLog, NotFound
from ledger.facts.access import STREAM
from ledger.merkle import Frontier, leaf_hashes
from ledger.notes import Note, SigningKey, VerifierKey
from ledger.pins import Pin, read_pin, write_pin
from ledger.proofs import consistency_from, inclusion_from, root_from
from ledger.rules import access
from ledger.tiles import WIDTH, Tile, Tiles, tile_at

if TYPE_CHECKING:
    from api.client import Client
    from api.el import El

# --- what the store gives --------------------------------------------------------------------------------------------


def log_of(client: Client) -> Checkpoints:
    """The checkpoints of a project's log, as the epoch it is in signs them."""
    return Checkpoints(client.ledger.recorder, client.workspace.signer, _origins(client)[-1])


def _origins(client: Client) -> list[str]:
    """The names of the log, one for each epoch it has had: no two logs that differ are signed under one name."""
    project: access.State = client.ledger.state(STREAM)
    first = f"{client.workspace.signer.name}/{client.project}"
    return [first, *(f"{first}~{epoch}" for epoch, _ in enumerate(project.epochs if project else (), 2))]


def checkpoint(
    client: Client, *, rebuild: bool = False, accept_epoch: bool = False, new_key: bool = False
) -> CheckpointAnswer:
    """Sign the log as it stands, keep that beside the log and pin it in the home folder.

    With `rebuild` the tiles are made anew first; `accept_epoch` takes a later epoch in place of the pinned one;
    `new_key` gives up what another key signed. Raises ForkedLog when the log does not extend the pin, NotAllowed when
    another key signed before.
    """
    if new_key:
        client.workspace.sign_anew()
    path, log = client.workspace.pin(client.project), log_of(client)
    if rebuild:
        log.tiles.drop()
    pin, head = read_pin(path), client.ledger.head()  # in this order: somebody else may move both on meanwhile
    if pin and accept_epoch and _is_later_epoch(pin.seen.origin, log.origin):
        pin = None
    if pin and not begins_with(log.tiles, head, pin.seen):
        raise forked(pin.seen, Checkpoint(log.origin, head.size, head.root))
    if new_key:
        log.give_up_others()
    note = log.make()
    found = _answer(note, log.key)
    if not pin or pin.checkpoint != found.checkpoint:
        write_pin(path, Pin(found.key, found.checkpoint))
    return found


def add_cosignatures(client: Client, note: str) -> CheckpointAnswer:
    """Take in what witnesses have signed under a checkpoint of this log. Raises BadNote, Conflict."""
    log = log_of(client)
    signed = Note.parse(note)
    opened(signed, log.key)
    return _answer(log.add(signed), log.key)


def inclusion_proof(client: Client, position: int, size: int | None = None) -> InclusionAnswer:
    """Prove that an entry is in the log of `size` entries, or of all there are."""
    head, tiles = client.ledger.head(), Tiles(client.ledger.recorder)
    size = _within(head, size)
    if not 1 <= position <= size:
        raise NotFound(f"There is no entry {position:,} in a log of {size:,} entries.")
    tiles.extend(size)
    ((_, body),) = client.ledger.recorder.bodies_at([position])
    hashes = inclusion_from(tiles.node, position - 1, size)
    return InclusionAnswer(position, size, root_from(tiles.node, size).hex(), _hex(hashes), msgspec.Raw(body))


def consistency_proof(client: Client, old_size: int, new_size: int | None = None) -> ConsistencyAnswer:
    """Prove that the log of `old_size` entries begins that of `new_size`, or of all there are."""
    head, tiles = client.ledger.head(), Tiles(client.ledger.recorder)
    new_size = _within(head, new_size)
    if not 0 <= old_size <= new_size:
        raise BadInput(f"There is no proof from {old_size:,} to {new_size:,} entries; the first is to be the smaller.")
    tiles.extend(new_size)
    old_root, new_root = (root_from(tiles.node, size).hex() for size in (old_size, new_size))
    hashes = consistency_from(tiles.node, old_size, new_size)
    return ConsistencyAnswer(old_size, new_size, old_root, new_root, _hex(hashes))


def tile(client: Client, path: str) -> bytes:
    """A tile's bytes, as C2SP tlog-tiles writes them. Raises BadInput, NotFound."""
    return Tiles(client.ledger.recorder).read(tile_at(path))


def start_epoch(client: Client, *, reason: str) -> CheckpointAnswer:
    """Go on with a log that does not extend its pin: record what is given up, and pin the log as it is now.

    Raises BadInput when the log does extend its pin, or there is none.
    """
    path = client.workspace.pin(client.project)
    pin, head = read_pin(path), client.ledger.head()
    if not pin or begins_with(Tiles(client.ledger.recorder), head, pin.seen):
        raise BadInput("The log extends what was seen of it; it needs no new epoch.")
    rule = partial(access.start_epoch, size=pin.seen.size, root=pin.seen.root.hex(), reason=reason)
    client.ledger.recorder.guard = None  # this one entry is what makes writing possible again
    client.ledger.record(STREAM, rule)
    log = log_of(client)
    found = _answer(log.make(), log.key)
    write_pin(path, Pin(found.key, found.checkpoint))
    return found


def verify_store(client: Client, pins: Sequence[Path], *, progress: Callable[[int], None] | None = None) -> Checked:
    """Read the whole log of this store and compare it with its recorded root, its tiles, the checkpoints kept beside it
    and pins: every fault in one sentence.
    """
    log, origins = log_of(client), _origins(client)
    faults: list[str] = []
    others: dict[str, list[int]] = {}
    wanted: list[tuple[str, Checkpoint]] = []
    for size, text in log.kept():
        try:
            note = Note.parse(text)
            kept = Checkpoint.parse(note.text)
            if kept.origin not in origins and any(one.name == kept.origin for one in note.signatures):
                others.setdefault(kept.origin, []).append(size)
                continue
            opened(note, *(log.key._replace(name=origin) for origin in origins if origin == kept.origin))
        except BadNote as error:
            faults.append(f"the checkpoint of {size} entries was changed: {error}")
            continue
        if kept.size == size:
            wanted.append((f"the checkpoint of {size} entries", kept))
        else:
            faults.append(f"the checkpoint of {size} entries was changed: it says {kept.size}")
    for origin, sizes in others.items():
        further = f" and {len(sizes) - 1:,} more" if len(sizes) > 1 else ""
        faults.append(f"the checkpoint of {sizes[0]} entries{further}: {other_key(origin, log.origin)}")
    wanted += [(f"the pin {path}", pin.seen) for path in pins if (pin := read_pin(path))]
    found = check_log(client.ledger.recorder, progress=progress, sizes=[seen.size for _, seen in wanted])
    if not found.faults:
        for name, seen in wanted:
            if found.roots.get(seen.size) != seen.root.hex():
                now = Checkpoint(seen.origin, found.entries, bytes.fromhex(found.root))
                faults.append(f"{name} is not met: {forked(seen, now)}")
    return msgspec.structs.replace(found, faults=[*found.faults, *faults], roots={})


# --- looking from outside --------------------------------------------------------------------------------------------


def look(el: El, path: Path, *, accept_epoch: bool = False) -> CheckpointAnswer:
    """Fetch a checkpoint, check it against the pin in a file, and pin it there in its turn.

    Without a file, the log and its key are trusted as they are now. `accept_epoch` takes a later epoch in its place.

    Raises:
        ForkedLog: the log does not extend the pinned checkpoint, or another key signs for it.
        BadNote: the checkpoint is not signed as it should be.
    """
    pin, found = read_pin(path), el.checkpoint()
    now = opened(Note.parse(found.checkpoint), VerifierKey.parse(found.key))
    if pin and not (accept_epoch and _is_later_epoch(pin.seen.origin, now.origin)):
        seen = pin.seen
        if now.origin == seen.origin and found.key != pin.key:
            raise ForkedLog(f"Another key signs for {now.origin} than the pinned one: {found.key}, not {pin.key}.")
        proof = [] if now.origin != seen.origin or now.size < seen.size else _consistency(el, seen.size, now.size)
        require_extends(seen, now, proof)
    if not pin or pin.checkpoint != found.checkpoint:
        write_pin(path, Pin(found.key, found.checkpoint))
    return found


def witness(el: El, note: str, path: Path, signer: SigningKey) -> Note:
    """Cosign a checkpoint of a log after checking that it extends the last one pinned in a file; pin it.

    Raises BadNote, ForkedLog; what is smaller than the pinned one is not cosigned either.
    """
    given, pin = Note.parse(note), read_pin(path)
    key = pin.key if pin else el.checkpoint().key
    now = opened(given, VerifierKey.parse(key))
    if pin:
        require_extends(pin.seen, now, _consistency(el, pin.seen.size, now.size) if now.size > pin.seen.size else [])
    write_pin(path, Pin(key, note))
    return given.with_signatures([signer.cosign(given.text, int(datetime.now(UTC).timestamp()))])


def verify_served(
    el: El, path: Path, *, accept_epoch: bool = False, progress: Callable[[int], None] | None = None
) -> Checked:
    """Fetch every entry of a log behind a server and check that they have the root of its checkpoint, and that this
    extends the pin in a file. Holds 256 entries in memory.
    """
    found = look(el, path, accept_epoch=accept_epoch)
    frontier = Frontier.empty()
    for index in range(-(-found.size // WIDTH)):
        width = min(WIDTH, found.size - index * WIDTH)
        bodies = entries_in(el.tile(Tile("entries", index, width).path))
        hashes = el.tile(Tile(0, index, width).path)
        leaves = leaf_hashes(bodies)
        for place, leaf in enumerate(leaves):
            if hashes[place * 32 : place * 32 + 32] != leaf:
                fault = f"entry {index * WIDTH + place + 1} is not the one that {Tile(0, index).path} has a hash of"
                return Checked(frontier.size, frontier.root().hex(), [fault])
        frontier = frontier.extend(leaves)
        if progress:
            progress(frontier.size)
    fits = (frontier.size, frontier.root().hex()) == (found.size, found.root)
    return Checked(frontier.size, frontier.root().hex(), [] if fits else ["the entries have not the signed root"])


def entries_in(bundle: bytes) -> list[bytes]:
    """The entries in a bundle of a tiled log. Raises BadInput when it is cut."""
    found, at = [], 0
    while at < len(bundle):
        end = at + 2 + int.from_bytes(bundle[at : at + 2], "big")
        if end > len(bundle):
            raise BadInput("A bundle of entries was cut.")
        found.append(bundle[at + 2 : end])
        at = end
    return found


def pin_path(home: Path, el: El) -> Path:
    """Where the last checkpoint seen of a log is pinned, unless a file is named: per server and project."""
    name = el.where.replace("/", "_").replace(":", "_")
    return home.absolute() / "pins" / name / f"{el.project}.json"


def _is_later_epoch(seen: str, now: str) -> bool:
    """Whether an origin is that of a later epoch of the same log."""
    (base, before), (same, after) = _epoch_of(seen), _epoch_of(now)
    return base == same and after > before


def _epoch_of(origin: str) -> tuple[str, int]:
    base, mark, number = origin.rpartition("~")
    return (base, int(number)) if mark and number.isascii() and number.isdigit() else (origin, 1)


def _consistency(el: El, old_size: int, new_size: int) -> list[bytes]:
    try:
        return [bytes.fromhex(hash_) for hash_ in el.consistency_proof(old_size, new_size).hashes]
    except ValueError as error:
        raise BadInput("The proof of consistency is not in hex.") from error


def _answer(note: Note, key: VerifierKey) -> CheckpointAnswer:
    found = Checkpoint.parse(note.text)
    return CheckpointAnswer(str(note), str(key), found.origin, found.size, found.root.hex())


def _within(head: Head, size: int | None) -> int:
    if size is None:
        return head.size
    if not 1 <= size <= head.size:
        raise NotFound(f"There is no log of {size:,} entries yet; it has {head.size:,}.")
    return size


def _hex(hashes: Sequence[bytes]) -> list[str]:
    return [hash_.hex() for hash_ in hashes]
