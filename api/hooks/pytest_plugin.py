"""`pytest --el NAME` records a run as it goes: one test is one task, and what it did is its reward.

Passed is 1, a failed assertion 0; any other error is a failed trial without a reward; a skipped test has no trial.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

SKIPPED = (pytest.skip.Exception, pytest.xfail.Exception)
FAILED = (AssertionError, pytest.fail.Exception)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option without which nothing is recorded."""
    group = parser.getgroup("evalledger")
    group.addoption("--el", metavar="NAME", help="record this run in EvalLedger as a job on the dataset NAME")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Submit the job, if asked to; a revision of the dataset is named by the tests in it."""
    config = session.config
    dataset = config.getoption("--el")
    if not dataset or not session.items or config.option.collectonly:
        return
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        raise pytest.UsageError("--el records a run of one process; leave out -n.")
    # Here, not above: this module is loaded by every run of pytest, and most of them record nothing.
    from api.client import connect  # noqa: PLC0415
    from ledger.digests import digest_of_names, members_digest  # noqa: PLC0415
    from ledger.errors import EvalLedgerError  # noqa: PLC0415
    from ledger.facts.catalogue import RunnerPublished, Task  # noqa: PLC0415

    tasks = [Task(item.nodeid, digest_of_names("pytest", dataset, item.nodeid)) for item in session.items]
    ref = f"{dataset}@{members_digest((task.name, task.digest) for task in tasks)[:12]}"
    try:
        client = connect()
        client.publish_runner(RunnerPublished(f"pytest@{pytest.__version__}", "external"))
        client.publish_dataset(ref, tasks, runner=f"pytest@{pytest.__version__}", digests="by-name")
        config.pluginmanager.register(Recording(client, client.submit_job(ref).id))
    except EvalLedgerError as error:
        raise pytest.UsageError(f"--el: {error}") from error


class Recording:
    """One run of pytest on its way into the ledger; `client` is an `api.client.Client`, `job` the id of the job."""

    def __init__(self, client, job: str) -> None:  # type: ignore[no-untyped-def]  # its module is not loaded above
        self.client, self.job = client, job
        self.phases: list[tuple[pytest.TestReport, BaseException | None]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what each phase of a test came to, with the exception itself."""
        report = yield
        self.phases = [*(self.phases if call.when != "setup" else ()), (report, call.excinfo and call.excinfo.value)]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        """Record the test once it is over: only then is it known that it was not skipped."""
        done = yield
        reward, failure = None, None
        for report, error in self.phases:
            if isinstance(error, SKIPPED) and (report.when == "setup" or not isinstance(error, FAILED)):
                return done
            if report.when == "call" and (error is None or isinstance(error, FAILED)):
                reward = float(error is None and not report.failed)
            elif error is not None:
                failure = error
        try:
            with self.client.trial(self.job, task=item.nodeid, attempt=1) as trial:
                if reward is not None:
                    trial.reward(reward, source="pytest")
                if failure:
                    raise failure
        except BaseException as raised:
            if raised is not failure:
                raise
        return done

    def pytest_sessionfinish(self) -> None:
        """What was skipped or not reached never gets a trial: the job is called off, its rewards stand."""
        if self.client.job(self.job).ended_at is None:
            self.client.cancel_job(self.job, reason="some tests were skipped or not reached")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the run can be looked at."""
        counts = self.client.result(self.job, tasks_limit=0).score_counts
        scored = f"{counts.scored:,}/{counts.total:,} tests scored"
        terminalreporter.write_line(f"evalledger: {scored}; look at it: el job result {self.job}")
