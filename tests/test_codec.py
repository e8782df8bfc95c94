"""Promises of the codec: the same bytes for good, and nothing that cannot be read is passed over."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger import codec
from ledger.application import Ledger
from ledger.codec import ENTRY_BYTES_MAX, RAISE, SCHEMAS, TAGS
from ledger.errors import BadInput, DamagedStore, UnknownFact
from ledger.facts import trial as t
from ledger.facts.access import ProjectCreated
from ledger.facts.catalogue import ProfilePublished
from ledger.facts.entry import AnyFact, Entry
from ledger.facts.job import Origin
from tests.given import NOW, entry, facts_of_every_kind, instants, manifest, texts

KEPT = entry(t.TrialFailed("Timeout", "agent", -9), "trial/j/1/x", 3)

without_nul = texts.filter(lambda text: "\0" not in text)


def changed(**fields: Any) -> bytes:
    """A stored entry as another version of EvalLedger might have written it."""
    body = json.loads(codec.encode([KEPT])[0].body)
    body["fact"] |= fields.pop("fact", {})
    return json.dumps(body | fields).encode()


@settings(max_examples=300)
@given(facts_of_every_kind(), without_nul, st.integers(1, 2**62), instants, without_nul, st.none() | texts)
def test_any_fact_comes_back_and_writes_the_same_bytes(
    fact: Any, stream: str, version: int, at: Any, actor: str, key: str | None
) -> None:
    """Writing, reading and writing any entry gives the same entry and the same bytes, also alone and in a list."""
    written = Entry(stream, version, at, actor, fact, 1, key)
    (row,) = codec.encode([written])
    (read,) = codec.decode_all([(7, row.body)])
    assert read == codec.decode(7, row.body) == (7, written)
    assert codec.encode([read.entry]) == [row]
    assert row.tag == TAGS[type(fact)]
    assert codec.fact_bytes(row.body) == msgspec.json.encode(fact)


@given(facts_of_every_kind())
def test_a_fact_is_the_same_whenever_and_by_whomever_it_was_recorded(fact: Any) -> None:
    """A repeat is recognised by the fact's bytes: time, actor and key of the envelope do not count."""
    first, second = Entry("s", 1, NOW, "a", fact), Entry("s", 1, NOW.replace(year=2030), "b", fact, 1, "key")
    rows = codec.encode([first, second])
    assert rows[0].body != rows[1].body
    assert codec.fact_bytes(rows[0].body) == codec.fact_bytes(rows[1].body)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "make",
    [
        t.RewardRecorded,
        lambda x: t.RewardRevised(x, 1.0, "v", "r"),
        lambda x: t.RewardRevised(None, x, "v", "r"),
        t.StructuredResultRecorded,
        lambda x: t.StructuredResultRecorded(1.0, {"cost": x}),
        lambda x: t.TrialSucceeded(0, x),
        lambda x: t.TrialFailed("E", duration_s=x),
        lambda x: ProfilePublished("p@1", {"t": x}, {}),
        lambda x: manifest(parameters={"t": x}),
        lambda x: manifest(origin=Origin("import", as_reported={"score": x})),
    ],
)
def test_no_number_that_is_not_finite_is_ever_written(make: Any, bad: float) -> None:
    """JSON would hold NaN and infinity as null, which is another fact or none at all: refused, wherever it stands."""
    with pytest.raises(BadInput, match="NaN or infinity"):
        codec.encode([entry(make(bad), "s")])


def test_the_word_null_in_a_text_is_only_a_text() -> None:
    """Names and reasons that read like NaN or null are kept as they are."""
    codec.encode([entry(t.RewardRevised(None, 1.0, "null", "NaN"), "trial/j/1/null")])


def test_a_nul_in_what_becomes_a_column_is_refused() -> None:
    """PostgreSQL takes no NUL in a text: a stream or an actor with one would stop the read models there."""
    good = entry(ProjectCreated("a"), "project")
    for bad in (msgspec.structs.replace(good, actor="a\0b"), entry(ProjectCreated("a"), "dataset/\0")):
        with pytest.raises(BadInput, match="NUL"):
            codec.encode([good, bad])
    assert codec.encode([msgspec.structs.replace(good, actor="a\\u0000b")])


def test_a_lone_surrogate_is_refused() -> None:
    """What is not Unicode has no bytes to hash."""
    with pytest.raises(BadInput, match="surrogate"):
        codec.encode([entry(ProjectCreated("\ud800"), "project")])


def test_an_entry_holds_at_most_65535_bytes() -> None:
    """One byte more is refused, and the sentence says what to do."""
    spare = ENTRY_BYTES_MAX - len(codec.encode([entry(ProjectCreated(""), "project")])[0].body)
    (row,) = codec.encode([entry(ProjectCreated("n" * spare), "project")])
    assert len(row.body) == ENTRY_BYTES_MAX
    with pytest.raises(BadInput, match="65,535"):
        codec.encode([entry(ProjectCreated("n" * (spare + 1)), "project")])


