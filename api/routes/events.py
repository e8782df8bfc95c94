"""The audit trail: entries of the log by what they are about, in pages or followed live; whole streams."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import Depends, Header, Query, Request, Response
from sse_starlette import EventSourceResponse

from api.http.answering import answer
from api.http.bodies import strict
from api.http.calls import List, ListCall, Read
from api.http.problems import BadRequest
from api.http.routes import Routes
from api.live import END_S_MAX, PING_S, SEND_S_MAX, Live, Question, ping
from api.pages import Event, EventPage, StreamsAnswer
from api.routes.bodies import AskStreams
from api.routes.queries import AfterPosition, BeforePosition, JobPath, Limit, TextQ, TrialPath
from ledger.errors import BadInput, NotYet
from ledger.facts.trial import Slot
from projections.audit_trail import AuditRow

ROWS_AT_ONCE = 100
STREAMS_AT_ONCE = 50
ANSWER_BYTES_MAX = 8 << 20
STREAM_CHARS_MAX = 1_000

SSE = "text/event-stream"

routes = Routes("events")

Tags = Annotated[
    list[Annotated[str, Query(max_length=100)]], Query(max_length=50, description="Facts of these kinds only.")
]
StreamQ = Annotated[str | None, Query(min_length=1, max_length=STREAM_CHARS_MAX, description="Of this stream only.")]
Since = Annotated[datetime | None, Query(description="Recorded at this instant or later; RFC 3339 with an offset.")]
Until = Annotated[datetime | None, Query(description="Recorded before this instant; RFC 3339 with an offset.")]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=20, description="The last position that was received.")
]
_STATUSES = {
    200: "A page, or, with `Accept: text/event-stream`, every entry from here on as it comes.",
    503: "There are too many streams.",
}


class Wanted:
    """Which entries a request asks for."""

    def __init__(
        self,
        actor: TextQ = None,
        tag: Tags = [],  # noqa: B006 - FastAPI copies it
        task: TextQ = None,
        stream: StreamQ = None,
        before: BeforePosition = None,
        since: Since = None,
        until: Until = None,
    ) -> None:
        for instant in (since, until):
            if instant is not None and instant.tzinfo is None:
                raise BadRequest(400, "`since` and `until` need an offset from UTC, such as Z.")
        self.ends = before is not None or until is not None
        self.filters = {
            "actor": actor,
            "tags": tag,
            "task": task,
            "stream": stream,
            "before": before,
            "since": since,
            "until": until,
        }

    def about(self, call: Read, **more: object) -> Question:
        """The question after a position, about something too."""
        return lambda after, limit: call.client.events(after=after, limit=limit, **self.filters | more)  # type: ignore[arg-type]  # the names are those of `events`


Filters = Annotated[Wanted, Depends(Wanted)]


@routes.get("/events", scope="read", answers=EventPage, statuses=_STATUSES, cursor=True)
def events(
    call: List,
    wanted: Filters,
    job: Annotated[str | None, Query(min_length=1, max_length=36, description="About this job only.")] = None,
    trial: Annotated[str | None, Query(min_length=1, max_length=36, description="About this trial only.")] = None,
    after: AfterPosition = 0,
    limit: Limit = 100,
    last_event_id: LastEventId = None,
) -> Response:
    """List the entries of the project's log, or follow them live."""
    slot = _slot(call, trial) if trial else None
    job_id = call.client.job_id(job) if job else None
    if slot and job_id not in (None, slot.job_id):
        raise BadInput("The trial is not one of that job; ask for one of the two.")
    return _answered(call, wanted, {"job_id": job_id, "slot": slot}, after, limit, last_event_id)


@routes.get("/jobs/{job_id}/events", scope="read", answers=EventPage, statuses=_STATUSES, cursor=True)
def job_events(
    call: List,
    job_id: JobPath,
    wanted: Filters,
    after: AfterPosition = 0,
    limit: Limit = 100,
    last_event_id: LastEventId = None,
) -> Response:
    """List the entries about a job and its trials, or follow them live."""
    return _answered(call, wanted, {"job_id": call.client.job(job_id).id}, after, limit, last_event_id)


