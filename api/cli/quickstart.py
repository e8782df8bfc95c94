"""`el quickstart`: a real evaluation, executed, recorded and measured, in one command."""

from __future__ import annotations

from api.cli.output import Project, say
from api.cli.result_view import show_result
from api.cli.work import run_here
from api.client import connect
from api.forms.dataset import read_dataset
from api.forms.profile import read_profile
from api.forms.runner import read_runner
from api.quickstart import PROFILE, RUNNER, TASKS
from api.runners.sources import Source, remember

DATASET = "quickstart@1"
REQUEST_ID = "quickstart/1"
SLOTS = 4


def quickstart(project: Project = None) -> None:
    """Run a small evaluation of eight tasks with a scripted agent, two attempts each, and show what it measured.

    Example: el quickstart
    """
    el = connect(project=project)
    runner = read_runner(RUNNER)
    el.publish_runner(runner)
    dataset = read_dataset(TASKS)
    el.publish_dataset(DATASET, dataset.tasks, runner=runner.ref)
    remember(el.sources, DATASET, Source("folder", dataset.path))
    profile, params, secrets = read_profile(PROFILE)
    el.create_profile(profile, params, secrets)
    job = el.submit_job(DATASET, attempts=2, profile=profile, request_id=REQUEST_ID)
    verb = "submitted" if job.outcome == "written" else "submitted before"
    say(f"{verb}: {len(dataset.tasks)} tasks x 2 attempts with a scripted agent; recorded in {el.where}", "")
    run_here(el, job.id, slots=SLOTS)
    result = el.result(job.id)
    show_result(result)
    short = job.id[:8]
    say(
        "",
        "try next",
        f"  el explain {short}             why the score is that number, down to the entries behind it",
        f"  el job get {short}             what was asked for, frozen",
        f"  el job trials {short}          every trial with its signals side by side",
        f"  el audit events --job {short}  the events the numbers are made of",
        "  el replay                       recompute every stored number from the events, and say what differs",
    )
