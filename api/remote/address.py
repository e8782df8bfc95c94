"""Where a server is: its URL, and the key that is sent there, checked before anything is."""

from __future__ import annotations

import ipaddress

import httpx

from ledger.errors import BadInput


def checked_url(url: str, *, has_key: bool) -> str:
    """The base URL of a server, with any path prefix and without a slash at its end.

    A key is sent over plain http only inside one's own network: to a loopback or private address, `localhost`, or a
    name without a dot, as machines of one network call each other.

    Raises:
        BadInput: it is no http or https URL, it holds a password or a query, or it would show the key to a network.
    """
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadInput("The address of the server must look like https://host/path; check EL_API_URL.")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise BadInput("The address of the server holds more than host and path; the key goes into EL_API_KEY.")
    if has_key and parsed.scheme == "http" and not _is_near(parsed.host):
        raise BadInput(
            f"Over http:// everybody on the way to {parsed.host} could read the key; use https://, or a tunnel to "
            "a port of this machine."
        )
    return str(parsed).rstrip("/")


def checked_key(key: str) -> str:
    """A key as it can be sent. Raises BadInput, without repeating it, when it is not one word."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput(
            "EL_API_KEY (or the key given instead) is not one word: it holds a space, a line end or the like; nothing "
            "was sent."
        )
    return key


def _is_near(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(".localhost")
    return address.is_private or address.is_loopback
