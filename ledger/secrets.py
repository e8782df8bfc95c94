"""Profile secrets: sealed with a key outside the ledger, compared by fingerprint, taken out of output."""

import base64
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote_from_bytes

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ledger.artifacts import make_private_folder, sync_folder
from ledger.digests import CHUNK_BYTES, framed, open_regular
from ledger.errors import BadInput, DamagedStore, NotFound, StoreUnreachable

KEY_BYTES = 32
NONCE_BYTES = 12
MAX_SECRET_BYTES = 65_536
MIN_REDACTED_BYTES = 4  # a shorter value stands in ordinary text by chance
MIN_PIECE_BYTES = 8  # of a line, or of base64 inside other base64
MARK = b"[secret]"


class SecretKey:
    """The 32 bytes that open every secret of a store. Never shown: its repr hides them."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        if len(raw) != KEY_BYTES:
            raise BadInput(f"A secret key has {KEY_BYTES} bytes.")
        self._raw = raw

    def derived(self, purpose: str) -> bytes:
        """A 32-byte key for one purpose (HKDF-SHA256), so that no key is used in two ways."""
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(self._raw)

    def __repr__(self) -> str:
        return "SecretKey(hidden)"


class SecretBox:
    """Seals secrets, opens them, gives fingerprints; all bound to project, profile (`name@version`) and name.

    A sealed secret is a random 96-bit nonce, then AES-256-GCM's output. Not hidden: the length of the value.
    """

    __slots__ = ("_aead", "_fingerprint_key")

    def __init__(self, key: SecretKey) -> None:
        self._aead = AESGCM(key.derived("evalledger/seal/1"))
        self._fingerprint_key = key.derived("evalledger/fingerprint/1")

    def seal(self, *, project: str, profile: str, name: str, value: str) -> bytes:
        """Encrypt a value. Raises BadInput over MAX_SECRET_BYTES as UTF-8, without repeating the value."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        binding = framed("seal/1", project, profile, name)
        return nonce + self._aead.encrypt(nonce, _value_bytes(name, value), binding)

    def open(self, sealed: bytes, *, project: str, profile: str, name: str) -> str:
        """Decrypt a value. Raises DamagedStore for another key, other names or changed bytes."""
        nonce, text = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        try:
            value = self._aead.decrypt(nonce, text, framed("seal/1", project, profile, name))
        except (InvalidTag, ValueError):
            raise DamagedStore(
                f"The secret {name} of profile {profile} cannot be opened: it was changed, or sealed for "
                "another profile or with another key. Use the EL_SECRET_KEY or secret.key of that time."
            ) from None
        return value.decode("utf-8")

    def fingerprint(self, *, project: str, profile: str, name: str, value: str) -> str:
        """HMAC-SHA256 in hex, to tell whether two values are the same; without the key no guess helps."""
        message = framed("fingerprint/1", project, profile, name, _value_bytes(name, value))
        return hmac.digest(self._fingerprint_key, message, "sha256").hex()

    def __repr__(self) -> str:
        return "SecretBox(hidden)"


def load_or_create_key(home: Path, environ: Mapping[str, str]) -> SecretBox:
    """The box of this store's key: EL_SECRET_KEY (32 bytes, hex or base64), else the file `home/secret.key`.

    The file is made when there is none, mode 0600; of processes that make it at once, all get the same key.
    Raises BadInput for a malformed EL_SECRET_KEY (an empty one too: a new key made in silence would not open
    old secrets) and for a file that others may read; DamagedStore for a malformed file; StoreUnreachable when
    it cannot be made.
    """
    if "EL_SECRET_KEY" in environ:
        if key := _parsed(environ["EL_SECRET_KEY"]):
            return SecretBox(key)
        raise BadInput("EL_SECRET_KEY is not a key: give 32 bytes as 64 hex digits or as base64.")
    path = home / "secret.key"
    try:
        return SecretBox(_read_key(path))
    except NotFound:
        create_private(path, secrets.token_hex(KEY_BYTES))
        return SecretBox(_read_key(path))


