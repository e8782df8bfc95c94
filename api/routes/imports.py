"""Imports: facts of many streams in one request, recorded all or none."""

from __future__ import annotations

import tempfile
from typing import Annotated

from fastapi import Query, Response
from starlette.concurrency import run_in_threadpool

from api.http.answering import answer
from api.http.calls import Write
from api.http.routes import Routes
from api.pages import ImportTaken
from api.receiving import IMPORT_BYTES_MAX, Streams, receive

SPOOLED_BYTES_MAX = 8 << 20

routes = Routes("imports")


@routes.post(
    "/imports",
    scope="submit",
    answers=ImportTaken,
    takes="application/x-ndjson",
    statuses={201: "All of it is recorded."},
    body_bytes_max=IMPORT_BYTES_MAX,
)
async def take_import(
    call: Write,
    streams: Annotated[Streams, Query(description="Whether all streams are new, or some may be there already.")],
    key: Annotated[str | None, Query(min_length=1, max_length=200, description="Kept with every entry.")] = None,
) -> Response:
    """Record facts by stream, one line each: `{"stream": "job/...", "facts": [{"fact": "job-submitted", ...}]}`.

    The rules of each stream are asked again here. The body is taken in whole first, so a slow caller keeps nobody
    waiting.
    """
    with tempfile.SpooledTemporaryFile(SPOOLED_BYTES_MAX) as file:
        async for chunk in call.chunks():
            await run_in_threadpool(file.write, chunk)
        done = await run_in_threadpool(lambda: receive(call.client, file, streams, call.request_id(key)))
    return answer(call, done, status=201, position=done.position)
