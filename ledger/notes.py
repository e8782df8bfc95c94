"""Signed notes, as C2SP signed-note and tlog-cosignature define them (https://c2sp.org/signed-note).

A note is text and, after an empty line, signatures: `— <name> base64(key id || signature)`. A key is known by its
name and its id, the first four bytes of SHA-256(name || newline || kind || public key). Signatures of unknown keys
are kept and say nothing; one of a known key that does not verify makes the whole note worthless.

Two kinds are read and written: Ed25519 over the text (1), and a witness's cosignature with its time (4). Keys travel
as text: `name+id+base64(kind || public key)`, secret ones after `PRIVATE+KEY+`, as Go's sumdb/note writes them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ledger.errors import BadInput, BadNote, DamagedStore, NotFound
from ledger.secrets import create_private, read_private

ED25519 = 1
COSIGNATURE = 4
SIGNATURES_MAX = 100
NOTE_BYTES_MAX = 1_000_000
_DASH = "\u2014"
_SIGNATURE_LINE = re.compile(rf"{_DASH} (?P<name>[^\s+]+) (?P<data>[A-Za-z0-9+/]+={{0,2}})")
_PRIVATE = "PRIVATE+KEY+"


class VerifierKey(NamedTuple):
    """A public key with the name it signs under."""

    name: str
    kind: int
    public: bytes

    @property
    def id(self) -> bytes:
        """Its four bytes in a signature line."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{_b64(bytes([self.kind]) + self.public)}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """The key written in a text. Raises BadNote when it is none, or its id is not the key's."""
        name, _, rest = text.strip().partition("+")
        id_hex, _, data = rest.partition("+")
        raw = _unb64(data)
        if raw and len(raw) == 33 and raw[0] in (ED25519, COSIGNATURE) and _is_name(name):
            key = cls(name, raw[0], raw[1:])
            if key.id.hex() == id_hex:
                return key
        raise BadNote(f"{text[:100]!r} is no verifier key; one is printed by `el audit checkpoint --key`.")

    def accepts(self, text: str, signature: bytes) -> bool:
        """Whether a signature (without the key id) is this key's over a note's text."""
        message = text.encode()
        if self.kind == COSIGNATURE:
            message = _cosigned(text, int.from_bytes(signature[:8], "big"))
            signature = signature[8:]
        return self.verifies(message, signature)

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Whether a bare Ed25519 signature is this key's over a message."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class Signature(NamedTuple):
    """One signature line: who, by which key, and the signature's bytes (for a cosignature, the time before them)."""

    name: str
    key_id: bytes
    data: bytes

    @property
    def line(self) -> str:
        """The line as it stands in the note."""
        return f"{_DASH} {self.name} {_b64(self.key_id + self.data)}\n"


class Note(NamedTuple):
    """A text, with its last newline, and its signatures."""

    text: str
    signatures: tuple[Signature, ...]

    def __str__(self) -> str:
        return self.text + "\n" + "".join(signature.line for signature in self.signatures)

    @classmethod
    def parse(cls, written: str | bytes) -> Note:
        """Read a note. Raises BadNote for anything that is not exactly written as one."""
        try:
            text = written.decode() if isinstance(written, bytes) else written
        except UnicodeDecodeError:
            raise BadNote("A note is text in UTF-8; this is not.") from None
        body, gap, lines = text.rpartition("\n\n")
        if not gap or not lines.endswith("\n") or len(text) > NOTE_BYTES_MAX:
            raise BadNote("A note is text, an empty line and signature lines; this is not.")
        if any(char < " " and char != "\n" for char in text):
            raise BadNote("A note holds no control characters; this one does.")
        split = lines[:-1].split("\n")
        if len(split) > SIGNATURES_MAX:
            raise BadNote(f"A note with more than {SIGNATURES_MAX} signatures is not read.")
        return cls(body + "\n", tuple(map(_signature, split)))

    def signed_by(self, *keys: VerifierKey) -> list[VerifierKey]:
        """Those of the keys whose signature is there.

        Raises BadNote when a signature of one of them does not verify.
        """
        found = []
        for key in keys:
            for signature in self.signatures:
                if (signature.name, signature.key_id) == (key.name, key.id):
                    if not key.accepts(self.text, signature.data):
                        raise BadNote(f"The signature of {key.name} is not one over this text: it was changed.")
                    found.append(key)
                    break
        return found

    def with_signatures(self, others: Sequence[Signature]) -> Note:
        """The same note with further signatures; those there already stay once, in their places."""
        new = [signature for signature in others if signature not in self.signatures]
        return Note(self.text, (*self.signatures, *new))


