"""The OpenAPI document, made from what the routes declare: forms, answers, scopes, problems, examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi

from api.http.bodies import StrictBody, struct_schema
from api.http.problems import MEDIA_TYPE, Problem
from api.http.routes import DoorRoute
from ledger.facts.access import SCOPES

TITLE = "EvalLedger"
VERSION = "1"

_DESCRIPTION = (
    "Results of model and agent evaluations as immutable events. Everything of a project lies below "
    "`/v1/projects/{project}`; a key opens one project. Whatever is refused is `application/problem+json` with a "
    "stable `type`. Reads answer `as_of`, the position of the log that they hold, and writes answer theirs in "
    "`El-Position`; `min_position` waits for it."
)


def document(routes: Sequence[DoorRoute]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of routes."""
    found = get_openapi(
        title=TITLE, version=VERSION, openapi_version="3.1.0", description=_DESCRIPTION, routes=list(routes)
    )
    components = found.setdefault("components", {})
    schemas: dict[str, Any] = {}
    for route in routes:
        operation = found["paths"][route.path_format][route.declared.method.lower()]
        _describe(operation, route, schemas)
    problem, parts = struct_schema(Problem)
    schemas.update(parts)
    components["schemas"] = {name: _without_defaults_of(schema) for name, schema in sorted(schemas.items())}
    components["responses"] = {
        "Problem": {"description": "It is refused.", "content": {MEDIA_TYPE: {"schema": problem}}}
    }
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "bearerFormat": "el_...", "description": "A key of the project."}
    }
    return found


def _describe(operation: dict[str, Any], route: DoorRoute, schemas: dict[str, Any]) -> None:
    declared = route.declared
    operation["responses"] = {
        **{str(status): _response(route, said, status, schemas) for status, said in declared.statuses.items()},
        **{status: {"$ref": "#/components/responses/Problem"} for status in _problems(route)},
    }
    if declared.scope in SCOPES:
        operation["security"] = [{"key": []}]
        operation["x-scope"] = declared.scope
        project = {
            "name": "project", "in": "path", "required": True,
            "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"}, "example": "default",
        }  # fmt: skip
        operation["parameters"] = [project, *operation.get("parameters", [])]
    if body := next(bodies_of(route.dependant), None):
        schema, parts = body.schema()
        schemas.update(parts)
        operation["requestBody"] = {"required": True, "content": {declared.takes: {"schema": schema}}}
    elif declared.takes != "application/json":
        binary = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": {declared.takes: binary}}


def _response(route: DoorRoute, said: str, status: int, schemas: dict[str, Any]) -> dict[str, Any]:
    answers = route.declared.answers
    response: dict[str, Any] = {"description": said}
    if status in (204, 304):
        return response
    if answers is None:
        return {**response, "content": {route.declared.media: {}}}
    schema, parts = struct_schema(answers)
    schemas.update(parts)
    return {**response, "content": {route.declared.media: {"schema": schema}}}


def _problems(route: DoorRoute) -> list[str]:
    if route.declared.scope == "public":
        return ["400", "4XX"]
    if route.declared.method == "GET":
        return ["400", "401", "403", "404", "422", "4XX", "503"]
    return ["400", "401", "403", "404", "409", "413", "415", "422", "4XX", "503"]


def bodies_of(dependant: Dependant) -> Iterator[StrictBody]:
    """The bodies that a route declares."""
    for below in dependant.dependencies:
        if isinstance(below.call, StrictBody):
            yield below.call
        yield from bodies_of(below)


def _without_defaults_of(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema as it is, without titles that only repeat names of classes."""
    return {name: value for name, value in schema.items() if name != "title"}
