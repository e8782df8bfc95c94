"""Zip archives from other people, read member by member in memory: every cap and every name is checked beforehand.

Nothing is ever unpacked into files. What a member declares is checked when the archive is opened, what it really holds
while it is read, so that no member unpacks to more than it said and none costs more memory than a piece.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from api.importers.files import refuse_larger, shown
from api.importers.run import Options, Source
from ledger.digests import chunks_of, open_regular
from ledger.errors import BadInput

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES = 256 * 1024
DIRECTORY_BYTES_PER_MEMBER = 1_000  # on average; names are far shorter
END_BYTES_MAX = 70_000  # of the record at the end of an archive, with its comment
ZSTD_WINDOW_LOG_MAX = 27  # 128 MB, zstd's own limit for streams

_STORED, _DEFLATED, _ZSTD = 0, 8, 93
_ENCRYPTED = 0x1
_UTF_8 = 0x800
_LOCAL = struct.Struct("<4s22xHH")
_LEAVES = re.compile(r"[/\\]|[A-Za-z]:|.*\\|(?:.*/)?\.\.(?:/|$)|.*\0", re.DOTALL)
_UNREADABLE = (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, OverflowError, OSError, EOFError)


class Archive:
    """An open zip archive whose every member keeps to the caps and to its folder; use it with `with`.

    Members may be stored, deflated or zstd (method 93, which Python's own `zipfile` reads only from 3.14).
    """

    def __init__(self, path: Path, options: Options) -> None:
        """Open and check it. Raises BadInput when it is no whole zip archive, breaks a cap or holds a member that
        leaves its folder, is a link, is encrypted or has the name of another."""
        self.path = path
        self._options = options
        self._file = open_regular(path)
        try:
            self.source = self._hashed()
            self._members = {entry.orig_filename: entry for entry in self._checked(self._entries())}
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def names(self) -> list[str]:
        """The names of all members that are files, in the archive's order."""
        return [name for name, entry in self._members.items() if not entry.is_dir()]

    def pieces(self, name: str) -> Iterator[bytes]:
        """What a member holds, in pieces of at most 256 kB.

        Raises BadInput when it is damaged, cut, holds other than it declares or is packed by another method.
        """
        entry = self._members[name]
        unpack = _UNPACK.get(entry.compress_type)
        if unpack is None:
            raise self._bad(name, f"is packed by method {entry.compress_type}, which cannot be read")
        size, crc = 0, 0
        try:
            for piece in unpack(self._packed(entry)):
                size += len(piece)
                if size > entry.file_size:
                    raise self._bad(name, f"unpacks to more than the {entry.file_size:,} bytes that it declares")
                crc = zlib.crc32(piece, crc)
                yield piece
        except (zlib.error, zstd.ZstdError, MemoryError) as error:
            raise self._bad(name, f"is damaged ({error})") from error
        if size < entry.file_size:
            raise self._bad(name, f"is cut: it unpacks to {size:,} of {entry.file_size:,} bytes")
        if crc != entry.CRC:
            raise self._bad(name, "is damaged: its checksum is another")

    def _hashed(self) -> Source:
        """The archive itself as a source file."""
        digest, size = hashlib.sha256(), 0
        refuse_larger(self.path, os.fstat(self._file.fileno()).st_size, self._options.file_bytes_max)
        for chunk in chunks_of(self._file):
            digest.update(chunk)
            size += len(chunk)
            refuse_larger(self.path, size, self._options.file_bytes_max)
        return Source(shown(Path(self.path.name)), self.path, digest.hexdigest(), size)

    def _entries(self) -> list[zipfile.ZipInfo]:
        try:
            return zipfile.ZipFile(_Directory(self._file, self._options.archive_members_max)).infolist()
        except _UNREADABLE as error:
            raise BadInput(f"{shown(self.path)} is no zip archive, or was cut before its end ({error}).") from error

    def _checked(self, entries: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
        options, path = self._options, shown(self.path)
        if len(entries) > options.archive_members_max:
            raise BadInput(
                f"{path} holds {len(entries):,} members, more than {options.archive_members_max:,}; "
                "`--max-archive-members` raises the limit."
            )
        seen: set[str] = set()
        total = 0
        for entry in entries:
            name = entry.orig_filename
            if not name or _LEAVES.match(name):
                raise BadInput(
                    f"{path} holds the member {name!r:.200}, which leaves its folder; nothing of it is read."
                )
            if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise self._bad(name, "is a link or a device; only ordinary files are taken")
            if entry.flag_bits & _ENCRYPTED:
                raise self._bad(name, "is encrypted")
            if name in seen:
                raise self._bad(name, "stands there twice")
            if entry.file_size > options.file_bytes_max:
                raise self._bad(
                    name,
                    f"unpacks to more than {options.file_bytes_max:,} bytes; `--max-file-bytes` raises the limit",
                )
            seen.add(name)
            total += entry.file_size
        if total > options.archive_bytes_max:
            raise BadInput(
                f"{path} unpacks to {total:,} bytes, more than {options.archive_bytes_max:,}; "
                "`--max-archive-bytes` raises the limit."
            )
        return entries

    def _packed(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """The packed bytes of a member, as many as are there."""
        name = entry.orig_filename
        try:
            self._file.seek(entry.header_offset)
            signature, name_length, extra_length = _LOCAL.unpack(self._file.read(_LOCAL.size))
            had = self._file.read(name_length)
        except (struct.error, OSError, ValueError) as error:
            raise self._bad(name, "is cut") from error
        if signature != b"PK\3\4" or had != name.encode("utf-8" if entry.flag_bits & _UTF_8 else "cp437"):
            raise self._bad(name, "has another name where it lies than in the archive's directory")
        at, left = entry.header_offset + _LOCAL.size + name_length + extra_length, entry.compress_size
        while left:
            self._file.seek(at)  # members may be read in turns
            data = self._file.read(min(left, PIECE_BYTES))
            if not data:
                return
            at, left = at + len(data), left - len(data)
            yield data

    def _bad(self, name: str, what: str) -> BadInput:
        return BadInput(f"The member {name!r:.200} of {shown(self.path)} {what}.")


class _Directory:
    """The archive as `zipfile` reads it, which takes a directory of any length into memory: here only so much."""

    def __init__(self, file: BinaryIO, members_max: int) -> None:
        self._file = file
        self._bytes_max = members_max * DIRECTORY_BYTES_PER_MEMBER + END_BYTES_MAX
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int | None = -1) -> bytes:
        data = self._file.read(self._bytes_max + 1 if size is None or size < 0 else min(size, self._bytes_max + 1))
        if len(data) > self._bytes_max:
            raise zipfile.BadZipFile("its directory is too long for the members that are allowed")
        return data


def _inflated(packed: Iterable[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for data in packed:
        left = data
        while left:
            yield inflater.decompress(left, PIECE_BYTES)
            left = inflater.unconsumed_tail
    yield inflater.flush()


def _from_zstd(packed: Iterable[bytes]) -> Iterator[bytes]:
    frame = _frame()
    for data in packed:
        left = data
        while left or not frame.needs_input:
            yield frame.decompress(left, PIECE_BYTES)
            left = b""
            if frame.eof:
                left, frame = frame.unused_data, _frame()


def _frame() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX})


_UNPACK: dict[int, Callable[[Iterable[bytes]], Iterable[bytes]]] = {
    _STORED: iter,
    _DEFLATED: _inflated,
    _ZSTD: _from_zstd,
}
