"""The TestCases that the eventsourcing library ships for recorders, run on ours, and its runner on our log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.persistence import Tracking
from eventsourcing.popo import POPOFactory
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.tests.persistence import (
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
    TrackingRecorderTestCase,
)
from eventsourcing.utils import EnvType
from sqlalchemy.engine import Engine

from ledger.application import Ledger, ProjectLog
from ledger.database import create_tables, open_database
from ledger.facts.entry import Entry
from ledger.recorder import ProjectRecorder
from ledger.rules import trial
from projections.following import Follower
from tests import postgres
from tests.given import dispatched, fresh_project


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


class OnPostgreSQL(OnSQLite):
    """The same on PostgreSQL."""

    def setUp(self) -> None:
        self._engine = open_database(postgres.fresh_url())
        create_tables(self._engine)

    def tearDown(self) -> None:
        self._engine.dispose()


class TestApplicationRecorder(OnSQLite, ApplicationRecorderTestCase):
    """Inserting, selecting, conflicts, concurrent writers, throughput."""

    def test_insert_subscribe(self) -> None:
        """Subscriptions, which the library's own SQLite recorder does not have."""
        self.optional_test_insert_subscribe()


class TestApplicationRecorderOnPostgreSQL(OnPostgreSQL, TestApplicationRecorder):
    """The same."""


class TestNonInterleavingNotificationIDs(OnSQLite, NonInterleavingNotificationIDsBaseCase):
    """The positions of one insert are never interleaved with those of another."""

    insert_num = 1000


class TestNonInterleavingNotificationIDsOnPostgreSQL(OnPostgreSQL, TestNonInterleavingNotificationIDs):
    """The same."""


class TestTrackingRecorder(OnSQLite, TrackingRecorderTestCase):
    """Positions that only go forward, one for each application, and waiting for one."""

    def create_recorder(self) -> Follower:  # type: ignore[override]
        return Follower(self._engine, "somebody")


class TestTrackingRecorderOnPostgreSQL(OnPostgreSQL, TestTrackingRecorder):
    """The same."""


def log_class(engine: Engine, project: str) -> type[ProjectLog]:
    """A project's log as the library wants an application: a class it constructs by itself."""

    class Log(ProjectLog):
        def __init__(self, env: EnvType | None = None) -> None:
            super().__init__(ProjectRecorder(engine, project), env)

    return Log


def view_class(engine: Engine) -> type[Follower]:
    """A view that keeps its position in our database, and what it saw in memory."""

    class View(Follower):
        seen: list[tuple[int, Entry]]

        def __init__(self) -> None:
            super().__init__(engine, "attempts-seen")
            self.seen = []

    return View


class Views(POPOFactory):
    """Where the library's runner gets its view from; its in-memory factory takes in-memory views only."""

    def tracking_recorder(self, tracking_recorder_class: Any = None) -> Any:
        return tracking_recorder_class()


class SeesDispatches(Projection[Any]):
    """Somebody's own projection: the library's names, our facts."""

    topics = ("trial-dispatched",)

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        self.view.seen.append((tracking.notification_id, domain_event))
        self.view.insert_tracking(tracking)


def followed(engine: Engine, project: str, do: Callable[[], int]) -> list[tuple[int, Entry]]:
    """What the library's runner hands to a projection while `do` writes, up to the position it returns."""
    with ProjectionRunner(
        application_class=log_class(engine, project),
        projection_class=SeesDispatches,
        view_class=view_class(engine),
        env={"PERSISTENCE_MODULE": f"{__name__}:Views"},
    ) as runner:
        runner.wait(do(), timeout=10)
        return list(runner.view.seen)  # type: ignore[attr-defined]


@pytest.mark.both_databases
def test_the_librarys_runner_follows_a_projects_log(engine: Engine) -> None:
    """Entries arrive as entries, in order, only of the topics asked for; the next runner goes on from there, and each
    project has a position of its own."""
    first, second = Ledger(engine, fresh_project()), Ledger(engine, fresh_project())

    def dispatch(ledger: Ledger, attempt: int) -> int:
        ask = partial(trial.dispatch, dispatched=dispatched(attempt=attempt))
        return ledger.record(f"trial/j/{attempt}/add-1", ask, trial.start).position - 1

    dispatch(first, 1)
    seen = followed(engine, first.project_id, lambda: dispatch(first, 2))
    assert [(position, entry.fact) for position, entry in seen] == [
        (1, dispatched(attempt=1)),
        (3, dispatched(attempt=2)),
    ]
    assert [position for position, _ in followed(engine, first.project_id, lambda: dispatch(first, 3))] == [5]
    assert [position for position, _ in followed(engine, second.project_id, lambda: dispatch(second, 1))] == [1]


del ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase, TrackingRecorderTestCase
