"""Whose runs lie at a path: each importer is asked what it recognises."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from api.importers.files import FILES_MAX, refuse_folder, shown
from api.importers.run import Importer
from ledger.errors import BadInput, Refused

RESULT_SUFFIXES = (".json", ".jsonl", ".eval")


class Recognised:
    """What lies at a path: runs with their importers, what was refused meanwhile, and files that nobody knows."""

    def __init__(self, importers: Sequence[Importer]) -> None:
        self.runs: dict[Path, Importer] = {}
        self.refused: list[tuple[Path, Refused]] = []
        self.unknown: list[Path] = []
        self._importers = importers

    def take(self, path: Path) -> bool:
        """Whether a file or folder is somebody's; its runs are kept."""
        those = [importer for importer in self._importers if importer.recognises(path)]
        if len(those) > 1:
            names = " and ".join(importer.NAME for importer in those)
            self.refused.append((path, BadInput(f"Both {names} recognise it; say which tool wrote it.")))
        elif those:
            try:
                self.runs.update(dict.fromkeys(those[0].find(path), those[0]))
            except Refused as refusal:
                self.refused.append((path, refusal))
        return bool(those)


def recognise(importers: Sequence[Importer], path: Path) -> Recognised:
    """Every run at or below a path. A folder that is one tool's is not looked into for others; links and hidden folders
    (such as a ledger's own) are not looked into at all.

    Only files that could hold results (`.json`, `.jsonl`, `.eval`) count as unknown.

    Raises BadInput when a folder cannot be read or holds more than 10,000 such files.
    """
    found = Recognised(importers)
    if found.take(path):
        return found
    if not path.is_dir():
        found.unknown.append(path)
        return found
    for folder, folders, names in os.walk(path, onerror=refuse_folder):
        files = [Path(folder, name) for name in sorted(names)]
        found.unknown += [file for file in files if not found.take(file) and file.suffix in RESULT_SUFFIXES]
        below = [Path(folder, name) for name in sorted(folders) if not name.startswith(".")]
        folders[:] = [path.name for path in below if not path.is_symlink() and not found.take(path)]
        if len(found.runs) + len(found.unknown) > FILES_MAX:
            raise BadInput(f"{shown(path)} holds more than {FILES_MAX:,} results; import a part of it at a time.")
    return found
