"""Requests to a server, repeated where repeating is harmless, and its refusals as the errors they were.

Every request of the client may be sent again: reads change nothing, artifacts go by their digest, published content and
reports say the same twice, and what would not (submitting, asking for a retry, claiming, importing) carries a key of
its own that stays the same however often it is sent. So a reply that was lost on the way costs a repeat and no more.
"""

from __future__ import annotations

import random
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec
import tenacity

from api.problems import error_class
from ledger.errors import BadInput, Conflict, EvalLedgerError, ServerAway, StoreError

T = TypeVar("T")
P = TypeVar("P")

TRIES_MAX = 6
PAUSE_S_MAX = 5.0
RETRY_AFTER_S_MAX = 30.0
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
IN_MEMORY_BYTES_MAX = 8_000_000
PAGE_ROWS_MAX = 1_000
PROBLEM_BYTES_MAX = 1_000_000

BUSY = frozenset({429, 502, 503, 504})
"""Statuses that say: not now."""

Body = Callable[[], Iterable[bytes]]
Params = Mapping[str, Any]

_LOST = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)


class Problem(msgspec.Struct):
    """What a server answers when it refuses (RFC 9457)."""

    type: str = ""
    detail: str = ""
    differs: list[str] = []


class Busy(Exception):
    """The server is there and cannot answer now; `after_s` is how long it asks to be left alone."""

    def __init__(self, error: EvalLedgerError, after_s: float | None) -> None:
        super().__init__()
        self.error = error
        self.after_s = after_s


