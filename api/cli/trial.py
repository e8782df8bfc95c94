"""`el trial`: one trial, its facts, its artifacts, what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from api.cli.as_of import AsOf, say_as_of
from api.cli.job import NOTHING_NEW, trial_document
from api.cli.output import GAP, Json, Project, fields_told, harmless, say, say_json, say_table, write
from api.client import connect
from api.contents import Content
from api.el import El
from api.shaping import time_text
from ledger.errors import NotFound
from ledger.facts.trial import (
    StructuredResultRecorded,
    StructuredResultRejected,
    trial_stream,
)
from projections.trials import TrialRow, structured_result, why_no_reward

app = typer.Typer(help="One dispatched attempt: its signals, facts and files.", no_args_is_help=True)

TrialId = Annotated[str, typer.Argument(metavar="TRIAL", help="The trial's id, or its first characters.")]
ARTIFACT_SHOWN_BYTES_MAX = 16 * 1024 * 1024


@app.command()
def get(trial: TrialId, as_of: AsOf = None, project: Project = None, json: Json = False) -> None:
    """Show a trial: each of its signals by itself.

    Example: el trial get 0d9c7a52-3b0e-5d0a-9a53-2f1f6c8f3a11
    """
    el = connect(project=project)
    row = el.get_trial(trial, as_of=as_of)
    then = {} if as_of is None else {"as_of": el.job(row.job_id, as_of=as_of).as_of}
    if json:
        say_json(trial_document(row) | then)
        return
    say_as_of(as_of, then.get("as_of", 0))
    say(f"trial {row.trial_id}  {row.task} #{row.attempt} of job {row.job_id}")
    for name, value in _signals(row).items():
        say(f"  {name:<11} {value}")


@app.command()
def revise(
    trial: TrialId,
    reward: Annotated[float, typer.Option(help="The reward of the later grading.")],
    verifier: Annotated[str, typer.Option(help="Which verifier gave it.")],
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the trail.")],
    project: Project = None,
    json: Json = False,
) -> None:
    """Correct a trial's reward by a later grading. The first one stays in the log, and results show both.

    Example: el trial revise 0d9c7a52-3b0e-5d0a-9a53-2f1f6c8f3a11 --reward 1 --verifier judge@2 --reason "new rubric"
    """
    done = connect(project=project).revise(trial, reward=reward, verifier=verifier, reason=reason)
    if json:
        say_json(done)
    else:
        unchanged = f"had this reward already; {NOTHING_NEW}"
        say(f"trial {done.ref} " + ("has the new reward" if done.outcome == "written" else unchanged))


@app.command()
def events(trial: TrialId, project: Project = None, json: Json = False) -> None:
    """List the facts of a trial as they were recorded.

    Example: el trial events 0d9c7a52-3b0e-5d0a-9a53-2f1f6c8f3a11
    """
    el = connect(project=project)
    row = el.get_trial(trial)
    past = el.stream(trial_stream(row.job_id, row.task, row.attempt))
    if json:
        say_json({"events": [{"position": position, "entry": entry} for position, entry in past]})
        return
    rows = []
    for position, entry in past:
        fields = msgspec.to_builtins(entry.fact)
        tag = fields.pop("fact")
        told = fields_told({name: value for name, value in fields.items() if name not in ("job_id", "trial_id")})
        rows.append([f"{position:,}", entry.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], entry.actor, tag, told])
    say_table(["position", "recorded (UTC)", "actor", "fact", "fields"], rows, right=["position"])


@app.command()
def artifacts(
    trial: TrialId,
    get: Annotated[str | None, typer.Option(metavar="NAME|SHA256", help="Write this one to standard output.")] = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """List the files a trial left, or write one out.

    Example: el trial artifacts 0d9c7a52-3b0e-5d0a-9a53-2f1f6c8f3a11 --get agent/stdout.txt > out.txt
    """
    el = connect(project=project)
    contents = el.trial_contents(trial)
    if get is not None:
        _write_out(el, contents, get)
        return
    if json:
        say_json({"artifacts": contents})
        return
    say_table(
        ["name", "role", "bytes", "sha256"],
        [
            [
                content.name,
                content.role,
                GAP if content.size is None else f"{content.size:,}",
                content.sha256 or str(content.why),
            ]
            for content in contents
        ],
        right=["bytes"],
    )


@app.command()
def log(trial: TrialId, project: Project = None) -> None:
    """Show what a trial's agent and verifier wrote, and the message it failed with.

    Example: el trial log 0d9c7a52-3b0e-5d0a-9a53-2f1f6c8f3a11
    """
    el = connect(project=project)
    row = el.get_trial(trial)
    say(
        f"trial {row.trial_id}  {row.task} #{row.attempt}: {row.status}"
        + (f", {row.error_type}" if row.error_type else "")
    )
    shown = False
    for content in el.trial_contents(row.trial_id):
        if content.role not in ("stdout", "stderr", "message", "raw reward") or content.sha256 is None:
            continue
        shown = True
        say(f"--- {content.name}")
        if content.redacted:
            say("(erased on purpose)")
            continue
        data = el.artifacts.read_bytes(content.sha256, max_bytes=ARTIFACT_SHOWN_BYTES_MAX)
        say(harmless(data.decode(errors="replace")).rstrip("\n"))
    if not shown:
        say("it left no output")


def _signals(row: TrialRow) -> dict[str, str]:
    structured = structured_result(row)
    dimensions = GAP
    match structured:
        case StructuredResultRecorded(composite, named):
            parts = [f"composite {composite:g}"] if composite is not None else []
            dimensions = ", ".join(parts + [f"{name} {value:g}" for name, value in named.items()]) or "empty"
        case StructuredResultRejected(why):
            dimensions = f"not usable: {why}"
        case _:
            pass
    reward = GAP if row.reward is None else f"{row.reward!r}"
    if row.reward is None and why_no_reward(row):
        reward += f" ({why_no_reward(row)})"
    if row.reward is not None and row.first_reward != row.reward:
        reward += f", revised from {GAP if row.first_reward is None else repr(row.first_reward)}"
    error = GAP if row.error_type is None else f"{row.error_type} in phase {row.phase}"
    return {
        "status": row.status,
        "exit code": GAP if row.exit_code is None else str(row.exit_code),
        "error": error,
        "reward": reward,
        "structured": dimensions,
        "artifacts": f"{row.artifacts_kept} kept, {row.artifacts_failed} lost",
        "worker": row.worker or GAP,
        "dispatched": time_text(row.dispatched_us) or GAP,
        "started": time_text(row.started_us) or GAP,
        "ended": time_text(row.ended_us) or GAP,
        "seconds": GAP if row.duration_s is None else f"{row.duration_s:.3f}",
    }


def _write_out(el: El, contents: Sequence[Content], wanted: str) -> None:
    for content in contents:
        if content.sha256 and wanted in (content.name, content.sha256):
            write(el.artifacts.read_bytes(content.sha256, max_bytes=2**40))
            return
    raise NotFound(f"The trial has no artifact {wanted!r}; `el trial artifacts` lists those it has.")
