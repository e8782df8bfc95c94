"""Read models: how far they have come, and building them again."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from api.http.answering import answer
from api.http.bodies import strict
from api.http.calls import Read, Write
from api.http.routes import Routes
from api.pages import Rebuilt, StandingAnswer, Standings
from api.routes.bodies import Rebuild

routes = Routes("projections")


@routes.get("/projections", scope="read", answers=Standings)
def standings(call: Read) -> Response:
    """Read how far each read model has come."""
    found = [StandingAnswer(*standing) for standing in call.client.standings()]
    return answer(call, Standings(found, min(standing.position for standing in found)))


@routes.post("/projections/rebuild", scope="admin", answers=Rebuilt)
def rebuild(call: Write, body: Annotated[Rebuild, strict(Rebuild)]) -> Response:
    """Drop read models and build them again from the log; reads see them grow meanwhile."""
    return answer(call, Rebuilt(call.client.rebuild(body.names)))
