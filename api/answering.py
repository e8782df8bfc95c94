"""Answers about jobs, each from one look at the read models, saying the position `as_of` that it was made at."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.engine import Connection

from api.answers import JobAnswer, JobList, ResultAnswer, TaskPage, TaskResult
from api.shaping import job_answer, result_answer
from api.under_policy import answer_under
from ledger.facts.job import is_job_id
from ledger.recorder import ProjectRecorder
from projections import job_metrics, jobs, trials
from projections.explaining import Explanation, explain
from projections.jobs import JobRow
from projections.policies import policy_named

LOST_SHOWN = 5


def list_jobs(
    connection: Connection,
    as_of: int,
    *,
    project: str,
    wanted: Mapping[str, str | None],
    tags: Mapping[str, str],
    before: int | None,
    limit: int,
) -> JobList:
    """Jobs, the newest first."""
    rows = jobs.list_jobs(connection, project, **wanted, tags=tags, before=before, limit=limit)
    endings = job_metrics.endings_of(connection, project, [row.job_id for row in rows])
    return JobList([job_answer(row, endings[row.job_id], as_of) for row in rows], as_of)


def get_job(connection: Connection, as_of: int, *, project: str, job_id: str) -> JobAnswer:
    """A job as it stands."""
    row = jobs.get_job(connection, project, whole_id(connection, project, job_id))
    return job_answer(row, job_metrics.endings_of(connection, project, [row.job_id])[row.job_id], as_of)


def get_result(
    connection: Connection,
    as_of: int,
    *,
    project: str,
    job_id: str,
    tasks_after: int,
    tasks_limit: int,
    policy: str | None,
) -> ResultAnswer:
    """A job's result with a page of its tasks, and the numbers under a policy where one is named."""
    rule = None if policy is None else policy_named(policy)
    row = jobs.get_job(connection, project, whole_id(connection, project, job_id))
    measured = job_metrics.result_of(connection, project, row.job_id)
    tasks, more = _tasks(connection, project, row, after=tasks_after, limit=tasks_limit)
    lost = trials.unscored(connection, project, row.job_id, limit=LOST_SHOWN) if measured.lost else []
    corrected = trials.count_revised(connection, project, row.job_id)
    revised = trials.revised(connection, project, row.job_id, [task.task for task in tasks]) if corrected else []
    under = None if rule is None else answer_under(connection, project, row, rule)
    return result_answer(
        row,
        measured,
        tasks,
        lost,
        under,
        tasks_after=tasks_after,
        tasks_more=more,
        revised=revised,
        revised_total=corrected,
        as_of=as_of,
    )


def get_explanation(
    connection: Connection,
    as_of: int,
    *,
    recorder: ProjectRecorder,
    job_id: str,
    metric: str,
    task: str | None,
    after: int,
    limit: int,
) -> Explanation:
    """A number of a job, taken apart."""
    row = jobs.get_job(connection, recorder.project_id, job_id)
    return explain(connection, recorder, row, metric=metric, as_of=as_of, task=task, after=after, limit=limit)


def get_tasks(connection: Connection, as_of: int, *, project: str, job_id: str, after: int, limit: int) -> TaskPage:
    """A page of a job's members with their attempts."""
    row = jobs.get_job(connection, project, whole_id(connection, project, job_id))
    tasks, more = _tasks(connection, project, row, after=after, limit=limit)
    return TaskPage(tasks, after, more, as_of)


def whole_id(connection: Connection, project: str, text: str) -> str:
    """The id of the one job that a text names: a whole id, or the beginning of one."""
    return text if is_job_id(text) else jobs.find_job_id(connection, project, text)


def _tasks(
    connection: Connection, project: str, row: JobRow, *, after: int, limit: int
) -> tuple[list[TaskResult], bool]:
    """So many members after the first `after`, and whether there are further ones."""
    names = jobs.list_members(connection, project, row.manifest, after=after, limit=limit + 1)
    shown = names[:limit]
    attempts = job_metrics.attempts_of(connection, project, row.job_id, shown)
    return [TaskResult(task, attempts[task]) for task in shown], len(names) > limit
