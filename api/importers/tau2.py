"""tau2: one `results.json` of a run, or a folder of it with `simulations/<id>.json`.

What is read: `info`, each task's id and the instructions of its user, and of each simulation its ids, times, reward
with its breakdown, and how it ended. What is left out: messages, costs, reviews and the verifier's single checks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from api.importers.files import FILES_MAX, head_of, read_text, refuse_folder, shown
from api.importers.reading import reading
from api.importers.run import Member, Options, Run, Source
from api.importers.strict_json import Elements, read_members
from api.importers.tau2_simulations import Simulations, info_of
from ledger.errors import BadInput, NotFound

NAME = "tau2"
POLICIES: tuple[str, ...] = ("tau-2",)

RESULTS, SIMULATIONS = "results.json", "simulations"
LISTS = ("tasks", "simulations", "simulation_index")
NAMES_SHOWN_MAX = 20

_HEAD = re.compile(rb'\s*\{.{0,200}"info"\s*:\s*\{\s*"git_commit"\s*:', re.DOTALL)


def find(path: Path) -> Sequence[Path]:
    """The file itself; of a run's folder its `results.json`; or the files of all runs below a folder.

    The `simulations` beside a `results.json` are parts of its run, and below one only files of that name are runs.

    Raises NotFound when nothing is there, BadInput when there is no run, or more than 10,000.
    """
    path = path.resolve()
    if not os.path.exists(path):
        raise NotFound(f"There is nothing at {shown(path)}.")
    if not os.path.isdir(path):
        return [path]
    found: list[Path] = []
    in_run: set[Path] = set()
    for name, folders, files in os.walk(path, onerror=refuse_folder):
        folder = Path(name)
        if RESULTS in files:
            in_run.add(folder)
            folders[:] = [below for below in folders if below != SIMULATIONS]
        elif folder.parent in in_run:
            in_run.add(folder)
        folders.sort()
        found += [
            folder / file for file in files if file == RESULTS or (file.endswith(".json") and folder not in in_run)
        ]
        if len(found) > FILES_MAX:
            raise BadInput(f"{shown(path)} holds more than {FILES_MAX:,} runs; import a part of it at a time.")
    if not found:
        raise BadInput(f"{shown(path)} holds no file that ends in .json.")
    return sorted(found)


def recognises(path: Path) -> bool:
    """The file of a run, or its folder with `results.json` and `simulations`."""
    if os.path.isdir(path):
        return os.path.isdir(path / SIMULATIONS) and recognises(path / RESULTS)
    return path.suffix == ".json" and _HEAD.match(head_of(path)) is not None


def read(path: Path, options: Options) -> Iterator[Run]:
    """The one job that a file, with the folder beside it, tells of. Members are its `tasks`; k is `info.num_trials`.

    Raises:
        BadInput: it is no run of tau2, or a simulation contradicts another.
    """
    flags: set[str] = set()
    scan = Simulations(flags)
    text, source = read_text(path, bytes_max=options.file_bytes_max)
    names: list[str] = []
    info = None
    with reading(path, options, flags):
        for name, value in read_members(text, lists=LISTS):
            names.append(name)
            if name == "info":
                info = info_of(value)
            elif isinstance(value, Elements):
                scan.take_list(name, value)
            elif name in LISTS and value is not None:
                raise BadInput(f"`{name}` must be a list.")
        if not {"info", "tasks"} <= {*names}:
            raise BadInput("it is no run of tau2, which has `info` and `tasks`.")
    if info is None:
        raise BadInput(f"{shown(path)}: it is cut before its `info` is whole; nothing can be imported.")
    tasks_whole = "source-incomplete" not in flags or "tasks" in names[:-1]
    sources = [source, *(() if scan.slots else _read_folder(path.parent / SIMULATIONS, scan, options, flags))]
    scan.finish(tasks_whole=tasks_whole)
    if options.strict and "source-incomplete" in flags:
        raise BadInput(f"{shown(path)}: a simulation that its index names is missing, or the other way round.")
    trials = list(scan.slots.values())
    foreign = scan.foreign[:NAMES_SHOWN_MAX] + (["..."] if len(scan.foreign) > NAMES_SHOWN_MAX else [])
    yield Run(
        tool=NAME,
        name=info.environment_info.domain_name or path.stem,
        attempts=info.num_trials,
        attempt_max=max((trial.attempt for trial in trials), default=0),
        members=[Member(task, text) for task, text in scan.tasks.items()],
        trials=lambda: iter(trials),
        failed_trials=sum(trial.status == "failed" for trial in trials),
        sources=sources,
        tool_version=info.git_commit,
        policy=options.policy or POLICIES[0],
        flags=sorted(flags),
        as_reported={"ids_not_in_dataset": ", ".join(foreign)} if foreign else {},
    )


def _read_folder(folder: Path, scan: Simulations, options: Options, flags: set[str]) -> Iterator[Source]:
    """Take each simulation that has a file of its own. One that was cut leaves its slot empty."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return
    files = sorted(folder.glob("*.json"))
    if len(files) > FILES_MAX:
        raise BadInput(f"{shown(folder)} holds more than {FILES_MAX:,} simulations.")
    for file in files:
        text, source = read_text(file, bytes_max=options.file_bytes_max)
        with reading(file, options, flags):
            scan.take(f"{SIMULATIONS}/{shown(Path(file.name))}", dict(read_members(text)))
        yield source._replace(path=shown(Path(SIMULATIONS, file.name)))