class Transport:
    """One project of one server. Threads may share it.

    `position` is that of the last write that was answered: every read asks for at least that.
    """

    def __init__(self, url: str, project: str, *, key: str | None = None, tries_max: int = TRIES_MAX) -> None:
        self.url = url
        self.position = 0
        self._lock = threading.Lock()
        self._tries_max = tries_max
        self._base = f"{url}/v1/projects/{quote(project, safe='')}"
        self._http = httpx.Client(
            headers={"User-Agent": "evalledger"} | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=TIMEOUT,
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20),
            verify=_certificates(),
        )

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # --- requests ------------------------------------------------------------------------------------------------

    def get(self, path: str, kind: type[T], **params: Any) -> T:
        """Read an answer of a type. Parameters that are None are left out."""
        return self.page(path, kind, **params)[0]

    def page(self, path: str, kind: type[T], **params: Any) -> tuple[T, str | None]:
        """The same, with the cursor of the next page; None at the end."""
        if self.position:
            params["min_position"] = self.position
        response = self.send("GET", path, params=params)
        return self.decode(response, kind), response.headers.get("el-next")

    def rows(
        self,
        path: str,
        kind: type[P],
        rows: Callable[[P], list[T]],
        *,
        limit: int | None,
        start: Params | None = None,
        **params: Any,
    ) -> list[T]:
        """The rows of a list, page after page, at most `limit`; `start` says where the first page begins."""
        found: list[T] = []
        where: Params = start or {}
        while limit is None or len(found) < limit:
            wanted = PAGE_ROWS_MAX if limit is None else min(PAGE_ROWS_MAX, limit - len(found))
            page, cursor = self.page(path, kind, **params, **where, limit=wanted)
            found += rows(page)
            if cursor is None:
                break
            where = {"cursor": cursor}
        return found

    def post(self, path: str, kind: type[T], body: Any, *, tries_max: int | None = None, patient: bool = False) -> T:
        """Send a JSON document and read the answer, in `tries_max` tries where a repeat would do harm.

        `patient` waits for the answer without end.
        """
        content, headers = msgspec.json.encode(body), {"Content-Type": "application/json"}
        # What it builds on may have been written to another server.
        params = {"min_position": self.position} if self.position else None
        once = partial(self.once, "POST", path, params=params, headers=headers, body=(content,), patient=patient)
        return self.decode(self.again(once, tries_max=tries_max), kind)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        size: int | None = None,
    ) -> httpx.Response:
        """Send a request until it is answered, and read the whole answer, which must be small.

        `body` gives the content anew for each try; `size` is its length in bytes, where it is not sent as one piece.
        """
        return self.again(
            lambda: self.once(method, path, params=params, headers=headers, body=body and body(), size=size)
        )

    def once(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        body: Iterable[bytes] | None = None,
        size: int | None = None,
        patient: bool = False,
    ) -> httpx.Response:
        """Send a request once, to be called by what is given to `again`; `patient` waits for an answer without end."""
        with self._opened(method, path, params, headers, body, size, patient=patient) as response:
            response.read()
            self._refuse(response)
        if position := response.headers.get("el-position"):
            self.wrote(int(position))
        return response

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Open one answer for reading piece by piece. It is not repeated here: the caller knows how far it has come."""
        with self._opened("GET", path, None, headers, None, None) as response:
            if not response.is_success:
                response.read()
            self._refuse(response)
            yield response

    def fetch(self, path: str) -> BinaryIO:
        """Read a large answer into a file that is gone once it is closed; from its beginning again when it breaks."""
        file = cast(BinaryIO, tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES_MAX))  # noqa: SIM115 - the caller closes it

        def once() -> None:
            file.seek(0)
            file.truncate()
            with self.stream(path, {}) as response:
                for chunk in response.iter_bytes():
                    file.write(chunk)

        try:
            self.again(once)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file

    def again(self, attempt: Callable[[], T], *, tries_max: int | None = None) -> T:
        """Make an attempt until one is answered, with growing pauses, so often at the most.

        Raises:
            ServerAway: the server did not answer any of them.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((*_LOST, Busy)),
            stop=tenacity.stop_after_attempt(tries_max or self._tries_max),
            wait=_pause_s,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except Busy as busy:
            raise busy.error from None
        except _LOST as error:
            raise ServerAway(
                f"The server at {self.url} does not answer ({_reason(error)}); check EL_API_URL and that it runs."
            ) from error

    def wrote(self, position: int) -> None:
        """Remember the position of a write, so that the next read shows it."""
        with self._lock:
            self.position = max(self.position, position)

    # --- parts ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _opened(
        self,
        method: str,
        path: str,
        params: Params | None,
        headers: Mapping[str, str] | None,
        body: Iterable[bytes] | None,
        size: int | None,
        *,
        patient: bool = False,
    ) -> Iterator[httpx.Response]:
        said = dict(headers or {})
        content: bytes | Iterable[bytes] | None = None
        if body is not None:
            content = body if size is not None else b"".join(body)
            if size is not None:
                said["Content-Length"] = str(size)
        given = {name: value for name, value in (params or {}).items() if value is not None}
        asked = partial(self._http.stream, method, self._base + path, params=given or None, headers=said)
        timeout = httpx.Timeout(TIMEOUT, read=None) if patient else TIMEOUT
        try:
            with asked(content=content, timeout=timeout) as response:
                yield response
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeEncodeError) as error:
            raise BadInput(f"The request cannot be sent to {self.url} ({type(error).__name__}).") from None
        except httpx.DecodingError:
            raise self._not_ours(response.status_code) from None

    def _refuse(self, response: httpx.Response) -> None:
        """Raise what an answer refuses; Busy where it may be asked again."""
        if response.is_success:
            return
        error = self._error_of(response)
        if response.status_code in BUSY:
            raise Busy(error, _retry_after_s(response))
        raise error

    def _error_of(self, response: httpx.Response) -> EvalLedgerError:
        status = response.status_code
        try:
            problem = msgspec.json.decode(response.content[:PROBLEM_BYTES_MAX], type=Problem)
        except msgspec.DecodeError:
            problem = Problem()
        kind = error_class(problem.type) if problem.type else None
        if not problem.detail:
            if status in BUSY:
                return ServerAway(f"The server at {self.url} cannot answer now (HTTP {status}); try again later.")
            return self._not_ours(status)
        if kind is not None and issubclass(kind, Conflict):
            return kind(problem.detail, problem.differs)
        if kind is None:
            kind = StoreError if status >= 500 else BadInput
        return kind(problem.detail)

    def _not_ours(self, status: int) -> StoreError:
        return StoreError(f"{self.url} answered HTTP {status} and not as an EvalLedger server does; check EL_API_URL.")

    def decode(self, response: httpx.Response, kind: type[T]) -> T:
        """The body of an answer as what it should be. Raises StoreError when it is not."""
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise StoreError(
                f"{self.url} answered what this version cannot read ({error}); bring client and server to one version."
            ) from error


@cache
def _certificates() -> ssl.SSLContext:
    """The machine's certificates; to load them takes longer than most requests, so a process does it once."""
    return httpx.create_ssl_context()


def path_of(*parts: str) -> str:
    """A path below the project, each part quoted."""
    return "/" + "/".join(quote(part, safe="@+") for part in parts)


def _pause_s(state: tenacity.RetryCallState) -> float:
    """How long to wait before the next try: growing, with jitter; at least what the server asked for."""
    error = state.outcome.exception() if state.outcome else None
    asked_s = error.after_s or 0.0 if isinstance(error, Busy) else 0.0
    pause_s = random.uniform(0.5, 1.0) * min(PAUSE_S_MAX, 0.1 * 2.0**state.attempt_number)  # noqa: S311 - no secret
    return max(pause_s, min(asked_s, RETRY_AFTER_S_MAX))


def _retry_after_s(response: httpx.Response) -> float | None:
    """Seconds that the server asks for; a date, or nonsense, counts as nothing said."""
    try:
        return max(0.0, float(response.headers.get("retry-after", "")))
    except ValueError:
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return "the connection was refused" if isinstance(error, httpx.ConnectError) else "the connection was lost"
