"""Who is calling, and whether they may. Decided before anything else of a request is looked at.

What a caller learns: without a valid key, or with a revoked or expired one, 401; with a key that this project never
had, 404, whether the project exists or not, and whether the key opens another; with a key of this project and the wrong
scope, 403.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from api.http.gate import Gate
from api.http.keyrings import Keyring
from api.keys import digest_of
from ledger.application import utc_now
from ledger.errors import Forbidden, NotAuthenticated, NotFound
from ledger.facts.access import SCOPES

LOCAL = "local"

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+)(?::[0-9]{1,5})?")
_FORWARDING = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Caller(NamedTuple):
    """Who is calling: the name of the key, its digest (None for a local caller without one), its scopes."""

    name: str
    digest: str | None
    scopes: frozenset[str]

    @property
    def actor(self) -> str:
        """How the caller stands in the log."""
        return LOCAL if self.digest is None else f"key:{self.name}"

    def may(self, scope: str) -> bool:
        """Whether the scopes cover one."""
        return scope in self.scopes or "admin" in self.scopes


NOBODY = Caller("", None, frozenset())


async def admit(request: Request, scope: str) -> Caller:
    """The caller of a route with a declared scope.

    Raises:
        NotAuthenticated: there is no valid key.
        NotFound: the key is not one of this project, or there is no such project.
        Forbidden: the key's scopes do not cover the route.
    """
    if scope == "public":
        return NOBODY
    gate: Gate = request.app.state.gate
    project: str = request.path_params["project"]
    given = request.headers.getlist("authorization")
    if not given and gate.insecure_local:
        _check_local(request)
        caller = Caller(LOCAL, None, frozenset(SCOPES))
        await _check_project(gate, project)
    else:
        caller = await _caller_with_key(gate, project, _bearer(given))
    request.state.project, request.state.key_name = project, caller.name
    if not caller.may(scope):
        raise Forbidden(f"The key does not have the scope {scope}, which this needs.")
    return caller


async def is_still_admitted(request: Request, scope: str, caller: Caller) -> bool:
    """Whether a caller who was let in, and whose answer goes on, may still have it."""
    if caller.digest is None:
        return True
    ring = await _keyring(request.app.state.gate, request.path_params["project"])
    key, valid = ring.key(caller.digest, utc_now())
    return key is not None and valid and (scope in key.issued.scopes or "admin" in key.issued.scopes)


async def _caller_with_key(gate: Gate, project: str, text: str) -> Caller:
    digest = digest_of(text)
    ring = await _keyring(gate, project)
    key, valid = ring.key(digest, utc_now())
    if key is None:
        # The same words whether there is such a project or not.
        raise NotFound("There is no such project for this key; check the project's name and the key.")
    if not valid:
        raise NotAuthenticated("The key was revoked or has expired; use another one.")
    return Caller(key.issued.name, digest, frozenset(key.issued.scopes))


async def _check_project(gate: Gate, project: str) -> None:
    if not (await _keyring(gate, project)).exists and project != gate.workspace.settings.project:
        raise NotFound("There is no such project; `el project list` shows those there are.")


async def _keyring(gate: Gate, project: str) -> Keyring:
    held = gate.keyrings.held(project)
    return held if held is not None else await run_in_threadpool(gate.keyrings.read, project)


def _bearer(given: list[str]) -> str:
    if not given:
        raise NotAuthenticated(
            "There is no key; set EL_API_KEY, or send it in the header `Authorization: Bearer el_...`."
        )
    if len(given) > 1:
        raise NotAuthenticated("There are several Authorization headers; send one.")
    kind, _, text = given[0].partition(" ")
    if kind.lower() != "bearer":
        raise NotAuthenticated("The Authorization header is not understood; write `Bearer el_...`.")
    return text.strip()


def _check_local(request: Request) -> None:
    """Whether a request without a key comes from this machine, and not through a browser or proxy from elsewhere.

    A web page can make a browser on this machine send requests here: by a form (then the browser says that they come
    from elsewhere), or under a name of its own that leads to 127.0.0.1 (then Host is that name).
    """
    client = request.client
    if client is None or not _is_loopback(client.host) or any(name in request.headers for name in _FORWARDING):
        raise NotAuthenticated("Without a key the server answers on its own machine only; send a key.")
    hosts = request.headers.getlist("host")
    named = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if named is None or not _is_loopback(named[1].strip("[]")):
        raise NotAuthenticated("Without a key the server answers to the names of its own machine only; send a key.")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("Without a key the server does not answer web pages from elsewhere.")
    for origin in request.headers.getlist("origin"):
        if _netloc(origin) != hosts[0]:
            raise Forbidden("Without a key the server does not answer web pages from elsewhere.")


def _netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback
