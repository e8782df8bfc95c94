"""Replays: stored numbers recomputed from the log alone."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response
from pydantic import ConfigDict, Field

from api.http.answering import answer
from api.http.bodies import Form, strict
from api.http.calls import Write
from api.http.routes import Routes
from api.replaying import Replayed

routes = Routes("replays")


class AskReplay(Form):
    """What to recompute: a job, or without one the whole project."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"job_id": "721de92e-209a-57de-9bae-3eab7f1c7338"}]})

    job_id: str | None = Field(None, min_length=4, max_length=36)
    as_of: int | str | None = Field(None, description="A position, or an RFC 3339 time.")
    definition: str | None = Field(None, max_length=100, examples=["metrics/1"])
    policy: str | None = Field(None, max_length=100)


@routes.post("/replays", scope="read", answers=Replayed)
def replay(call: Write, body: Annotated[AskReplay, strict(AskReplay)]) -> Response:
    """Recompute stored numbers from the log and say what differs. Nothing is written."""
    done = call.client.replay(body.job_id, as_of=body.as_of, definition=body.definition, policy=body.policy)
    return answer(call, done)