@routes.get("/trials/{trial_id}/events", scope="read", answers=EventPage, statuses=_STATUSES, cursor=True)
def trial_events(
    call: List,
    trial_id: TrialPath,
    wanted: Filters,
    after: AfterPosition = 0,
    limit: Limit = 100,
    last_event_id: LastEventId = None,
) -> Response:
    """List the entries of a trial, or follow them live."""
    return _answered(call, wanted, {"slot": _slot(call, trial_id)}, after, limit, last_event_id)


@routes.post("/streams", scope="read", answers=StreamsAnswer)
def streams(call: Read, body: Annotated[AskStreams, strict(AskStreams)]) -> Response:
    """Read whole streams by name, as many as fit one answer; `left` names those to ask for again."""
    names = list(dict.fromkeys(body.streams))
    as_of = call.client.head().entries
    found: dict[str, list[Event]] = {}
    size = 0
    while names and size < ANSWER_BYTES_MAX:
        some, names = names[:STREAMS_AT_ONCE], names[STREAMS_AT_ONCE:]
        for stream, bodies in call.client.stream_bodies(some).items():
            found[stream] = [Event(position, msgspec.Raw(entry)) for position, entry in bodies]
            size += sum(len(entry) for _, entry in bodies)
    return answer(call, StreamsAnswer(found, names, as_of))


def _slot(call: Read, trial_id: str) -> Slot:
    row = call.client.get_trial(trial_id)
    return Slot(row.job_id, row.attempt, row.task)


def _answered(
    call: ListCall, wanted: Wanted, about: dict[str, object], after: int, limit: int, last_event_id: str | None
) -> Response:
    question = wanted.about(call, **about)
    if SSE in call.request.headers.get("accept", ""):
        return _followed(call, wanted, question, after if last_event_id is None else _position(last_event_id))
    return _page(call, question, call.after(int) or after, limit)


def _page(call: ListCall, question: Question, after: int, limit: int) -> Response:
    """A page of at most `limit` entries; a shorter one when they are long."""
    rows: list[AuditRow] = []
    size, more = 0, True
    while more and len(rows) < limit and size < ANSWER_BYTES_MAX:
        wanted = min(ROWS_AT_ONCE, limit - len(rows))
        some = question(rows[-1].position if rows else after, wanted)
        rows += some
        size += sum(len(row.body) for row in some)
        more = len(some) == wanted
    page = EventPage([Event(row.position, msgspec.Raw(row.body)) for row in rows], call.client.as_of)
    return answer(call, page, next=rows[-1].position if more and rows else None)


def _followed(call: ListCall, wanted: Wanted, question: Question, after: int) -> Response:
    if wanted.ends or call.cursor is not None:
        raise BadRequest(400, "What is followed live has no end and no pages; leave out before, until and cursor.")
    if after > (end := call.client.head().entries):
        raise BadInput(f"The log of the project ends at position {end:,}, before the one to go on from.")
    live = live_of(call.request)
    if live.full():
        raise NotYet("There are as many live streams as the server keeps; try again later, or read pages.")
    return EventSourceResponse(
        live.follow(call, question, after),
        ping=PING_S,
        ping_message_factory=ping,  # type: ignore[arg-type]  # bytes are sent as they are
        send_timeout=SEND_S_MAX,
        shutdown_grace_period=END_S_MAX,  # `follow` ends by itself, so that the answer is a whole one
        sep="\n",
    )


def live_of(request: Request) -> Live:
    """The live streams of the app."""
    state = request.app.state
    if not hasattr(state, "live"):
        state.live = Live(state.gate)
    live: Live = state.live
    return live


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(400, "Last-Event-ID is the position of an entry.")
    return int(text)
