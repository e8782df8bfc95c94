"""The Merkle tree: published vectors, the RFC's own definition, and everything that must not verify."""

import json
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.merkle import (
    EMPTY_ROOT,
    Frontier,
    InvalidProof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    leaf_hashes,
    node_hash,
    verify_consistency,
    verify_inclusion,
)

PUBLISHED = json.loads((Path(__file__).parent / "vectors/merkle.json").read_text(encoding="utf-8"))
VERDICTS = json.loads((Path(__file__).parent / "vectors/merkle_verdicts.json").read_text(encoding="utf-8"))
PUBLISHED_LEAVES = leaf_hashes([bytes.fromhex(entry) for entry in PUBLISHED["entries"]])
PUBLISHED_ROOTS = [bytes.fromhex(root) for root in PUBLISHED["roots"]]

LEAVES = leaf_hashes([b"entry %d" % number for number in range(300)])
ROOTS = [Frontier.empty().extend(LEAVES[:size]).root() for size in range(len(LEAVES) + 1)]
SMALL_SIZES = range(1, 18)  # past 16, so that every shape of up to four levels, and one of five, is walked

Claim = dict[str, Any]
"""The keyword arguments of one verification."""
Side = Literal["left", "right", "start"]


# --- the definitions of RFC 6962, written down as they stand there ------------------------------------------


def split(size: int) -> int:
    """Give the largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


def mth(leaves: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, over leaf hashes."""
    if len(leaves) <= 1:
        return leaves[0] if leaves else sha256().digest()
    k = split(len(leaves))
    return sha256(b"\x01" + mth(leaves[:k]) + mth(leaves[k:])).digest()


def path(index: int, leaves: list[bytes]) -> list[tuple[Side, bytes]]:
    """RFC 6962, section 2.1.1; each hash with the side on which it stands."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return [*path(index, leaves[:k]), ("right", mth(leaves[k:]))]
    return [*path(index - k, leaves[k:]), ("left", mth(leaves[:k]))]


def subproof(old_size: int, leaves: list[bytes], *, complete: bool) -> list[tuple[Side, bytes]]:
    """RFC 6962, section 2.1.2; each hash with the side on which it stands."""
    if old_size == len(leaves):
        return [] if complete else [("start", mth(leaves))]
    k = split(len(leaves))
    if old_size <= k:
        return [*subproof(old_size, leaves[:k], complete=complete), ("right", mth(leaves[k:]))]
    return [*subproof(old_size - k, leaves[k:], complete=False), ("left", mth(leaves[:k]))]


def inclusion_shape(index: int, size: int) -> list[str] | None:
    """Say how a proof runs, without its hashes; None when there cannot be one."""
    return [side for side, _ in path(index, LEAVES[:size])] if 0 <= index < size else None


def consistency_shape(old_size: int, new_size: int) -> list[str] | None:
    if not 0 < old_size < new_size:
        return None
    return [side for side, _ in subproof(old_size, LEAVES[:new_size], complete=True)]


def holds(verify: Callable[..., None], **claim: Any) -> bool:
    try:
        verify(**claim)
    except InvalidProof as refusal:
        sentence = str(refusal)
        assert sentence.endswith("."), sentence
        assert "\n" not in sentence
        return False
    return True


def flips(value: bytes) -> list[bytes]:
    """Give every value that differs from this one in a single bit."""
    number = int.from_bytes(value, "big")
    return [(number ^ (1 << bit)).to_bytes(len(value), "big") for bit in range(8 * len(value))]


def inclusion_claim(index: int, size: int) -> Claim:
    proof = inclusion_proof(LEAVES, index, size)
    return {"leaf": LEAVES[index], "index": index, "size": size, "proof": proof, "root": ROOTS[size]}


def consistency_claim(old_size: int, new_size: int) -> Claim:
    return {
        "old_size": old_size,
        "new_size": new_size,
        "old_root": ROOTS[old_size],
        "new_root": ROOTS[new_size],
        "proof": consistency_proof(LEAVES, old_size, new_size),
    }


# --- published vectors --------------------------------------------------------------------------------------


def test_a_leaf_and_a_node_are_hashed_apart() -> None:
    """A leaf is SHA-256(0x00 || body) and a node SHA-256(0x01 || left || right); a batch gives the same."""
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert left == sha256(b"\x00a").digest()
    assert node_hash(left, right) == sha256(b"\x01" + left + right).digest() != leaf_hash(left + right)
    assert leaf_hashes([b"a", b"b"]) == [left, right]
    assert leaf_hashes([]) == []


def unhexed(value: Any) -> Any:
    """Published hashes as bytes; everything else as it is."""
    if isinstance(value, list):
        return [bytes.fromhex(one) for one in value]
    return bytes.fromhex(value) if isinstance(value, str) else value


@pytest.mark.parametrize("kind", ["inclusion", "consistency"])
def test_published_verdicts_are_ours(kind: str) -> None:
    """What others' test data says of a proof, right or wrong, our verifiers say too."""
    verify = verify_inclusion if kind == "inclusion" else verify_consistency
    for case in VERDICTS[kind]:
        claim = {name: unhexed(value) for name, value in case.items() if name not in ("desc", "refused")}
        assert holds(verify, **claim) is not case["refused"], case["desc"]


