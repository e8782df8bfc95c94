"""The JSON bodies that routes take, each with an example; every text and list has its limit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import ConfigDict, Field

from api.forms.document import checked_scalar
from api.forms.profile import PARAMETERS_MAX, checked_secret
from api.forms.runner import LIST_MAX, ParameterForm, RunnerForm, StepForm, runner_of
from api.http.bodies import Form
from api.revising import REGRADED_MAX, NewReward
from ledger.errors import BadInput
from ledger.facts.catalogue import RunnerPublished, Scalar
from ledger.facts.trial import ReportedFact
from ledger.rules.forms import NAME_CHARS_MAX, REASON_CHARS_MAX, TASK_NAME_CHARS_MAX, checked_ref
from ledger.rules.job import ATTEMPTS_MAX, TAGS_MAX

TASKS_MAX = 1_000_000
FACTS_MAX = 10_000
STREAMS_MAX = 500
JSON_DEPTH_OF_DATASET = 3
INT64_MAX = 2**63 - 1

SHA256_EXAMPLE = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"

Ref = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]
TaskName = Annotated[str, Field(min_length=1, max_length=TASK_NAME_CHARS_MAX)]
JobId = Annotated[str, Field(min_length=1, max_length=36)]
RequestId = Annotated[str, Field(min_length=1, max_length=200)]
Reason = Annotated[str, Field(max_length=REASON_CHARS_MAX)]
Token = Annotated[int, Field(ge=1, le=INT64_MAX)]
LeaseS = Annotated[float, Field(gt=0, le=86_400)]


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


class DatasetTask(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A task: its name, and the sha256 of its content in lower-case hex."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=TASK_NAME_CHARS_MAX)]
    digest: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]


class PublishDataset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dataset revision with its tasks in their order: `["add-1", "<sha256>"]`."""

    ref: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX, examples=["arith@1"])]
    runner: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX, examples=["script@1"])]
    tasks: Annotated[
        list[DatasetTask],
        msgspec.Meta(min_length=1, max_length=TASKS_MAX, examples=[[["add-1", SHA256_EXAMPLE]]]),
    ]
    digests: Literal["content", "by-name"] = "content"


class PublishRunner(Form):
    """A runner revision; `steps` of kind `command` run on the worker's machine."""

    model_config = _example(
        ref="script@1",
        kind="command",
        parameters=[{"name": "MODEL_NAME", "required": True}],
        agent={"command": ["python3", "agent.py"], "timeout_s": 600.0},
        verifier={"command": ["python3", "verify.py"], "timeout_s": 60.0},
    )

    ref: Ref
    kind: Literal["command", "external"]
    parameters: list[ParameterForm] = Field(default=[], max_length=LIST_MAX)
    agent: StepForm | None = None
    verifier: StepForm | None = None
    structured_result: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS_MAX)
    outputs: list[Annotated[str, Field(min_length=1)]] = Field(default=[], max_length=LIST_MAX)

    def runner(self) -> RunnerPublished:
        """The runner revision, checked as one from a file is. Raises BadInput."""
        name, _, version = checked_ref(self.ref).rpartition("@")
        fields = {field: getattr(self, field) for field in RunnerForm.model_fields if field in type(self).model_fields}
        form = RunnerForm(schema_version="evalledger.runner/v1", name=name, version=version, **fields)
        return runner_of(form, "the body")


class PublishProfile(Form):
    """A profile revision. The values of `secrets` are sealed outside the log and never shown again."""

    model_config = _example(
        ref="team/eval@1", params={"MODEL_NAME": "acme/m1"}, secrets={"MODEL_API_KEY": "not-a-real-key"}
    )

    ref: Ref
    params: dict[str, Any] = Field(default={}, max_length=PARAMETERS_MAX)
    secrets: dict[str, Any] = Field(default={}, max_length=PARAMETERS_MAX)

    def values(self) -> tuple[dict[str, Scalar], dict[str, str]]:
        """The plain values and the secret ones, each checked. Raises BadInput, naming the parameter and no value."""
        if both := sorted(self.params.keys() & self.secrets.keys()):
            raise BadInput(f"{len(both)} parameters stand in params and in secrets; give each in one of them.")
        return (
            {name: checked_scalar(name, value) for name, value in self.params.items()},
            {name: checked_secret(name, value) for name, value in self.secrets.items()},
        )


