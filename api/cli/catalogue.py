"""`el project`, `el dataset`, `el runner`, `el profile`: what evaluations are made of."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from api.answers import Published
from api.cli.output import GAP, Json, Project, progress, say, say_json, say_table
from api.cli.store_here import store_here
from api.client import connect
from api.forms.dataset import read_dataset
from api.forms.profile import read_profile
from api.forms.runner import read_runner
from api.runners.sources import Source, remember
from api.settings import Settings
from api.shaping import time_text
from api.wiring import Workspace
from ledger.facts.access import STREAM
from ledger.facts.catalogue import ProfilePublished, RunnerPublished
from ledger.rules.access import create_project
from ledger.rules.forms import checked_ref

project_app = typer.Typer(help="Projects: the border of visibility.", no_args_is_help=True)
dataset_app = typer.Typer(help="Datasets: lists of tasks in frozen revisions.", no_args_is_help=True)
runner_app = typer.Typer(help="Runners: how tasks are executed and graded.", no_args_is_help=True)
profile_app = typer.Typer(help="Profiles: values for a runner's parameters.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The revision.")]
File = Annotated[Path, typer.Argument(metavar="PATH", help="Where it lies.")]


@project_app.command("create")
def create_project_(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Create a project. What is in one is never seen from another.

    Example: el project create team-a
    """
    ledger = store_here("el project create").unchecked_ledger(name)
    written = ledger.record(STREAM, partial(create_project, name=name))
    say(f"project {name} created" if written.facts else f"project {name} was there already")


@project_app.command("list")
def list_projects(json: Json = False) -> None:
    """List the projects of this store; of a server, the one that the key is for.

    Example: el project list
    """
    settings = Settings()
    if settings.api_url is None:
        found = {name: head.size for name, head in Workspace(settings).projects().items()}
    else:
        head = connect(settings=settings).head()
        found = {head.name: head.entries}
    if json:
        say_json({"projects": [{"name": name, "entries": entries} for name, entries in found.items()]})
        return
    say_table(["project", "entries"], [[name, f"{entries:,}"] for name, entries in found.items()], right=["entries"])


@project_app.command("show")
def show_project(name: Annotated[str, typer.Argument(metavar="NAME")], json: Json = False) -> None:
    """Show a project: how long its log is, and the Merkle root over it.

    Example: el project show default
    """
    head = connect(project=name).head()
    if json:
        say_json(head)
        return
    say(f"project {head.name}", f"  entries {head.entries:,}", f"  root    {head.root}")


@dataset_app.command("publish")
def publish_dataset(
    ref: Ref,
    path: File,
    runner: Annotated[str, typer.Option(metavar="NAME@VERSION", help="The runner that the revision pins.")],
    project: Project = None,
    json: Json = False,
) -> None:
    """Publish a folder of task folders, a Harbor-style folder, or a JSONL file as a dataset revision.

    Example: el dataset publish arith@1 ./arith --runner script@1
    """
    el = connect(project=project)
    checked_ref(ref)
    with progress("reading tasks", None) as done:
        found = read_dataset(path, progress=done)
    published = el.publish_dataset(ref, found.tasks, runner=runner)
    remember(el.sources, ref, Source("jsonl" if found.kind == "jsonl" else "folder", found.path))
    if json:
        say_json(published)
    else:
        _say_published("dataset", published, f"{len(found.tasks):,} tasks, run by {runner}")


@dataset_app.command("list")
def list_datasets(project: Project = None, json: Json = False) -> None:
    """List dataset revisions.

    Example: el dataset list
    """
    rows = connect(project=project).datasets()
    if json:
        say_json({"datasets": rows})
        return
    say_table(
        ["dataset", "tasks", "runner", "digests", "published"],
        [[r.ref, f"{r.member_count:,}", r.runner, r.digests, time_text(r.published_us) or GAP] for r in rows],
        right=["tasks"],
    )