@pytest.mark.parametrize("size", range(9))
def test_the_published_roots_come_out(size: int) -> None:
    """The first n published entries have the published root, for n from 0 (EMPTY_ROOT) to 8."""
    assert Frontier.empty().extend(PUBLISHED_LEAVES[:size]).root() == PUBLISHED_ROOTS[size]
    assert PUBLISHED_ROOTS[0] == EMPTY_ROOT


@pytest.mark.parametrize("published", PUBLISHED["inclusion"])
def test_the_published_inclusion_proofs_come_out_and_verify(published: Claim) -> None:
    """We write the published inclusion proofs, byte for byte, and accept them."""
    index, size = published["index"], published["size"]
    proof = [bytes.fromhex(node) for node in published["proof"]]
    assert inclusion_proof(PUBLISHED_LEAVES, index, size) == proof
    verify_inclusion(leaf=PUBLISHED_LEAVES[index], index=index, size=size, proof=proof, root=PUBLISHED_ROOTS[size])


@pytest.mark.parametrize("published", PUBLISHED["consistency"])
def test_the_published_consistency_proofs_come_out_and_verify(published: Claim) -> None:
    """We write the published consistency proofs, byte for byte, and accept them."""
    old_size, new_size = published["old_size"], published["new_size"]
    proof = [bytes.fromhex(node) for node in published["proof"]]
    assert consistency_proof(PUBLISHED_LEAVES, old_size, new_size) == proof
    verify_consistency(
        old_size=old_size,
        new_size=new_size,
        old_root=PUBLISHED_ROOTS[old_size],
        new_root=PUBLISHED_ROOTS[new_size],
        proof=proof,
    )


def test_the_worked_example_of_the_rfc_comes_out() -> None:
    """The seven-leaf example of RFC 6962, section 2.1.3, has the proofs that are printed there."""
    a, b, c, d, e, f, j = seven = LEAVES[:7]
    g, h, i = node_hash(a, b), node_hash(c, d), node_hash(e, f)
    k, l = node_hash(g, h), node_hash(i, j)  # noqa: E741 - the RFC's own letters
    assert ROOTS[7] == node_hash(k, l)
    assert inclusion_proof(seven, 0) == [b, h, l]
    assert inclusion_proof(seven, 3) == [c, g, l]
    assert inclusion_proof(seven, 4) == [f, j, k]
    assert inclusion_proof(seven, 6) == [i, k]
    assert consistency_proof(seven, 3, 7) == [c, d, g, l]
    assert consistency_proof(seven, 4, 7) == [l]
    assert consistency_proof(seven, 6, 7) == [i, j, k]


# --- the frontier -------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(LEAVES)), max_size=6))
def test_however_a_log_is_cut_into_batches_its_tree_is_the_same(cuts: list[int]) -> None:
    """Appending in any batches, empty ones too, gives the frontier and root that RFC 6962 defines."""
    frontier, ends = Frontier.empty(), [0, *sorted(cuts)]
    for start, end in pairwise(ends):
        before = frontier
        frontier = before.extend(LEAVES[start:end])
        assert before.size == start, "the older frontier is left as it was"
    assert frontier.size == ends[-1]
    assert frontier.root() == mth(LEAVES[: ends[-1]])
    assert frontier == Frontier.empty().extend(LEAVES[: ends[-1]])


@pytest.mark.parametrize("size", SMALL_SIZES)
def test_a_frontier_holds_the_perfect_subtrees_largest_first(size: int) -> None:
    """`hashes` are the roots over aligned runs of 2^n leaves, one for each bit set in the size."""
    expected, start = [], 0
    for bit in reversed(range(size.bit_length())):
        if size >> bit & 1:
            expected.append(mth(LEAVES[start : start + (1 << bit)]))
            start += 1 << bit
    assert Frontier.empty().extend(LEAVES[:size]).hashes == tuple(expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(LEAVES)), st.integers(0, 5))
def test_a_frontier_survives_being_stored(size: int, more: int) -> None:
    """A frontier read back from its bytes is equal, and goes on growing as the first would have."""
    frontier = Frontier.empty().extend(LEAVES[:size])
    data = frontier.to_bytes()
    assert len(data) == 32 * size.bit_count()
    again = Frontier.from_bytes(size, data)
    assert again == frontier
    assert again.extend(LEAVES[:more]).root() == mth(LEAVES[:size] + LEAVES[:more])


@pytest.mark.parametrize(
    ("size", "length"),
    [(0, 32), (1, 0), (3, 32), (4, 64), (3, 63), (3, 65), (-3, 64)],
)
def test_frontier_bytes_that_do_not_fit_the_size_are_refused(size: int, length: int) -> None:
    """A count of hashes other than the bits set in the size, a torn hash, or a negative size is an error."""
    with pytest.raises(ValueError, match=r"\.$"):
        Frontier.from_bytes(size, bytes(length))


@pytest.mark.parametrize("bad", [b"", b"\0" * 31, b"\0" * 33, b"\0" * 64])
def test_a_leaf_that_is_no_hash_never_enters_a_tree(bad: bytes) -> None:
    """Appending or proving over anything but 32-byte hashes is an error, also where the lengths add up."""
    leaves = [LEAVES[0], bad, b"\0" * (64 - len(bad)), LEAVES[1]]
    for attempt in (
        lambda: Frontier.empty().extend(leaves),
        lambda: inclusion_proof(leaves, 0),
        lambda: consistency_proof(leaves, 1, 4),
        lambda: Frontier(1, (bad,)),
    ):
        with pytest.raises(ValueError, match="32 bytes"):
            attempt()


# --- proofs that hold ---------------------------------------------------------------------------------------


def test_every_small_proof_is_the_rfcs_and_verifies() -> None:
    """For every leaf and every pair of sizes up to 17, the proof is the one RFC 6962 defines and verifies."""
    for new_size in SMALL_SIZES:
        for index in range(new_size):
            claim = inclusion_claim(index, new_size)
            assert claim["proof"] == [node for _, node in path(index, LEAVES[:new_size])]
            assert holds(verify_inclusion, **claim)
        for old_size in range(1, new_size + 1):
            claim = consistency_claim(old_size, new_size)
            defined = subproof(old_size, LEAVES[:new_size], complete=True)
            assert claim["proof"] == [node for _, node in defined]
            assert holds(verify_consistency, **claim)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_proof_verifies(data: st.DataObject) -> None:
    """Whatever the size, the leaf and the older size: what we prove, we accept."""
    new_size = data.draw(st.integers(1, len(LEAVES)))
    verify_inclusion(**inclusion_claim(data.draw(st.integers(0, new_size - 1)), new_size))
    verify_consistency(**consistency_claim(data.draw(st.integers(0, new_size)), new_size))


def test_without_a_size_the_proof_is_for_all_leaves() -> None:
    """`inclusion_proof(leaves, index)` is for the tree of all the leaves given."""
    assert inclusion_proof(LEAVES[:11], 4) == inclusion_proof(LEAVES, 4, 11)


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0), (0, 301), (0, -1)])
def test_no_proof_is_written_for_a_leaf_that_is_not_there(index: int, size: int) -> None:
    """Asking for a proof of a leaf outside the tree, or in a tree larger than the log, is an error."""
    with pytest.raises(ValueError, match="There is no leaf"):
        inclusion_proof(LEAVES, index, size)


@pytest.mark.parametrize(("old_size", "new_size"), [(-1, 3), (4, 3), (1, 301)])
def test_no_proof_is_written_for_sizes_that_are_not_there(old_size: int, new_size: int) -> None:
    """Asking for a proof between sizes that shrink, are negative, or exceed the log is an error."""
    with pytest.raises(ValueError, match="There is no proof"):
        consistency_proof(LEAVES, old_size, new_size)


# --- proofs that must not hold ------------------------------------------------------------------------------


def altered(claim: Claim, field: str) -> list[Claim]:
    """Give the claim with each single bit of one field flipped; of a proof, each bit of each hash."""
    value = claim[field]
    if isinstance(value, bytes):
        return [{**claim, field: flipped} for flipped in flips(value)]
    assert isinstance(value, list)
    return [
        {**claim, field: [*value[:at], flipped, *value[at + 1 :]]}
        for at, node in enumerate(value)
        for flipped in flips(node)
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 8, 13])
def test_every_flipped_bit_of_an_inclusion_is_refused(size: int) -> None:
    """One wrong bit anywhere, in the leaf, the root or the proof, and an inclusion no longer verifies."""
    for index in range(size):
        claim = inclusion_claim(index, size)
        for field in ("leaf", "root", "proof"):
            assert not any(holds(verify_inclusion, **forged) for forged in altered(claim, field))


