"""Tiles and proofs from them: the same as from the leaves, by the paths of C2SP tlog-tiles."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from api.proving import entries_in
from ledger.codec import Row
from ledger.errors import BadInput, DamagedStore, NotFound
from ledger.merkle import (
    Frontier,
    InvalidProof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    leaf_hashes,
)
from ledger.proofs import consistency_from, inclusion_from, joint_proof, root_from, root_of_joint
from ledger.recorder import ProjectRecorder
from ledger.tiles import Tile, Tiles, subtree_root, tile_at, tiles

LEAVES = leaf_hashes([b"entry %d" % number for number in range(600)])
ROOTS = [Frontier.empty().extend(LEAVES[:size]).root() for size in range(len(LEAVES) + 1)]


def node(height: int, index: int) -> bytes:
    """A stored node, straight from the leaves."""
    return Frontier.empty().extend(LEAVES[index << height : (index + 1) << height]).root()


def log_of(engine: Engine, project: str, count: int) -> ProjectRecorder:
    """A log of that many rows; what is in them does not matter here."""
    recorder = ProjectRecorder(engine, project)
    recorder.append_new([Row(f"s/{n}", 1, "t", b"entry %d" % n) for n in range(count)])
    return recorder


# --- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(0, 0), "tile/0/000"),
        (Tile(0, 0, 1), "tile/0/000.p/1"),
        (Tile(2, 1234067), "tile/2/x001/x234/067"),
        (Tile(0, 273, 112), "tile/0/273.p/112"),
        (Tile("entries", 1000, 8), "tile/entries/x001/000.p/8"),
    ],
)
def test_a_tile_has_one_path(tile: Tile, path: str) -> None:
    """Paths as the specification writes them, and read back."""
    assert tile.path == path
    assert tile_at(path) == tile


@given(st.integers(0, 63), st.integers(0, 2**63 - 1), st.integers(1, 256))
def test_every_path_reads_back(level: int, number: int, width: int) -> None:
    """For any level, place and width."""
    assert tile_at(Tile(level, number, width).path) == Tile(level, number, width)


@pytest.mark.parametrize(
    "path",
    [
        "tile/0/0", "tile/00/000", "tile/64/000", "tile/0/x000/001", "tile/0/000.p/0", "tile/0/000.p/256",
        "tile/0/000.p/01", "tile/0/../000", "tile/data/000", "tile/0/001/002", "tile/0/000/", "/tile/0/000",
        "tile/0/" + "x999/" * 40 + "999", "tile/0/٠٠٠",
    ],
)  # fmt: skip
def test_what_is_no_path_is_refused(path: str) -> None:
    """Everything that is not the one way to write it."""
    with pytest.raises(BadInput):
        tile_at(path)


# --- proofs from nodes -----------------------------------------------------------------------------------------------


def test_proofs_from_nodes_are_those_from_leaves() -> None:
    """Root, inclusion and consistency come out byte for byte the same, for every size up to 70 and some beyond."""
    for size in [*range(1, 71), 255, 256, 257, 511, 513, 600]:
        assert root_from(node, size) == ROOTS[size]
        for index in {0, size // 3, size // 2, size - 1}:
            assert inclusion_from(node, index, size) == inclusion_proof(LEAVES, index, size)
        for old in {0, 1, size // 3, size // 2, size - 1, size}:
            assert consistency_from(node, old, size) == consistency_proof(LEAVES, old, size)


@given(st.integers(1, 600), st.sets(st.integers(0, 599), min_size=1))
def test_a_joint_proof_leads_to_the_root(size: int, chosen: set[int]) -> None:
    """For any choice of leaves; for all of them the proof is empty; what was changed or left out leads elsewhere."""
    indexes = sorted(index for index in chosen if index < size) or [0]
    leaves = [LEAVES[index] for index in indexes]
    proof = joint_proof(node, indexes, size)
    assert root_of_joint(leaves=leaves, indexes=indexes, size=size, proof=proof) == ROOTS[size]
    assert bool(proof) is (len(indexes) < size)
    assert len(proof) <= len(indexes) * (size - 1).bit_length()
    wrong = [leaf_hash(b"other"), *leaves[1:]]
    assert root_of_joint(leaves=wrong, indexes=indexes, size=size, proof=proof) != ROOTS[size]
    with pytest.raises(InvalidProof):
        root_of_joint(leaves=leaves, indexes=indexes, size=size, proof=[*proof, ROOTS[1]])
    if proof:
        with pytest.raises(InvalidProof):
            root_of_joint(leaves=leaves, indexes=indexes, size=size, proof=proof[:-1])


@pytest.mark.parametrize("indexes", [[1, 0], [0, 0], [-1], [5]])
def test_leaves_that_do_not_rise_are_refused(indexes: list[int]) -> None:
    """The places of proven leaves rise and are in the tree, else one could be passed off as another."""
    with pytest.raises(InvalidProof):
        root_of_joint(leaves=[LEAVES[0]] * len(indexes), indexes=indexes, size=5, proof=[])


# --- stored tiles ----------------------------------------------------------------------------------------------------


@pytest.mark.both_databases
@pytest.mark.parametrize("steps", [[1, 255, 256, 257, 600], [600], [3, 600], [512, 513, 600]])
def test_tiles_are_the_same_however_they_were_written(engine: Engine, project: str, steps: list[int]) -> None:
    """In one go or bit by bit, level 0 and 1 hold the hashes of the specification, and lead to every root."""
    recorder = log_of(engine, project, 600)
    made = Tiles(recorder)
    for size in steps:
        made.extend(size)
        assert made.reach() == size
        assert root_from(made.node, size) == ROOTS[size]
    assert made.read(Tile(0, 0)) == b"".join(LEAVES[:256])
    assert made.read(Tile(0, 2, 88)) == b"".join(LEAVES[512:600])
    assert made.read(Tile(1, 0, 2)) == node(8, 0) + node(8, 1)
    assert entries_in(made.read(Tile("entries", 2, 3))) == [b"entry 512", b"entry 513", b"entry 514"]
    assert subtree_root(made.read(Tile(0, 1))) == node(8, 1)
    for absent in (Tile(0, 2), Tile(0, 2, 89), Tile(1, 0, 3), Tile(2, 0, 1), Tile("entries", 2, 89)):
        with pytest.raises(NotFound):
            made.read(absent)


def test_the_example_of_the_specification(engine: Engine, project: str) -> None:
    """A tree of 70,000: 273 full tiles and one of 112 on level 0, a full one and one of 17 above, one of 1 on top."""
    recorder = log_of(engine, project, 70_000)
    made = Tiles(recorder)
    made.extend(70_000)
    with engine.connect() as connection:
        rows = connection.execute(
            tiles.select().where(tiles.c.project_id == project).order_by(tiles.c.level, tiles.c.tile_index)
        ).all()
    widths = [(level, len(hashes) // 32) for _, level, _, hashes in rows]
    assert widths == [(0, 256)] * 273 + [(0, 112), (1, 256), (1, 17), (2, 1)]
    assert root_from(made.node, 70_000) == recorder.head().root


def test_a_tile_never_shrinks(engine: Engine, project: str) -> None:
    """Whoever writes tiles from an older look at the log leaves those of a newer one as they are."""
    recorder = log_of(engine, project, 300)
    early, late = Tiles(recorder), Tiles(recorder)
    late.extend(300)
    early.reach = lambda: 0  # type: ignore[method-assign]  # looked before the other had written
    early.extend(100)
    assert Tiles(recorder).reach() == 300
    assert root_from(Tiles(recorder).node, 300) == ROOTS[300]


def test_dropped_tiles_are_made_anew(engine: Engine, project: str) -> None:
    """They are a cache: dropped and made again they are the same; where one is missing that is said."""
    recorder = log_of(engine, project, 600)
    made = Tiles(recorder)
    made.extend(600)
    made.drop()
    assert made.reach() == 0
    with pytest.raises(DamagedStore, match="--rebuild"):
        made.node(0, 5)
    made.extend(600)
    assert root_from(made.node, 600) == ROOTS[600]


def test_a_log_with_a_hole_gets_no_tiles(engine: Engine, project: str) -> None:
    """An entry that is gone is named, and nothing is written over the hole."""
    recorder = log_of(engine, project, 20)
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM entries WHERE project_id = ? AND position = 7", (project,))
    with pytest.raises(DamagedStore, match="gone"):
        Tiles(recorder).extend(20)
    assert Tiles(recorder).reach() == 0


def test_what_is_no_entry_gets_no_tiles_and_no_bundle(engine: Engine, project: str) -> None:
    """An entry stored as text, as only tampering can leave it, is told; so is one that is gone from a bundle."""
    recorder = log_of(engine, project, 20)
    Tiles(recorder).extend(10)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE entries SET body = 'x' WHERE project_id = ? AND position = 15", (project,))
        connection.exec_driver_sql("DELETE FROM entries WHERE project_id = ? AND position = 7", (project,))
    with pytest.raises(DamagedStore, match="changed"):
        Tiles(recorder).extend(20)
    with pytest.raises(DamagedStore, match="gone"):
        Tiles(recorder).read(Tile("entries", 0, 10))


@pytest.mark.both_databases
def test_nothing_is_written_after_a_tile_that_is_gone(engine: Engine, project: str) -> None:
    """A tile that lost what it began with does not grow: new hashes would stand in the places of the lost ones."""
    recorder = log_of(engine, project, 600)
    Tiles(recorder).extend(300)
    with engine.begin() as connection:
        connection.execute(tiles.delete().where(tiles.c.project_id == project, tiles.c.level == 1))
    with pytest.raises(DamagedStore, match=r"tile/1/000 is missing.*--rebuild"):
        Tiles(recorder).extend(600)
    assert Tiles(recorder).reach() == 300


def test_random_proofs_from_stored_tiles(engine: Engine, project: str) -> None:
    """Inclusion and consistency from stored tiles are those from the leaves."""
    recorder, random = log_of(engine, project, 600), Random(3)
    made = Tiles(recorder)
    made.extend(600)
    for _ in range(100):
        size = random.randint(1, 600)
        index, old = random.randrange(size), random.randint(0, size)
        assert inclusion_from(made.node, index, size) == inclusion_proof(LEAVES, index, size)
        assert consistency_from(made.node, old, size) == consistency_proof(LEAVES, old, size)
