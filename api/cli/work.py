"""`el worker`, and the same work done inside another command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.output import Project, err, progress, say
from api.client import connect
from api.el import El
from api.runners.events import Away, Ended, Event, Interrupted, Ready, Reaped, Skipped, Tally, Waiting
from api.runners.sources import Source, source_at
from api.runners.worker import Worker
from ledger.errors import BadInput
from ledger.rules.forms import checked_ref

INTERRUPTED_EXIT_CODE = 130


def worker(
    job: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Trials at the same time.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits; else wait for further jobs.")] = False,
    name: Annotated[str | None, typer.Option(help="What the facts call this worker.")] = None,
    lease_s: Annotated[float, typer.Option(min=1, help="Seconds without a sign after which others take over.")] = 60.0,
    files: Annotated[
        list[str] | None,
        typer.Option(metavar="DATASET=PATH", help="Where the files of a dataset (NAME@VERSION) lie here; repeatable."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="The server to work for, instead of EL_API_URL.")] = None,
    key: Annotated[str | None, typer.Option(help="Its key; EL_API_KEY shows in no process list.")] = None,
    project: Project = None,
) -> None:
    """Execute the slots that wait, as real processes, until interrupted (or until none waits, with --once).

    The work may come from a server anywhere; each task's files are compared with what was published before they run.

    Example: el worker --url https://evals.example.org --files arith@1=./arith --jobs 4
    """
    lie = _files(files or [])
    el = connect(url, key=key, project=project)
    job_id = el.job_id(job) if job else None
    work = Worker(el, name=name, slots=jobs, lease_s=lease_s, files=lie, on_event=_tell)
    tally = work.run(job_id, forever=not once)
    how = f"{tally.succeeded:,} succeeded, {tally.failed:,} failed, {tally.canceled:,} canceled"
    say(f"{_trials(tally.ended)} ended: {how}")
    _end_if_interrupted(tally)


def run_here(el: El, job_id: str, *, slots: int) -> None:
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


def _files(given: list[str]) -> dict[str, Source]:
    """Where datasets lie on this machine, as the options say it."""
    found: dict[str, Source] = {}
    for one in given:
        ref, equals, path = one.partition("=")
        if not equals or not path:
            raise BadInput(f"{one!r} does not say where a dataset lies; write --files NAME@VERSION=PATH.")
        found[checked_ref(ref)] = source_at(Path(path))
    return found


def _tell(event: Event) -> None:
    """Say what a worker met with, on standard error but for the line that says it is ready."""
    match event:
        case Ended(slot, outcome, reward, error_type):
            told = "no reward" if reward is None else f"reward {reward:g}"
            err().print(f"{slot.task} #{slot.attempt}: {outcome}, {told}" + (f" ({error_type})" if error_type else ""))
        case Reaped(slot, became):
            what = "its slot is free again" if became == "released" else "ended as LeaseLapsed"
            err().print(f"{slot.task} #{slot.attempt}: left behind by another worker; {what}")
        case Waiting(elsewhere):
            err().print(f"nothing left to start; {_trials(elsewhere)} still running elsewhere")
        case Ready():
            say("waiting for jobs; Ctrl-C ends")
        case Skipped(sentence=sentence):
            err().print(sentence)
        case Away(sentence, for_s):
            how_long = "" if for_s is None else f", for {for_s:g} s at most"
            err().print(f"{sentence} Trying again{how_long}; what runs goes on.")
        case Interrupted(running) if running:
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
