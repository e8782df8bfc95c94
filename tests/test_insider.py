"""Somebody with the database rewrites the log so that everything in it fits together: a pin elsewhere tells.

The rewritten store is clean to every check that looks at the store alone. That is the sabotage twin: without the pin,
each of the same rewrites goes unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from api import proving
from api.client import Client
from ledger.checking import check_log
from ledger.codec import Row
from ledger.errors import ForkedLog
from ledger.facts.entry import Entry
from ledger.facts.trial import RewardRecorded
from tests.given_commands import runner_of
from tests.given_proofs import client_with_log, entries_of, rebuild_read_models, renumbered, rewrite

Change = Callable[[list[Entry], Random], list[Entry]]


def another_reward(log: list[Entry], random: Random) -> list[Entry]:
    """One reward is another number."""
    at = random.choice([n for n, entry in enumerate(log) if isinstance(entry.fact, RewardRecorded)])
    fact = log[at].fact
    assert isinstance(fact, RewardRecorded)
    better = msgspec.structs.replace(fact, reward=fact.reward + 1)
    return [*log[:at], msgspec.structs.replace(log[at], fact=better), *log[at + 1 :]]


def another_actor(log: list[Entry], random: Random) -> list[Entry]:
    """Somebody else is said to have done it."""
    at = random.randrange(len(log))
    return [*log[:at], msgspec.structs.replace(log[at], actor="nobody"), *log[at + 1 :]]


def without_a_stream(log: list[Entry], random: Random) -> list[Entry]:
    """A trial never happened."""
    gone = random.choice([entry.stream for entry in log if entry.stream.startswith("trial/")])
    return [entry for entry in log if entry.stream != gone]


def without_the_end(log: list[Entry], random: Random) -> list[Entry]:
    """The last entries never happened."""
    return log[: -random.randint(1, 20)]


def in_another_order(log: list[Entry], random: Random) -> list[Entry]:
    """Two neighbours of different streams change places."""
    at = random.choice([n for n in range(len(log) - 1) if log[n].stream != log[n + 1].stream])
    return [*log[:at], log[at + 1], log[at], *log[at + 2 :]]


CHANGES: tuple[Change, ...] = (another_reward, another_actor, without_a_stream, without_the_end, in_another_order)


def test_every_rewrite_is_refused_against_a_pin(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Each is told by the check against the pin, by looking through the door, and nothing is recorded any more; without
    the pin each would have gone unseen."""
    client, pin = client_with_log(tmp_path / "home", 150), tmp_path / "elsewhere" / "pin.json"
    proving.look(client, pin)
    log, honest = entries_of(client), renumbered(entries_of(client))
    assert [row.body for row in honest] == [body for _, body in client.ledger.recorder.bodies(after=0, limit=1_000)]
    random = Random(5)
    times: int = pytestconfig.getoption("--insider-rewrites")
    for number in range(times):
        change = CHANGES[number % len(CHANGES)]
        rewritten = renumbered(change(log, random))
        rewrite(client, rewritten)
        if number % 20 == 0:
            rebuild_read_models(client)
        client.workspace._unforked.clear()  # as a process that is started afterwards
        _require_refused(client, pin, rewritten, honest)
    rewrite(client, honest)
    assert proving.look(client, pin).size == len(honest)


def _require_refused(client: Client, pin: Path, rewritten: list[Row], honest: list[Row]) -> None:
    own = client.workspace.pin(client.project)
    kept = own.read_bytes()
    faults = proving.verify_store(client, [pin]).faults
    assert [fault for fault in faults if str(pin) in fault]
    assert len(faults) == 1
    with pytest.raises(ForkedLog, match="rolled back" if len(rewritten) < len(honest) else "fork"):
        client.publish_runner(runner_of("true", ref="new@1"))
    # Whoever can write to the database can often write to the home folder beside it as well, and sign with its key.
    own.unlink()
    with pytest.raises(ForkedLog):
        proving.look(client, pin)
    assert check_log(client.ledger.recorder).faults == []
    assert proving.verify_store(client, []).faults == []
    own.write_bytes(kept)
