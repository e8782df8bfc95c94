"""Picking parts out of large JSON: the same answer however the bytes come, and never more memory than the parts."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.importers.json_stream import Picked, pick
from api.importers.strict_json import NotJson, read_value
from ledger.errors import BadInput

LISTS = {"rows": ("id", "scores")}


def picked(text: str | bytes, size: int = 10**9) -> list[Picked]:
    data = text.encode() if isinstance(text, str) else text
    return list(pick([data[at : at + size] for at in range(0, len(data), size)], ("head", "tail"), LISTS))


def values(text: str | bytes, size: int = 10**9) -> list[Any]:
    return [read_value(part.text) for part in picked(text, size)]


def refusal(text: str | bytes, size: int = 10**9) -> str:
    with pytest.raises(BadInput) as caught:
        picked(text, size)
    return str(caught.value)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10**6])
@pytest.mark.parametrize("indent", [None, 2])
def test_wanted_keys_come_out_whole(size: int, indent: int | None) -> None:
    """Objects of a list first, the whole last; what is not wanted is gone, whatever it looks like."""
    talk = {"role": 'a "b": {', "content": ["\\", "]}", '{"id": 9}', {"id": 1.5e3}], "ok": [True, None, -2, {}]}
    rows = [{"id": number, "talk": [talk, talk], "scores": {"a": {"value": [number, "id"]}}} for number in range(3)]
    text = json.dumps({"head": {"x": [1, {}]}, "rows": rows, "more": talk, "tail": "一"}, indent=indent)
    wanted = [{"id": row["id"], "scores": row["scores"]} for row in rows]
    assert values(text, size) == [*wanted, {"head": {"x": [1, {}]}, "tail": "一"}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text() | st.sampled_from(["head", "tail"]), JSON), st.integers(1, 40), st.booleans())
def test_any_object_is_picked_right(whole: dict[str, Any], size: int, ascii_only: bool) -> None:
    """Whatever JSON holds, and wherever it is split."""
    whole.pop("rows", None)
    text = json.dumps(whole, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert values(text, size) == [{key: whole[key] for key in whole if key in ("head", "tail")}]


@pytest.mark.parametrize("size", [1, 5, 10**6])
def test_bare_nan_is_kept_as_it_was_written(size: int) -> None:
    """Python's tokens are no JSON, but tools write them."""
    (whole,) = picked('{"a": NaN, "head": [NaN, -Infinity], "b": Infinity}', size)
    assert whole.text == b'{"head":[NaN, -Infinity]}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"head": 1, "head": 1}', '"head" twice'),
        ('{"x": {"a": 1, "a": 2}}', "twice"),
        ('{"x": [[{"a": 1, "\\u0061": 2}]]}', "twice"),
        ('{"rows": [{"id": 1, "talk": {"b": 1, "b": 1}}]}', "twice"),
        ('{"x": oops}', "is no JSON"),
        ('{"x": 1} {"x": 2}', "follows"),
        ('{"x": 1} 2', "follows"),
        ('{"x": [1}', "bracket"),
        ('{"x": 1]', "bracket"),
        ('["x": 1]', "JSON object"),
        ('{"x": ["a": 1]}', "list holds a key"),
        ('{"rows": [1]}', "no object"),
        ('{"rows": ["a"]}', "no object"),
        ('{"rows": [[{"id": 1}]]}', "no object"),
        ('{"rows": {"id": 1}}', "list belongs"),
        ("[]", "no JSON object"),
        ("1", "no JSON object"),
        ("", "no JSON object"),
        ('"text"', "no JSON object"),
        ("\ufeff{}", "is no JSON"),
        ('{"x": ' + "[" * 300 + "]" * 300 + "}", "nested"),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 10**6])
def test_what_is_broken_is_refused(text: str, says: str, size: int) -> None:
    """In one sentence, in what is passed over too."""
    assert says in refusal(text, size)


def test_a_cut_text_gives_what_is_whole() -> None:
    """Objects of the list that were whole, keys of the whole whose values were; the cut is told."""
    text = json.dumps({"head": 1, "rows": [{"id": 1, "x": "y"}, {"id": 2}], "tail": 12})
    for length in range(1, len(text)):
        *rows, whole = picked(text[:length])
        assert whole.cut
        assert [read_value(row.text)["id"] for row in rows] == [1, 2][: len(rows)]
        assert whole.text in (b"{}", b'{"head":1}', b'{"head":1,"tail":12}')
    with pytest.raises(NotJson):
        picked("  ")


def test_objects_that_were_written_alike_have_one_content() -> None:
    """Also where the difference is in what is passed over."""
    one, same, other, _ = picked('{"rows": [{"id": 1, "x": [1]}, {"id": 1, "x": [1]}, {"id": 1, "x": [2]}]}')
    assert one.content == same.content != other.content
    assert one.text == other.text


def test_memory_grows_with_the_parts() -> None:
    """200 MB of conversation beside a few wanted bytes cost no more than a few pieces."""
    talk = b'{"role": "user", "content": "' + b"x" * 900_000 + b'"},'

    def pieces() -> Iterator[bytes]:
        yield b'{"rows": [{"id": 1, "talk": ['
        for _ in range(220):
            yield talk
        yield b'{}]}], "tail": 1}'

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [read_value(part.text) for part in pick(pieces(), ("tail",), LISTS)] == [{"id": 1}, {"tail": 1}]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # kB
