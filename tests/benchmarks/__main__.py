"""`python -m tests.benchmarks [--entries N] [--only NAME]`: measure everything in one run and print one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import appending, auditing, following, importing, jobs, on_postgresql, proving, serving
from tests.benchmarks.measuring import Line, Sizes
from tests.benchmarks.stores import machine

BENCHMARKS: dict[str, Callable[[Path, Sizes], list[Line]]] = {
    "append": appending.appending,
    "append-any-order": appending.appending_in_no_order,
    "library": appending.against_the_library,
    "catch-up": following.catching_up,
    "replay": following.replaying,
    "result": jobs.reading_results,
    "rebuild": following.rebuilding,
    "publish": jobs.publishing,
    "import": importing.importing,
    "audit": auditing.auditing,
    "serve": serving.serving,
    "verify": proving.verifying,
    "pg-append": on_postgresql.appending,
    "pg-catch-up": on_postgresql.following,
}
COLUMNS = ("name", "what", "ours", "against", "theirs", "ratio", "wanted", "")
NUMBERS = ("ours", "theirs", "ratio")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--entries", type=int, default=100_000, help="entries of one line, over all rounds (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each line (%(default)s)")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="measure this alone; may be repeated")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the stores are made (the current folder)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(arguments)
    sizes = Sizes(options.entries, options.rounds)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix=".benchmarks-") as folder:
        Path(folder, ".gitignore").write_text("*\n", encoding="utf-8")
        chosen = options.only or list(BENCHMARKS)
        header = machine(Path(folder))
        if any(name.startswith("pg-") for name in chosen):
            header += f"; {on_postgresql.version()}"
        for name in chosen:
            sys.stderr.write(f"measuring {name} ...\n")
            with tempfile.TemporaryDirectory(dir=folder) as own:
                lines += BENCHMARKS[name](Path(own), sizes)
    today = datetime.now(UTC).date()
    rounds = f"{sizes.rounds} rounds, each {sizes.transactions} transactions of {sizes.in_transaction:,} entries"
    header = f"{today}: {header}; medians of {rounds}"
    if options.markdown:
        print_markdown(header, lines)
    else:
        print_table(header, lines)


def cells(line: Line) -> tuple[str, ...]:
    """A line as text."""
    return (
        line.name,
        line.what,
        amount(line.ours, line.unit),
        line.against,
        "" if line.other is None else amount(line.other, line.unit),
        "" if line.ratio is None else f"{line.ratio:.2f}",
        "" if line.wanted is None else str(line.wanted),
        line.verdict,
    )


def amount(value: float, unit: str) -> str:
    """A number with its unit: whole from 100 on, else with one decimal."""
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def print_table(header: str, lines: Sequence[Line]) -> None:
    """For people at a terminal."""
    table = Table(title=header, title_justify="left", title_style="")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in NUMBERS else "left")
    for line in lines:
        style = {"held": "green", "missed": "red"}.get(line.verdict)
        table.add_row(*cells(line), style=style)
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)
    console.print(table)


def print_markdown(header: str, lines: Sequence[Line]) -> None:
    """For docs/performance.md."""
    rules = ["---:" if column in NUMBERS else "---" for column in COLUMNS]
    rows = [COLUMNS, rules, *map(cells, lines)]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    sys.stdout.write(f"{header}\n\n{text}\n")


if __name__ == "__main__":
    main()
