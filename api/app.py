"""The HTTP door as one app: its routes, what stands before them, and what runs beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import msgspec
from fastapi import FastAPI

from api.following import BackgroundFollower
from api.http.addresses import Addresses
from api.http.gate import Gate
from api.http.openapi import document
from api.http.problems import add_handlers
from api.http.routes import DoorRoute, Routes, UndeclaredRoute, as_route, check_declared
from api.routes import ROUTES
from api.telemetry import RequestLog, Telemetry
from api.wiring import Workspace


class _Sealed(list[Any]):
    """The routes of an app that was started: none can be added behind the back of the check."""

    def _refuse(self, *_: object) -> NoReturn:
        raise UndeclaredRoute("The app has all its routes; declare further ones in api.routes.")

    append = extend = insert = __iadd__ = __setitem__ = _refuse


def create_app(
    workspace: Workspace,
    *,
    insecure_local: bool = False,
    routes: Sequence[Routes] = ROUTES,
    telemetry: Telemetry | None = None,
    follow: bool = True,
) -> FastAPI:
    """The app on a workspace. `insecure_local` answers callers on this machine without a key.

    With `follow`, the read models are brought up to date by a thread of the app while it runs; without it, each read
    does that itself.

    Raises:
        UndeclaredRoute: a route has no scope, or stands where its scope does not belong.
    """
    telemetry = telemetry or Telemetry()
    follower = BackgroundFollower(workspace, telemetry.log) if follow else None

    gate = Gate(workspace, insecure_local=insecure_local, follower=follower, committed=telemetry.committed)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if follower is not None:
            follower.start()
        try:
            yield
        finally:
            await asyncio.to_thread(gate.close)
            if follower is not None:
                await asyncio.to_thread(follower.stop)

    app = FastAPI(
        openapi_url=None,  # a route of ours gives it
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.workspace = workspace
    app.state.telemetry = telemetry
    app.state.follower = follower
    app.state.stopping = asyncio.Event()
    app.state.gate = gate
    app.router.routes.extend(as_route(declared) for group in routes for declared in group.declared)
    seal(app)
    add_handlers(app)
    app.add_middleware(Addresses)
    app.add_middleware(RequestLog, telemetry=telemetry)
    return app


def seal(app: FastAPI) -> None:
    """Check every route of an app, and let none be added from here on.

    Raises:
        UndeclaredRoute: one is not declared as it must be.
    """
    for route in app.router.routes:
        check_declared(route)
    app.router.routes = _Sealed(app.router.routes)
    ours = [route for route in app.router.routes if isinstance(route, DoorRoute)]
    app.state.openapi = msgspec.json.encode(document(ours))
