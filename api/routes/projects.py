"""The project itself, for its keys; and what the server says of itself to anybody."""

from __future__ import annotations

from fastapi import Response

from api.answers import ProjectHead
from api.http.answering import answer
from api.http.calls import Open, Read
from api.http.routes import Routes

routes = Routes("projects")
about = Routes("about", project=False)


@routes.get("", scope="read", answers=ProjectHead)
def project(call: Read) -> Response:
    """Read how long the project's log is, and the Merkle root over it."""
    head = call.client.head()
    return answer(call, head, as_of=head.entries)


@about.get("/v1/openapi.json", scope="public")
def openapi(call: Open) -> Response:
    """Read this document. It holds nothing of a project."""
    return Response(call.request.app.state.openapi, media_type="application/json")
