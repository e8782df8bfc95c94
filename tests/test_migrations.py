"""The schema of a store: made once, adopted when older, refused when it is another one, and the same either way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Engine

import api.migrations
from api.migrations.revision import BASELINE, HEAD, REVISIONS, alembic_version, prepare, require_current, revision_of
from api.migrations.upgrading import upgrade
from api.settings import Settings
from api.wiring import TABLES, Workspace
from ledger.application import Ledger
from ledger.database import metadata, open_database, reading, writing
from ledger.errors import OutdatedStore
from ledger.facts.access import STREAM
from ledger.recorder import ProjectRecorder
from ledger.rules.access import create_project
from projections.following import catch_up, positions, standings
from projections.models import READ_MODELS
from tests import postgres
from tests.crash_writer import rows_of, submit
from tests.given import dump
from tests.test_cli import El, el  # noqa: F401 - the fixture

ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    return f"sqlite:///{tmp_path / 'el.db'}" if request.param == "sqlite" else postgres.fresh_url()


@pytest.fixture
def empty(url: str) -> Iterator[Engine]:
    """The same, opened."""
    engine = open_database(url)
    yield engine
    engine.dispose()


def old_store(engine: Engine) -> Ledger:
    """A store as it was made before there were revisions, with entries in it."""
    baseline = ScriptDirectory(str(Path(api.migrations.__file__).parent)).get_revision(BASELINE)
    with writing(engine) as connection, Operations.context(MigrationContext.configure(connection)):
        baseline.module.upgrade()
    ledger = Ledger(engine, "old")
    ledger.record(STREAM, partial(create_project, name="old"))
    submit(ledger)
    ledger.recorder.append(rows_of(["t-1", "t-2"]))
    return ledger


def shape(engine: Engine) -> dict[str, Any]:
    """Every table as the database itself describes it: columns, keys, indexes."""
    with reading(engine) as connection:
        found = sa.inspect(connection)
        return {table: shape_of(found, table) for table in found.get_table_names()}


def shape_of(found: sa.Inspector, table: str) -> dict[str, Any]:
    """One table; the order of its columns does not matter, every statement names them."""
    columns = [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in found.get_columns(table)]
    indexes = [
        (i["name"], tuple(i["column_names"]), bool(i["unique"]), options_of(i)) for i in found.get_indexes(table)
    ]
    return {
        "columns": sorted(columns),
        "key": found.get_pk_constraint(table)["constrained_columns"],
        "unique": sorted(tuple(u["column_names"]) for u in found.get_unique_constraints(table)),
        "indexes": sorted(indexes),
    }


def options_of(index: Any) -> list[str]:
    """What an index says beyond its columns, as text: SQLAlchemy gives clauses that equal only themselves."""
    return sorted(f"{name} {value}" for name, value in index.get("dialect_options", {}).items())


def differences(engine: Engine) -> list[Any]:
    """What Alembic would still change to get from the database to the tables in the code."""
    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, metadata))


def test_a_migrated_store_equals_a_fresh_one(url: str, empty: Engine, tmp_path: Path) -> None:
    """A store with entries in it, brought from the first revision to the last, has the same tables as a new one."""
    old_store(empty)
    before, now = upgrade(empty, TABLES)
    assert (before, now) == (BASELINE, HEAD)
    fresh = open_database(f"sqlite:///{tmp_path / 'fresh.db'}" if url.startswith("sqlite") else postgres.fresh_url())
    prepare(fresh, TABLES)
    assert differences(empty) == []
    assert differences(fresh) == []
    assert shape(empty) == shape(fresh)
    assert set(shape(fresh)) == {*TABLES, "alembic_version"}
    fresh.dispose()


def test_a_difference_would_be_seen(empty: Engine) -> None:
    """Twin: a column and an index too few in the migrated store are found by both comparisons."""
    prepare(empty, TABLES)
    whole = shape(empty)
    with writing(empty) as connection:
        connection.execute(sa.text("DROP INDEX jobs_position"))
        connection.execute(sa.text("ALTER TABLE jobs DROP COLUMN reason"))
    assert len(differences(empty)) == 2
    assert shape(empty) != whole


def test_entries_survive_an_upgrade_and_are_followed(empty: Engine, tmp_path: Path) -> None:
    """No byte of the log changes; the read models come out as those of a store that was never old."""
    ledger = old_store(empty)
    bodies = ledger.recorder.bodies(after=0, limit=1_000)
    upgrade(empty, TABLES)
    assert Ledger(empty, "old").recorder.bodies(after=0, limit=1_000) == bodies
    assert catch_up(empty, "old", READ_MODELS) == len(bodies)
    never_old = open_database(f"sqlite:///{tmp_path / 'never-old.db'}")
    prepare(never_old, TABLES)
    ProjectRecorder(never_old, "old").append_new([row for _, row in ledger.recorder.rows(after=0, limit=1_000)])
    catch_up(never_old, "old", READ_MODELS)
    assert Ledger(never_old, "old").head() == ledger.head()
    assert dump(empty, "old", READ_MODELS) == dump(never_old, "old", READ_MODELS)
    never_old.dispose()


def test_an_old_store_is_refused_with_what_to_do(empty: Engine) -> None:
    """A store made before there were revisions is not touched; the sentence names the command."""
    old_store(empty)
    with pytest.raises(OutdatedStore, match="el db upgrade"):
        prepare(empty, TABLES)
    assert revision_of(empty) is None


def test_a_store_of_an_earlier_revision_is_refused(empty: Engine) -> None:
    """The same for one that says which revision it has."""
    prepare(empty, TABLES)
    set_revision(empty, BASELINE)
    with pytest.raises(OutdatedStore, match="el db upgrade"):
        prepare(empty, TABLES)


def test_a_newer_store_is_refused_everywhere(empty: Engine) -> None:
    """A store of a revision that nobody here knows is neither used nor upgraded."""
    prepare(empty, TABLES)
    set_revision(empty, "0999")
    for refused in (lambda: prepare(empty, TABLES), lambda: upgrade(empty, TABLES), lambda: require_current(empty)):
        with pytest.raises(OutdatedStore, match="newer EvalLedger"):
            refused()
    assert revision_of(empty) == "0999"


def test_upgrading_is_repeatable_and_makes_a_store(empty: Engine) -> None:
    """`upgrade` on nothing makes a store; again it changes nothing."""
    assert upgrade(empty, TABLES) == (None, HEAD)
    made = shape(empty)
    assert upgrade(empty, TABLES) == (HEAD, HEAD)
    assert shape(empty) == made


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(empty: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are one transaction: half an upgrade is none, also of what SQLite did to tables."""
    old_store(empty)
    before = shape(empty)

    def breaks(*arguments: Any) -> None:
        whole(*arguments)
        raise RuntimeError("the power went")

    whole = command.upgrade
    monkeypatch.setattr(command, "upgrade", breaks)
    with pytest.raises(RuntimeError, match="the power went"):
        upgrade(empty, TABLES)
    assert shape(empty) == before


