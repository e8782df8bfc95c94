"""Promises of sealed secrets and of redaction: a value is never readable without its key, nor shown by accident."""

import base64
import io
import json
import os
import re
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.digests import CHUNK_BYTES
from ledger.errors import BadInput, DamagedStore, EvalLedgerError, StoreUnreachable
from ledger.secrets import MAX_SECRET_BYTES, Redactor, SecretBox, SecretKey, load_or_create_key

RAW = bytes(range(32))
VALUE = "sk-Ünïque/value+1"
WHERE = {"project": "p", "profile": "gpt@1", "name": "API_KEY"}
BOX = SecretBox(SecretKey(RAW))


class Dribble(io.BytesIO):
    """A source that gives a few bytes at a time, so that values are split everywhere."""

    step = 1

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.step)


def redacted_in_pieces(redactor: Redactor, data: bytes, step: int) -> bytes:
    src, dst = Dribble(data), io.BytesIO()
    src.step = step
    redactor.redact_file(src, dst)
    return dst.getvalue()


def redacted_chunk_by_chunk(redactor: Redactor, data: bytes, step: int) -> bytes:
    """The double: each chunk on its own."""
    return b"".join(redactor.redact_bytes(data[at : at + step]) for at in range(0, len(data), step))


# --- sealing ------------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_sealed_value_opens_again(value: str) -> None:
    """What was sealed comes back exactly, and the sealed bytes differ each time."""
    sealed = BOX.seal(**WHERE, value=value)
    assert BOX.open(sealed, **WHERE) == value
    assert sealed != BOX.seal(**WHERE, value=value)


def test_the_sealed_bytes_do_not_hold_the_value() -> None:
    """12 bytes of nonce, the hidden value, 16 bytes of tag."""
    sealed = BOX.seal(**WHERE, value=VALUE)
    assert len(sealed) == 12 + len(VALUE.encode()) + 16
    assert VALUE.encode() not in sealed


@pytest.mark.parametrize(
    "other",
    [
        {"project": "q"},
        {"profile": "gpt@2"},
        {"name": "OTHER"},
        {"project": "pg", "profile": "pt@1"},
        {"profile": "gpt@1A", "name": "PI_KEY"},
    ],
)
def test_a_secret_opens_only_where_it_was_sealed(other: dict[str, str]) -> None:
    """Another project, profile or name is refused, also when the names joined together read the same."""
    with pytest.raises(DamagedStore) as refusal:
        BOX.open(BOX.seal(**WHERE, value=VALUE), **{**WHERE, **other})
    assert VALUE not in str(refusal.value)


def test_another_key_is_refused() -> None:
    """Without the key nothing opens."""
    with pytest.raises(DamagedStore, match="EL_SECRET_KEY"):
        SecretBox(SecretKey(bytes(32))).open(BOX.seal(**WHERE, value=VALUE), **WHERE)


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    """Changed bytes never open, whichever bit changed and however much is missing."""
    sealed = BOX.seal(**WHERE, value=VALUE)
    flipped = [
        sealed[:at] + bytes([sealed[at] ^ (1 << bit)]) + sealed[at + 1 :]
        for at in range(len(sealed))
        for bit in range(8)
    ]
    for damaged in [*flipped, *(sealed[:end] for end in range(len(sealed))), sealed + b"\0"]:
        with pytest.raises(DamagedStore):
            BOX.open(damaged, **WHERE)


def test_fingerprints_tell_values_apart_and_depend_on_everything() -> None:
    """The same value in the same place has the same fingerprint; any other place, value or key another."""
    base = BOX.fingerprint(**WHERE, value=VALUE)
    assert base == SecretBox(SecretKey(RAW)).fingerprint(**WHERE, value=VALUE)
    assert len(bytes.fromhex(base)) == 32
    others = [
        BOX.fingerprint(**WHERE, value=VALUE + "x"),
        SecretBox(SecretKey(bytes(32))).fingerprint(**WHERE, value=VALUE),
        *(BOX.fingerprint(**{**WHERE, field: "z"}, value=VALUE) for field in WHERE),
        BOX.fingerprint(**{**WHERE, "name": "API_KEYs"}, value=VALUE[1:]),
    ]
    assert len({base, *others}) == len(others) + 1