class SigningKey:
    """A secret Ed25519 key with a name. Never shown: its repr hides it."""

    __slots__ = ("_key", "_seed", "name")

    def __init__(self, name: str, seed: bytes) -> None:
        self.name = name
        self._seed = seed
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    def __repr__(self) -> str:
        return f"SigningKey({self.name!r}, hidden)"

    @classmethod
    def parse(cls, text: str) -> SigningKey:
        """The key written in a text. Raises BadInput, without repeating it, when it is none."""
        name, _, rest = text.strip().removeprefix(_PRIVATE).partition("+")
        id_hex, _, data = rest.partition("+")
        raw = _unb64(data)
        if text.strip().startswith(_PRIVATE) and raw and len(raw) == 33 and raw[0] == ED25519 and _is_name(name):
            key = cls(name, raw[1:])
            if key.verifier().id.hex() == id_hex:
                return key
        raise BadInput("This is no signing key: one is PRIVATE+KEY+name+id+base64.")

    def written(self) -> str:
        """The key as text, to be kept secret."""
        return f"{_PRIVATE}{self.name}+{self.verifier().id.hex()}+{_b64(bytes([ED25519]) + self._seed)}"

    def named(self, name: str) -> SigningKey:
        """The same key under another name."""
        return SigningKey(name, self._seed)

    def verifier(self, kind: int = ED25519) -> VerifierKey:
        """The public key, as a signer of notes or as a witness."""
        return VerifierKey(self.name, kind, self._key.public_key().public_bytes_raw())

    def sign(self, text: str) -> Signature:
        """Sign a note's text."""
        return Signature(self.name, self.verifier().id, self.sign_bytes(text.encode()))

    def cosign(self, text: str, at_s: int) -> Signature:
        """Say as a witness that a checkpoint's text was consistent with all seen before, at a time (POSIX seconds)."""
        signed = self.sign_bytes(_cosigned(text, at_s))
        return Signature(self.name, self.verifier(COSIGNATURE).id, at_s.to_bytes(8, "big") + signed)

    def sign_bytes(self, message: bytes) -> bytes:
        """A bare signature, 64 bytes. The caller sees to it that no message can be taken for one of another kind."""
        return self._key.sign(message)


def load_or_create_signer(
    home: Path, environ: Mapping[str, str], *, before_making: Callable[[], None] = lambda: None
) -> SigningKey:
    """The key that signs for this store: EL_SIGNING_KEY, else the file `home/signing.key`, made when there is none
    and `before_making` does not refuse.

    Raises BadInput for a malformed EL_SIGNING_KEY and for a file that others may read; DamagedStore for a malformed
    file; StoreUnreachable when it cannot be made.
    """
    if "EL_SIGNING_KEY" in environ:
        try:
            return SigningKey.parse(environ["EL_SIGNING_KEY"])
        except BadInput:
            raise BadInput("EL_SIGNING_KEY is no signing key: one is PRIVATE+KEY+name+id+base64.") from None
    path = home / "signing.key"
    try:
        text = read_private(path)
    except NotFound:
        before_making()
        seed = os.urandom(32)
        # Two stores on one machine must not have the same name: part of the key's own digest tells them apart.
        mark = hashlib.sha256(SigningKey("x", seed).verifier().public).hexdigest()[:8]
        host = re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower()) or "host"
        create_private(path, SigningKey(f"evalledger/{host}-{mark}", seed).written())
        text = read_private(path)
    try:
        return SigningKey.parse(text)
    except BadInput:
        raise DamagedStore(f"The key file {path} does not hold a key; put the right one back.") from None


def _signature(line: str) -> Signature:
    found = _SIGNATURE_LINE.fullmatch(line)
    data = _unb64(found["data"]) if found else None
    if not found or data is None or len(data) < 5:
        raise BadNote(f"{line[:100]!r} is no signature line.")
    return Signature(found["name"], data[:4], data[4:])


def _cosigned(text: str, at_s: int) -> bytes:
    return f"cosignature/v1\ntime {at_s}\n{text}".encode()


def _is_name(name: str) -> bool:
    return bool(name) and "+" not in name and not re.search(r"\s", name)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes | None:
    """The bytes, or None when the text is not the one way to write them: else bits of it could change unseen."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _b64(data) == text else None
