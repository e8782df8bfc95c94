"""The catalogue and the project: a published revision never changes, and a repeat is harmless."""

import math
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from ledger import codec
from ledger.errors import BadInput, Conflict
from ledger.facts.access import ProjectCreated
from ledger.facts.catalogue import (
    DatasetMembersAdded,
    DatasetPublished,
    Parameter,
    ProfilePublished,
    RunnerPublished,
    Step,
    Task,
)
from ledger.rules.access import create_project
from ledger.rules.catalogue import publish_dataset, publish_profile, publish_runner, tasks_in_entries
from tests.given import NASTY_NAMES, SHA_A, SHA_B, SHA_C, entry, given

TASKS = (Task("add-1", SHA_A), Task("add-2", SHA_B))
ADDED = DatasetMembersAdded(TASKS)
SEAL = DatasetPublished("arith@1", "shell@1", 2, SHA_C)
ARITH: dict[str, Any] = {"ref": "arith@1", "tasks": TASKS, "runner": "shell@1", "members_digest": SHA_C}
STEP = Step(("sh", "run.sh"))
SHELL = RunnerPublished("shell@1", "command", (Parameter("model", True), Parameter("n", False, 1)), STEP, STEP)
GPT = ProfilePublished("gpt@1", {"model": "gpt-5", "n": 1}, {"KEY": "hmac:1"})


def test_a_project_is_created_once() -> None:
    """Creating a project that is there leaves it as it is."""
    given().when(create_project, name="default").then(ProjectCreated("default"))
    given(ProjectCreated("default")).when(create_project, name="default").then()


@pytest.mark.parametrize("name", ["", "A", "-a", "a/b", "a\n", "é", "a" * 64, "a b", ".."])
def test_a_project_has_a_plain_name(name: str) -> None:
    """A project's name stands in paths and addresses: nothing in it needs an escape."""
    given().when(create_project, name=name).refused(BadInput, "no project name")


def test_a_dataset_is_published_whole() -> None:
    """Its tasks in their order, then the seal."""
    given().when(publish_dataset, **ARITH).then(ADDED, SEAL)


def test_a_dataset_published_again_is_nothing_new() -> None:
    """The same revision with the same content is harmless."""
    given(ADDED, SEAL).when(publish_dataset, **ARITH).then()


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"tasks": TASKS[:1], "members_digest": SHA_A}, ["task 'add-2' is no longer there"]),
        ({"tasks": (*TASKS, Task("new", SHA_A)), "members_digest": SHA_A}, ["task 'new' is new"]),
        ({"tasks": (TASKS[0], Task("add-2", SHA_C)), "members_digest": SHA_A}, ["task 'add-2' has other content"]),
        ({"tasks": TASKS[::-1], "members_digest": SHA_A}, ["the tasks stand in another order"]),
        ({"runner": "shell@2"}, ["the runner is shell@1, not shell@2"]),
        ({"digests": "by-name"}, ["its digests are content, not by-name"]),
    ],
)
def test_a_published_dataset_never_changes(changes: dict[str, Any], differs: list[str]) -> None:
    """Other content under the same name and version is refused, and what differs is named."""
    given(ADDED, SEAL).when(publish_dataset, **(ARITH | changes)).refused(Conflict, "new version", differs)


def test_only_the_first_ten_differences_are_named() -> None:
    """A dataset that shares nothing with the published one does not fill the screen."""
    tasks = tuple(Task(f"t{i}", SHA_A) for i in range(20))
    asked = given(ADDED, SEAL).when(publish_dataset, **(ARITH | {"tasks": tasks, "members_digest": SHA_A}))
    asked.refused(Conflict)
    assert isinstance(asked.error, Conflict)
    assert len(asked.error.differs) == 11
    assert asked.error.differs[-1] == "and 12 more"


@pytest.mark.parametrize(
    ("changes", "saying"),
    [
        ({"tasks": ()}, "has no task"),
        ({"tasks": (TASKS[0], TASKS[0])}, "twice"),
        ({"tasks": (Task("", SHA_A),)}, "empty"),
        ({"tasks": (Task("a\0b", SHA_A),)}, "control character"),
        ({"tasks": (Task("a\nb", SHA_A),)}, "control character"),
        ({"tasks": (Task("\ud800", SHA_A),)}, "lone surrogate"),
        ({"tasks": (Task("n" * 513, SHA_A),)}, "512"),
        ({"tasks": (Task("a", SHA_A.upper()),)}, "no sha256"),
        ({"tasks": (Task("a", SHA_A + "\n"),)}, "no sha256"),
        ({"ref": "arith"}, "NAME@VERSION"),
        ({"ref": "a/b/c@1"}, "NAME@VERSION"),
        ({"ref": "../x@1"}, "NAME@VERSION"),
        ({"ref": "a@1\n"}, "NAME@VERSION"),
        ({"ref": "a" * 200 + "@1"}, "NAME@VERSION"),
        ({"runner": "@1"}, "NAME@VERSION"),
    ],
)
def test_a_dataset_has_the_right_form(changes: dict[str, Any], saying: str) -> None:
    """Names, digests and references that could not be kept, shown or told apart are refused."""
    given().when(publish_dataset, **(ARITH | changes)).refused(BadInput, saying)


def test_nasty_names_are_task_names_as_they_are() -> None:
    """Slashes, spaces, quotes, other scripts: a task's name is text, not a path."""
    tasks = tuple(Task(name, SHA_A) for name in NASTY_NAMES)
    given().when(publish_dataset, **(ARITH | {"tasks": tasks})).then(
        DatasetMembersAdded(tasks), DatasetPublished("arith@1", "shell@1", len(tasks), SHA_C)
    )


