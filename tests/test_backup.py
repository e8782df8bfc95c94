"""Promises of `el db backup`: a whole store of one moment, checked before it has its name, replacing nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import threading
from functools import partial
from pathlib import Path

import pytest

import api.backup
from api.backup import back_up
from api.settings import Settings
from api.wiring import Workspace
from ledger.application import Ledger
from ledger.checking import check_log
from ledger.errors import BadInput, DamagedStore, NotAllowed
from ledger.facts.access import STREAM
from ledger.rules.access import create_project
from tests import postgres
from tests.crash_writer import rows_of, submit
from tests.test_cli import El, el  # noqa: F401 - the fixture


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A store with two projects."""
    workspace = Workspace(Settings(home=tmp_path / "home"))
    for name in ("p", "q"):
        written(workspace, name)
    return workspace


def written(workspace: Workspace, name: str) -> Ledger:
    ledger = workspace.unchecked_ledger(name)
    ledger.record(STREAM, partial(create_project, name=name))
    submit(ledger)
    ledger.recorder.append(rows_of(["t-1", "t-2"]))
    return ledger


def test_a_backup_is_a_whole_store(workspace: Workspace, tmp_path: Path) -> None:
    """Every entry of every project is in it, it can be used as a store, and nobody else can read it."""
    found = back_up(workspace.engine, tmp_path / "copy.db")
    heads = workspace.projects()
    assert found.projects == {name: head.size for name, head in heads.items()}
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    restored = Workspace(Settings(home=tmp_path / "elsewhere", database_url=f"sqlite:///{tmp_path / 'copy.db'}"))
    assert restored.projects() == heads
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_a_backup_while_others_write(workspace: Workspace, tmp_path: Path) -> None:
    """Copies taken while entries are appended are each of one moment, and each holds the one before."""
    stop = threading.Event()

    def write() -> None:
        ledger = Ledger(workspace.engine, "p")
        number = 0
        while not stop.is_set():
            number += 1
            ledger.recorder.append(rows_of([f"w-{number}"]))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        sizes = [back_up(workspace.engine, tmp_path / f"copy-{n}.db").projects["p"] for n in range(5)]
    finally:
        stop.set()
        writer.join()
    assert sizes == sorted(sizes)
    assert check_log(Ledger(workspace.engine, "p").recorder).faults == []


def test_a_copy_of_the_file_alone_may_be_torn(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: a copy that is not of one moment (here half of it is from before) is refused, and gets no name."""
    early = tmp_path / "early.db"
    shutil.copy(tmp_path / "home" / "ledger.db", early)
    Ledger(workspace.engine, "p").recorder.append(rows_of([f"w-{number}" for number in range(300)]))

    def torn(_engine: object, to: Path) -> None:
        late = (tmp_path / "home" / "ledger.db").read_bytes()
        to.write_bytes(early.read_bytes()[:8192] + late[8192:])

    monkeypatch.setattr(api.backup, "_copy", torn)
    with pytest.raises(Exception, match=r"damaged|malformed|entr"):
        back_up(workspace.engine, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_damaged_log_is_not_backed_up(workspace: Workspace, tmp_path: Path) -> None:
    """An entry that was changed is found in the copy: it is refused with the project and the entry."""
    with sqlite3.connect(tmp_path / "home" / "ledger.db") as connection:
        connection.execute("UPDATE entries SET body = x'7b7d' WHERE project_id = 'q' AND position = 2")
    with pytest.raises(DamagedStore, match=r"project q .*2"):
        back_up(workspace.engine, tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_backup_replaces_nothing(workspace: Workspace, tmp_path: Path) -> None:
    """A file that is there, or a folder that is not, is refused in one sentence; the file stays as it was."""
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(BadInput, match="there already"):
        back_up(workspace.engine, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"
    with pytest.raises(BadInput, match="cannot be written"):
        back_up(workspace.engine, tmp_path / "no" / "copy.db")


def test_of_two_backups_to_one_file_one_is_made(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends second is refused; neither takes away what the other is working on."""
    checked = api.backup._checked

    def while_another(copy: Path, progress: None) -> dict[str, int]:
        monkeypatch.setattr(api.backup, "_checked", checked)
        assert back_up(workspace.engine, tmp_path / "copy.db").projects.keys() == {"p", "q"}
        return checked(copy, progress)

    monkeypatch.setattr(api.backup, "_checked", while_another)
    with pytest.raises(BadInput, match="there already"):
        back_up(workspace.engine, tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "home"]


def test_a_backup_is_synced_before_it_has_its_name(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy's content is on the disk first, then the folder with its name."""
    done: list[str] = []
    sync, link, sync_folder = api.backup._sync, os.link, api.backup.sync_folder
    monkeypatch.setattr(api.backup, "_sync", lambda file: (done.append("content"), sync(file)))
    monkeypatch.setattr(os, "link", lambda *names: (done.append("name"), link(*names)))
    monkeypatch.setattr(api.backup, "sync_folder", lambda folder: (done.append("folder"), sync_folder(folder)))
    back_up(workspace.engine, tmp_path / "copy.db")
    assert done == ["content", "name", "folder"]


def test_postgresql_is_told_its_own_tool(tmp_path: Path) -> None:
    """On PostgreSQL the sentence names pg_dump, and holds no password."""
    workspace = Workspace(Settings(home=tmp_path, database_url=postgres.fresh_url()))
    with pytest.raises(NotAllowed, match="pg_dump"):
        back_up(workspace.engine, tmp_path / "copy.db")


def test_the_command_backs_up_and_says_what_else_to_copy(el: El, tmp_path: Path) -> None:  # noqa: F811
    """`el db backup FILE` names the artifacts and the key; `--json` gives the numbers."""
    written(Workspace(Settings(home=tmp_path / "home")), "p")
    said = el("db", "backup", str(tmp_path / "one.db"))
    assert said.code == 0
    assert "artifacts" in said.out
    assert "secret.key" in said.out
    assert el("db", "backup", str(tmp_path / "two.db"), "--json").document["projects"] == {"p": 10}
    assert el("db", "backup", str(tmp_path / "two.db")).code == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_log_is_checked_on_both_databases(el: El, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:  # noqa: F811
    """`el db check` finds a log as recorded, and an entry that was changed since, on either database."""
    if kind == "postgresql":
        monkeypatch.setenv("EL_DATABASE_URL", postgres.fresh_url())
    workspace = Workspace(Settings())
    written(workspace, "p")
    assert el("db", "check", "--project", "p").code == 0
    with workspace.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE entries SET tag = 'trial-started' WHERE position = 3")
    found = el("db", "check", "--project", "p", "--json")
    assert found.code == 1
    assert "3" in found.document["faults"][0]
