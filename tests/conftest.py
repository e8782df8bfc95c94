"""What all tests share: a database for logic, where nothing needs to survive a power cut, and options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import settings
from sqlalchemy.engine import Engine

import projections.models  # noqa: F401 - so that every table is known
from ledger import checkpoints, vault  # noqa: F401
from ledger.database import create_tables, open_database
from tests import postgres
from tests.given import fresh_project

DATABASES = ("sqlite", "postgresql")

# A shared machine is slow now and then: a deadline would measure the machine, not the code.
settings.register_profile("el", deadline=None, print_blob=True)
settings.load_profile("el")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-cycles", type=int, default=100, help="how often tests/test_crash.py kills a writer")
    parser.addoption("--fuzz-requests", type=int, default=2_000, help="how many requests tests/test_http_fuzz.py makes")
    parser.addoption("--schemathesis-examples", type=int, default=4, help="how many requests it makes for each route")
    parser.addoption("--bit-flips", type=int, default=300, help="how many bits tests/test_checkpoints.py flips")
    parser.addoption("--insider-rewrites", type=int, default=60, help="how often tests/test_insider.py rewrites a log")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "both_databases: the promise is held on SQLite and on PostgreSQL")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked so on each database; what is not, on SQLite."""
    if metafunc.definition.get_closest_marker("both_databases"):
        for name, scope in (("engine", "module"), ("store_url", "function")):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, DATABASES, indirect=True, scope=scope)


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Engine]]:
    """One database of each kind for the run, made when it is first asked for."""
    made: dict[str, Engine] = {}

    def engine_of(kind: str) -> Engine:
        if kind not in made:
            is_file = kind == "sqlite"
            url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'el.db'}" if is_file else postgres.fresh_url()
            made[kind] = open_database(url)
            if is_file:
                sa.event.listen(made[kind], "connect", _without_sync)
            create_tables(made[kind])
        return made[kind]

    yield engine_of
    for engine in made.values():
        engine.dispose()


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, engines: Callable[[str], Engine]) -> Engine:
    """The database of the run. Tests take a fresh project each, which is the border of visibility."""
    return engines(getattr(request, "param", DATABASES[0]))


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of the test's own, still without tables."""
    is_file = getattr(request, "param", DATABASES[0]) == "sqlite"
    return f"sqlite:///{tmp_path / 'el.db'}" if is_file else postgres.fresh_url()


@pytest.fixture
def project() -> str:
    """A project that nobody has used."""
    return fresh_project()


def _without_sync(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")
