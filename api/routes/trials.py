"""Trials: one dispatched attempt with its six signals, and the contents it names."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from api.answers import Published
from api.http.answering import answer
from api.http.bodies import strict
from api.http.calls import Read, Write
from api.http.routes import Routes
from api.pages import ContentPage, OneTrial
from api.routes.bodies import Revise
from api.routes.queries import AsOfQ, TrialPath
from api.shaping import trial_answer

routes = Routes("trials")


@routes.get("/trials/{trial_id}", scope="read", answers=OneTrial)
def trial(call: Read, trial_id: TrialPath, as_of: AsOfQ = None) -> Response:
    """Read a trial: each of its signals by itself."""
    row = call.client.get_trial(trial_id, as_of=as_of)
    return answer(call, OneTrial(trial_answer(row), call.client.as_of))


@routes.post("/trials/{trial_id}/revisions", scope="report", answers=Published)
def revise(call: Write, trial_id: TrialPath, body: Annotated[Revise, strict(Revise)]) -> Response:
    """Correct a trial's reward by a later grading; the first one stays in the log."""
    done = call.client.revise(trial_id, reward=body.reward, verifier=body.verifier, reason=body.reason)
    return answer(call, done, position=done.position)


@routes.get("/trials/{trial_id}/artifacts", scope="read", answers=ContentPage)
def trial_artifacts(call: Read, trial_id: TrialPath) -> Response:
    """List every content that a trial names: its files, and what stands behind its rejections and messages."""
    contents = call.client.trial_contents(trial_id)
    return answer(call, ContentPage(contents, call.client.as_of))
