"""The OpenAPI document says what the app does, and requests made from it find nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from fastapi import FastAPI, Response
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.http.answering import answer
from api.http.bodies import StrictBody
from api.http.calls import Read
from api.http.openapi import bodies_of
from api.http.routes import Routes
from api.routes.health import Health
from api.routes.projects import about
from tests.asgi import Browser
from tests.given_requests import World, routes_of

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@schemathesis.serializer("application/x-ndjson")
def lines(_ctx: Any, value: Any) -> bytes:
    """Lines as they are."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A store with one of everything."""
    return World(tmp_path_factory.mktemp("openapi"))


@pytest.fixture(scope="module")
def app(world: World) -> FastAPI:
    """The app with all its routes."""
    return world.app()


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    """What it says of itself, as anybody gets it."""
    browser = Browser(app)
    answer = browser("GET", "/v1/openapi.json")
    browser.close()
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_route_is_in_the_document(app: FastAPI, document: dict[str, Any]) -> None:
    """With a sentence, its scope, the security it needs, and what it refuses."""
    assert document["openapi"] == "3.1.0"
    assert {name for name, _ in operations(document)} == {
        f"{route.declared.method} {route.path_format}" for route in routes_of(app)
    }
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for name, operation in operations(document):
        assert operation["summary"], name
        assert any(status.startswith("2") for status in operation["responses"]), name
        assert operation["responses"]["4XX"] == {"$ref": "#/components/responses/Problem"}, name
        assert ("security" in operation) == ("{project}" in name), name
        assert ("x-scope" in operation) == ("{project}" in name), name


def test_every_reference_in_the_document_leads_somewhere(document: dict[str, Any]) -> None:
    """Nothing is named that is not there, and all of it is plain JSON."""

    def references(value: Any) -> Iterator[str]:
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from references(part)
        if isinstance(value, dict) and isinstance(value.get("$ref"), str):
            yield value["$ref"]

    for reference in references(document):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    assert b"/root/" not in msgspec.json.encode(document)


def test_every_form_has_an_example_that_is_one(app: FastAPI) -> None:
    """A reader can copy it."""
    for route in routes_of(app):
        for body in bodies_of(route.dependant):
            examples = examples_of(body.schema()[1][body.kind.__name__])
            assert examples, f"{route.declared.method} {route.path} has no example of its body"
            for example in examples:
                StrictBody(body.kind)._checked(msgspec.json.encode(example))


def examples_of(schema: dict[str, Any]) -> list[Any]:
    """The examples of a form, or one put together from those of its fields."""
    fields = {name: field["examples"][0] for name, field in schema.get("properties", {}).items() if "examples" in field}
    return schema.get("examples") or ([fields] if fields else [])


def test_no_page_of_the_server_loads_scripts_from_elsewhere(app: FastAPI) -> None:
    """FastAPI's own pages would."""
    browser = Browser(app)
    assert {browser("GET", path).status for path in ("/docs", "/redoc", "/openapi.json")} == {404}
    browser.close()


@pytest.fixture(scope="module")
def schema(app: FastAPI, document: dict[str, Any]) -> Any:
    """The document as schemathesis reads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return schemathesis.openapi.from_asgi("/v1/openapi.json", app)


def test_requests_made_from_the_document_find_nothing(
    world: World, schema: Any, request: pytest.FixtureRequest
) -> None:
    """schemathesis, bounded: right and wrong requests to each route; every answer is as the document says."""
    examples = request.config.getoption("--schemathesis-examples")
    headers = {"Authorization": f"Bearer {world.keys['admin']}", "Host": "127.0.0.1"}
    faults = []
    for found in schema.get_all_operations():
        operation = found.ok()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tried(operation, world, headers, examples)
            except BaseExceptionGroup as group:
                faults += [f"{operation.label}: {one}" for one in group.exceptions]
            except AssertionError as fault:
                faults.append(f"{operation.label}: {fault}")
    assert faults == [], "\n".join(faults)


def tried(operation: Any, world: World, headers: dict[str, str], examples: int) -> None:
    """Make some requests of one operation, with what there is in the store in about half of the addresses."""

    @seed(20_261_129)
    @settings(
        max_examples=examples, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(data=st.data())
    def try_it(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from(list(schemathesis.GenerationMode)))
        case = data.draw(operation.as_strategy(generation_mode=mode))
        case.path_parameters = {
            name: world.filling.get(name, value) if name == "project" or data.draw(st.booleans()) else value
            for name, value in (case.path_parameters or {}).items()
        }
        case.call_and_validate(headers=headers, checks=CHECKS)

    try_it()


@pytest.mark.parametrize("said", [{"ready": "yes"}, None], ids=["another answer", "an error"])
def test_a_route_that_answers_otherwise_is_found(world: World, said: Any) -> None:
    """Sabotage: an answer that is not as declared, and one that fails, do not pass."""
    bad = Routes("bad")

    @bad.get("/bad", scope="read", answers=Health)
    def give(call: Read) -> Response:
        """Give what was not declared."""
        if said is None:
            raise KeyError("nobody foresaw this")
        return answer(call, said)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = schemathesis.openapi.from_asgi("/v1/openapi.json", world.app(routes=(about, bad)))
    headers = {"Authorization": f"Bearer {world.keys['admin']}", "Host": "127.0.0.1"}
    operation = next(found.ok() for found in schema.get_all_operations() if "/bad" in found.ok().label)
    with pytest.raises((AssertionError, BaseExceptionGroup, KeyError)):
        tried(operation, world, headers, 5)
