"""A job: its manifest is frozen at submission, its key is kept for good, and it ends once."""

import math
from typing import Any

import pytest

from ledger.errors import BadInput, Conflict, NotAllowed, NotFound
from ledger.facts.catalogue import Parameter, ProfilePublished, RunnerPublished, Task
from ledger.facts.job import (
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobMembersSelected,
    JobOriginSealed,
    JobRetryRequested,
    Origin,
    is_job_id,
    job_id_for,
)
from ledger.rules.job import (
    cancel_job,
    effective_parameters,
    fail_job,
    finish_job,
    request_retry,
    seal_origin,
    submit_job,
)
from tests.given import SHA_A, SHA_B, given, manifest

TASK, OTHER = Task("add-1", SHA_A), Task("add-2", SHA_B)
WHOLE = manifest(request_id="r1", parameters={"n": 1})
PART = manifest((TASK,), request_id="r1", subset=True)


def test_a_job_on_a_whole_dataset_is_its_manifest() -> None:
    """The members of a whole dataset are not written again."""
    given().when(submit_job, manifest=WHOLE).then(WHOLE)


def test_a_job_on_a_part_names_its_members_first() -> None:
    """The seal comes after what it seals."""
    given().when(submit_job, manifest=PART, selected=[TASK]).then(JobMembersSelected((TASK,)), PART)


def test_the_same_request_again_is_nothing_new() -> None:
    """A repeat of a submission writes nothing, also after the job has ended."""
    given(WHOLE).when(submit_job, manifest=WHOLE).then()
    given(WHOLE, JobCompleted()).when(submit_job, manifest=WHOLE).then()
    given(JobMembersSelected((TASK,)), PART).when(submit_job, manifest=PART, selected=[TASK]).then()


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"attempts": 3}, ["attempts"]),
        ({"dataset": "arith@2", "tags": {"a": "b"}}, ["dataset", "tags"]),
        ({"parameters": {"n": True}}, ["parameters"]),
        ({"parameters": {"n": 1.0}}, ["parameters"]),
    ],
)
def test_the_same_key_with_other_content_is_refused(changes: dict[str, Any], differs: list[str]) -> None:
    """One request id is one job for good; what differs is named."""
    asked = manifest(**({"request_id": "r1", "parameters": {"n": 1}} | changes))
    given(WHOLE).when(submit_job, manifest=asked).refused(Conflict, "new request id", differs)


def test_other_members_under_the_same_key_are_refused() -> None:
    """Also when the manifest itself is the same."""
    given(JobMembersSelected((TASK,)), PART).when(submit_job, manifest=PART, selected=[OTHER]).refused(
        Conflict, "new request id", ["members"]
    )


@pytest.mark.parametrize(
    ("fields", "saying"),
    [
        ({"attempts": 0}, "1 to 1,000"),
        ({"attempts": 1_001}, "1 to 1,000"),
        ({"request_id": ""}, "empty"),
        ({"request_id": "a\nb"}, "control character"),
        ({"agent_run": "x" * 201}, "200"),
        ({"tags": {str(i): "" for i in range(101)}}, "100 tags"),
        ({"tags": {"": "x"}}, "empty"),
        ({"tags": {"a": "x" * 501}}, "500"),
        ({"parameters": {"t": math.nan}}, "not finite"),
        ({"origin": Origin("import", as_reported={"score": math.inf})}, "not finite"),
    ],
)
def test_a_job_has_the_right_form(fields: dict[str, Any], saying: str) -> None:
    """Everything has a limit, and no number that is not finite comes in by any door, imports included."""
    given().when(submit_job, manifest=manifest(**fields)).refused(BadInput, saying)


def test_a_job_has_members() -> None:
    """A job that measures nothing is refused."""
    empty = manifest((TASK,))
    given().when(submit_job, manifest=type(empty)(empty.job_id, "a@1", "r@1", 1, 0, SHA_A)).refused(BadInput, "member")


def test_only_what_the_runner_reads_takes_effect() -> None:
    """Values, secrets and defaults that the runner reads; names that it does not are listed, not passed on."""
    runner = RunnerPublished(
        "r@1",
        "external",
        (Parameter("model", True), Parameter("KEY", True), Parameter("t", False, 0.5), Parameter("x")),
    )
    profile = ProfilePublished("p@1", {"model": "m", "zzz": 1}, {"KEY": "f", "AAA": "g"})
    found = effective_parameters(runner, profile)
    assert found == ({"model": "m", "t": 0.5}, {"KEY": "f"}, ("AAA", "zzz"))


def test_a_required_parameter_without_a_value_is_refused() -> None:
    """All absent ones are named at once."""
    runner = RunnerPublished("r@1", "external", (Parameter("model", True), Parameter("key", True)))
    with pytest.raises(BadInput, match="requires model, key"):
        effective_parameters(runner, None)