@dataset_app.command("show")
def show_dataset(
    ref: Ref,
    limit: Annotated[int, typer.Option(min=0, max=100_000, help="How many tasks to show.")] = 50,
    after: Annotated[int, typer.Option(min=0, help="Leave out so many tasks first.")] = 0,
    project: Project = None,
    json: Json = False,
) -> None:
    """Show a dataset revision and its tasks.

    Example: el dataset show arith@1
    """
    el = connect(project=project)
    row = el.dataset(checked_ref(ref))
    tasks = [task for _, task in el.dataset_tasks(ref, after=after - 1, limit=limit)]
    if json:
        say_json(msgspec.structs.asdict(row) | {"tasks": [{"name": t.name, "digest": t.digest} for t in tasks]})
        return
    say(f"dataset {row.ref}  {row.member_count:,} tasks, run by {row.runner}", f"  digest {row.members_digest}")
    say_table(["task", "sha256"], [[task.name, task.digest] for task in tasks])
    if after + len(tasks) < row.member_count:
        say(f"further ones: el dataset show {ref} --after {after + len(tasks)}")


@runner_app.command("publish")
def publish_runner(path: File, project: Project = None, json: Json = False) -> None:
    """Publish a runner from its JSON file (schema evalledger.runner/v1).

    Example: el runner publish runner.json
    """
    runner = read_runner(path)
    published = connect(project=project).publish_runner(runner)
    if json:
        say_json(published)
    else:
        _say_published("runner", published, runner.kind)


@runner_app.command("list")
def list_runners(project: Project = None, json: Json = False) -> None:
    """List runner revisions.

    Example: el runner list
    """
    rows = connect(project=project).runners()
    if json:
        say_json({"runners": rows})
        return
    say_table(
        ["runner", "kind", "reads"], [[r.ref, r.kind, ", ".join(p.name for p in r.parameters) or GAP] for r in rows]
    )


@runner_app.command("show")
def show_runner(ref: Ref, project: Project = None, json: Json = False) -> None:
    """Show a runner revision: the parameters it reads, and its steps.

    Example: el runner show script@1
    """
    runner = connect(project=project).runner(ref)
    if json:
        say_json(runner)
        return
    _show_runner(runner)


@profile_app.command("create")
def create_profile(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as team/eval.")],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Such as 1.")],
    file: Annotated[Path, typer.Option("--file", "-f", help="The profile (schema envplatform.profile/v2).")],
    project: Project = None,
    json: Json = False,
) -> None:
    """Create a profile revision. Values named in secret_params are sealed and never shown again.

    Example: el profile create team/eval 1 --file eval-profile.json
    """
    ref, params, secrets = read_profile(file, name, version)
    published = connect(project=project).create_profile(ref, params, secrets)
    if json:
        say_json(published)
    else:
        _say_published("profile", published, f"{len(params)} parameters, {len(secrets)} secret")


@profile_app.command("list")
def list_profiles(project: Project = None, json: Json = False) -> None:
    """List profile revisions.

    Example: el profile list
    """
    rows = connect(project=project).profiles()
    if json:
        say_json({"profiles": [_profile_document(row) for row in rows]})
        return
    say_table(
        ["profile", "parameters", "secrets"],
        [[r.ref, ", ".join(r.params) or GAP, ", ".join(f"{name} (set)" for name in r.secrets) or GAP] for r in rows],
    )


@profile_app.command("show")
def show_profile(ref: Ref, project: Project = None, json: Json = False) -> None:
    """Show a profile revision; of its secrets only that they are set.

    Example: el profile show team/eval@1
    """
    profile = connect(project=project).profile(ref)
    if json:
        say_json(_profile_document(profile))
        return
    say(f"profile {profile.ref}")
    say_table(
        ["parameter", "value"],
        [[name, str(value)] for name, value in profile.params.items()] + [[name, "(set)"] for name in profile.secrets],
    )


def _profile_document(profile: ProfilePublished) -> dict[str, object]:
    return {"ref": profile.ref, "params": profile.params, "secrets": dict.fromkeys(profile.secrets, "set")}


def _say_published(noun: str, published: Published, what: str) -> None:
    verb = "published" if published.outcome == "written" else "stands already, unchanged"
    say(f"{noun} {published.ref} {verb}: {what}")


def _show_runner(runner: RunnerPublished) -> None:
    say(f"runner {runner.ref}  {runner.kind}")
    for name, step in (("agent", runner.agent), ("verifier", runner.verifier)):
        if step:
            say(f"  {name:<9} {' '.join(step.command)}   ({step.timeout_s:g} s at the most)")
    if runner.structured_result:
        say(f"  result    {runner.structured_result}")
    if runner.outputs:
        say(f"  outputs   {', '.join(runner.outputs)}")
    say_table(
        ["parameter", "required", "default"],
        [
            [p.name, "yes" if p.required else "no", GAP if p.default is None else str(p.default)]
            for p in runner.parameters
        ],
    )
