"""The Merkle tree of a log, as RFC 6962 and RFC 9162 (section 2.1 of both) define it; no store, no clock.

A log of n entries has n leaf hashes, in order of position: the leaves of a binary tree in which the left
subtree of n leaves holds the largest power of two below n. The root names the whole log. From it an entry is
proven to be in the log (*inclusion*), and an older root to be that of a beginning of it (*consistency*).

Throughout, a hash is exactly 32 bytes of SHA-256; an index counts from 0, so the entry at position p is leaf
p - 1; a size counts leaves; proofs run upwards. Leaves and nodes are hashed with different first bytes, so no
node can be passed off as an entry's leaf.

**Not proven here:** a root does not carry its size. Trees of different sizes can have a path of the same
shape, and a proof made for one then verifies for the other too. Take both from one signed checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()
"""The root of a log without entries: SHA-256 of nothing (RFC 6962, section 2.1)."""


class InvalidProof(ValueError):
    """The proof does not show what it claims."""


def leaf_hash(body: bytes) -> bytes:
    """Hash one entry's exact bytes to its leaf: SHA-256(0x00 || body), 32 bytes (RFC 6962, section 2.1)."""
    return sha256(b"\x00" + body).digest()


def leaf_hashes(bodies: Sequence[bytes]) -> list[bytes]:
    """Hash many entries to their leaves: the same as `leaf_hash` of each, in the same order, only faster."""
    hash_ = sha256
    return [hash_(b"\x00" + body).digest() for body in bodies]


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash two children to their parent: SHA-256(0x01 || left || right), 32 bytes (RFC 6962, section 2.1).

    The lengths of the children are not checked here; whoever takes hashes from outside checks them first.
    """
    return sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """All that a log must keep of its tree to go on growing: its size and at most log2(size) + 1 hashes.

    `hashes` are the roots of the perfect subtrees that make up the tree, one for each bit set in `size`, the
    largest (leftmost) first. A size of 6 = 0b110 has two: over leaves 0-3 and over leaves 4-5.

    Raises `ValueError` when the size is negative, when the hashes are not one for each bit set in it, or when
    a hash is not 32 bytes long.
    """

    size: int
    hashes: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"A tree cannot have {self.size} leaves.")
        count = self.size.bit_count()
        if len(self.hashes) != count:
            raise ValueError(f"A frontier of {self.size} leaves has {count} hashes, not {len(self.hashes)}.")
        _require_hash_lengths(self.hashes, "frontier hash")

    @classmethod
    def empty(cls) -> Self:
        """Give the frontier of a log without entries."""
        return cls(0, ())

    @classmethod
    def from_bytes(cls, size: int, data: bytes) -> Self:
        """Read back what `to_bytes` wrote for a tree of `size` leaves.

        Raises `ValueError` when `data` is not exactly 32 bytes for each bit set in `size`.
        """
        return cls(size, tuple(data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)))

    def to_bytes(self) -> bytes:
        """Write the hashes in their order, 32 bytes each, without the size: that is kept beside them."""
        return b"".join(self.hashes)

    def extend(self, leaves: Sequence[bytes]) -> "Frontier":
        """Append leaf hashes and give the new frontier; this one stays as it was.

        Works level by level over the whole batch: about one hashing per leaf, whatever the size of the log.
        Raises `ValueError` when a leaf is not a 32-byte hash.
        """
        _require_hash_lengths(leaves, "leaf")
        waiting = list(self.hashes)
        unpaired: list[bytes] = []
        size_left = self.size
        nodes = leaves
        while nodes:
            if size_left & 1:
                nodes = [waiting.pop(), *nodes]
            if len(nodes) & 1:
                unpaired.append(nodes[-1])
            nodes = _parents(nodes)
            size_left >>= 1
        return Frontier(self.size + len(leaves), (*waiting, *reversed(unpaired)))

    def root(self) -> bytes:
        """Give the root of the tree: MTH of RFC 6962, section 2.1, 32 bytes; without leaves, `EMPTY_ROOT`."""
        if not self.hashes:
            return EMPTY_ROOT
        *larger, root = self.hashes
        for left in reversed(larger):
            root = node_hash(left, root)
        return root


def inclusion_proof(leaves: Sequence[bytes], index: int, size: int | None = None) -> list[bytes]:
    """Prove that leaf `index` is in the tree of the first `size` leaves: PATH of RFC 6962, section 2.1.1.

    `leaves` are all leaf hashes of the log, from the first; `size` is all of them when not given. Returns the
    siblings on the way up, at most ceil(log2(size)) hashes. Costs O(size) hashing: no inner node is kept.
    Raises `ValueError` unless 0 <= index < size <= len(leaves), or when a leaf is not a 32-byte hash.
    """
    size = len(leaves) if size is None else size
    if not 0 <= index < size <= len(leaves):
        raise ValueError(f"There is no leaf {index} in a tree of {size} leaves out of {len(leaves)}.")
    _require_hash_lengths(leaves, "leaf")
    return _siblings(leaves[:size], index)


def consistency_proof(leaves: Sequence[bytes], old_size: int, new_size: int) -> list[bytes]:
    """Prove that the first `old_size` leaves begin the tree of `new_size`: PROOF of RFC 6962, section 2.1.2.

    `leaves` are all leaf hashes of the log, from the first. Returns at most ceil(log2(new_size)) + 1 hashes,
    none when the sizes are equal or the old one is 0. Costs O(new_size) hashing: no inner node is kept.
    Raises `ValueError` unless 0 <= old_size <= new_size <= len(leaves), or when a leaf is not a 32-byte hash.
    """
    if not 0 <= old_size <= new_size <= len(leaves):
        raise ValueError(f"There is no proof from {old_size} to {new_size} leaves out of {len(leaves)}.")
    _require_hash_lengths(leaves, "leaf")
    if old_size in (0, new_size):
        return []
    # The proof starts at the last perfect subtree of the old tree: both trees have it.
    index, nodes = old_size - 1, leaves[:new_size]
    while index & 1:
        index, nodes = index >> 1, _level_above(nodes)
    # When that subtree is the whole old tree, whoever verifies holds its hash already: the old root.
    start = [nodes[index]] if index else []
    return start + _siblings(nodes, index)


def verify_inclusion(*, leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Check that `leaf`, a leaf hash, stands at `index` in the tree of `size` leaves with this `root`.

    The steps are those of RFC 9162, section 2.1.3.2. Compute `leaf` from the entry's own bytes. Returns
    nothing when the proof holds. Raises `InvalidProof` when it does not, when it has a hash too many or too
    few, when a hash is not 32 bytes long, or when `index` is not in the tree. Not checked: that `size` and
    `root` belong together (see the top of this module).
    """
    _require_hash_lengths([leaf, root, *proof], "leaf, root or proof hash", InvalidProof)
    if not 0 <= index < size:
        raise InvalidProof(f"There is no leaf {index} in a tree of {size} leaves.")
    _, computed = _climb(index, size - 1, leaf, proof)
    if computed != root:
        raise InvalidProof(f"The proof does not lead from leaf {index} to the root of {size} leaves.")


