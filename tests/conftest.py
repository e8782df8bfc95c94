"""What all tests share: a database for logic, where nothing needs to survive a power cut, and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import settings
from sqlalchemy.engine import Engine

import projections.models  # noqa: F401 - so that every table is known
from ledger import vault  # noqa: F401
from ledger.database import create_tables, open_database
from tests.given import fresh_project

# A shared machine is slow now and then: a deadline would measure the machine, not the code.
settings.register_profile("el", deadline=None, print_blob=True)
settings.load_profile("el")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-cycles", type=int, default=100, help="how often tests/test_crash.py kills a writer")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One database for the run. Tests take a fresh project each, which is the border of visibility."""
    engine = open_database(f"sqlite:///{tmp_path_factory.mktemp('store') / 'el.db'}")
    sa.event.listen(engine, "connect", _without_sync)
    create_tables(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def project() -> str:
    """A project that nobody has used."""
    return fresh_project()


def _without_sync(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")
