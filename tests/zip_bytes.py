"""Zip archives byte by byte, so that a test can write what no tool would."""

from __future__ import annotations

import struct
import sys
import zlib
from typing import NamedTuple

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STORED, DEFLATED, ZSTD = 0, 8, 93


class Part(NamedTuple):
    """One member, and what its headers say instead of the truth."""

    name: str
    data: bytes
    method: int = ZSTD
    size: int | None = None
    crc: int | None = None
    mode: int = 0
    flags: int = 0x800
    local_name: str | None = None
    packed: bytes | None = None


def packed(data: bytes, method: int) -> bytes:
    match method:
        case 8:
            deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            return deflate.compress(data) + deflate.flush()
        case 93:
            return zstd.compress(data)
        case _:
            return data


def zip_of(*parts: Part) -> bytes:
    """The archive of these members."""
    body, directory = b"", b""
    for part in parts:
        content = packed(part.data, part.method) if part.packed is None else part.packed
        size = len(part.data) if part.size is None else part.size
        crc = zlib.crc32(part.data) if part.crc is None else part.crc
        name, local = part.name.encode(), (part.name if part.local_name is None else part.local_name).encode()
        common = struct.pack("<HHHHHIII", 45, part.flags, part.method, 0, 33, crc, len(content), size)
        directory += b"PK\1\2" + struct.pack("<H", 0x32D) + common
        directory += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, part.mode << 16, len(body)) + name
        body += b"PK\3\4" + common + struct.pack("<HH", len(local), 0) + local + content
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(parts), len(parts), len(directory), len(body), 0)
    return body + directory + end
