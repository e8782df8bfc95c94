"""The TestCases that the eventsourcing library ships for recorders, run on ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from uuid import uuid4

from eventsourcing.tests.persistence import ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase

from ledger.database import create_tables, open_database
from ledger.recorder import ProjectRecorder


class OnSQLite:
    """Gives a test case a fresh store; streams are text, as everywhere in EvalLedger."""

    def setUp(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._engine = open_database(f"sqlite:///{Path(self._folder.name) / 'el.db'}")
        create_tables(self._engine)

    def tearDown(self) -> None:
        self._engine.dispose()
        self._folder.cleanup()

    def new_originator_id(self) -> str:
        return str(uuid4())

    def create_recorder(self) -> ProjectRecorder:
        return ProjectRecorder(self._engine, "default")


class TestApplicationRecorder(OnSQLite, ApplicationRecorderTestCase):
    """Inserting, selecting, conflicts, concurrent writers, throughput."""

    def test_insert_subscribe(self) -> None:
        """Subscriptions, which the library's own SQLite recorder does not have."""
        self.optional_test_insert_subscribe()


class TestNonInterleavingNotificationIDs(OnSQLite, NonInterleavingNotificationIDsBaseCase):
    """The positions of one insert are never interleaved with those of another."""

    insert_num = 1000


del ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase
