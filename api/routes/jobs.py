"""Jobs: submitted, listed, read with their results, called off, given an attempt more."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, Response

from api.answers import JobAnswer, JobList, Published, Regraded, ResultAnswer, Submitted, TaskPage
from api.http.answering import answer
from api.http.bodies import strict
from api.http.calls import List, Read, Write
from api.http.routes import Routes
from api.pages import RetryAsked, TrialPage
from api.routes.bodies import AskRetry, CancelJob, Regrade, SubmitJob
from api.routes.queries import AsOfQ, BeforePosition, JobPath, LeftOut, Limit, RefQ, TextQ, tags_of
from api.shaping import trial_answer
from ledger.facts.job import Origin
from ledger.facts.trial import Slot
from projections.explaining import Explanation

SUBMIT_BYTES_MAX = 64 << 20
REGRADE_BYTES_MAX = 64 << 20

routes = Routes("jobs")

Status = Literal["submitted", "running", "completed", "failed", "canceled"]
TagQ = Annotated[
    list[Annotated[str, Query(max_length=601)]], Query(max_length=20, description="NAME=VALUE; all must fit.")
]


@routes.post(
    "/jobs",
    scope="submit",
    answers=Submitted,
    statuses={201: "It is submitted.", 200: "The same request had submitted it before, or it is a dry run."},
    body_bytes_max=SUBMIT_BYTES_MAX,
)
def submit_job(call: Write, body: Annotated[SubmitJob, strict(SubmitJob)]) -> Response:
    """Submit a job. The same request id again gives the same job; other content under it is refused."""
    done = call.client.submit_job(
        body.dataset,
        attempts=body.attempts,
        profile=body.profile,
        tasks=body.tasks,
        request_id=call.request_id(body.request_id),
        tags=body.tags,
        agent_run=body.agent_run,
        agent_round=body.agent_round,
        origin=Origin("api"),
        dry_run=body.dry_run,
    )
    status = 201 if done.outcome == "written" else 200
    return answer(call, done, status=status, position=done.position, location=f"/jobs/{done.id}")


@routes.get("/jobs", scope="read", answers=JobList, cursor=True)
def jobs(
    call: List,
    status: Status | None = None,
    dataset: RefQ = None,
    profile: RefQ = None,
    model: TextQ = None,
    agent_run: TextQ = None,
    tag: TagQ = [],  # noqa: B006 - FastAPI copies it
    before: BeforePosition = None,
    limit: Limit = 100,
) -> Response:
    """List jobs, the newest first."""
    listed = call.client.jobs(
        status=status,
        dataset=dataset,
        profile=profile,
        model=model,
        agent_run=agent_run,
        tags=tags_of(tag),
        before=call.after(int) or before,
        limit=limit,
    )
    following = listed.jobs[-1].position if len(listed.jobs) == limit else None
    return answer(call, listed, next=following)


@routes.get("/jobs/{job_id}", scope="read", answers=JobAnswer)
def job(call: Read, job_id: JobPath, as_of: AsOfQ = None) -> Response:
    """Read a job as it stands, or stood."""
    return answer(call, call.client.job(job_id, as_of=as_of))


@routes.get("/jobs/{job_id}/trials", scope="read", answers=TrialPage, cursor=True)
def trials(
    call: List,
    job_id: JobPath,
    after_attempt: Annotated[int, Query(ge=0, le=1_000_000, description="With `after_task`: only after it.")] = 0,
    after_task: TextQ = None,
    limit: Limit = 100,
) -> Response:
    """List the trials of a job by attempt, then task."""
    attempt, task = call.after(tuple[int, str]) or (after_attempt, after_task or "")
    job_id = call.client.job(job_id).id
    rows = call.client.trials(job_id, after=Slot(job_id, attempt, task), limit=limit)
    following = (rows[-1].attempt, rows[-1].task) if len(rows) == limit else None
    return answer(call, TrialPage([trial_answer(row) for row in rows], call.client.as_of), next=following)


@routes.get("/jobs/{job_id}/tasks", scope="read", answers=TaskPage, cursor=True)
def tasks(call: List, job_id: JobPath, after: LeftOut = 0, limit: Limit = 20) -> Response:
    """List the members of a job with their attempts."""
    page = call.client.job_tasks(job_id, after=call.after(int) or after, limit=limit)
    return answer(call, page, next=page.after + len(page.tasks) if page.more else None)


@routes.get("/jobs/{job_id}/result", scope="read", answers=ResultAnswer)
def result(
    call: Read,
    job_id: JobPath,
    tasks_after: LeftOut = 0,
    tasks_limit: Annotated[int, Query(ge=0, le=1_000, description="How many tasks at the most.")] = 20,
    policy: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
    as_of: AsOfQ = None,
) -> Response:
    """Read a job's result: coverage, metrics, a page of its tasks, where rewards were lost."""
    page = {"tasks_after": tasks_after, "tasks_limit": tasks_limit}
    return answer(call, call.client.result(job_id, **page, policy=policy, as_of=as_of))


@routes.get("/jobs/{job_id}/explain", scope="read", answers=Explanation)
def explain(
    call: Read,
    job_id: JobPath,
    metric: Annotated[str, Query(max_length=100, description="Which number.", examples=["pass^2"])] = "score",
    task: TextQ = None,
    after: LeftOut = 0,
    limit: Limit = 20,
    as_of: AsOfQ = None,
) -> Response:
    """Take a number apart: formula, denominator, members counted and left out, their trials and entries."""
    return answer(call, call.client.explain(job_id, metric=metric, task=task, after=after, limit=limit, as_of=as_of))


@routes.post("/jobs/{job_id}/cancel", scope="submit", answers=Published)
def cancel_job(call: Write, job_id: JobPath, body: Annotated[CancelJob, strict(CancelJob)]) -> Response:
    """Call a job off; what waits is never dispatched."""
    done = call.client.cancel_job(job_id, reason=body.reason)
    return answer(call, done, position=done.position)


@routes.post("/jobs/{job_id}/revisions", scope="report", answers=Regraded, body_bytes_max=REGRADE_BYTES_MAX)
def regrade(call: Write, job_id: JobPath, body: Annotated[Regrade, strict(Regrade)]) -> Response:
    """Correct rewards of a job from a new run of a verifier, all or none; the first ones stay in the log."""
    done = call.client.regrade(job_id, body.rewards, verifier=body.verifier, reason=body.reason)
    return answer(call, done, position=done.position)


@routes.post("/jobs/{job_id}/retries", scope="submit", answers=RetryAsked, statuses={201: "It is asked for."})
def retry(call: Write, job_id: JobPath, body: Annotated[AskRetry, strict(AskRetry)]) -> Response:
    """Ask for one more attempt at a task, beyond the k requested."""
    slot = call.client.retry(job_id, body.task, reason=body.reason, request_id=call.request_id(body.request_id))
    done = RetryAsked(*slot, position=call.client.head().entries)
    return answer(call, done, status=201, position=done.position)
