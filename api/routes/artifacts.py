"""Artifacts by their sha256: read as bytes that nobody renders, sent whole or in pieces that can be resumed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncIterator
from typing import BinaryIO

from fastapi import Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from api.http.answering import answer
from api.http.calls import Read, Write
from api.http.problems import BadRequest
from api.http.routes import Routes
from api.pages import Upload
from api.routes.queries import Sha256Path
from api.uploads import ARTIFACT_BYTES_MAX, Span, Uploads, span_of
from ledger.errors import BadInput

BYTES = "application/octet-stream"
READ_BYTES = 256 << 10
WRITE_BYTES = 1 << 20  # also the longest body that is held in memory

# What a trial left may be hostile: no browser is to render or run it, or guess what it is.
_UNRENDERED = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Accept-Ranges": "bytes",
}

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")

routes = Routes("artifacts")


@routes.get(
    "/artifacts/{sha256}",
    scope="read",
    media=BYTES,
    statuses={200: "The whole artifact.", 206: "The range asked for.", 416: "The artifact has no such range."},
)
def artifact(call: Read, sha256: Sha256Path) -> Response:
    """Read an artifact's bytes, all of them or one range. They are not checked against the name again."""
    file = call.client.artifacts.open(sha256)
    size = os.fstat(file.fileno()).st_size
    headers = _UNRENDERED | {"ETag": f'"{sha256}"', "Content-Disposition": f'attachment; filename="{sha256}"'}
    asked = call.request.headers
    if f'"{sha256}"' in asked.get("if-none-match", ""):
        file.close()
        return Response(status_code=304, headers=headers)
    wanted = _range_of(asked.get("range", ""), size) if asked.get("if-range", f'"{sha256}"') == f'"{sha256}"' else None
    if wanted is None:
        start, end, status = 0, size, 200
    elif wanted.start < size:
        start, end, status = wanted.start, wanted.stop, 206
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    else:
        file.close()
        raise BadRequest(416, f"The artifact has {size:,} bytes, and none in this range.")
    headers["Content-Length"] = str(end - start)
    return StreamingResponse(_read(file, start, end), status, headers, BYTES)


@routes.get("/artifacts/{sha256}/upload", scope="report", answers=Upload)
def upload(call: Read, sha256: Sha256Path) -> Response:
    """Read how much of an artifact is there: all of it, or the offset that an unfinished upload goes on from."""
    store = call.client.artifacts
    offset = Uploads(store).offset(sha256)
    return answer(call, Upload(sha256, store.has(sha256), offset), headers={"Upload-Offset": str(offset)})


@routes.put(
    "/artifacts/{sha256}",
    scope="report",
    answers=Upload,
    takes=BYTES,
    statuses={
        201: "It is stored, verified and durable.",
        200: "It is stored, and had been there before.",
        202: "The piece is kept; more of the artifact is to follow.",
    },
    body_bytes_max=ARTIFACT_BYTES_MAX,
)
async def put_artifact(call: Write, sha256: Sha256Path) -> Response:
    """Store an artifact under the sha256 of its content; with `Content-Range`, a piece of it."""
    client = await run_in_threadpool(lambda: call.client)
    store = client.artifacts
    there = await run_in_threadpool(store.has, sha256)
    told = call.request.headers.get("content-range")
    pieces = _pieces(call.chunks())
    if told is None:
        head = await anext(pieces, b"")
        if len(head) < WRITE_BYTES:
            await run_in_threadpool(_check, head, sha256)
            size = (await run_in_threadpool(store.put_bytes, head)).size
            return _stored(call, sha256, size, there=there)
        span = Span(0, ARTIFACT_BYTES_MAX, ARTIFACT_BYTES_MAX)
    else:
        span, head = span_of(told), b""
    taking = Uploads(store).taking(sha256, span.start)
    piece = await run_in_threadpool(taking.__enter__)
    try:
        at = span.start + len(head)
        await run_in_threadpool(piece.write, head)
        async for data in pieces:
            at += len(data)
            if at > span.end:
                raise BadInput("The body is longer than Content-Range says.")
            await run_in_threadpool(piece.write, data)
        if told is not None and at < span.end:
            raise BadInput("The body is shorter than Content-Range says; what arrived is kept.")
        if told is not None and at < span.total:
            return answer(call, Upload(sha256, False, at), status=202, headers={"Upload-Offset": str(at)})
        size = (await run_in_threadpool(piece.finish)).size
    finally:
        await run_in_threadpool(taking.__exit__, None, None, None)
    return _stored(call, sha256, size, there=there)


def _stored(call: Write, sha256: str, size: int, *, there: bool) -> Response:
    done = Upload(sha256, True, size)
    return answer(call, done, status=200 if there else 201, location=f"/artifacts/{sha256}")


def _check(data: bytes, sha256: str) -> None:
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise BadInput(f"The content has the sha256 {found}, not the one in the path; send what the name says.")


async def _pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The body in runs of WRITE_BYTES or a little more; the last one may be shorter."""
    run: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            run.append(chunk)
            size += len(chunk)
            if size >= WRITE_BYTES:
                yield b"".join(run)
                run, size = [], 0
    except (BadRequest, ClientDisconnect):
        if run:
            yield b"".join(run)  # what arrived before the connection broke is kept
        raise
    if run:
        yield b"".join(run)


async def _read(file: BinaryIO, start: int, end: int) -> AsyncIterator[bytes]:
    with file:
        await run_in_threadpool(file.seek, start)
        while start < end and (data := await run_in_threadpool(file.read, min(READ_BYTES, end - start))):
            start += len(data)
            yield data


def _range_of(text: str, size: int) -> range | None:
    """The one range that a Range header asks for; None for several or what is no range: then all is answered."""
    match = _RANGE.fullmatch(text.replace(" ", ""))
    if match is None or match[1] + match[2] == "":
        return None
    if match[1] == "":
        return range(max(0, size - int(match[2])), size) if int(match[2]) else range(size, size)
    start = int(match[1])
    if match[2] and int(match[2]) < start:
        return None
    return range(start, min(size, int(match[2]) + 1) if match[2] else size) if start < size else range(size, size)