@pytest.mark.parametrize("value", ["hidden" + "x" * MAX_SECRET_BYTES, "hidden\ud800"])
def test_a_value_that_cannot_be_sealed_is_refused_without_showing_it(value: str) -> None:
    """Neither the sentence nor its cause carries the value."""
    for call in (BOX.seal, BOX.fingerprint):
        with pytest.raises(BadInput) as refusal:
            call(**WHERE, value=value)
        assert "hidden" not in str(refusal.value)
        assert refusal.value.__cause__ is None
        assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def test_nothing_shows_the_key() -> None:
    """repr and str of every object hide the key and the values."""
    key = SecretKey(b"k" * 32)
    for shown in (key, SecretBox(key), Redactor(["hidden-value"])):
        assert "kkkk" not in f"{shown!r}{shown!s}"
        assert "hidden-" not in f"{shown!r}{shown!s}"


# --- the key ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [RAW.hex(), RAW.hex().upper() + "\n", base64.b64encode(RAW).decode()])
def test_the_key_may_come_from_the_environment(tmp_path: Path, text: str) -> None:
    """EL_SECRET_KEY in hex or base64 is the key, and then no file is made."""
    box = load_or_create_key(tmp_path, {"EL_SECRET_KEY": text})
    assert box.open(BOX.seal(**WHERE, value=VALUE), **WHERE) == VALUE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "hunter2", "00" * 31, "00" * 33, "zz" * 32, "ключ", "A" * 42 + "=="])
def test_a_malformed_key_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    """A typing error does not become a new key in silence, and does not land in a log."""
    with pytest.raises(BadInput) as refusal:
        load_or_create_key(tmp_path, {"EL_SECRET_KEY": text})
    assert not text or text not in str(refusal.value)
    assert refusal.value.__cause__ is refusal.value.__context__ is None
    assert list(tmp_path.iterdir()) == []