def verify_consistency(
    *, old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Check that the tree of `old_size` leaves with `old_root` begins that of `new_size` with `new_root`.

    The steps are those of RFC 9162, section 2.1.4.2. Two cases that it leaves out need an empty proof: equal
    sizes must have equal roots, and the empty tree (`old_root` is `EMPTY_ROOT`) begins every tree. Returns
    nothing when the proof holds. Raises `InvalidProof` when it does not, when it has a hash too many or too
    few, when a hash is not 32 bytes long, or when the sizes are negative or shrink. Not checked: that a size
    and its root belong together (see the top of this module).
    """
    _require_hash_lengths([old_root, new_root, *proof], "root or proof hash", InvalidProof)
    if not 0 <= old_size <= new_size:
        raise InvalidProof(f"A tree of {old_size} leaves cannot begin a tree of {new_size} leaves.")
    if old_size in (0, new_size):
        _verify_without_path(old_size, new_size, old_root, new_root, proof)
        return
    if not proof:
        raise InvalidProof("The proof has too few hashes.")
    at, last = old_size - 1, new_size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    start, *path = proof if at else [old_root, *proof]
    old_computed, new_computed = _climb(at, last, start, path)
    if old_computed != old_root:
        raise InvalidProof(f"The proof does not lead to the root of the older {old_size} leaves.")
    if new_computed != new_root:
        raise InvalidProof(f"The proof does not lead to the root of the newer {new_size} leaves.")


def _climb(at: int, last: int, start: bytes, path: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Hash upwards from the node `at` of a level that ends with node `last`; the loop of both RFC algorithms.

    Gives two roots: of the tree that ended with the node `start`, and of the whole tree.
    """
    old = new = start
    for sibling in path:
        if last == 0:
            raise InvalidProof("The proof has too many hashes.")
        if at & 1 or at == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            # Without a sibling of its own, the last node went up as it was until it became a right child.
            while at and not at & 1:
                at, last = at >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        at, last = at >> 1, last >> 1
    if last != 0:
        raise InvalidProof("The proof has too few hashes.")
    return old, new


def _verify_without_path(
    old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    if proof:
        raise InvalidProof("The proof has too many hashes.")
    if old_size == 0 and old_root != EMPTY_ROOT:
        raise InvalidProof("The older root is not the root of an empty tree.")
    if old_size == new_size and old_root != new_root:
        raise InvalidProof(f"Two trees of {new_size} leaves have different roots.")


def _parents(nodes: Sequence[bytes]) -> list[bytes]:
    """Hash neighbours pairwise; an odd one at the end is left out."""
    # The speed of every append: one join and slices of 64 bytes beat a call, or two additions, for each pair.
    hash_, joined = sha256, b"".join(nodes)
    width = 2 * HASH_BYTES
    pairs_end = len(nodes) // 2 * width
    return [hash_(b"\x01" + joined[at : at + width]).digest() for at in range(0, pairs_end, width)]


def _level_above(nodes: Sequence[bytes]) -> list[bytes]:
    """Hash neighbours pairwise; an odd one at the end goes up as it is, which gives RFC 6962's tree."""
    parents = _parents(nodes)
    if len(nodes) & 1:
        parents.append(nodes[-1])
    return parents


def _siblings(nodes: Sequence[bytes], index: int) -> list[bytes]:
    """Collect the siblings on the way from node `index` of this level to the root."""
    path: list[bytes] = []
    while len(nodes) > 1:
        sibling = index ^ 1
        if sibling < len(nodes):
            path.append(nodes[sibling])
        index, nodes = index >> 1, _level_above(nodes)
    return path


def _require_hash_lengths(hashes: Sequence[bytes], what: str, error: type[ValueError] = ValueError) -> None:
    # An empty or short hash would let bytes move between neighbours and still give the same parent.
    for length in set(map(len, hashes)) - {HASH_BYTES}:
        raise error(f"A {what} is {HASH_BYTES} bytes long, not {length}.")
