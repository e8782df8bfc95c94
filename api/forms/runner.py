"""A runner file (`evalledger.runner/v1`): how tasks are executed, which parameters that reads, what it leaves."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field

from api.forms.document import Form, checked_scalar, read_document, shown_name
from ledger.errors import BadInput
from ledger.facts.catalogue import Parameter, RunnerPublished, Step
from ledger.rules.catalogue import check_parameter
from ledger.rules.forms import checked_ref

NOUN = "runner file"
TIMEOUT_S_MAX = 86_400 * 7
LIST_MAX = 1_000
PATH_CHARS_MAX = 512

Text = Annotated[str, Field(min_length=1)]


class ParameterForm(Form):
    """A parameter that the runner reads. `default` is text, a number, true or false."""

    name: Text
    required: bool = False
    default: Any = None


class StepForm(Form):
    """A process: its argument vector, and how long it may take, in seconds."""

    command: list[Text] = Field(min_length=1, max_length=LIST_MAX)
    timeout_s: float = Field(default=600.0, gt=0, le=TIMEOUT_S_MAX, allow_inf_nan=False)


class RunnerForm(Form):
    """A runner file. `structured_result` and `outputs` are paths below the folders of a trial."""

    schema_version: Literal["evalledger.runner/v1"]
    name: Text
    version: Text
    kind: Literal["command", "external"]
    parameters: list[ParameterForm] = Field(default=[], max_length=LIST_MAX)
    agent: StepForm | None = None
    verifier: StepForm | None = None
    structured_result: Text | None = None
    outputs: list[Text] = Field(default=[], max_length=LIST_MAX)


def read_runner(path: Path) -> RunnerPublished:
    """The runner revision that a file describes, ready to publish.

    Raises:
        NotFound: there is no file at `path`.
        BadInput: the file does not fit; the sentence names the field and shows no value.
    """
    return runner_of(read_document(path, RunnerForm, noun=NOUN), f"the {NOUN} {path}")


def runner_of(form: RunnerForm, where: str) -> RunnerPublished:
    """The runner revision that a form describes; `where` it stands is said in a refusal.

    Raises:
        BadInput: the form contradicts itself; the sentence names the field and shows no value.
    """
    steps = {"agent": _step("agent", form.agent), "verifier": _step("verifier", form.verifier)}
    for field, step in steps.items():
        if form.kind == "command" and step is None:
            raise BadInput(f"`{field}` is missing in {where}; a runner of kind command needs it.")
        if form.kind == "external" and step is not None:
            raise BadInput(
                f"`{field}` has no place in {where}: a runner of kind external runs nothing here; "
                "take it out, or set kind to command."
            )
    return RunnerPublished(
        ref=checked_ref(f"{form.name}@{form.version}"),
        kind=form.kind,
        parameters=_parameters(form.parameters),
        agent=steps["agent"],
        verifier=steps["verifier"],
        structured_result=_below("structured_result", form.structured_result) if form.structured_result else None,
        outputs=tuple(_below(f"outputs[{number}]", pattern) for number, pattern in enumerate(form.outputs)),
    )


def _parameters(forms: list[ParameterForm]) -> tuple[Parameter, ...]:
    names: set[str] = set()
    parameters: list[Parameter] = []
    for form in forms:
        check_parameter(form.name, None)
        if form.name in names:
            raise BadInput(f"The parameter {shown_name(form.name)} is named twice; keep one of them.")
        names.add(form.name)
        default = None if form.default is None else checked_scalar(form.name, form.default)
        parameters.append(Parameter(form.name, form.required, default))
    return tuple(parameters)


def _step(field: str, form: StepForm | None) -> Step | None:
    if form is None:
        return None
    for number, argument in enumerate(form.command):
        if "\0" in argument:
            raise BadInput(f"`{field}.command[{number}]` holds a NUL; take it out.")
    return Step(tuple(form.command), form.timeout_s)


def _below(field: str, path: str) -> str:
    """A path or pattern as it is, when it cannot lead out of the folder it is meant for."""
    parts = PurePosixPath(path).parts
    leads_out = not parts or parts[0] == "/" or ".." in parts or "\\" in path
    if leads_out or not path.isprintable() or len(path) > PATH_CHARS_MAX:
        raise BadInput(
            f"`{field}` must be a path inside the trial's folder: relative, with '/' between names, without '..', "
            f"of at most {PATH_CHARS_MAX} printable characters."
        )
    return path
