"""Proofs made from stored nodes of the tree, and proofs for many entries at once; no store, no clock.

A *node* of height h and index i is the hash over the 2**h leaves from leaf i * 2**h on. Whoever keeps the nodes of
complete subtrees (the tiles do) can make any proof without reading the log.

For many entries one path each would repeat most hashes. A *joint proof* holds each subtree's hash once: the roots of
the largest subtrees without a proven leaf, from left to right. For a stretch of leaves without a gap it is no longer
than one path at each end, and for all leaves it is empty: then nothing can have been left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from ledger.merkle import EMPTY_ROOT, HASH_BYTES, Frontier, InvalidProof, node_hash

Node = Callable[[int, int], bytes]
"""Gives the hash of a complete subtree: of height (0 for a leaf) and index among those of its height."""


def root_from(node: Node, size: int) -> bytes:
    """The root of the first `size` leaves."""
    return _range_root(node, 0, size) if size else EMPTY_ROOT


def inclusion_from(node: Node, index: int, size: int) -> list[bytes]:
    """The same hashes as `merkle.inclusion_proof`. Raises ValueError unless 0 <= index < size."""
    if not 0 <= index < size:
        raise ValueError(f"There is no leaf {index} in a tree of {size} leaves.")
    path: list[bytes] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(_range_root(node, middle, high))
            high = middle
        else:
            path.append(_range_root(node, low, middle))
            low = middle
    return path[::-1]


def consistency_from(node: Node, old_size: int, new_size: int) -> list[bytes]:
    """The same hashes as `merkle.consistency_proof`. Raises ValueError unless 0 <= old_size <= new_size."""
    if not 0 <= old_size <= new_size:
        raise ValueError(f"There is no proof from {old_size} to {new_size} leaves.")
    if old_size in (0, new_size):
        return []
    path: list[bytes] = []
    low, high = 0, new_size
    while high != old_size:
        middle = low + _split(high - low)
        if old_size <= middle:
            path.append(_range_root(node, middle, high))
            high = middle
        else:
            path.append(_range_root(node, low, middle))
            low = middle
    if low:  # else what is left is the whole old tree, whose root the verifier holds
        path.append(_range_root(node, low, high))
    return path[::-1]


def joint_proof(node: Node, indexes: Sequence[int], size: int) -> list[bytes]:
    """Prove that the leaves at `indexes`, rising, are in the tree of `size` leaves.

    Raises ValueError when the indexes do not rise or one is not in the tree.
    """
    _require_rising(indexes, size, ValueError)
    return [_range_root(node, low, high) for low, high in _unproven(indexes, 0, size, 0, len(indexes))]


def root_of_joint(*, leaves: Sequence[bytes], indexes: Sequence[int], size: int, proof: Sequence[bytes]) -> bytes:
    """The root that leaf hashes at `indexes`, rising, and their joint proof lead to. Compare it with a signed one.

    Raises InvalidProof when the proof has a hash too many or too few, when a hash is not 32 bytes long, or when the
    indexes do not rise or are not in the tree. Not checked: that `size` belongs to the root compared with.
    """
    _require_rising(indexes, size, InvalidProof)
    if len(leaves) != len(indexes) or set(map(len, (*leaves, *proof))) - {HASH_BYTES}:
        raise InvalidProof("A leaf or a proof hash is missing or is not 32 bytes long.")
    hashes = iter(proof)
    try:
        root = _joint_root(leaves, indexes, hashes, 0, size, 0, len(indexes)) if size else EMPTY_ROOT
    except StopIteration:
        raise InvalidProof("The proof has too few hashes.") from None
    if next(hashes, None) is not None:
        raise InvalidProof("The proof has too many hashes.")
    return root


def _joint_root(
    leaves: Sequence[bytes],
    indexes: Sequence[int],
    hashes: Iterator[bytes],
    low: int,
    high: int,
    first: int,
    last: int,
) -> bytes:
    """The root over leaves low to high - 1, of which those at indexes[first:last] are proven."""
    if first == last:
        return next(hashes)
    if last - first == high - low:
        return Frontier.empty().extend(leaves[first:last]).root()
    middle = low + _split(high - low)
    cut = bisect_left(indexes, middle, first, last)
    left = _joint_root(leaves, indexes, hashes, low, middle, first, cut)
    return node_hash(left, _joint_root(leaves, indexes, hashes, middle, high, cut, last))


def _unproven(indexes: Sequence[int], low: int, high: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The largest ranges of leaves without a proven one, from left to right."""
    if first == last:
        if low < high:
            yield low, high
    elif last - first < high - low:
        middle = low + _split(high - low)
        cut = bisect_left(indexes, middle, first, last)
        yield from _unproven(indexes, low, middle, first, cut)
        yield from _unproven(indexes, middle, high, cut, last)


def _range_root(node: Node, low: int, high: int) -> bytes:
    """The root over leaves low to high - 1, which stand where RFC 6962 splits a tree."""
    count = high - low
    if count & (count - 1) == 0:
        height = count.bit_length() - 1
        return node(height, low >> height)
    middle = low + _split(count)
    return node_hash(_range_root(node, low, middle), _range_root(node, middle, high))


def _split(count: int) -> int:
    """The largest power of two below `count`, which is at least 2."""
    return 1 << (count - 1).bit_length() - 1


def _require_rising(indexes: Sequence[int], size: int, error: type[ValueError]) -> None:
    before = -1
    for index in indexes:
        if not before < index < size:
            raise error(f"The proven leaves do not rise from 0 to below {size}: {index} follows {before}.")
        before = index
