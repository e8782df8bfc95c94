"""`el job`: submit, read, cancel, retry, watch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from api.answers import JobAnswer, ResultAnswer, Submitted
from api.cli.as_of import AsOf, say_as_of
from api.cli.output import GAP, Json, Project, progress, say, say_json, say_table
from api.cli.result_view import show_result
from api.cli.work import run_here
from api.client import connect
from api.el import TASKS_SHOWN, El
from api.forms.rewards import read_new_rewards
from api.shaping import time_text
from ledger.errors import BadInput, NotFound
from ledger.facts.job import JobSubmitted
from ledger.facts.trial import Slot
from projections.metrics_text import coverage, percent
from projections.trials import TrialRow, why_no_reward

app = typer.Typer(help="One evaluation: a dataset, k attempts a task, a profile.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or its first characters.")]
AnyJob = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="The job's id, or its first characters; the newest job without.")
]
POLL_S = 0.5
NOTHING_NEW = "nothing was recorded, no reason either: the value that holds is nothing new"


@app.command()
def submit(
    dataset: Annotated[str, typer.Option("--dataset", "-d", metavar="NAME@VERSION", help="The dataset revision.")],
    attempts: Annotated[int, typer.Option("--attempts", "-k", min=1, help="Attempts for each task.")] = 1,
    profile: Annotated[str | None, typer.Option(metavar="NAME@VERSION", help="Values for runner parameters.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Take only this task; may be given again.")] = None,
    request_id: Annotated[str | None, typer.Option(help="The same id again returns the same job.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A tag; may be given again.")] = None,
    agent_run: Annotated[str | None, typer.Option(help="The run of a training loop that this evaluates.")] = None,
    agent_round: Annotated[int | None, typer.Option(help="The round of that run.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Execute it in this process and show the result.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="With --wait: trials at the same time.")] = 2,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be submitted; write nothing.")] = False,
    project: Project = None,
    json: Json = False,
) -> None:
    """Submit a job: everything it needs is frozen now.

    Example: el job submit --dataset arith@1 --attempts 2 --profile team/eval@1 --wait
    """
    el = connect(project=project)
    submitted = el.submit_job(
        dataset,
        attempts=attempts,
        profile=profile,
        tasks=task or (),
        request_id=request_id,
        tags=_tags(tag or []),
        agent_run=agent_run,
        agent_round=agent_round,
        dry_run=dry_run,
    )
    if not json:
        _show_submitted(submitted)
    if wait and not dry_run:
        run_here(el, submitted.id, slots=jobs)
        result = el.result(submitted.id)
        if json:
            say_json(result)
        else:
            say("")
            show_result(result)
    elif json:
        say_json(submitted)
    elif not dry_run:
        say("", "execute it: el worker --once", f"look at it: el job result {submitted.id}")


@app.command()
def get(job: AnyJob = None, as_of: AsOf = None, project: Project = None, json: Json = False) -> None:
    """Show a job: what was asked for, and how it stands.

    Example: el job get 3f2a1c9e
    """
    el = connect(project=project)
    answer = el.job(_named(el, job), as_of=as_of)
    if json:
        say_json(answer)
        return
    say_as_of(as_of, answer.as_of)
    _show_job(answer, el.result(answer.id, tasks_limit=0, as_of=as_of))


@app.command("list")
def list_(
    status: Annotated[str | None, typer.Option(help="submitted, running, completed, failed or canceled.")] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME@VERSION", help="Jobs on this dataset.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at the most.")] = 50,
    project: Project = None,
    json: Json = False,
) -> None:
    """List jobs, the newest first.

    Example: el job list --dataset arith@1
    """
    listed = connect(project=project).jobs(status=status, dataset=dataset, limit=limit)
    if json:
        say_json(listed)
        return
    if not listed.jobs:
        say("no jobs; `el quickstart` makes one")
        return
    say_table(
        ["job", "status", "dataset", "k", "members", "profile", "submitted"],
        [
            [
                job.id,
                job.status,
                job.dataset,
                str(job.attempts),
                f"{job.members:,}",
                job.profile or GAP,
                job.submitted_at,
            ]
            for job in listed.jobs
        ],
        right=["k", "members"],
    )


@app.command()
def result(
    job: AnyJob = None,
    after: Annotated[int, typer.Option(min=0, help="Start the table of tasks after so many members.")] = 0,
    tasks: Annotated[int, typer.Option(min=0, max=10_000, help="How many tasks to show.")] = TASKS_SHOWN,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Also show the numbers under another tool's rule.")
    ] = None,
    as_of: AsOf = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """Show a job's result: coverage first, then metrics, then tasks.

    Example: el job result 3f2a1c9e
    """
    el = connect(project=project)
    answer = el.result(_named(el, job), tasks_after=after, tasks_limit=tasks, policy=policy, as_of=as_of)
    if json:
        say_json(answer)
    else:
        say_as_of(as_of, answer.as_of)
        show_result(answer)


@app.command()
def trials(
    job: AnyJob = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at the most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="TRIAL", help="Start after this trial.")] = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """List a job's trials with their signals side by side.

    Example: el job trials 3f2a1c9e --limit 20
    """
    el = connect(project=project)
    row = el.get_trial(after) if after else None
    job_id = _named(el, job)
    rows = el.trials(job_id, after=Slot(row.job_id, row.attempt, row.task) if row else None, limit=limit)
    if json:
        say_json({"trials": [trial_document(row) for row in rows]})
        return
    say_table(
        ["trial", "task", "#", "status", "exit", "reward", "why none", "error", "files", "seconds"],
        [
            [
                row.trial_id,
                row.task,
                str(row.attempt),
                row.status,
                GAP if row.exit_code is None else str(row.exit_code),
                GAP if row.reward is None else f"{row.reward:.6g}",
                why_no_reward(row) or "",
                row.error_type or "",
                f"{row.artifacts_kept}" + (f" ({row.artifacts_failed} lost)" if row.artifacts_failed else ""),
                GAP if row.duration_s is None else f"{row.duration_s:.1f}",
            ]
            for row in rows
        ],
        right=["#", "exit", "reward", "files", "seconds"],
    )
    if len(rows) == limit:
        say(f"there may be further ones: el job trials {job_id} --after {rows[-1].trial_id}")


@app.command()
def cancel(
    job: JobId,
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the trail.")] = "",
    project: Project = None,
) -> None:
    """Call a job off; what has ended stays.

    Example: el job cancel 3f2a1c9e --reason "wrong profile"
    """
    done = connect(project=project).cancel_job(job, reason=reason)
    say(f"job {done.ref} canceled" if done.outcome == "written" else f"job {done.ref} was canceled already")


@app.command()
def retry(
    job: JobId,
    task: Annotated[str, typer.Option(help="The task to attempt once more.")],
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the trail.")],
    request_id: Annotated[str | None, typer.Option(help="The same id again adds no further attempt.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Execute it in this process and show the result.")] = False,
    project: Project = None,
) -> None:
    """Add an attempt beyond k. It counts as extra: the attempts asked for at first stay what they are.

    Example: el job retry 3f2a1c9e --task add-1 --reason "sandbox was lost" --wait
    """
    el = connect(project=project)
    slot = el.retry(job, task, reason=reason, request_id=request_id)
    say(f"attempt {slot.attempt} of {slot.task} will be run, beyond the attempts first asked for")
    if wait:
        run_here(el, slot.job_id, slots=1)
        show_result(el.result(slot.job_id))


@app.command()
def regrade(
    job: JobId,
    rewards: Annotated[Path, typer.Option(metavar="FILE", help='JSONL: {"task": "add-1", "attempt": 1, "reward": 1}.')],
    verifier: Annotated[str, typer.Option(help="Which verifier gave them.")],
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the trail.")],
    project: Project = None,
    json: Json = False,
) -> None:
    """Correct a job's rewards from a new run of a verifier, all or none. The first ones stay, and results show both.

    Example: el job regrade 3f2a1c9e --rewards rewards.jsonl --verifier judge@2 --reason "the rubric was wrong"
    """
    done = connect(project=project).regrade(job, read_new_rewards(rewards), verifier=verifier, reason=reason)
    if json:
        say_json(done)
        return
    missing = f", {done.were_missing:,} of them missing before" if done.were_missing else ""
    changed = f"{done.changed:,} reward{'' if done.changed == 1 else 's'}"
    held = f"; {done.unchanged:,} held already, and for {'that' if done.unchanged == 1 else 'those'} {NOTHING_NEW}"
    say(f"job {done.id}: {changed} corrected{missing}{held if done.unchanged else ''}")


@app.command()
def watch(job: AnyJob = None, project: Project = None) -> None:
    """Follow a job until it has ended, then show its result.

    Example: el job watch 3f2a1c9e
    """
    el = connect(project=project)
    answer = el.job(_named(el, job))
    total = answer.attempts * answer.members
    with progress(f"{answer.dataset}", total) as done:
        while answer.ended_at is None:
            ended = sum(answer.endings.get(status, 0) for status in ("succeeded", "failed", "canceled"))
            done(min(ended, total))
            time.sleep(POLL_S)
            answer = el.job(answer.id)
    show_result(el.result(answer.id))


def trial_document(row: TrialRow) -> dict[str, Any]:
    """A trial as JSON shows it: times as text, the structured result as an object, why there is no reward."""
    document = msgspec.structs.asdict(row)
    for name in ("dispatched", "started", "ended"):
        document[f"{name}_at"] = time_text(document.pop(f"{name}_us"))
    document["structured"] = msgspec.Raw(row.structured) if row.structured is not None else None
    document["why_no_reward"] = why_no_reward(row)
    del document["no_reward"]
    return document


def _named(el: El, job: str | None) -> str:
    """The job that was named, else the newest one."""
    if job is not None:
        return job
    newest = el.jobs(limit=1).jobs
    if not newest:
        raise NotFound("There is no job yet; `el quickstart` makes one.")
    return newest[0].id


def _tags(pairs: list[str]) -> dict[str, str]:
    tags = dict(pair.partition("=")[::2] for pair in pairs)
    if any("=" not in pair for pair in pairs) or len(tags) != len(pairs):
        raise BadInput("Tags are given as KEY=VALUE, each key once.")
    return tags


def _show_submitted(submitted: Submitted) -> None:
    manifest = submitted.manifest
    verb = {"written": "submitted", "unchanged": "was submitted already", "planned": "would be submitted"}
    say(f"job {submitted.id} {verb[submitted.outcome]}")
    _show_manifest(manifest)


def _show_manifest(manifest: JobSubmitted) -> None:
    tasks = "of its tasks" if manifest.subset else f"task{'' if manifest.member_count == 1 else 's'}"
    attempts = f"{manifest.attempts} attempt{'' if manifest.attempts == 1 else 's'}"
    say(f"  dataset     {manifest.dataset}, {manifest.member_count:,} {tasks} x {attempts}, run by {manifest.runner}")
    effective = [f"{name}={value}" for name, value in manifest.parameters.items()]
    effective += [f"{name}=(secret)" for name in manifest.secrets]
    say(f"  effective   {', '.join(effective) or 'no parameters'}")
    if manifest.ignored:
        say(f"  ignored     {', '.join(manifest.ignored)}: not read by the runner")


def _show_job(answer: JobAnswer, result: ResultAnswer) -> None:
    say(f"job {answer.id}  {answer.status}" + (f": {answer.reason}" if answer.reason else ""))
    trials = ", ".join(f"{count:,} {status}" for status, count in sorted(answer.endings.items()))
    lines = {
        "dataset": f"{answer.dataset}, {answer.members:,} members{' (a part of it)' if answer.subset else ''}",
        "attempts": f"{answer.attempts} each, {answer.attempts * answer.members:,} slots",
        "trials": trials or "none dispatched yet",
        "score": f"{percent(result.score)}, {coverage(result.score_counts, result.k)}",
        "runner": answer.runner,
        "profile": answer.profile or GAP,
        "parameters": ", ".join(f"{name}={value}" for name, value in answer.parameters.items()) or GAP,
        "secrets": ", ".join(f"{name} (set)" for name in answer.secrets) or GAP,
        "ignored": ", ".join(answer.ignored) or GAP,
        "request id": answer.request_id or GAP,
        "tags": ", ".join(f"{name}={value}" for name, value in answer.tags.items()) or GAP,
        "agent run": f"{answer.agent_run or GAP}" + (f", round {answer.agent_round}" if answer.agent_round else ""),
        "submitted": answer.submitted_at,
        "ended": answer.ended_at or GAP,
    }
    for name, value in lines.items():
        say(f"  {name:<11} {value}")
    say("", f"all of it: el job result {answer.id}")