class SubmitJob(Form):
    """A job: k attempts at the tasks of a dataset revision, or at those named. `dry_run` writes nothing."""

    model_config = _example(
        dataset="arith@1", attempts=2, profile="team/eval@1", request_id="nightly-2026-07-01", tags={"branch": "main"}
    )

    dataset: Ref
    attempts: int = Field(default=1, ge=1, le=ATTEMPTS_MAX)
    profile: Ref | None = None
    tasks: list[TaskName] = Field(default=[], max_length=TASKS_MAX)
    request_id: RequestId | None = None
    tags: dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=500)]] = Field(
        default={}, max_length=TAGS_MAX
    )
    agent_run: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    agent_round: int | None = Field(default=None, ge=0, le=INT64_MAX)
    dry_run: bool = False


class CancelJob(Form):
    """Why a job is called off."""

    model_config = _example(reason="the wrong profile")

    reason: Reason = ""


class AskRetry(Form):
    """One more attempt at a task of a job, beyond those it asked for."""

    model_config = _example(task="add-1", reason="the sandbox was lost")

    task: TaskName
    reason: Reason
    request_id: RequestId | None = None


class AskStreams(Form):
    """The streams whose entries are wanted."""

    model_config = _example(streams=["dataset/arith@1", "job/6f1c2e5a-1f0e-5a53-9f6e-0d8f2a4b7c11"])

    streams: list[Annotated[str, Field(min_length=1, max_length=1_000)]] = Field(min_length=1, max_length=STREAMS_MAX)


class ClaimSlots(Form):
    """A worker asks for slots of one job, or of the jobs of one runner. With `slots` 0 it only looks about."""

    model_config = _example(worker="host-7/4211", slots=2, runner="script@1", lease_s=60.0)

    worker: Annotated[str, Field(min_length=1, max_length=200)]
    slots: int = Field(default=1, ge=0, le=1_000)
    job_id: JobId | None = None
    runner: Ref | None = None
    lease_s: LeaseS = 60.0
    request_id: RequestId | None = None


class DispatchSlot(Form):
    """One slot is given out by its name, without a lease."""

    model_config = _example(job_id="6f1c2e5a-1f0e-5a53-9f6e-0d8f2a4b7c11", task="add-1", attempt=1)

    job_id: JobId
    task: TaskName
    attempt: int = Field(ge=1, le=1_000_000)
    request_id: RequestId | None = None


class Beat(Form):
    """A worker is still at work on a trial."""

    model_config = _example(token=1, lease_s=60.0)

    token: Token
    lease_s: LeaseS = 60.0


class Holding(Form):
    """The fencing token of a claim."""

    model_config = _example(token=1)

    token: Token


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts about a trial, in any order and as often as needed, under the fencing token of its claim."""

    token: Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX, examples=[1])]
    facts: Annotated[
        list[ReportedFact],
        msgspec.Meta(
            min_length=1,
            max_length=FACTS_MAX,
            examples=[[{"fact": "reward-recorded", "reward": 1.0}, {"fact": "trial-succeeded", "exit_code": 0}]],
        ),
    ]


class Rebuild(Form):
    """The read models to build again; all of them when none is named."""

    model_config = _example(names=["job_metrics"])

    names: list[Annotated[str, Field(max_length=100)]] = Field(default=[], max_length=100)


class Revise(Form):
    """A reward of a later grading."""

    model_config = _example(reward=1.0, verifier="judge@2", reason="The first verifier could not read the file.")

    reward: float
    verifier: Annotated[str, Field(min_length=1, max_length=200)]
    reason: Annotated[str, Field(min_length=1, max_length=REASON_CHARS_MAX)]


class Regrade(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rewards of a later grading, each named by its task and attempt."""

    rewards: Annotated[
        list[NewReward],
        msgspec.Meta(min_length=1, max_length=REGRADED_MAX, examples=[[{"task": "add-1", "attempt": 1, "reward": 1}]]),
    ]
    verifier: Annotated[str, msgspec.Meta(min_length=1, max_length=200, examples=["judge@2"])]
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_CHARS_MAX, examples=["A new rubric."])]
