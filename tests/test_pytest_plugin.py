"""`pytest --el NAME`: what a test did is its reward, and nothing is recorded that did not happen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from api.answers import JobAnswer
from api.client import Client, connect
from api.settings import Settings

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.fixture
def broken():
    raise OSError("setup")

@pytest.fixture
def late():
    yield
    raise ValueError("teardown")

def test_passes(): pass
def test_fails(): assert 1 == 2
def test_calls_fail(): pytest.fail("no")
def test_dies(): raise RuntimeError("boom")
def test_setup_dies(broken): pass
def test_teardown_dies(late): pass
def test_skips(): pytest.skip("not here")
@pytest.mark.skip
def test_is_skipped(): pass
@pytest.mark.xfail
def test_fails_as_expected(): assert 0
@pytest.mark.xfail(run=False)
def test_is_not_run(): pass
@pytest.mark.xfail
def test_passes_unexpectedly(): pass
@pytest.mark.parametrize("x", ["a/b c"])
def test_of(x): pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """pytest on some tests, with a ledger of its own."""
    monkeypatch.setenv("EL_HOME", str(pytester.path / "home"))

    def run(tests: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=tests)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)

    return run


def ledger(pytester: pytest.Pytester) -> Client:
    return connect(settings=Settings(home=pytester.path / "home"))


def only_job(pytester: pytest.Pytester) -> JobAnswer:
    (job,) = ledger(pytester).jobs().jobs
    return job


def test_each_test_is_a_task(run: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    """Passed 1, failed 0, anything else a failed trial and no reward; a test that was skipped has no trial."""
    result = run(TESTS, "--el", "mine")
    job = only_job(pytester)
    rows = {row.task.partition("::")[2]: (row.status, row.reward) for row in ledger(pytester).trials(job.id)}
    assert rows == {
        "test_passes": ("succeeded", 1.0),
        "test_fails": ("succeeded", 0.0),
        "test_calls_fail": ("succeeded", 0.0),
        "test_dies": ("failed", None),
        "test_setup_dies": ("failed", None),
        "test_teardown_dies": ("failed", 1.0),
        "test_fails_as_expected": ("succeeded", 0.0),
        "test_passes_unexpectedly": ("succeeded", 1.0),
        "test_of[a/b c]": ("succeeded", 1.0),
    }
    assert (job.members, job.status, job.runner) == (12, "canceled", f"pytest@{pytest.__version__}")
    result.assert_outcomes(passed=3, failed=3, errors=2, skipped=2, xfailed=2, xpassed=1)
    result.stdout.fnmatch_lines([f"evalledger: 7/12 tests scored; look at it: el job result {job.id}"])


def test_a_run_of_all_tests_ends_the_job(run: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    """The same tests again are another job on the same dataset revision; other tests are another revision."""
    for _ in range(2):
        run("def test_a(): pass\ndef test_b(): assert 0", "--el", "mine")
    run("def test_a(): pass", "--el", "mine")
    part, *whole = ledger(pytester).jobs().jobs
    assert {job.status for job in (part, *whole)} == {"completed"}
    assert len({job.dataset for job in whole}) == 1 != len({part.dataset, whole[0].dataset})


def test_what_was_not_reached_is_missing(run: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    """A run that stops early is called off; its members without a trial are missing, not zero."""
    run("def test_a(): assert 0\ndef test_b(): pass", "--el", "mine", "-x")
    job = only_job(pytester)
    counts = ledger(pytester).result(job.id).score_counts
    assert (job.status, counts.scored, counts.missing) == ("canceled", 1, 1)


@pytest.mark.parametrize("options", [[], ["--el", "mine", "--collect-only"], ["--el", "mine", "-k", "nothing"]])
def test_nothing_is_recorded_unasked(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester, options: list[str]
) -> None:
    """Without the option, or without a test that runs, there is not even a store."""
    run("def test_a(): pass", *options)
    assert not Path(pytester.path / "home").exists()


def test_a_bad_name_stops_the_run_with_a_sentence(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    """No test runs when its result could not be kept."""
    result = run("def test_a(): pass", "--el", "../x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--el: *is no reference*"])