@pytest.mark.parametrize(
    ("body", "tag", "shape"),
    [
        (changed(fact={"fact": "trial-exploded"}), "trial-exploded", 1),
        (changed(fact={"fact": "trial-exploded"}, schema=4), "trial-exploded", 4),
        (changed(schema=2), "trial-failed", 2),
        (changed(fact={"colour": "red"}), "trial-failed", 1),
        (changed(fact={"error_type": 3}), "trial-failed", 1),
        (changed(fact={"phase": "teatime"}), "trial-failed", 1),
        (changed(added=True), "trial-failed", 1),
    ],
)
def test_what_this_version_cannot_read_stops_the_reader(body: bytes, tag: str, shape: int) -> None:
    """An unknown tag, a newer shape, a field or value of later days: never skipped; position and tag are named."""
    for read in (
        lambda: codec.decode(41, body),
        lambda: codec.decode_all([(40, codec.encode([KEPT])[0].body), (41, body)]),
    ):
        with pytest.raises(UnknownFact, match=rf"Entry 41 holds a fact '{tag}' \(shape {shape}\)"):
            read()


@settings(max_examples=100)
@given(st.data())
def test_damaged_bytes_are_said_to_be_damaged(data: st.DataObject) -> None:
    """An entry that was cut anywhere is no entry, and the sentence says which one it was."""
    body = codec.encode([KEPT])[0].body
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(DamagedStore, match="Entry 9"):
        codec.decode_all([(9, cut)])


@given(st.binary(max_size=60))
@example(b"[]")
@example(b'"abc"')
@example(b'{"fact": {"fact": []}}')
@example(b'{"fact": {"fact": "x"}, "schema": "many"}')
@example(b'{"fact": {"fact": "x"}, "schema": null}')
@example(b"\xff")
def test_any_bytes_at_all_give_one_of_two_refusals(body: bytes) -> None:
    """Whatever stands in the store, a reader gets a sentence, never a traceback of ours."""
    with pytest.raises((DamagedStore, UnknownFact), match="Entry 3"):
        codec.decode(3, body)


@pytest.fixture
def reward_in_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if shape 1 of reward-recorded had held percents and shape 2 hundredths under another name."""
    monkeypatch.setitem(SCHEMAS, "reward-recorded", 3)
    monkeypatch.setitem(RAISE, ("reward-recorded", 1), lambda f: f | {"per_mille": f["percent"] * 10})
    monkeypatch.setitem(
        RAISE,
        ("reward-recorded", 2),
        lambda f: {"fact": f["fact"], "reward": f["per_mille"] / 1000, "source": "raised"},
    )


@pytest.mark.usefixtures("reward_in_percent")
def test_old_shapes_are_raised_step_by_step() -> None:
    """A fact of shape 1 comes out as of today's shape; the stored bytes stay; other kinds are read as ever."""
    envelope = {"stream": "trial/j/1/x", "version": 3, "at": "2026-07-01T12:00:00.123456Z", "actor": "local"}
    old = json.dumps(envelope | {"fact": {"fact": "reward-recorded", "percent": 75}}).encode()
    middle = json.dumps(envelope | {"fact": {"fact": "reward-recorded", "per_mille": 750}, "schema": 2}).encode()
    other = codec.encode([KEPT])[0].body
    expected = Entry("trial/j/1/x", 3, NOW, "local", t.RewardRecorded(0.75, "raised"), 3)
    assert codec.decode_all([(1, old), (2, middle), (3, other)]) == [(1, expected), (2, expected), (3, KEPT)]


@pytest.mark.usefixtures("reward_in_percent")
def test_a_shape_above_the_newest_step_stops_the_reader() -> None:
    """Raising ends at today's shape: what is newer still is unknown."""
    newer = msgspec.json.encode(entry(t.RewardRecorded(0.5), "trial/j/1/x")).replace(
        b'"fact":{', b'"schema":4,"fact":{', 1
    )
    with pytest.raises(UnknownFact, match="shape 4"):
        codec.decode(1, newer)


def test_what_is_written_says_which_shape_it_has(engine: Any, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger writes today's shape version, so an entry written today is never raised as if it were old."""
    monkeypatch.setitem(SCHEMAS, "project-created", 2)
    monkeypatch.setitem(RAISE, ("project-created", 1), lambda f: f | {"name": "raised"})
    ledger = Ledger(engine, project)
    facts: list[AnyFact] = [ProjectCreated("as-it-is")]
    ledger.record("project", lambda _: facts)
    (recorded,) = ledger.stream("project")
    assert recorded.entry.schema == 2
    assert recorded.entry.fact == ProjectCreated("as-it-is")
