"""Verifying a whole log offline, from an evidence file, against hashing the same bytes in memory."""

from __future__ import annotations

from pathlib import Path

from api.client import Client
from api.evidence_check import verify
from ledger.codec import encode
from ledger.merkle import leaf_hashes
from tests.benchmarks.arrivals import FACTS_A_TRIAL, RUNNING, arrivals, take, tasks_of
from tests.benchmarks.given import client_in, submitted
from tests.benchmarks.measuring import Line, Sizes, Wanted, in_turns, seconds

ATTEMPTS = 2


def verifying(folder: Path, sizes: Sizes) -> list[Line]:
    """Signatures, every entry's hash and place, the root; and, of the same log, with every number folded from it."""
    client = client_in(folder / "store")
    count = sizes.rounds * sizes.in_round
    tasks = tasks_of((count // FACTS_A_TRIAL + RUNNING) // ATTEMPTS + 1)
    job_id = submitted(client, "benchmark", tasks, attempts=ATTEMPTS)
    other = submitted(client, "other", tasks_of(1), attempts=1)
    entries = arrivals(job_id, tasks, attempts=ATTEMPTS)
    for _ in range(sizes.rounds):
        for batch in take(entries, sizes.transactions, sizes.in_transaction):
            client.ledger.recorder.append_new(encode(batch))
    log, numbers = _written(client, other, folder / "log.jsonl"), _written(client, job_id, folder / "numbers.jsonl")
    held = client.head().entries

    def hashing(_: None) -> float:
        bodies = [line.partition(b',"entry":')[2][:-2] for line in log.read_bytes().splitlines(keepends=True)][1:]
        return held / seconds(lambda: leaf_hashes(bodies))

    def checked(path: Path) -> float:
        took_s = seconds(lambda: _require_sound(path))
        return held / took_s

    contenders = {"hash": hashing, "log": lambda _: checked(log), "numbers": lambda _: checked(numbers)}
    found = in_turns(min(sizes.rounds, 3), lambda: None, contenders)
    return [
        Line(
            "verify", what, "entries/s", found.median(name), "SHA-256 of the same bytes", found.median("hash"),
            found.ratio(name, "hash"), wanted,
        )
        for name, what, wanted in (
            ("log", "a whole log offline: signatures, hashes, places, root", Wanted("at least", 0.25)),
            ("numbers", "the same, and a job of all its entries folded", None),
        )
    ]  # fmt: skip


def _written(client: Client, target: str, path: Path) -> Path:
    with path.open("wb") as file:
        file.writelines(client.evidence(target, whole=True))
    return path


def _require_sound(path: Path) -> None:
    with path.open("rb") as file:
        found = verify(file)
    if found.faults:
        raise AssertionError(found.faults[0])