def test_many_processes_make_one_store(url: str) -> None:
    """Four processes that open the same empty database at once all get a store, whoever made it."""
    code = (
        "import sys; from api.settings import Settings; from api.wiring import Workspace;"
        "sys.stdin.readline(); Workspace(Settings(database_url=sys.argv[1])).engine; print('ready')"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, url], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda process: process.communicate("go\n"), started))
    assert [out for out, _ in said] == ["ready\n"] * 4, said
    engine = open_database(url)
    assert revision_of(engine) == HEAD
    assert differences(engine) == []
    engine.dispose()


def test_the_revisions_are_those_of_the_files() -> None:
    """The list that commands go by is what Alembic finds, in its order."""
    script = ScriptDirectory(str(Path(api.migrations.__file__).parent))
    assert tuple(revision.revision for revision in script.walk_revisions())[::-1] == REVISIONS


def test_commands_do_not_load_alembic() -> None:
    """Opening a store asks one query; Alembic and its templates would cost every command's start."""
    code = "import sys, api.cli.main; sys.exit('alembic' in sys.modules or 'fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_command_adopts_an_old_store(el: El, tmp_path: Path) -> None:  # noqa: F811
    """`el` refuses an old store with exit code 5 and one sentence; after `el db upgrade` it works."""
    (tmp_path / "home").mkdir()
    engine = open_database(f"sqlite:///{tmp_path / 'home' / 'ledger.db'}")
    old_store(engine)
    engine.dispose()
    refused = el("job", "list", "--project", "old")
    assert (refused.code, refused.out) == (5, "")
    assert refused.err.count("\n") == 1
    assert "el db upgrade" in refused.err
    assert el("db", "upgrade").code == 0
    assert el("job", "list", "--project", "old").code == 0
    assert "already" in el("db", "upgrade").out


def test_read_models_of_another_definition_are_rebuilt(el: El, tmp_path: Path) -> None:  # noqa: F811
    """What an upgrade changes in read models is built anew by `el db upgrade`, and equals what was there."""
    assert el("db", "init").code == 0
    engine = Workspace(Settings(home=tmp_path / "home")).engine
    ledger = Ledger(engine, "p")
    submit(ledger)
    ledger.recorder.append(rows_of(["t-1"]))
    catch_up(engine, "p", READ_MODELS)
    whole = dump(engine, "p", READ_MODELS)
    with writing(engine) as connection:
        connection.execute(positions.update().where(positions.c.follower == "trials").values(definition=0))
        connection.execute(sa.text("UPDATE trials SET status = 'odd'"))
    said = el("db", "upgrade")
    assert "rebuilt trials of project p" in said.out
    assert not any(row.outdated for row in standings(engine, "p", READ_MODELS))
    assert dump(engine, "p", READ_MODELS) == whole


def set_revision(engine: Engine, revision: str) -> None:
    with writing(engine) as connection:
        connection.execute(alembic_version.update().values(version_num=revision))