def test_a_retry_is_an_attempt_beyond_k() -> None:
    """The first free number above k: never one of the k, never one that was asked for or dispatched already."""
    third = JobRetryRequested(TASK, 3, "lost")
    given(WHOLE).when(request_retry, task=TASK, attempt_min=1, reason="lost").then(third)
    given(WHOLE, third).when(request_retry, task=TASK, attempt_min=1, reason="again").then(
        JobRetryRequested(TASK, 4, "again")
    )
    given(WHOLE, third).when(request_retry, task=OTHER, attempt_min=7, reason="x").then(
        JobRetryRequested(OTHER, 7, "x")
    )
    given(WHOLE, JobFailed(1)).when(request_retry, task=TASK, attempt_min=1, reason="lost").then(third)


@pytest.mark.parametrize("ended", [JobCanceled(), JobFailed(error_type="SandboxGone")])
def test_a_job_that_will_not_run_is_not_retried(ended: Any) -> None:
    """Called off, or could not run at all: another attempt would wait for ever."""
    given(WHOLE, ended).when(request_retry, task=TASK, attempt_min=1, reason="x").refused(NotAllowed, "new request id")


def test_an_imported_job_is_not_retried() -> None:
    """Nobody here runs it."""
    imported = manifest(origin=Origin("import"))
    given(imported).when(request_retry, task=TASK, attempt_min=1, reason="x").refused(NotAllowed, "imported")


def test_an_origin_is_sealed_once() -> None:
    """A followed import says at its end what it was made of; a repeat is nothing new, another content is refused."""
    growing, whole = manifest(origin=Origin("import")), Origin("import", sources=SHA_A, as_reported={"mean": 0.5})
    sealed = JobOriginSealed("r2", whole)
    given(growing).when(seal_origin, request_id="r2", origin=whole).then(sealed)
    given(growing, JobCanceled()).when(seal_origin, request_id="r2", origin=whole).then(sealed)
    given(growing, sealed).when(seal_origin, request_id="r2", origin=whole).then()
    given(growing, sealed).when(seal_origin, request_id="r3", origin=whole).refused(Conflict, "sealed already")
    given(WHOLE).when(seal_origin, request_id="r2", origin=whole).refused(NotAllowed, "not imported")
    infinite = Origin("import", as_reported={"mean": math.inf})
    given(growing).when(seal_origin, request_id="r2", origin=infinite).refused(BadInput, "not finite")


def test_a_retry_has_a_reason() -> None:
    """An attempt beyond what was asked for has to be explained later."""
    given(WHOLE).when(request_retry, task=TASK, attempt_min=1, reason="").refused(BadInput, "reason")


def test_a_job_ends_as_its_trials_did() -> None:
    """Failed if any trial failed, else completed; it ends once, and a repeat is nothing new."""
    given(WHOLE).when(finish_job, failed_trials=0).then(JobCompleted())
    given(WHOLE).when(finish_job, failed_trials=2).then(JobFailed(2))
    for ended in (JobCompleted(), JobFailed(2), JobCanceled()):
        given(WHOLE, ended).when(finish_job, failed_trials=0).then()
        given(WHOLE, ended).when(fail_job, error_type="Gone").then()


def test_a_job_that_could_not_run_has_failed() -> None:
    """Without a failed trial: the error type says why."""
    given(WHOLE).when(fail_job, error_type="SandboxGone").then(JobFailed(error_type="SandboxGone"))


def test_a_job_is_called_off_once() -> None:
    """A repeat is nothing new; what has ended otherwise stays as it ended."""
    given(WHOLE).when(cancel_job, reason="too dear").then(JobCanceled("too dear"))
    given(WHOLE, JobCanceled()).when(cancel_job, reason="other").then()
    given(WHOLE, JobCompleted()).when(cancel_job, reason="").refused(NotAllowed, "completed already")
    given(WHOLE, JobFailed(1)).when(cancel_job, reason="").refused(NotAllowed, "failed already")
    given(WHOLE).when(cancel_job, reason="x" * 501).refused(BadInput, "500")


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        (cancel_job, {"reason": ""}),
        (finish_job, {"failed_trials": 0}),
        (fail_job, {"error_type": "x"}),
        (request_retry, {"task": TASK, "attempt_min": 1, "reason": "x"}),
        (seal_origin, {"request_id": "r", "origin": Origin("import")}),
    ],
)
def test_nothing_happens_to_a_job_that_is_not_there(rule: Any, arguments: dict[str, Any]) -> None:
    """Neither without a stream, nor with members whose manifest never came."""
    given().when(rule, **arguments).refused(NotFound, "no such job")
    given(JobMembersSelected((TASK,))).when(rule, **arguments).refused(NotFound, "no such job")


def test_the_key_names_the_job() -> None:
    """The same request id in the same project is the same job; in another project, another."""
    assert job_id_for("p", "r") == job_id_for("p", "r")
    assert len({job_id_for("p", "r"), job_id_for("q", "r"), job_id_for("p", "s")}) == 3
    assert is_job_id(job_id_for("p", "名/r"))
    assert not is_job_id("x")
    assert not is_job_id(job_id_for("p", "r").upper())