@pytest.mark.parametrize("new_size", [1, 2, 3, 6, 7, 8, 13])
def test_every_flipped_bit_of_a_consistency_is_refused(new_size: int) -> None:
    """One wrong bit anywhere, in either root or the proof, and a consistency no longer verifies."""
    for old_size in range(1, new_size + 1):
        claim = consistency_claim(old_size, new_size)
        for field in ("old_root", "new_root", "proof"):
            assert not any(holds(verify_consistency, **forged) for forged in altered(claim, field))


def test_a_wrong_index_or_size_is_refused_unless_the_path_is_the_same() -> None:
    """An inclusion holds for another index or size only where RFC 6962 gives a path with the very same turns.

    Within one size no two leaves share their turns, so a wrong index alone never holds. That some wrong sizes
    do is why size and root must come from one signed checkpoint.
    """
    wrong_sizes_that_hold = 0
    for size in SMALL_SIZES:
        for index in range(size):
            claim, shape = inclusion_claim(index, size), inclusion_shape(index, size)
            for other_index in range(-1, size + 3):
                verdict = holds(verify_inclusion, **{**claim, "index": other_index})
                assert verdict is (other_index == index)
            for other_size in range(-1, 20):
                verdict = holds(verify_inclusion, **{**claim, "size": other_size})
                assert verdict is (inclusion_shape(index, other_size) == shape)
                wrong_sizes_that_hold += verdict and other_size != size
    assert wrong_sizes_that_hold > 0


def test_wrong_sizes_are_refused_unless_the_proof_is_the_same() -> None:
    """A consistency holds for other sizes only where RFC 6962 gives a proof with the very same turns."""
    for new_size in range(2, 11):
        for old_size in range(1, new_size):
            claim, shape = consistency_claim(old_size, new_size), consistency_shape(old_size, new_size)
            for other_new in range(-1, 12):
                for other_old in range(-1, 12):
                    other = {**claim, "old_size": other_old, "new_size": other_new}
                    same = consistency_shape(other_old, other_new) == shape
                    assert holds(verify_consistency, **other) is same


def misshapen(proof: list[bytes]) -> list[list[bytes]]:
    """Give proofs with a hash too many, too few, out of order, or that is none."""
    extra = leaf_hash(b"extra")
    longer = [[*proof[:at], node, *proof[at:]] for at in range(len(proof) + 1) for node in (extra, b"", *proof[:1])]
    shorter = [proof[:at] + proof[at + 1 :] for at in range(len(proof))]
    torn = [
        [*proof[:at], bad, *proof[at + 1 :]]
        for at, node in enumerate(proof)
        for bad in (b"", node[:-1], node + b"\0", node + node)
    ]
    reversed_ = [proof[::-1]] if proof[::-1] != proof else []
    none: list[list[bytes]] = [[]] if proof else []
    return longer + shorter + torn + reversed_ + none


def test_a_proof_of_the_wrong_length_or_order_is_refused() -> None:
    """Surplus, missing, reversed, empty, short and long hashes are refused, for every small tree."""
    for new_size in SMALL_SIZES:
        for index in range(new_size):
            claim = inclusion_claim(index, new_size)
            for proof in misshapen(claim["proof"]):
                assert not holds(verify_inclusion, **{**claim, "proof": proof})
        for old_size in range(new_size + 1):
            claim = consistency_claim(old_size, new_size)
            for proof in misshapen(claim["proof"]):
                assert not holds(verify_consistency, **{**claim, "proof": proof})


@pytest.mark.parametrize("bad", [b"", b"\0" * 31, b"\0" * 33, b"\0" * 64])
def test_what_is_no_hash_is_refused_for_that_reason(bad: bytes) -> None:
    """A leaf, root or proof element that is not exactly 32 bytes is refused as such."""
    for index, size in [(0, 1), (2, 5)]:
        for field, value in [("leaf", bad), ("root", bad), ("proof", [bad])]:
            with pytest.raises(InvalidProof, match="32 bytes"):
                verify_inclusion(**{**inclusion_claim(index, size), field: value})
    for old_size, new_size in [(0, 0), (0, 3), (3, 3), (2, 5), (3, 5)]:
        for field, value in [("old_root", bad), ("new_root", bad), ("proof", [bad])]:
            with pytest.raises(InvalidProof, match="32 bytes"):
                verify_consistency(**{**consistency_claim(old_size, new_size), field: value})


