"""Promises of the runner file: what it says becomes the fact exactly, or one sentence names the field and no value."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from api.forms.document import DOCUMENT_BYTES_MAX
from api.forms.runner import read_runner
from ledger.errors import BadInput, NotFound
from ledger.facts.catalogue import Parameter, RunnerPublished, Step
from ledger.rules.catalogue import publish_runner

SECRET = "sk-do-not-show-me"
STEP = {"command": ["{python}", "run.py"], "timeout_s": 5}
WHOLE: dict[str, Any] = {
    "schema_version": "evalledger.runner/v1",
    "name": "team/shell",
    "version": "1.2",
    "kind": "command",
    "parameters": [
        {"name": "MODEL", "required": True},
        {"name": "T", "default": 0.5},
        {"name": "N", "default": 3},
        {"name": "ON", "default": False},
        {"name": "OPTIONAL"},
    ],
    "agent": STEP,
    "verifier": {"command": ["sh", "-c", "true"]},
    "structured_result": "out/result.json",
    "outputs": ["*.txt", "logs/**"],
}


def write(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "runner.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as refused:
        read_runner(path)
    assert refused.value.__cause__ is refused.value.__context__ is None
    return str(refused.value)


def test_a_whole_runner_file_becomes_its_fact(tmp_path: Path) -> None:
    """Every field arrives, defaults are filled in, and the rule takes the fact as it is."""
    runner = read_runner(write(tmp_path, WHOLE))
    assert runner == RunnerPublished(
        ref="team/shell@1.2",
        kind="command",
        parameters=(
            Parameter("MODEL", required=True),
            Parameter("T", default=0.5),
            Parameter("N", default=3),
            Parameter("ON", default=False),
            Parameter("OPTIONAL"),
        ),
        agent=Step(("{python}", "run.py"), 5.0),
        verifier=Step(("sh", "-c", "true"), 600.0),
        structured_result="out/result.json",
        outputs=("*.txt", "logs/**"),
    )
    assert [type(p.default) for p in runner.parameters[1:4]] == [float, int, bool]
    assert publish_runner(None, runner=runner) == [runner]


def test_an_external_runner_needs_no_steps(tmp_path: Path) -> None:
    """Somebody else runs it and reports; a byte-order mark in the file does not matter."""
    content = {"schema_version": "evalledger.runner/v1", "name": "x", "version": "1", "kind": "external"}
    runner = read_runner(write(tmp_path, b"\xef\xbb\xbf" + json.dumps(content).encode()))
    assert runner == RunnerPublished("x@1", "external")
    assert "kind external runs nothing" in refusal(write(tmp_path, content | {"agent": STEP}))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema_version": SECRET}, "`schema_version` must be 'evalledger.runner/v1'"),
        ({"name": 7}, "`name` must be text; write it in double quotes"),
        ({"name": ""}, "`name` is empty"),
        ({"version": 1}, "`version` must be text"),
        ({"kind": SECRET}, "`kind` must be 'command' or 'external'"),
        ({"agnet": SECRET}, "`agnet` is no field of this form"),
        ({"agent\n超时": SECRET}, r"`agent\n超时` is no field of this form"),
        ({"agent\ud800": SECRET}, "the name of a field holds a lone surrogate"),
        ({"x" * 1_000: SECRET}, "x...` is no field of this form"),
        ({"agent": None}, "`agent` is missing"),
        ({"verifier": None}, "`verifier` is missing"),
        ({"agent": SECRET}, "`agent` must be an object"),
        ({"agent": {"timeout_s": 1}}, "`agent.command` is missing"),
        ({"agent": {"command": []}}, "`agent.command` is an empty list"),
        ({"agent": {"command": SECRET}}, "`agent.command` must be a list"),
        ({"agent": {"command": ["x"] * 1_001}}, "`agent.command` is too long a list; 1,000 are the most"),
        ({"agent": {"command": ["x", 7]}}, "`agent.command[1]` must be text"),
        ({"agent": {"command": ["x", ""]}}, "`agent.command[1]` is empty"),
        ({"agent": {"command": [f"{SECRET}\0"]}}, "`agent.command[0]` holds a NUL"),
        ({"agent": {"command": [f"{SECRET}\ud800"]}}, "`agent.command[0]` holds a lone surrogate"),
        ({"agent": {"command": ["x"], "timeout_s": "9"}}, "`agent.timeout_s` must be a number, without quotes"),
        ({"agent": {"command": ["x"], "timeout_s": True}}, "`agent.timeout_s` must be a number"),
        ({"agent": {"command": ["x"], "timeout_s": 0}}, "`agent.timeout_s` must be more than 0"),
        ({"agent": {"command": ["x"], "timeout_s": 604_801}}, "`agent.timeout_s` must be at most 604,800"),
        ({"agent": {"command": ["x"], "timeout_s": 10**400}}, "`agent.timeout_s` must be"),
        ({"agent": {"command": ["x"], "timeout_s": float("nan")}}, "`agent.timeout_s` must be a finite number"),
        ({"parameters": [{"required": True}]}, "`parameters[0].name` is missing"),
        ({"parameters": [{"name": "A"}, {"name": "A"}]}, "parameter 'A' is named twice"),
        ({"parameters": [{"name": "A=B"}]}, "holds '='"),
        ({"parameters": [{"name": "A", "required": "yes"}]}, "`parameters[0].required` must be true or false"),
        ({"parameters": [{"name": "A", "default": [SECRET]}]}, "value of 'A' must be text, a number, true or false"),
        ({"parameters": [{"name": "A", "default": 2**63}]}, "value of 'A' is a whole number beyond 64 bits"),
        ({"parameters": [{"name": "A", "default": float("inf")}]}, "value of A is not finite"),
        ({"parameters": [{"name": "A", "default": f"{SECRET}\0"}]}, "value of A holds a NUL"),
        ({"structured_result": f"/{SECRET}"}, "`structured_result` must be a path inside the trial's folder"),
        ({"structured_result": f"a/../../{SECRET}"}, "`structured_result` must be a path inside"),
        ({"structured_result": "."}, "`structured_result` must be a path inside"),
        ({"structured_result": f"..\\{SECRET}"}, "`structured_result` must be a path inside"),
        ({"outputs": ["*.txt", f"../{SECRET}"]}, "`outputs[1]` must be a path inside"),
        ({"outputs": [f"{SECRET}\n"]}, "`outputs[0]` must be a path inside"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_field_that_does_not_fit_is_named_and_its_value_is_not(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    """One sentence: the field, what to do; whatever stood there may be a secret in the wrong place."""
    sentence = refusal(write(tmp_path, WHOLE | changes))
    assert told in sentence
    assert SECRET not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not JSON"),
        (f'{{"name": "{SECRET}" "x"'.encode(), "is not JSON: Expecting ',' delimiter at line 1, column 30"),
        (b'["x"]', "is not a JSON object"),
        (f'{{"name": "a", "name": "{SECRET}"}}'.encode(), "has the key 'name' twice in one object"),
        (b'{"name": "\xff"}', "is not text in UTF-8"),
        (b'{"a":' * 50_000, "is nested too deeply"),
        (b'{"a":' + b"9" * 5_000 + b"}", "holds a number of more digits"),
        (b" " * (DOCUMENT_BYTES_MAX + 1), "is larger than 1,048,576 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    """Neither the sentence nor an error behind it holds what the file said."""
    sentence = refusal(write(tmp_path, content))
    assert told in sentence
    assert SECRET not in sentence


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    """Nothing there is not found; a folder, a fifo and a link in a circle are no files, and nothing hangs."""
    with pytest.raises(NotFound, match="give the path of an existing file"):
        read_runner(tmp_path / "nowhere.json")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "round"):
        with pytest.raises(BadInput):
            read_runner(path)
