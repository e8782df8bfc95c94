"""What SWE-bench logs of each instance beside the run report: `logs/run_evaluation/<run>/<model>/<instance>/`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from api.importers.files import read_whole, shown
from api.importers.run import File, Options, Source
from api.importers.strict_json import NotJson, read_value
from ledger.errors import BadInput

LOGS = "logs/run_evaluation"

KEPT: tuple[tuple[str, Literal["output", "stdout"]], ...] = (
    ("patch.diff", "output"),
    ("run_instance.log", "output"),
    ("test_output.txt", "stdout"),
)

Outcome = Literal["resolved", "unresolved", "error", "empty_patch", "incomplete"]


class Instance(msgspec.Struct, frozen=True):
    """What an instance's own report says of it."""

    resolved: bool | UnsetType = UNSET
    patch_exists: bool = True


def is_logs(folder: Path) -> bool:
    """Whether a folder is the one that holds the logs of all runs."""
    return folder.match(LOGS)


def instance_folders(report: Path) -> Sequence[Path]:
    """The folders of the instances of a run report, by name; none when its logs do not lie beside it.

    Raises BadInput when the name of the report, `<model>.<run>.json`, can mean two of them.
    """
    logs = report.parent / LOGS
    parts = report.stem.split(".")
    names = [(".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, len(parts))]
    folders = [
        logs / run / model
        for model, run in names
        if not {model, run} & {"", ".", ".."}
        and all(_is_folder(folder) for folder in (logs.parent, logs, logs / run, logs / run / model))
    ]
    if len(folders) > 1:
        raise BadInput(
            f"The name of {shown(report)} fits the logs in both {shown(folders[0])} and {shown(folders[1])}; "
            "move away those of the other run."
        )
    return sorted(entry for folder in folders for entry in folder.iterdir() if _is_folder(entry))


class Evidence:
    """What the logs hold: the instances' own reports, each checked against the run's, and their further files."""

    def __init__(self, report: Path, options: Options) -> None:
        self.sources: list[Source] = []
        self.files: dict[str, list[File]] = {}
        self.flags: set[str] = set()
        self._report = report
        self._options = options

    def take(self, folder: Path, outcome: Outcome) -> None:
        """The folder of one instance. Raises BadInput when its report says something else than the run's."""
        kept = [File(name, folder / name, role) for name, role in KEPT if os.path.lexists(folder / name)]
        self.files[folder.name] = kept
        file = folder / "report.json"
        instance = self._read(file, folder.name) if os.path.lexists(file) else None
        if instance is None or instance.resolved is UNSET:
            # The tool itself counts an instance whose report it cannot read among the errors.
            if outcome in ("resolved", "unresolved"):
                self._lose(file, folder.name)
            return
        if outcome not in _may_be(instance):
            raise BadInput(
                f"{shown(self._report)} names {folder.name} in {outcome}_ids, but {shown(file)} says that it is "
                f"{'' if instance.resolved else 'not '}resolved."
            )

    def _lose(self, file: Path, task: str) -> None:
        if self._options.strict:
            raise BadInput(f"{shown(file)} does not say how {task} came out; it is missing or was cut.")
        self.flags.add("source-incomplete")

    def _read(self, file: Path, task: str) -> Instance | None:
        """What an instance's report says; None when it was cut or is of another instance."""
        data, source = read_whole(file, bytes_max=self._options.file_bytes_max)
        self.sources.append(source._replace(path=shown(file.relative_to(self._report.parent))))
        try:
            value: Any = read_value(data)
            return msgspec.convert(value[task], Instance) if isinstance(value, dict) and task in value else None
        except NotJson:
            return None
        except msgspec.ValidationError as error:
            raise BadInput(f"{shown(file)} is no instance report of SWE-bench: {error}.") from error
        except BadInput as error:
            raise BadInput(f"{shown(file)}: {error}") from error


def _may_be(instance: Instance) -> tuple[Outcome, ...]:
    """The lists in which an instance with such a report can stand."""
    if instance.resolved:
        return ("resolved",)
    return ("unresolved",) if instance.patch_exists else ("unresolved", "empty_patch")


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