def test_the_empty_tree_begins_every_tree_and_holds_nothing() -> None:
    """Size 0 has one root, needs no proof, is followed by anything, and contains no leaf."""
    other = ROOTS[3]
    empty = {"old_size": 0, "old_root": EMPTY_ROOT, "proof": []}
    assert holds(verify_consistency, **empty, new_size=0, new_root=EMPTY_ROOT)
    assert holds(verify_consistency, **empty, new_size=3, new_root=other)
    assert not holds(verify_consistency, **empty, new_size=0, new_root=other)
    assert not holds(verify_consistency, **{**empty, "old_root": other}, new_size=3, new_root=other)
    assert not holds(verify_consistency, **{**empty, "old_root": other}, new_size=0, new_root=other)
    assert not holds(verify_consistency, **{**empty, "proof": [other]}, new_size=3, new_root=other)
    assert not holds(verify_inclusion, leaf=LEAVES[0], index=0, size=0, proof=[], root=EMPTY_ROOT)


def test_equal_sizes_need_equal_roots_and_shrinking_is_refused() -> None:
    """A log is consistent with itself only under one root, and never with a larger one of the past."""
    claim = consistency_claim(5, 5)
    assert claim["proof"] == []
    assert holds(verify_consistency, **claim)
    assert not holds(verify_consistency, **{**claim, "new_root": ROOTS[6]})
    assert not holds(verify_consistency, **{**claim, "proof": [ROOTS[5]]})
    assert not holds(verify_consistency, **{**consistency_claim(3, 5), "old_size": 6})
    assert not holds(verify_consistency, **{**consistency_claim(3, 5), "old_size": -3})


def test_a_rewritten_entry_breaks_consistency() -> None:
    """A log that changed one entry of its past cannot prove that it continues the old one."""
    rewritten = [*LEAVES[:4], leaf_hash(b"rewritten"), *LEAVES[5:11]]
    new_root = Frontier.empty().extend(rewritten).root()
    for proof in (consistency_proof(rewritten, 7, 11), consistency_proof(LEAVES, 7, 11)):
        assert not holds(verify_consistency, old_size=7, new_size=11, old_root=ROOTS[7], new_root=new_root, proof=proof)


# --- sabotage: the tests above can fail ---------------------------------------------------------------------


def careless_inclusion(
    *, leaf: bytes, index: int, size: int, proof: list[bytes], root: bytes, lengths: bool, end: bool
) -> bool:
    """RFC 9162, section 2.1.3.2, in which the checks of lengths and of the end can each be left out."""
    if index >= size or (lengths and any(len(node) != 32 for node in [leaf, root, *proof])):
        return False
    fn, sn, r = index, size - 1, leaf
    for p in proof:
        if end and sn == 0:
            return False
        if fn % 2 == 1 or fn == sn:
            r = sha256(b"\x01" + p + r).digest()
            while fn % 2 == 0 and fn != 0:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = sha256(b"\x01" + r + p).digest()
        fn, sn = fn >> 1, sn >> 1
    return r == root and (not end or sn == 0)


FORGERIES: dict[str, Claim] = {
    # The "leaf" is nothing at all: both children travel in the proof as one hash of 64 bytes.
    "lengths": {"leaf": b"", "index": 1, "size": 2, "proof": [LEAVES[0] + LEAVES[1]], "root": ROOTS[2]},
    # The "leaf" is the node over leaves 0 and 1, and the proof is short by the step that would tell.
    "end": {"leaf": ROOTS[2], "index": 0, "size": 4, "proof": [node_hash(*LEAVES[2:4])], "root": ROOTS[4]},
}


@pytest.mark.parametrize("check", FORGERIES)
def test_a_verifier_without_the_check_accepts_what_ours_refuses(check: str) -> None:
    """Each check is what stops its forgery: a verifier that lacks only that one accepts it, ours does not."""
    forgery = FORGERIES[check]
    careful: Claim = {"lengths": True, "end": True}
    assert careless_inclusion(**forgery, **{**careful, check: False})
    assert not careless_inclusion(**forgery, **careful)
    assert not holds(verify_inclusion, **forgery)


def test_the_verifier_that_is_sabotaged_is_otherwise_the_same() -> None:
    """With both checks in place the double agrees with ours, so each forgery shows its check alone."""
    for size in SMALL_SIZES:
        for index in range(size):
            claim = inclusion_claim(index, size)
            for proof in [claim["proof"], *misshapen(claim["proof"])]:
                forged = {**claim, "proof": proof}
                double = careless_inclusion(**forged, lengths=True, end=True)
                assert double is holds(verify_inclusion, **forged)
