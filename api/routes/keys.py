"""Keys of the project: handed out, listed, taken back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Path, Response
from pydantic import ConfigDict, Field

from api.answers import IssuedKey, KeyList, RevokedKey
from api.http.answering import answer
from api.http.bodies import Form, strict
from api.http.calls import Read, Write
from api.http.routes import Routes

routes = Routes("keys")


class IssueKey(Form):
    """A key to hand out. `expires_at` is RFC 3339 with a time zone; without it the key does not expire."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ci", "scopes": ["submit", "report"], "expires_at": None}]}
    )

    name: str = Field(max_length=63, pattern=r"^[a-z0-9][a-z0-9._-]*$")
    scopes: list[Literal["submit", "report", "read", "publish", "admin"]] = Field(min_length=1, max_length=5)
    expires_at: datetime | None = None


@routes.post("/keys", scope="admin", answers=IssuedKey, statuses={201: "It is shown here and never again."})
def issue_key(call: Write, body: Annotated[IssueKey, strict(IssueKey)]) -> Response:
    """Hand out a key."""
    issued = call.client.issue_key(body.name, body.scopes, expires_at=body.expires_at)
    call.gate.keyrings.forget(call.project)
    return answer(call, issued, status=201, position=issued.position, headers={"Cache-Control": "no-store"})


@routes.get("/keys", scope="admin", answers=KeyList)
def keys(call: Read) -> Response:
    """List the keys, without the keys themselves."""
    return answer(call, call.client.keys())


@routes.delete("/keys/{key_id}", scope="admin", answers=RevokedKey)
def revoke_key(call: Write, key_id: Annotated[str, Path(max_length=36)]) -> Response:
    """Take a key back. Within a second it opens nothing any more."""
    revoked = call.client.revoke_key(key_id)
    call.gate.keyrings.forget(call.project)
    return answer(call, revoked, position=revoked.position)
