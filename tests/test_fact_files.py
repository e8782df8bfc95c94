"""What was ever written can always be read: one kept file per kind of fact, an entry's exact bytes.

The files are never edited, only added to. A new shape of a fact gets a file of its own, `<tag>.<schema>.json`.
"""

from hashlib import sha256
from pathlib import Path

import pytest

from ledger import codec
from ledger.codec import TAGS

FOLDER = Path(__file__).parent / "fact_files"

# A change here, other than a line more, means that something written once cannot be trusted to be read the same.
SUMS = {
    "api-key-issued.json": "7807c419277a26a92c0722a83ef3b3181bd407789531589f07717274e535c243",
    "api-key-revoked.json": "4c6940c4e21467ba34fff16994edbc1aa4178a11f8b29178fa13568c562360e1",
    "artifact-failed.json": "9b508652d5e1174ce0a862f4cc123de6c2ffb8ed24db9e306226c208e76cc8a9",
    "artifact-persisted.json": "9f26460e932dcdfc3f93cb7cfb90c900e1447ac73798275cc460ef3b3d8afbb4",
    "artifact-redacted.json": "1ef5c6160427f6ba9c81e825124c7fe3b45c65810b60dda857efdbd1e3d291ab",
    "dataset-members-added.json": "ef8b3b5180cc212e0ed073f5e620b395567cdcddcf5ce3bc01dc3422294a1b4a",
    "dataset-published.json": "21b5b71344b75b73605cb0a7bc99c814f2e4f388026fbc3d1f7a00b346a65562",
    "job-canceled.json": "5a66267e1f47e121433c4678bea77a8c61d9b68a785a471ee6ae09209989f6ba",
    "job-completed.json": "a787a9920fb4d6b8b88326f03912b3219c5e821d392316a82079eb086af9bed8",
    "job-failed.json": "b3af190dfc38f9caf00e4628d1621c1a8b67ca9fb04614373163e2cc863df4dc",
    "job-members-selected.json": "d90453229660fd8f298c2c459175159357136fbeaf9645f69e5a83ac19247a6a",
    "job-origin-sealed.json": "aeaf0501ac5cbfd114713713e5aaf3d734968a8c9a297e02c7bf97f76fe3b7a4",
    "job-retry-requested.json": "e68dfc03b9949bb3fe63cca0661fe31d9e9b8ddb3ce76bfe384374e0e79b1db6",
    "job-submitted.json": "ba7b9723dae6019d112e23ce722d459a2a48b75a08050cfee1dba7b289854063",
    "log-epoch-started.json": "57f028dd8d47151ea0e7038befe10b03374c8ad648cf607832cc42a32ca0e6a1",
    "profile-published.json": "10d8751599549a378662b44510b53e8eebbbc40c7525ef5cae87939d65113b04",
    "project-created.json": "79f182d346f539c43dc8c07082f6da789bd63848aa6786217d1d2420c44a0dfa",
    "reward-recorded.json": "730fdc452a4930581281cd3a63e5a55278fb20c69692ac15d6fe962d5c9c010e",
    "reward-rejected.json": "a768b781b6e2e94fe490e84e736f2af243339497ce5ef340c0c06c6b807e5602",
    "reward-revised.json": "c2cb7b1f11d0d262261d4fb207e565bc88ad4153075eabf7aecd4fe06f1284a4",
    "runner-published.json": "ef4c0d7c748d3a2613fbdf3b941b641f05c97c084910de5b47b51ecc4baa8e29",
    "snapshot-added.json": "8acf27d8730d878eef655351f8e06ac229ea553d9d773a195a38afab59c5de37",
    "snapshot-withdrawn.json": "0858f54ca6fac2dd7a1443ac5dcd1a3fa0d6ee4890c82101c48f7d3c1a0895d1",
    "structured-result-recorded.json": "8fc4c2185330cab99dca10e8178dfd2d403ebea232976583f5f70d818e89bb44",
    "structured-result-rejected.json": "441a756775e4a0ec9e2d598e26d1ff77a2d444173529322ed31da13f72327cb0",
    "trial-canceled.json": "22d22a3a2d2a7d0dca9ac334321f63b4d56325195a0c50062689cb46fe34c114",
    "trial-dispatched.json": "a45fc02407e70e3414ae059aa87657b4cea3224103b166339693f82bfb1b069a",
    "trial-failed.json": "475859cfe30280be3ec03a7f9204e9e83186fc0f7d66193e455c46f63e4c043e",
    "trial-released.json": "19545824550166199f267ced4e493bb9439db4c5fc2a536f03618d63fffd3441",
    "trial-started.json": "4a2ff1d3756bc455bb780debe3d44e078e190f4911b34cbca9036fa34df9ecfc",
    "trial-succeeded.json": "fa0ca1421ef99dc31c5ccea6f573d1592ab7ea1b4dc94009bb4858bca756fe4d",
}


@pytest.mark.parametrize("name", sorted(SUMS))
def test_a_kept_entry_reads_and_writes_the_same_bytes(name: str) -> None:
    """An entry kept from the day its kind was first written reads, and writes the same bytes again."""
    body = (FOLDER / name).read_bytes()
    recorded = codec.decode(1, body)
    assert TAGS[type(recorded.entry.fact)] == name.partition(".")[0]
    (row,) = codec.encode([recorded.entry])
    assert row.body == body
    assert (row.stream, row.version) == (recorded.entry.stream, recorded.entry.version)
    assert codec.decode_all([(1, body)]) == [recorded]


@pytest.mark.parametrize("name", sorted(SUMS))
def test_a_kept_file_was_not_edited(name: str) -> None:
    """The bytes are those of the day the file was added; an edit shows here and in review."""
    assert sha256((FOLDER / name).read_bytes()).hexdigest() == SUMS[name]


def test_every_kind_of_fact_has_a_file_and_every_file_a_kind() -> None:
    """A kind without a file, a file without a kind, or a file without its sum fails the run."""
    on_disk = {path.name for path in FOLDER.iterdir()}
    assert on_disk == set(SUMS)
    assert {name.partition(".")[0] for name in on_disk} == set(TAGS.values())
