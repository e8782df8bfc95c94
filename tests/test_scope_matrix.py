"""Who may do what: every route of the app, with every kind of key. A route that comes later is in here by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import Mount, WebSocketRoute

from api.app import create_app, seal
from api.http.access import Caller, admit
from api.http.routes import PROJECT, Declared, DoorRoute, Routes, UndeclaredRoute
from api.keys import new_key
from api.routes import ROUTES
from ledger.facts.access import SCOPES
from tests.asgi import Answer, Browser
from tests.given_requests import MARK, MINE, OTHER, World, routes_of

DECLARED = [declared for group in ROUTES for declared in group.declared]
IN_PROJECT = [declared for declared in DECLARED if declared.scope != "public"]


def named(declared: Declared) -> str:
    return f"{declared.method} {declared.path.removeprefix(PROJECT)}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two projects and keys of every kind."""
    return World(tmp_path_factory.mktemp("matrix"))


@pytest.fixture(scope="module")
def app(world: World) -> FastAPI:
    """The app with all its routes."""
    return world.app()


@pytest.fixture(scope="module")
def browser(app: FastAPI) -> Iterator[Browser]:
    """Whoever asks."""
    asking = Browser(app)
    yield asking
    asking.close()


def route_of(app: FastAPI, declared: Declared) -> DoorRoute:
    return next(route for route in routes_of(app) if route.declared is declared)


def ask(browser: Browser, route: DoorRoute, address: str, authorization: str | None) -> Answer:
    headers = {"authorization": authorization} if authorization is not None else {}
    return browser(route.declared.method, address, headers=headers)


def faults_of(browser: Browser, world: World, route: DoorRoute) -> list[str]:
    """What a route answers otherwise than it should, for every kind of caller."""
    declared, here = route.declared, world.address(route)
    nowhere = world.address(route, project="nowhere")
    keys = world.keys
    good = f"Bearer {keys['admin']}"
    expected: list[tuple[str, str, str | None, int]] = [
        ("no key", here, None, 401),
        ("no key, no project", nowhere, None, 401),
        ("no text", here, "", 401),
        ("another kind", here, f"Basic {keys['admin']}", 401),
        ("not a key", here, "Bearer el_x", 401),
        ("a mistyped key", here, good[:-1] + ("a" if good[-1] != "a" else "b"), 401),
        ("a key and more", here, good + "0", 401),
        ("a revoked key", here, f"Bearer {keys['revoked']}", 401),
        ("an expired key", here, f"Bearer {keys['expired']}", 401),
        ("a key of another project", here, f"Bearer {keys['other']}", 404),
        ("a key that never was", here, f"Bearer {new_key()}", 404),
        ("a project that is not there", nowhere, good, 404),
        *(
            (f"the scope {scope}", here, f"Bearer {keys[scope]}", 403)
            for scope in SCOPES
            if scope not in (declared.scope, "admin")
        ),
    ]
    found = []
    for who, address, authorization, status in expected:
        answer = ask(browser, route, address, authorization)
        if answer.status != status:
            found.append(f"{who}: {answer.status}, not {status}")
        if MARK.encode() in answer.body:
            found.append(f"{who}: sees what is in the project")
    for scope in (declared.scope, "admin"):
        answer = ask(browser, route, here, f"Bearer {keys[scope]}")
        if answer.status in (401, 403) or answer.status >= 500:
            found.append(f"the right scope {scope}: {answer.status} {answer.body[:200]!r}")
    return found


@pytest.mark.parametrize("declared", IN_PROJECT, ids=named)
def test_a_route_answers_each_caller_as_it_should(
    browser: Browser, app: FastAPI, world: World, declared: Declared
) -> None:
    """401 without a valid key, 404 in another's project, 403 without the scope, and an answer for who may."""
    assert faults_of(browser, world, route_of(app, declared)) == []


def test_every_route_of_the_app_is_in_here(app: FastAPI) -> None:
    """The matrix is as long as the app."""
    assert [route.declared for route in app.routes] == DECLARED  # type: ignore[attr-defined]
    assert len(IN_PROJECT) > 30


@pytest.mark.parametrize("declared", [d for d in DECLARED if d.scope == "public"], ids=named)
def test_a_public_route_says_nothing_of_a_project(browser: Browser, app: FastAPI, declared: Declared) -> None:
    """Whoever asks gets an answer, and no name of a project is in it."""
    answer = browser(declared.method, declared.path)
    assert answer.status in (200, 503)
    assert not any(name.encode() in answer.body for name in (MARK, f'"{MINE}"', f'"{OTHER}"'))


@pytest.mark.parametrize("declared", IN_PROJECT, ids=named)
def test_nobody_reaches_another_project_by_its_ids(
    browser: Browser, app: FastAPI, world: World, declared: Declared
) -> None:
    """Ids, names and digests of one project are unknown in another, whatever the route; nothing of it is answered."""
    route = route_of(app, declared)
    answer = ask(browser, route, world.address(route, project=OTHER), f"Bearer {world.keys['other']}")
    assert answer.status < 500
    body = answer.body.replace(b"There is no", b"").replace(f"{MARK}@1".encode(), b"")  # the name that was asked for
    assert MARK.encode() not in body
    if declared.method == "GET" and set(route.param_convertors) - {"project"} and answer.status == 200:
        assert "upload" in declared.path or "log/" in declared.path, answer.body[:300]


