"""How the command line speaks: tables and colour on a terminal, plain text elsewhere, one JSON document when asked."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, Protocol

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from api.problems import kind_of
from ledger.errors import EvalLedgerError

GAP = "–"
PLAIN_WIDTH = 10_000

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Project = Annotated[
    str | None,
    typer.Option("--project", "-p", envvar="EL_PROJECT", help="The project to work in.", show_default="default"),
]


class _Console(Console):
    """Rich ends the process with 1 when nobody reads on; here `main` decides what that means."""

    def on_broken_pipe(self) -> None:
        """Raise the error that Python itself raises."""
        raise BrokenPipeError


def _console(stream: Any) -> Console:
    # Off a terminal nothing is wrapped or cut: the output is read by programs and by people with a pager.
    width = None if stream.isatty() else PLAIN_WIDTH
    return _Console(file=stream, width=width, markup=False, highlight=False, soft_wrap=True)


def out() -> Console:
    """Standard output."""
    return _console(sys.stdout)


def err() -> Console:
    """Standard error: progress and complaints."""
    return _console(sys.stderr)


def say(*lines: str | Text) -> None:
    """Print lines to standard output."""
    console = out()
    for line in lines:
        console.print(line)


@contextmanager
def while_read() -> Iterator[None]:
    """When nobody reads standard output any more, raise BrokenPipeError as a console does: without its number, for
    which Typer would end the process with 1.
    """
    try:
        yield
    except BrokenPipeError:
        raise BrokenPipeError from None


def write(data: str | bytes) -> None:
    """Write to standard output as it stands, at once. Raises BrokenPipeError when nobody reads on."""
    with while_read():
        if isinstance(data, str):
            sys.stdout.write(data)
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()


def say_json(answer: Any) -> None:
    """Print an answer as one JSON document."""
    write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")


def say_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = ()) -> None:
    """Print rows under their column names; the columns in `right` are aligned to the right."""
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    console = out()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def harmless(text: str) -> str:
    """What a model or a tool wrote, without the characters that steer a terminal (line ends and tabs stay)."""
    if text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else "\ufffd" for char in text
    )


def fields_told(fields: Mapping[str, Any]) -> str:
    """Fields in one line, `name=value`: plain text as it is, all else as JSON."""
    return ", ".join(
        f"{name}={value if isinstance(value, str) and value.isprintable() else harmless(_json(value))}"
        for name, value in fields.items()
    )


def cut(text: str, chars_max: int) -> str:
    """A text of at most so many characters; one that was longer ends in `…`."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Done(Protocol):
    """Tells a progress bar how much is done, and of how much where that was not known before."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Done]:
    """A progress bar on standard error, shown on a terminal only. The value is called with how much is done."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total=None: bar.update(task, completed=done, total=total)


def fail(error: EvalLedgerError) -> NoReturn:
    """Say what was refused, in one sentence and what differs, and end with its exit code."""
    console = err()
    console.print(Text.assemble(("el: ", "bold red"), harmless(str(error))))
    for line in getattr(error, "differs", ()):
        console.print(f"    {harmless(line)}")
    raise SystemExit(kind_of(error).exit_code)
