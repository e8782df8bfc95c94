"""What tools can hold, tools hold: style, types, the direction of imports, and names that do not belong here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["lint-imports"],
    ],
    ids=lambda command: command[0] if command[1:2] != ["format"] else "ruff format",
)
def test_the_tools_have_nothing_to_say(command: list[str]) -> None:
    """Linter, formatter, type checker and import contracts pass."""
    tool = Path(sys.executable).parent / command[0]
    done = subprocess.run([str(tool), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
