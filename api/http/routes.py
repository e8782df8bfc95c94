"""How routes are declared: each with its scope, and below one project unless it says otherwise.

A `Routes` is a list of declarations. `create_app` makes routes of them, and refuses to start with any other route.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args, get_origin

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.http.access import admit
from api.http.problems import BadRequest
from ledger.facts.access import SCOPES

PROJECT = "/v1/projects/{project}"
BODY_BYTES_MAX = 1 << 20

Reach = Literal["submit", "report", "read", "publish", "admin", "public"]
Method = Literal["GET", "HEAD", "POST", "PUT", "DELETE"]
Handler = TypeVar("Handler", bound=Callable[..., Any])


class UndeclaredRoute(Exception):
    """A route has no declared scope, or stands where its scope does not belong; the server does not start."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A route as declared. `scope` is "public" for everybody."""

    method: Method
    path: str
    scope: Reach
    handler: Callable[..., Any]
    answers: Any
    statuses: Mapping[int, str]
    media: str
    takes: str
    body_bytes_max: int
    cursor: bool
    group: str


@dataclass
class Routes:
    """The routes of one noun. Paths are below one project, or whole paths with `project=False`."""

    group: str
    project: bool = True
    declared: list[Declared] = field(default_factory=list)

    def route(
        self,
        method: Method,
        path: str,
        *,
        scope: Reach,
        answers: Any = None,
        statuses: Mapping[int, str] | None = None,
        media: str = "application/json",
        takes: str = "application/json",
        body_bytes_max: int = BODY_BYTES_MAX,
        cursor: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Declare a route: who may call it, what it answers (a type that msgspec can encode), and in which media type.

        `takes` is the media type of its body, if it reads one; `cursor` says that it takes `?cursor=`.
        """

        def declare(handler: Handler) -> Handler:
            where = PROJECT + path if self.project else path
            said = statuses or {200: "Done."}
            self.declared.append(
                Declared(method, where, scope, handler, answers, said, media, takes, body_bytes_max, cursor, self.group)
            )
            return handler

        return declare

    def get(self, path: str, *, scope: Reach, **more: Any) -> Callable[[Handler], Handler]:
        """Declare a reading route; see `route`."""
        return self.route("GET", path, scope=scope, **more)

    def post(self, path: str, *, scope: Reach, **more: Any) -> Callable[[Handler], Handler]:
        """Declare a route that does something; see `route`."""
        return self.route("POST", path, scope=scope, **more)

    def put(self, path: str, *, scope: Reach, **more: Any) -> Callable[[Handler], Handler]:
        """Declare a route that stores what it is given under its name; see `route`."""
        return self.route("PUT", path, scope=scope, **more)

    def delete(self, path: str, *, scope: Reach, **more: Any) -> Callable[[Handler], Handler]:
        """Declare a route that ends something; see `route`."""
        return self.route("DELETE", path, scope=scope, **more)


class DoorRoute(APIRoute):
    """A route that lets nobody in before scope and project are known to be right."""

    declared: Declared

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the checks that every request passes."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            await self.admit(request)
            self._check_query(request)
            self._check_media(request)
            request.scope["body_bytes_max"] = self.declared.body_bytes_max
            return await inner(request)

        return handle

    async def admit(self, request: Request) -> None:
        """Find out who is calling and whether they may, before anything else is looked at."""
        request.state.caller = await admit(request, self.declared.scope)

    @cached_property
    def query_names(self) -> dict[str, bool]:
        """The query parameters of this route, and whether each may be given several times."""
        return dict(_query_names(self.dependant))

    def _check_query(self, request: Request) -> None:
        known, seen = self.query_names, set[str]()
        for name, _ in request.query_params.multi_items():
            if name not in known:
                names = ", ".join(sorted(known)) or "none"
                raise BadRequest(400, f"There is a query parameter that is not known; known are: {names}.")
            if name in seen and not known[name]:
                raise BadRequest(400, f"The query parameter {name} is given twice.")
            seen.add(name)

    def _check_media(self, request: Request) -> None:
        """A body of a kind that the route does not take is refused; no body at all is for the reader to judge."""
        has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
        if self.declared.method in ("GET", "HEAD") or not has_body:
            return
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != self.declared.takes:
            raise BadRequest(415, f"The body's Content-Type must be {self.declared.takes}.")


def as_route(declared: Declared) -> DoorRoute:
    """A declaration as a route of the app."""
    summary, _, rest = (declared.handler.__doc__ or "").strip().partition("\n\n")
    route = DoorRoute.__new__(DoorRoute)
    route.declared = declared
    name = declared.handler.__name__
    route.__init__(  # type: ignore[misc]  # the handler is built in there and needs to know what is declared
        declared.path,
        declared.handler,
        methods=[declared.method],
        name=name,
        operation_id=f"{declared.group}-{name}".replace("_", "-"),
        tags=[declared.group],
        summary=" ".join(summary.split()).rstrip("."),
        description=" ".join(rest.split()) or None,
        response_model=None,
    )
    return route


def check_declared(route: object) -> None:
    """Whether a route is one of ours, in the right place.

    Raises:
        UndeclaredRoute: it is not; says what to do.
    """
    declared = getattr(route, "declared", None)
    where = getattr(route, "path", None) or type(route).__name__
    if not isinstance(route, DoorRoute) or not isinstance(declared, Declared):
        raise UndeclaredRoute(f"The route {where} has no declared scope; declare it with api.http.routes.Routes.")
    in_project = declared.path == PROJECT or declared.path.startswith(PROJECT + "/")
    if declared.scope not in (*SCOPES, "public"):
        raise UndeclaredRoute(f"The route {where} declares {declared.scope!r}, which is no scope.")
    if in_project != (declared.scope in SCOPES):
        raise UndeclaredRoute(
            f"The route {where} declares the scope {declared.scope}: below a project it must be one of "
            f"{', '.join(SCOPES)}, elsewhere public."
        )


def _query_names(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    for parameter in dependant.query_params:
        yield parameter.alias, _is_list(parameter.field_info.annotation)
    for below in dependant.dependencies:
        yield from _query_names(below)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))