def test_a_key_of_another_project_and_an_unknown_project_are_answered_alike(browser: Browser, world: World) -> None:
    """From the answer nobody learns which projects there are, or that a key opens another."""
    key = {"authorization": f"Bearer {world.keys['other']}"}
    there, nowhere = (browser("GET", f"/v1/projects/{name}/jobs", headers=key) for name in (MINE, "nowhere"))
    unknown = browser("GET", f"/v1/projects/{MINE}/jobs", headers={"authorization": f"Bearer {new_key()}"})
    assert there.body == nowhere.body == unknown.body
    assert {name: v for name, v in there.headers.items() if name != "x-request-id"} == {
        name: v for name, v in nowhere.headers.items() if name != "x-request-id"
    }


def test_a_cursor_is_good_for_its_own_list_only(browser: Browser, world: World) -> None:
    """Another project, another route, other filters, one changed character: each is refused."""
    gate = browser.app.state.gate  # type: ignore[attr-defined]
    mine = {"authorization": f"Bearer {world.keys['admin']}"}
    other = {"authorization": f"Bearer {world.keys['other']}"}
    cursor = gate.cursors.seal(10_000, of=f'["/v1/projects/{MINE}/jobs",[["status","running"]]]')
    here = f"/v1/projects/{MINE}/jobs?status=running&cursor="
    assert browser("GET", here + cursor, headers=mine).status == 200
    assert browser("GET", here + cursor + "&limit=1&min_position=1", headers=mine).status == 200
    elsewhere = [
        (f"/v1/projects/{OTHER}/jobs?status=running&cursor={cursor}", other),
        (f"/v1/projects/{MINE}/jobs?status=failed&cursor={cursor}", mine),
        (f"/v1/projects/{MINE}/jobs?cursor={cursor}", mine),
        (f"/v1/projects/{MINE}/datasets?cursor={cursor}", mine),
        *(
            (here + cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :], mine)
            for at in range(len(cursor))
        ),
        (here + cursor + "=", mine),
        (here, mine),
        (here + "%F0%9F%98%80", mine),
    ]
    for address, key in elsewhere:
        assert browser("GET", address, headers=key).problem == "malformed", address


# --- sabotage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", IN_PROJECT[:3] + IN_PROJECT[-3:], ids=named)
def test_a_route_that_lets_everybody_in_makes_the_matrix_red(
    browser: Browser, app: FastAPI, world: World, declared: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sabotage: without the check at its door, a route has faults for many kinds of callers."""

    async def let_in(_route: DoorRoute, request: Any) -> None:
        request.state.caller = Caller("anybody", "0" * 64, frozenset(SCOPES))

    monkeypatch.setattr(DoorRoute, "admit", let_in)
    assert len(faults_of(browser, world, route_of(app, declared))) > 5


def test_a_route_with_a_weaker_check_makes_the_matrix_red(
    browser: Browser, app: FastAPI, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sabotage: a route that takes any key of the project, whatever its scopes, is found."""

    async def with_any_scope(route: DoorRoute, request: Any) -> None:
        for scope in SCOPES:
            try:
                request.state.caller = await admit(request, scope)
            except Exception as refused:
                last = refused
            else:
                return
        raise last

    monkeypatch.setattr(DoorRoute, "admit", with_any_scope)
    route = route_of(app, IN_PROJECT[0])
    assert all("the scope" in fault for fault in faults_of(browser, world, route))
    assert faults_of(browser, world, route)


def handler() -> None:
    """Do nothing."""


def undeclared(scope: Any, path: str, *, project: bool = True) -> Routes:
    group = Routes("later", project=project)
    group.get(path, scope=scope)(handler)
    return group


@pytest.mark.parametrize(
    "group",
    [
        undeclared("public", "/later"),
        undeclared("root", "/later"),
        undeclared(None, "/later"),
        undeclared("read", "/v1/later", project=False),
        undeclared("read", "/v1/projects/{other}/later", project=False),
        undeclared("read", "/v1/projects/{project}s/later", project=False),
        undeclared("public", "/v1/projects/{project}", project=False),
    ],
    ids=lambda group: f"{group.declared[0].path} {group.declared[0].scope}",
)
def test_an_app_with_a_route_in_the_wrong_place_does_not_start(world: World, group: Routes) -> None:
    """A scope stands below a project, `public` elsewhere, and nothing else is a scope."""
    with pytest.raises(UndeclaredRoute, match=r"later|declares"):
        create_app(world.workspace, routes=(*ROUTES, group), follow=False)


def test_a_route_needs_a_scope_where_it_is_declared() -> None:
    """It cannot be left out."""
    with pytest.raises(TypeError, match="scope"):
        Routes("later").get("/later")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "route",
    [
        Mount("/later", FastAPI()),
        WebSocketRoute("/later", handler),
        FastAPI().router.routes,
    ],
    ids=["mount", "websocket", "other"],
)
def test_an_app_with_any_other_kind_of_route_does_not_start(route: Any) -> None:
    """Mounted apps, websockets and plain routes have no declared scope."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.router.routes.append(route)
    with pytest.raises(UndeclaredRoute, match="no declared scope"):
        seal(app)


def test_no_route_is_added_after_the_start(app: FastAPI) -> None:
    """The app is closed: neither routes nor mounts nor routers can be added behind the check."""
    before = len(app.routes)
    for add in (
        lambda: app.get("/later")(handler),
        lambda: app.add_api_route("/later", handler),
        lambda: app.mount("/later", FastAPI()),
        lambda: app.include_router(FastAPI().router),
        lambda: app.add_api_websocket_route("/later", handler),
        lambda: app.add_route("/later", handler),
        lambda: app.host("later", FastAPI()),
    ):
        with pytest.raises(UndeclaredRoute, match="has all its routes"):
            add()
    assert len(app.routes) == before