class Redactor:
    """Takes secret values out of logs and captured output: every occurrence becomes `[secret]`.

    Found are each value of at least 4 bytes, as it is and trimmed, its lines of at least 8, and of each of
    these the base64 form (also inside longer base64, as in a Basic authorization header), the URL-quoted,
    JSON-escaped and Python-quoted forms. Overlapping occurrences become one mark. Nothing else is found.
    """

    __slots__ = ("_forms", "_reach")

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value)}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._reach = len(self._forms[0]) - 1 if self._forms else 0

    def redact(self, text: str) -> str:
        """Text without the secrets; lone surrogates in it are kept."""
        return self.redact_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def redact_bytes(self, data: bytes) -> bytes:
        """Bytes without the secrets' UTF-8 forms."""
        return self._step(data, 0, len(data))[0]

    def redact_file(self, src: BinaryIO, dst: BinaryIO) -> None:
        """Copy `src` from where it stands to `dst`, chunk by chunk.

        The same result as `redact_bytes` of the whole, wherever chunks end; memory for one chunk.
        """
        rest, covered = b"", 0
        while chunk := src.read(CHUNK_BYTES):
            data = rest + chunk
            safe = max(len(data) - self._reach, 0)  # an occurrence from here on may not have ended yet
            text, covered = self._step(data, covered, safe)
            rest = data[safe:]
            dst.write(text)
        dst.write(self._step(rest, covered, len(rest))[0])

    def _step(self, data: bytes, covered: int, safe: int) -> tuple[bytes, int]:
        """data[:safe] redacted, its first `covered` bytes marked before; how far the last mark reaches on."""
        out: list[bytes] = []
        done = covered
        for start, end in self._occurrences(data):
            if start >= safe:
                break
            if start >= done:
                out += (data[done:start], MARK)
            done = max(done, end)
        out.append(data[done:safe])
        return b"".join(out), max(done - safe, 0)

    def _occurrences(self, data: bytes) -> list[tuple[int, int]]:
        found = []
        for form in self._forms:
            start = data.find(form)
            while start >= 0:
                found.append((start, start + len(form)))
                start = data.find(form, start + 1)
        return sorted(found)


def _forms(value: str) -> Iterator[bytes]:
    lines = {line.strip() for line in value.splitlines()}
    parts = {value, value.strip()} | {line for line in lines if len(line) >= MIN_PIECE_BYTES}
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        if len(raw) < MIN_REDACTED_BYTES:
            continue
        quoted = quote_from_bytes(raw, safe="")
        escaped = json.dumps(part)[1:-1]
        plain = json.dumps(part, ensure_ascii=False)[1:-1]
        texts = [quoted, quote_from_bytes(raw), quoted.replace("%20", "+"), escaped, plain, repr(part)[1:-1]]
        texts += [re.sub("%..", lambda match: match[0].lower(), text) for text in texts[:3]]
        texts += [text.replace("/", "\\/") for text in (escaped, plain)]
        yield raw
        yield from (text.encode("utf-8", "surrogatepass") for text in texts)
        yield from _base64_forms(raw)


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(raw)
        yield from (whole, whole.rstrip(b"="))
        for before in range(3):
            # Six bits a letter: only letters made of the value alone are the same whatever stands around it.
            text = encode(bytes(before) + raw)
            fragment = text[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
            if len(fragment) >= MIN_PIECE_BYTES:
                yield fragment


def _value_bytes(name: str, value: str) -> bytes:
    try:
        raw = value.encode("utf-8")
    except UnicodeEncodeError:
        # The codec's own error holds the value.
        raise BadInput(f"The secret {name} is not text in UTF-8.") from None
    if len(raw) > MAX_SECRET_BYTES:
        raise BadInput(f"The secret {name} is larger than {MAX_SECRET_BYTES:,} bytes.")
    return raw


def _parsed(text: str) -> SecretKey | None:
    text = text.strip()
    is_hex = re.fullmatch("[0-9a-fA-F]{64}", text)
    try:
        raw = bytes.fromhex(text) if is_hex else base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return SecretKey(raw) if len(raw) == KEY_BYTES else None


def read_private(path: Path) -> str:
    """What a key file holds. Raises NotFound when there is none, BadInput when other users may read or write it."""
    with open_regular(path) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise BadInput(f"Other users may use the key file (mode {mode:04o}). Run: chmod 600 {path}")
        return file.read(1024).decode("ascii", "replace")


def create_private(path: Path, text: str) -> None:
    """Write a key file, 0600, under another name, then link it: nobody sees half a key, and the first link wins.

    Raises StoreUnreachable when it cannot be made.
    """
    temp = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        make_private_folder(path.parent)
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(text.encode("ascii") + b"\n")
                file.flush()
                os.fsync(fd)
            with suppress(FileExistsError):
                os.link(temp, path)
            sync_folder(path.parent)
        finally:
            temp.unlink()
    except OSError as error:
        raise StoreUnreachable(f"{path} cannot be made: {error.strerror or error}.") from error


def _read_key(path: Path) -> SecretKey:
    key = _parsed(read_private(path))
    if key is None:
        raise DamagedStore(f"The key file {path} does not hold a key; put the right one back.")
    return key
