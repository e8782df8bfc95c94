"""Datasets, runners and profiles: published in frozen revisions, listed, read."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from api.answers import Published
from api.http.answering import answer
from api.http.bodies import strict
from api.http.calls import List, Read, Write
from api.http.routes import Routes
from api.pages import DatasetPage, DatasetTasks, OneDataset, OneProfile, OneRunner, ProfilePage, RunnerPage
from api.routes.bodies import PublishDataset, PublishProfile, PublishRunner
from api.routes.queries import AfterOrdinal, AfterRef, Limit, Name, Version, WideLimit
from ledger.facts.catalogue import Task

DATASET_BYTES_MAX = 64 << 20

routes = Routes("catalogue")

_PUBLISHED = {201: "It is published now.", 200: "It stood there already, with the same content."}


@routes.get("/datasets", scope="read", answers=DatasetPage, cursor=True)
def datasets(call: List, limit: Limit = 100, after: AfterRef = "") -> Response:
    """List dataset revisions by name."""
    rows = call.client.datasets(after=call.after(str) or after, limit=limit)
    following = rows[-1].ref if len(rows) == limit else None
    return answer(call, DatasetPage(rows, call.client.as_of), next=following)


@routes.post("/datasets", scope="submit", answers=Published, statuses=_PUBLISHED, body_bytes_max=DATASET_BYTES_MAX)
def publish_dataset(call: Write, body: Annotated[PublishDataset, strict(PublishDataset)]) -> Response:
    """Publish a dataset revision under a published runner."""
    tasks = [Task(task.name, task.digest) for task in body.tasks]
    done = call.client.publish_dataset(body.ref, tasks, runner=body.runner, digests=body.digests)
    return _published(call, "datasets", done)


@routes.get("/datasets/{name:path}/{version}", scope="read", answers=OneDataset)
def dataset(call: Read, name: Name, version: Version) -> Response:
    """Read a dataset revision."""
    row = call.client.dataset(f"{name}@{version}")
    return answer(call, OneDataset(row, call.client.as_of))


@routes.get("/dataset-tasks/{name:path}/{version}", scope="read", answers=DatasetTasks, cursor=True)
def dataset_tasks(
    call: List, name: Name, version: Version, limit: WideLimit = 1_000, after: AfterOrdinal = -1
) -> Response:
    """List the tasks of a dataset revision in its order."""
    ref = f"{name}@{version}"
    call.client.dataset(ref)
    came = call.after(int)
    rows = call.client.dataset_tasks(ref, after=after if came is None else came, limit=limit)
    following = rows[-1][0] if len(rows) == limit else None
    return answer(call, DatasetTasks(rows, call.client.as_of), next=following)


@routes.get("/runners", scope="read", answers=RunnerPage, cursor=True)
def runners(call: List, limit: Limit = 100, after: AfterRef = "") -> Response:
    """List runner revisions by name."""
    rows = call.client.runners(after=call.after(str) or after, limit=limit)
    following = rows[-1].ref if len(rows) == limit else None
    return answer(call, RunnerPage(rows, call.client.as_of), next=following)


@routes.post("/runners", scope="submit", answers=Published, statuses=_PUBLISHED)
def publish_runner(call: Write, body: Annotated[PublishRunner, strict(PublishRunner)]) -> Response:
    """Publish a runner revision."""
    return _published(call, "runners", call.client.publish_runner(body.runner()))


@routes.get("/runners/{name:path}/{version}", scope="read", answers=OneRunner)
def runner(call: Read, name: Name, version: Version) -> Response:
    """Read a runner revision."""
    as_of = call.client.head().entries
    return answer(call, OneRunner(call.client.runner(f"{name}@{version}"), as_of))


@routes.get("/profiles", scope="read", answers=ProfilePage, cursor=True)
def profiles(call: List, limit: Limit = 100, after: AfterRef = "") -> Response:
    """List profile revisions by name; of secrets only names and fingerprints."""
    rows = call.client.profiles(after=call.after(str) or after, limit=limit)
    following = rows[-1].ref if len(rows) == limit else None
    return answer(call, ProfilePage(rows, call.client.as_of), next=following)


@routes.post("/profiles", scope="submit", answers=Published, statuses=_PUBLISHED)
def create_profile(call: Write, body: Annotated[PublishProfile, strict(PublishProfile)]) -> Response:
    """Publish a profile revision; its secret values are sealed outside the log."""
    params, secrets = body.values()
    return _published(call, "profiles", call.client.create_profile(body.ref, params, secrets))


@routes.get("/profiles/{name:path}/{version}", scope="read", answers=OneProfile)
def profile(call: Read, name: Name, version: Version) -> Response:
    """Read a profile revision; of secrets only names and fingerprints."""
    as_of = call.client.head().entries
    return answer(call, OneProfile(call.client.profile(f"{name}@{version}"), as_of))


def _published(call: Write, noun: str, done: Published) -> Response:
    status = 201 if done.outcome == "written" else 200
    location = f"/{noun}/{done.ref.replace('@', '/')}"
    return answer(call, done, status=status, position=done.position, location=location)
