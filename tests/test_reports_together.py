"""Reports that wait together: none is forgotten, none holds others up, and what is under way is finished at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
from sqlalchemy.engine import Engine

from api.answers import Claim, Reported
from api.app import create_app
from api.client import Client
from api.http import reports as path
from api.http.gate import Gate
from api.settings import Settings
from api.telemetry import Telemetry
from api.wiring import Workspace
from ledger.errors import NotFound, StoreUnreachable
from ledger.facts.catalogue import RunnerPublished, Task
from ledger.facts.trial import RewardRecorded, TrialSucceeded
from ledger.grouping import GroupCommit
from tests.given import digest_of
from tests.given_requests import Silent

TASKS = [f"t{number}" for number in range(6)]
WAIT_S = 10.0


class Told(Telemetry):
    """Hands on how many writes are about to be committed."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        super().__init__(Silent())
        self._tell = tell

    def committed(self, count: int) -> None:
        self._tell(count)


class Line:
    """The reports of a project of six running trials, with how many commits they took and a commit that can be held."""

    def __init__(self, home: Path) -> None:
        self.groups: list[int] = []
        self.free = threading.Event()
        self.free.set()
        telemetry = Told(self._committed)
        self.app = create_app(Workspace(Settings(home=home)), telemetry=telemetry, follow=False)
        self.gate: Gate = self.app.state.gate
        self.client = Client(self.gate.workspace, "default")
        self.client.publish_runner(RunnerPublished("sh@1", "external"))
        self.client.publish_dataset("d@1", [Task(name, digest_of(name)) for name in TASKS], runner="sh@1")
        self.job_id = self.client.submit_job("d@1").id
        self.claims = [self.client.dispatch(self.job_id, name, 1) for name in TASKS]
        self.client.trials(self.job_id)  # so that read models know them
        self.reports = self.gate.reports(self.client)

    def _committed(self, count: int) -> None:
        self.groups.append(count)
        assert self.free.wait(WAIT_S)

    async def report(self, claim: Claim) -> Reported:
        facts = [RewardRecorded(1.0), TrialSucceeded(0)]
        return await self.reports.take(self.client, claim.trial_id, facts, token=claim.token)

    async def held_and_waiting(self) -> list[asyncio.Task[Reported]]:
        """One report whose commit is under way and does not end, and those of the other trials lined up behind it."""
        self.free.clear()
        tasks = [asyncio.create_task(self.report(self.claims[0]))]
        while not self.groups:
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(self.report(claim)) for claim in self.claims[1:]]
        await asyncio.sleep(0.01)
        return tasks

    @property
    def succeeded(self) -> list[str]:
        return sorted(row.task for row in self.client.trials(self.job_id) if row.status == "succeeded")


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path / "home")
    yield line
    line.free.set()
    line.gate.close()
    line.gate.workspace.engine.dispose()


def test_what_lines_up_during_a_commit_is_committed_after_it(line: Line) -> None:
    """Nobody calls for it again: the others go in one commit behind the first, and the last one ends the job."""

    async def go() -> list[Reported]:
        tasks = await line.held_and_waiting()
        line.free.set()
        return await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)

    assert all(done.new == [True, True] for done in asyncio.run(go()))
    assert line.groups == [1, len(TASKS) - 1]
    assert line.client.job(line.job_id).status == "completed"


def test_a_report_that_was_called_off_while_it_waited_is_left_out(line: Line) -> None:
    """One that had begun is written all the same; those beside the one that was called off are answered."""

    async def go() -> None:
        tasks = await line.held_and_waiting()
        for gone in tasks[:2]:
            gone.cancel()
        await asyncio.sleep(0)
        line.free.set()
        await asyncio.wait_for(asyncio.gather(*tasks[2:]), WAIT_S)

    asyncio.run(go())
    assert line.succeeded == sorted(TASKS[:1] + TASKS[2:])


def test_what_is_being_committed_is_finished_at_the_end(line: Line) -> None:
    """The app ends only once the commit under way is through; what only waited was never answered."""

    async def go() -> None:
        running = line.app.router.lifespan_context(line.app)
        await running.__aenter__()
        for task in await line.held_and_waiting():
            task.cancel()
        closing = asyncio.create_task(running.__aexit__(None, None, None))
        await asyncio.sleep(0.05)
        assert not closing.done()
        line.free.set()
        await asyncio.wait_for(closing, WAIT_S)

    asyncio.run(go())
    assert line.succeeded == TASKS[:1]


def test_a_store_that_is_away_is_asked_once_for_a_group(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a group that cannot be looked up is told so, without a wait of its own for the store."""
    asked: list[Engine] = []

    def away(engine: Engine) -> NoReturn:
        asked.append(engine)
        raise StoreUnreachable("The database does not answer.")

    async def go() -> list[Reported | BaseException]:
        tasks = await line.held_and_waiting()
        monkeypatch.setattr(path, "reading", away)
        line.free.set()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_S)

    first, *others = asyncio.run(go())
    assert isinstance(first, Reported)
    assert [type(other) for other in others] == [StoreUnreachable] * (len(TASKS) - 1)
    assert len(asked) == 1


def test_trials_that_nobody_knows_take_no_commit(line: Line) -> None:
    """The head of the log is not taken for a report that has no place in it."""

    with pytest.raises(NotFound):
        asyncio.run(line.report(msgspec.structs.replace(line.claims[0], trial_id="nothing")))
    assert line.groups == []


def commits_before_the_first_is_answered(hand_on: Callable[[Callable[[], None]], object] | None) -> int:
    """How many commits a write waits for while others keep lining up, up to fifty of them; all are made in the end."""
    commits = 0
    others: list[Future[int]] = []

    def commit(asked: Sequence[int]) -> Sequence[int]:
        nonlocal commits
        commits += 1
        if commits <= 50:
            others.append(group.submit(commits))
        return asked

    group: GroupCommit[int, int] = GroupCommit(commit, **({} if hand_on is None else {"hand_on": hand_on}))
    assert group(0) == 0
    waited_for = commits
    assert [other.result(WAIT_S) for other in others] == list(range(1, len(others) + 1))
    until_s = time.monotonic() + WAIT_S
    while commits <= 50 and time.monotonic() < until_s:
        time.sleep(0.001)
    assert commits == 51
    return waited_for


def test_whoever_commits_for_others_is_not_kept_by_them() -> None:
    """A write is answered after its own commit, however many line up meanwhile; they are committed all the same."""
    assert commits_before_the_first_is_answered(None) < 25


def test_whoever_would_go_on_for_others_would_wait_for_them() -> None:
    """Twin: handed on to the one who is there already, the first write waits for all the others."""
    assert commits_before_the_first_is_answered(lambda drive: drive()) == 51