@settings(max_examples=25)
@for_all(st.lists(st.text(st.sampled_from('a"\\é🙂'), min_size=1, max_size=512), max_size=5), st.integers(1, 400))
def test_a_dataset_of_any_size_fits_its_entries(names: list[str], repeats: int) -> None:
    """Tasks are split in their order, and each run fits an entry with room for the envelope, whatever its names."""
    tasks = [Task(name, SHA_A) for name in names * repeats]
    runs = tasks_in_entries(tasks)
    assert [task for run in runs for task in run] == tasks
    stream = "dataset/" + "n" * 200
    codec.encode([entry(DatasetMembersAdded(run), stream, 10**9, actor="a" * 500) for run in runs])


def test_a_runner_is_published_once() -> None:
    """The same runner again is nothing new."""
    given().when(publish_runner, runner=SHELL).then(SHELL)
    given(SHELL).when(publish_runner, runner=SHELL).then()
    outside = RunnerPublished("harbor@unknown", "external")
    given().when(publish_runner, runner=outside).then(outside)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (RunnerPublished("shell@1", "command", SHELL.parameters, Step(("bash",)), STEP), ["agent"]),
        (RunnerPublished("shell@1", "external"), ["kind", "parameters", "agent", "verifier"]),
        (RunnerPublished("shell@1", "command", (Parameter("model", True),), STEP, STEP), ["parameters"]),
        (
            RunnerPublished("shell@1", "command", (Parameter("model", True), Parameter("n", False, True)), STEP, STEP),
            ["parameters"],
        ),
    ],
)
def test_a_published_runner_never_changes(other: RunnerPublished, differs: list[str]) -> None:
    """Other content is refused; a default of 1 is not a default of true, although Python calls them equal."""
    given(SHELL).when(publish_runner, runner=other).refused(Conflict, "new version", differs)


@pytest.mark.parametrize(
    ("runner", "saying"),
    [
        (RunnerPublished("shell", "external"), "NAME@VERSION"),
        (RunnerPublished("s@1", "command", agent=STEP), "needs an agent and a verifier"),
        (RunnerPublished("s@1", "command", agent=Step(()), verifier=STEP), "needs a command"),
        (RunnerPublished("s@1", "command", agent=Step(("",)), verifier=STEP), "needs a command"),
        (RunnerPublished("s@1", "command", agent=STEP, verifier=Step(("x",), 0)), "timeout"),
        (RunnerPublished("s@1", "command", agent=STEP, verifier=Step(("x",), math.nan)), "timeout"),
        (RunnerPublished("s@1", "command", agent=STEP, verifier=Step(("x",), math.inf)), "timeout"),
        (RunnerPublished("s@1", "external", (Parameter("a"), Parameter("a"))), "twice"),
        (RunnerPublished("s@1", "external", (Parameter("a=b"),)), "'='"),
        (RunnerPublished("s@1", "external", (Parameter(""),)), "empty"),
        (RunnerPublished("s@1", "external", (Parameter("a", default=math.nan),)), "not finite"),
        (RunnerPublished("s@1", "external", (Parameter("a", default="x\0"),)), "NUL"),
    ],
)
def test_a_runner_has_the_right_form(runner: RunnerPublished, saying: str) -> None:
    """A runner that could not run, or whose parameters could not be handed over, is refused."""
    given().when(publish_runner, runner=runner).refused(BadInput, saying)


def test_a_profile_is_published_once() -> None:
    """The same values, and secrets of the same fingerprint, are nothing new."""
    given().when(publish_profile, profile=GPT).then(GPT)
    given(GPT).when(publish_profile, profile=GPT).then()


@pytest.mark.parametrize(
    ("params", "secrets", "differs"),
    [
        ({"model": "gpt-6", "n": 1}, GPT.secrets, ["params.model"]),
        ({"model": "gpt-5", "n": True}, GPT.secrets, ["params.n"]),
        ({"model": "gpt-5", "n": 1.0}, GPT.secrets, ["params.n"]),
        ({"model": "gpt-5"}, GPT.secrets, ["params.n"]),
        (GPT.params, {"KEY": "hmac:2"}, ["secrets.KEY"]),
        (GPT.params, {"OTHER": "hmac:1"}, ["secrets.KEY", "secrets.OTHER"]),
    ],
)
def test_a_published_profile_never_changes(params: Any, secrets: Any, differs: list[str]) -> None:
    """What differs is told by name, never by value: a value may be something nobody should read."""
    asked = given(GPT).when(publish_profile, profile=ProfilePublished("gpt@1", params, secrets))
    asked.refused(Conflict, "new version", differs)
    assert "hmac" not in str(asked.error)
    assert "gpt-5" not in str(asked.error)


@pytest.mark.parametrize(
    ("params", "secrets", "saying"),
    [
        ({"t": math.inf}, {}, "not finite"),
        ({"t": math.nan}, {}, "not finite"),
        ({"a=b": 1}, {}, "'='"),
        ({"": 1}, {}, "empty"),
        ({"t": "x" * 4_001}, {}, "4,000"),
        ({"t": "a\0b"}, {}, "NUL"),
        ({}, {"a=b": "hmac:1"}, "'='"),
        ({}, {"a\nb": "hmac:1"}, "control character"),
    ],
)
def test_a_profile_has_the_right_form(params: Any, secrets: Any, saying: str) -> None:
    """Values that no runner could be handed are refused."""
    given().when(publish_profile, profile=ProfilePublished("gpt@1", params, secrets)).refused(BadInput, saying)
