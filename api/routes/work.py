"""The worker protocol: slots claimed under a lease or given out by name, kept alive, reported on."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from starlette.concurrency import run_in_threadpool

from api.answers import Claim, Claimed, Heartbeat, Reported, Work
from api.http.answering import answer
from api.http.bodies import strict
from api.http.calls import Read, Write
from api.http.routes import Routes
from api.pages import SecretValues
from api.routes.bodies import Beat, ClaimSlots, DispatchSlot, Holding, Report
from api.routes.queries import TrialPath

REPORT_BYTES_MAX = 16 << 20

routes = Routes("work")


@routes.get("/work", scope="report", answers=Work)
def work(call: Read, job: Annotated[str | None, Query(min_length=1, max_length=36)] = None) -> Response:
    """Read which jobs have slots waiting, and how many trials run under leases."""
    return answer(call, call.client.work(job))


@routes.post("/work/claims", scope="report", answers=Claimed)
def claim(call: Write, body: Annotated[ClaimSlots, strict(ClaimSlots)]) -> Response:
    """Claim slots under a lease, after looking after trials whose lease has lapsed."""
    claimed = call.client.claim(
        body.worker,
        slots=body.slots,
        job_id=body.job_id,
        runner=body.runner,
        lease_s=body.lease_s,
        request_id=call.request_id(body.request_id),
    )
    return answer(call, claimed, position=call.client.head().entries)


@routes.post("/work/dispatches", scope="report", answers=Claim, statuses={201: "The slot is given out."})
def dispatch(call: Write, body: Annotated[DispatchSlot, strict(DispatchSlot)]) -> Response:
    """Give out one slot by its name and start it, without a lease."""
    request_id = call.request_id(body.request_id)
    given = call.client.dispatch(body.job_id, body.task, body.attempt, request_id=request_id)
    return answer(call, given, status=201, position=call.client.head().entries)


@routes.post("/work/{trial_id}/heartbeat", scope="report", answers=Heartbeat)
def heartbeat(call: Write, trial_id: TrialPath, body: Annotated[Beat, strict(Beat)]) -> Response:
    """Renew the lease of a trial, and learn whether it is still to go on."""
    return answer(call, call.client.heartbeat(trial_id, body.token, lease_s=body.lease_s))


@routes.post("/work/{trial_id}/reports", scope="report", answers=Reported, body_bytes_max=REPORT_BYTES_MAX)
async def report(call: Write, trial_id: TrialPath, body: Annotated[Report, strict(Report)]) -> Response:
    """Report facts about a trial, in any order and as often as needed; a repeat is nothing new."""
    ready = call.gate.is_ready(call.project, call.caller.actor)
    client = call.client if ready else await run_in_threadpool(lambda: call.client)
    done = await call.gate.reports(client).take(client, trial_id, body.facts, token=body.token)
    return answer(call, done, position=done.position)


@routes.post("/work/{trial_id}/secrets", scope="report", answers=SecretValues)
def secrets(call: Write, trial_id: TrialPath, body: Annotated[Holding, strict(Holding)]) -> Response:
    """Read the secret values that a claimed trial runs with; they are never stored by whoever asks."""
    values = call.client.secrets(trial_id, token=body.token)
    return answer(call, SecretValues(values), headers={"Cache-Control": "no-store"})
