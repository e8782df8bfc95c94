"""What a trial left, on its way into the artifact store: without secrets, within limits, each file with its fact."""

from __future__ import annotations

import os
import tempfile
import unicodedata
from pathlib import Path
from typing import BinaryIO, Literal, cast

from api.el import ArtifactBatch
from api.runners.sandbox import Capture
from api.runners.trial_folder import TrialFolder
from ledger.artifacts import Stored
from ledger.errors import BadInput, NotFound
from ledger.facts.trial import ArtifactFailed, ArtifactPersisted
from ledger.secrets import Redactor

OUTPUT_FILES_MAX = 1_000
OUTPUT_FILE_BYTES_MAX = 100 * 1024 * 1024
OUTPUT_BYTES_MAX = 1024 * 1024 * 1024
NAME_CHARS_MAX = 1_000
# A secret's longest form that the redactor knows takes this many bytes for each of its own.
FORM_BYTES_MAX = 6

Role = Literal["output", "stdout", "stderr", "reward", "result"]
WhyFailed = Literal["missing", "too-large", "not-a-file", "unreadable", "too-many"]


class Keeper:
    """Redacts what it is given, puts it into a batch of the store, and collects the facts that tell of it.

    Nothing it returns counts before the batch has ended. A name is kept once: the first file under it.
    """

    def __init__(self, batch: ArtifactBatch, secrets: list[str], redactor: Redactor) -> None:
        self.facts: list[ArtifactPersisted | ArtifactFailed] = []
        self._batch = batch
        self._redactor = redactor
        self._torn_bytes = max((FORM_BYTES_MAX * len(value.encode()) for value in secrets), default=0)
        self._names: set[str] = set()

    def redacted(self, text: str) -> str:
        """A text of the trial's as it may stand in a fact."""
        return self._redactor.redact(text)

    def clean(self, data: bytes, *, bytes_max: int | None = None) -> bytes:
        """Bytes without secrets; of more than `bytes_max` the beginning."""
        if bytes_max is None or len(data) <= bytes_max:
            return self._redactor.redact_bytes(data)
        return self._without_torn_end(self._redactor.redact_bytes(data[:bytes_max]))

    def text(self, data: bytes) -> str:
        """Keep free text that a fact names by its sha256 alone; the sha256."""
        return self._batch.add_bytes(self.clean(data)).sha256

    def file(self, name: str, source: BinaryIO, role: Role, *, cut: bool = False) -> int:
        """Keep an open file, from its beginning; its size. `cut` says that it is only the beginning of more."""
        source.seek(0)
        with tempfile.NamedTemporaryFile(prefix="el-kept-") as copy:
            self._redactor.redact_file(source, cast(BinaryIO, copy.file))
            if cut:
                copy.truncate(max(copy.tell() - self._torn_bytes, 0))
            copy.flush()
            # The mark may take twice the bytes of the secret that it stands for.
            kept = self._batch.add_file(Path(copy.name), max_bytes=2 * OUTPUT_FILE_BYTES_MAX)
        self._persisted(name, kept, role)
        return kept.size

    def content(self, name: str, data: bytes, role: Role, *, bytes_max: int) -> None:
        """Keep the content of a file that was read already, at most its beginning."""
        self._persisted(name, self._batch.add_bytes(self.clean(data, bytes_max=bytes_max)), role)

    def capture(self, name: str, capture: Capture | None, role: Role) -> None:
        """Keep what a process wrote, unless it wrote nothing. What was cut off is a failed artifact `NAME:rest`."""
        if capture is None or capture.file.tell() == 0:
            return
        self.file(name, capture.file, role, cut=capture.cut)
        if capture.cut:
            self.failed(f"{name}:rest", "too-large")

    def tail(self, capture: Capture | None, bytes_max: int) -> bytes:
        """The last part of what a process wrote. Redacted first: of half a secret nothing would be found."""
        if capture is None:
            return b""
        capture.file.seek(0)
        text = self.clean(capture.file.read())
        return (self._without_torn_end(text) if capture.cut else text)[-bytes_max:]

    def failed(self, name: str, why: WhyFailed) -> None:
        """Note that a file could not be kept."""
        self._record(ArtifactFailed(self._shown(name), why))

    def has(self, name: str) -> bool:
        """Whether a file of this name was kept, or failed to be."""
        return self._shown(name) in self._names

    def _without_torn_end(self, text: bytes) -> bytes:
        """What was cut may end with the first part of a secret, which no redactor knows: leave out so many bytes."""
        return text[: max(len(text) - self._torn_bytes, 0)]

    def _persisted(self, name: str, kept: Stored, role: Role) -> None:
        self._record(ArtifactPersisted(self._shown(name), kept.sha256, kept.size, role))

    def _record(self, artifact: ArtifactPersisted | ArtifactFailed) -> None:
        if artifact.name not in self._names:
            self._names.add(artifact.name)
            self.facts.append(artifact)

    def _shown(self, name: str) -> str:
        """A file's name as a fact can hold it: in UTF-8, on one line, not too long, without secrets."""
        text = os.fsencode(self.redacted(name)).decode("utf-8", "backslashreplace")
        plain = "".join(ascii(char)[1:-1] if unicodedata.category(char) in {"Cc", "Cs"} else char for char in text)
        return plain[-NAME_CHARS_MAX:]


def keep_outputs(keeper: Keeper, folder: TrialFolder, patterns: tuple[str, ...]) -> None:
    """Keep the files in output/ and work/ that match; one without `*`, `?` or `[` names what must be there."""
    names = folder.matching(patterns) if patterns else []
    for pattern in patterns:
        if not set(pattern) & set("*?[") and not {f"output/{pattern}", f"work/{pattern}"} & {*names}:
            keeper.failed(pattern, "missing")
    names = [name for name in names if not keeper.has(name)]
    bytes_left = OUTPUT_BYTES_MAX
    for name in names[:OUTPUT_FILES_MAX]:
        bytes_left -= _keep_output(keeper, folder, name, min(bytes_left, OUTPUT_FILE_BYTES_MAX))
    if len(names) > OUTPUT_FILES_MAX:
        keeper.failed(f"{len(names) - OUTPUT_FILES_MAX} more files", "too-many")


def _keep_output(keeper: Keeper, folder: TrialFolder, name: str, bytes_max: int) -> int:
    try:
        with folder.open(name) as file:
            if os.fstat(file.fileno()).st_size > bytes_max:
                keeper.failed(name, "too-large")
                return 0
            return keeper.file(name, file, "output")
    except NotFound:
        keeper.failed(name, "missing")
    except BadInput:
        keeper.failed(name, "not-a-file")
    except PermissionError:
        keeper.failed(name, "unreadable")
    return 0