def test_the_key_file_is_made_once_and_private(tmp_path: Path) -> None:
    """The first use makes the key, mode 0600, in a private folder; later uses read it; nothing else stays."""
    home = tmp_path / "new/.el"
    sealed = load_or_create_key(home, {}).seal(**WHERE, value=VALUE)
    assert load_or_create_key(home, {}).open(sealed, **WHERE) == VALUE
    assert [path.name for path in home.iterdir()] == ["secret.key"]
    assert stat.S_IMODE((home / "secret.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    copied = {"EL_SECRET_KEY": (home / "secret.key").read_text("ascii")}
    assert load_or_create_key(tmp_path, copied).open(sealed, **WHERE) == VALUE


def test_all_that_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    """Of many at the same moment one wins, and nobody is left with a key that is gone."""
    for attempt in range(5):
        home = tmp_path / str(attempt)
        with ThreadPoolExecutor(8) as pool:
            boxes = list(pool.map(lambda _, home=home: load_or_create_key(home, {}), range(8)))
        assert len({box.fingerprint(**WHERE, value=VALUE) for box in boxes}) == 1
        assert len(list(home.iterdir())) == 1


def test_the_loser_of_the_race_takes_the_winners_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst moment: another process makes the key after we saw none, before we put ours."""
    winner: list[SecretBox] = []
    link = os.link

    def overtaken(src: Path, dst: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        winner.append(load_or_create_key(tmp_path, {}))
        link(src, dst)

    monkeypatch.setattr(os, "link", overtaken)
    loser = load_or_create_key(tmp_path, {})
    assert loser.open(winner[0].seal(**WHERE, value=VALUE), **WHERE) == VALUE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    """The sentence says the command that mends it."""
    load_or_create_key(tmp_path, {})
    (tmp_path / "secret.key").chmod(mode)
    with pytest.raises(BadInput, match=re.escape(f"chmod 600 {tmp_path}/secret.key")):
        load_or_create_key(tmp_path, {})


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:30])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def binary(path: Path) -> None:
    path.write_bytes(b"\xff" * 32)


def linked(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("elsewhere")))


@pytest.mark.parametrize("damage", [half, empty, binary, linked])
def test_a_damaged_key_file_is_refused_and_kept(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """A key file that holds no key is never replaced by a new key in silence."""
    load_or_create_key(tmp_path, {})
    path = tmp_path / "secret.key"
    damage(path)
    before = path.read_bytes()
    with pytest.raises(EvalLedgerError, match=r"secret\.key"):
        load_or_create_key(tmp_path, {})
    assert path.read_bytes() == before


def test_a_home_that_cannot_hold_a_key_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No OSError reaches the person, and no box without a kept key is handed out."""
    (tmp_path / "readonly").mkdir()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreUnreachable, match="Permission denied"):
        load_or_create_key(tmp_path / "readonly", {})
    assert list((tmp_path / "readonly").iterdir()) == []


# --- redaction ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("value", ['pa"ss\\wörd/+ 1', "plain-token-123", "line one is long\nline two is long"])
def test_every_common_form_of_a_value_is_taken_out(value: str, before: str) -> None:
    """As it is, in base64 (also inside another), in a URL, in JSON, in a Python repr, and line by line."""
    raw = (before + value).encode()
    forms = [
        value,
        *value.splitlines(),
        base64.b64encode(value.encode()).decode(),
        base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        quote_plus(value).lower() if value.islower() else quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
    ]
    redactor = Redactor([value])
    for form in forms:
        assert redactor.redact(f"<{before}{form}>") == f"<{before}[secret]>"
    hidden = redactor.redact(base64.b64encode(raw + b":more").decode())
    assert "[secret]" in hidden
    assert len(hidden) <= len("[secret]") + -(-len(before.encode() + b":more") * 8 // 6) + 4


def test_short_and_empty_values_are_left(tmp_path: Path) -> None:
    """A value of fewer than 4 bytes stands in ordinary text by chance; taking it out would ruin the text."""
    redactor = Redactor(["", "1", "abc", "   "])
    assert redactor.redact("1 abc   ") == "1 abc   "
    assert Redactor([]).redact_bytes(b"any") == redacted_in_pieces(Redactor([]), b"any", 1) == b"any"
    assert Redactor(["ééé"]).redact("<ééé>") == "<[secret]>"


def test_the_longest_value_goes_first_and_overlaps_go_whole() -> None:
    """No tail of a longer or overlapping value stays behind."""
    assert Redactor(["token", "token-long"]).redact("a token-long token b") == "a [secret] [secret] b"
    assert Redactor(["abcd", "cdefgh"]).redact("<abcdefgh>") == "<[secret]>"
    assert Redactor(["abcdefgh", "cdef"]).redact("<abcdefgh>") == "<[secret]>"
    assert Redactor(["abab"]).redact("<ababab>") == "<[secret]>"
    assert Redactor(["abcd"]).redact("<abcdabcd>") == "<[secret][secret]>"


def test_bytes_that_are_no_text_are_kept() -> None:
    """Output in any encoding goes through, and lone surrogates in text too."""
    assert Redactor(["value"]).redact_bytes(b"\xff\0value\xfe") == b"\xff\0[secret]\xfe"
    assert Redactor(["value"]).redact("\udcffvalue") == "\udcff[secret]"


@st.composite
def values_and_output(draw: st.DrawFn) -> tuple[list[str], bytes]:
    """A few values of two letters, and output made of letters, values and their base64 forms."""
    values = draw(st.lists(st.text("ab", min_size=4, max_size=9), min_size=1, max_size=3))
    forms = [form for value in values for form in (value, base64.b64encode(value.encode()).decode())]
    return values, "".join(draw(st.lists(st.sampled_from(["a", "b", "\n", *forms]), max_size=20))).encode()


@given(values_and_output(), st.integers(1, 25))
def test_a_stream_is_redacted_as_the_whole(drawn: tuple[list[str], bytes], step: int) -> None:
    """Wherever the chunks end, the result is that of the whole."""
    values, data = drawn
    redactor = Redactor(values)
    assert redacted_in_pieces(redactor, data, step) == redactor.redact_bytes(data)


@given(values_and_output())
def test_exactly_the_letters_of_secrets_go(drawn: tuple[list[str], bytes]) -> None:
    """What is left is what stands in no occurrence of any value or its base64, overlapping ones included."""
    values, data = drawn
    encoded = [base64.b64encode(value.encode()) for value in values]
    forms = [*(value.encode() for value in values), *encoded, *(form.rstrip(b"=") for form in encoded)]
    hidden = {
        at + offset
        for form in forms
        for at in range(len(data))
        if data.startswith(form, at)
        for offset in range(len(form))
    }
    left = bytes(letter for at, letter in enumerate(data) if at not in hidden)
    assert Redactor(values).redact_bytes(data).replace(b"[secret]", b"") == left


def test_the_stream_test_sees_a_redactor_without_overlap() -> None:
    """A double that redacts chunk by chunk leaves a split value, so the test above can fail."""
    redactor, data = Redactor(["hidden-value"]), b"x hidden-value y"
    assert b"hidden" in redacted_chunk_by_chunk(redactor, data, 7)
    assert redacted_in_pieces(redactor, data, 7) == b"x [secret] y"


def test_a_value_across_the_real_chunk_border_is_found() -> None:
    """The same with chunks of the size that is used, at every place around the border."""
    redactor = Redactor(["hidden-value"])
    for before in range(CHUNK_BYTES - 13, CHUNK_BYTES + 2, 3):
        dst = io.BytesIO()
        redactor.redact_file(io.BytesIO(b"." * before + b"hidden-value" + b"." * 9), dst)
        assert dst.getvalue() == b"." * before + b"[secret]" + b"." * 9
