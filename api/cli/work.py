"""`el worker`, and the same work done inside another command."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.output import Project, err, progress, say
from api.client import Client, connect
from api.runners.events import Ended, Event, Interrupted, Reaped, Skipped, Tally, Waiting
from api.runners.worker import Worker

INTERRUPTED_EXIT_CODE = 130


def worker(
    job: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Trials at the same time.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits; else wait for further jobs.")] = False,
    name: Annotated[str | None, typer.Option(help="What the facts call this worker.")] = None,
    lease_s: Annotated[float, typer.Option(min=1, help="Seconds without a sign after which others take over.")] = 60.0,
    project: Project = None,
) -> None:
    """Execute the slots that wait, as real processes, until interrupted (or until none waits, with --once).

    Example: el worker --jobs 4 --once
    """
    el = connect(project=project)
    job_id = el.job_id(job) if job else None
    if not once:
        say("waiting for jobs; Ctrl-C ends")
    tally = Worker(el, name=name, slots=jobs, lease_s=lease_s, on_event=_tell).run(job_id, forever=not once)
    how = f"{tally.succeeded:,} succeeded, {tally.failed:,} failed, {tally.canceled:,} canceled"
    say(f"{_trials(tally.ended)} ended: {how}")
    _end_if_interrupted(tally)


def run_here(el: Client, job_id: str, *, slots: int) -> None:
    """Execute one job in this process, with a progress bar."""
    answer = el.job(job_id)
    total = answer.attempts * answer.members
    ended = sum(answer.endings.get(status, 0) for status in ("succeeded", "failed", "canceled"))
    with progress("running trials", total) as done:

        def on_event(event: Event) -> None:
            nonlocal ended
            if isinstance(event, Ended):
                ended += 1
                done(min(ended, total))
            else:
                _tell(event)

        tally = Worker(el, slots=slots, on_event=on_event).run(job_id)
    if tally.interrupted:
        say(f"interrupted after {_trials(tally.ended)}; go on: el worker --once --job {job_id}")
    _end_if_interrupted(tally)


def _tell(event: Event) -> None:
    """Say on standard error what a worker met with."""
    match event:
        case Ended(slot, outcome, reward, error_type):
            told = "no reward" if reward is None else f"reward {reward:g}"
            err().print(f"{slot.task} #{slot.attempt}: {outcome}, {told}" + (f" ({error_type})" if error_type else ""))
        case Reaped(slot, became):
            what = "its slot is free again" if became == "released" else "ended as LeaseLapsed"
            err().print(f"{slot.task} #{slot.attempt}: left behind by another worker; {what}")
        case Waiting(elsewhere) if elsewhere:
            err().print(f"nothing left to start; {_trials(elsewhere)} still running elsewhere")
        case Skipped(sentence=sentence):
            err().print(sentence)
        case Interrupted(running):
            err().print(
                f"finishing {_trials(running)}; press Ctrl-C again to stop {'it' if running == 1 else 'them'} now"
            )
        case _:
            pass


def _trials(count: int) -> str:
    return f"{count:,} trial{'' if count == 1 else 's'}"


def _end_if_interrupted(tally: Tally) -> None:
    if tally.interrupted:
        raise typer.Exit(INTERRUPTED_EXIT_CODE)
