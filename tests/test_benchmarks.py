"""The benchmarks run, and what needs no clock to be known: a result costs the same in a small and in a large job."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.benchmarks.__main__ import BENCHMARKS
from tests.benchmarks.given import client_in
from tests.benchmarks.jobs import read_result, run_job
from tests.benchmarks.measuring import Line, Wanted

ROOT = Path(__file__).parent.parent
SMALL, LARGE, PAGE = 10, 10_000, 5


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a tiny run prints as Markdown."""
    folder = tmp_path_factory.mktemp("benchmarks")
    command = [sys.executable, "-m", "tests.benchmarks", "--entries", "200", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--markdown", "--folder", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return done.stdout


def test_the_header_says_where_it_was_measured(printed: str) -> None:
    """Versions, cores, file system and durability."""
    header = printed.splitlines()[0]
    assert re.search(r"Python 3\.\S+, SQLite 3\.\S+, \d+ cores, \w+", header)
    assert "synchronous=FULL" in header


def test_every_line_is_printed_with_a_number(printed: str) -> None:
    """Each benchmark prints its lines, with finite positive numbers and, where something is wanted, a verdict."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()[4:]]
    assert list(dict.fromkeys(row[0] for row in rows)) == list(BENCHMARKS)
    for name, what, ours, _against, theirs, ratio, wanted, verdict in rows:
        numbers = [ours.split()[0], *([theirs.split()[0], ratio] if theirs else [])]
        assert all(0 < float(number.replace(",", "")) < math.inf for number in numbers), (name, what)
        assert verdict in (("held", "missed") if wanted else ("",)), (name, what)


def test_a_bound_is_held_on_its_own_side() -> None:
    """The verdict column says what the ratio says."""
    line = Line("x", "x", "ms", 1.0, "y", 2.0, 0.5, Wanted("at least", 0.5))
    assert line.verdict == "held"
    assert line._replace(ratio=0.49).verdict == "missed"
    assert line._replace(wanted=Wanted("at most", 0.49)).verdict == "missed"
    assert line._replace(wanted=None).verdict == ""


class Reading:
    """Counts what a store is asked: statements, rows handed over, and steps of SQLite's own machine."""

    def __init__(self, engine: sa.Engine) -> None:
        self.statements = self.rows = self.steps = 0
        sa.event.listen(engine, "before_cursor_execute", self._count_statement)
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.row_factory = self._count_row
            driver.set_progress_handler(self._count_step, 1)

    def taken(self) -> tuple[int, int, int]:
        """The counts since the last time."""
        counts = self.statements, self.rows, self.steps
        self.statements = self.rows = self.steps = 0
        return counts

    def _count_statement(self, *_: object) -> None:
        self.statements += 1

    def _count_row(self, _cursor: object, row: tuple[object, ...]) -> tuple[object, ...]:
        self.rows += 1
        return row

    def _count_step(self) -> int:
        self.steps += 1
        return 0


def test_a_result_reads_the_same_in_a_small_and_in_a_large_job(tmp_path: Path) -> None:
    """The same statements and rows for 10 and for 10,000 trials, and no scan hidden behind them."""
    client = client_in(tmp_path)
    # Every second reward is lost, so both jobs have the five lost trials that a result shows.
    small, large = (run_job(client, f"of-{count}", count, lost_every=2) for count in (SMALL, LARGE))
    reading = Reading(client.workspace.engine)
    counts = {}
    for job_id in (small, large):
        read_result(client, job_id, tasks_limit=PAGE)
        reading.taken()
        printed = read_result(client, job_id, tasks_limit=PAGE)
        assert printed.count("astropy__astropy-") >= PAGE
        counts[job_id] = reading.taken()
    assert counts[large][:2] == counts[small][:2]
    statements, rows, steps = counts[small]
    assert 0 < statements < 20
    assert PAGE < rows < 10 * PAGE
    assert counts[large][2] < 2 * steps, "a statement reads more of a large job than of a small one"
