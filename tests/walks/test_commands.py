"""Every command explains itself, and has its place in docs/commands.md.

`python -m tests.walks.test_commands` writes that page anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from api.cli.main import app

PAGE = Path(__file__).parent.parent.parent / "docs" / "commands.md"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with the words that call it."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words, command
            return
        for name, verb in inner.items():
            yield from below(f"{words} {name}", verb)

    yield from below("el", typer.main.get_command(app))


def arguments(command: Any) -> list[Any]:
    return [parameter for parameter in command.params if parameter.param_type_name == "argument"]


def options(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option" and p.name != "help"]


def reference() -> str:
    """The page: every command, what it does, an example, its options."""
    lines = ["# Commands", "", "Written by `python -m tests.walks.test_commands` from what `--help` says.", ""]
    for words, command in commands():
        purpose, _, example = command.help.partition("\n\nExample: ")
        lines += [f"## `{' '.join([words, *(a.metavar or a.name.upper() for a in arguments(command))])}`", ""]
        lines += [" ".join(purpose.split()), "", f"    {example.strip()}", ""]
        for option in options(command):
            shown = ", ".join(f"`{spelling}`" for spelling in option.opts)
            lines.append(f"- {shown}{f' {option.metavar}' if option.metavar else ''}: {option.help}")
        lines += [""] if options(command) else []
    return "\n".join(lines).rstrip() + "\n"


@pytest.mark.parametrize(("words", "command"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_every_command_has_help_with_an_example(words: str, command: Any) -> None:
    """`--help` of each verb says what it does, shows an example of itself, and explains every option."""
    purpose, _, example = command.help.partition("\n\nExample: ")
    assert purpose
    assert words in example
    assert [option.opts for option in options(command) if not option.help] == []


def test_the_page_of_commands_is_current() -> None:
    """docs/commands.md says what the commands say."""
    assert PAGE.read_text() == reference()


if __name__ == "__main__":
    PAGE.write_text(reference())
