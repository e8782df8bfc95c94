"""The log as others may check it: signed checkpoints and tiles as C2SP lays them out, proofs, evidence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import ConfigDict, Field
from starlette.responses import StreamingResponse

from api.answers import CheckpointAnswer, ConsistencyAnswer, InclusionAnswer
from api.http.answering import answer
from api.http.bodies import Form, strict
from api.http.calls import Read, Write
from api.http.routes import Routes
from api.routes.queries import INT64_MAX, JobPath
from ledger.notes import NOTE_BYTES_MAX

BYTES = "application/octet-stream"
LINES = "application/x-ndjson"
LINES_A_CHUNK = 100  # at most 64 KiB each
TEXT = "text/plain"
_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
_NOT_KEPT = {"Cache-Control": "no-cache"}

PositionPath = Annotated[int, Path(ge=1, le=INT64_MAX, description="The position of an entry.")]
SizeQ = Annotated[int | None, Query(ge=1, le=INT64_MAX, description="Of the log of so many entries; all by default.")]
Whole = Annotated[bool, Query(description="With the whole log, so that nothing can have been left out.")]

routes = Routes("log")


class Cosigned(Form):
    """A checkpoint with what witnesses have signed under it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "checkpoint": "example.com/log\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
                    "— example.com/log Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+"
                    "zyWE+xeMcTOAYQ8=\n"
                }
            ]
        }
    )

    checkpoint: str = Field(max_length=NOTE_BYTES_MAX)


@routes.get("/log/checkpoint", scope="read", media=TEXT)
def checkpoint(call: Read) -> Response:
    """Read the signed checkpoint of the log as it stands, with the cosignatures it has got."""
    found = call.client.checkpoint()
    return Response(found.checkpoint, 200, _NOT_KEPT | {"El-As-Of": str(found.size)}, f"{TEXT}; charset=utf-8")


@routes.get("/log", scope="read", answers=CheckpointAnswer)
def log(call: Read) -> Response:
    """Read the same checkpoint, what it says, and the key that signs for the log."""
    return answer(call, call.client.checkpoint())


@routes.post("/log/cosignatures", scope="publish", answers=CheckpointAnswer)
def cosignatures(call: Write, body: Annotated[Cosigned, strict(Cosigned)]) -> Response:
    """Add what witnesses have signed under a checkpoint of this log. The same again changes nothing."""
    return answer(call, call.client.add_cosignatures(body.checkpoint))


@routes.get("/log/tile/{path:path}", scope="read", media=BYTES)
def tile(
    call: Read, path: Annotated[str, Path(max_length=100, examples=["0/000", "entries/x001/234.p/8"])]
) -> Response:
    """Read a tile: 256 hashes of the tree, or fewer at its edge, or the entries under them."""
    return Response(call.client.tile(f"tile/{path}"), 200, _FOR_EVER, BYTES)


@routes.get("/log/entries/{position}/proof", scope="read", answers=InclusionAnswer)
def inclusion(call: Read, position: PositionPath, size: SizeQ = None) -> Response:
    """Read an entry with the proof that it is in the log."""
    return answer(call, call.client.inclusion_proof(position, size))


@routes.get("/log/consistency", scope="read", answers=ConsistencyAnswer)
def consistency(
    call: Read,
    old_size: Annotated[int, Query(ge=0, le=INT64_MAX, description="How many entries were seen before.")],
    new_size: SizeQ = None,
) -> Response:
    """Read the proof that the log of some size begins the log of a larger one."""
    return answer(call, call.client.consistency_proof(old_size, new_size))


@routes.get("/jobs/{job_id}/evidence", scope="read", media=LINES)
def job_evidence(call: Read, job_id: JobPath, whole: Whole = False) -> Response:
    """Read the evidence for a job's numbers: a signed statement, a checkpoint, the entries behind them; in lines."""
    return _evidence(call, job_id, whole)


@routes.get("/leaderboards/snapshots/{snapshot_id}/evidence", scope="read", media=LINES)
def snapshot_evidence(
    call: Read, snapshot_id: Annotated[str, Path(max_length=36, description="A snapshot's id.")], whole: Whole = False
) -> Response:
    """Read the evidence for a snapshot's numbers, as they were frozen."""
    return _evidence(call, snapshot_id, whole)


def _evidence(call: Read, target: str, whole: bool) -> Response:
    lines = call.client.evidence(target, whole=whole)
    first = next(lines)  # what is refused is refused here, before anything is sent
    headers = _NOT_KEPT | {"Content-Disposition": 'attachment; filename="evidence.jsonl"'}
    return StreamingResponse(chain([first], _joined(lines)), 200, headers, LINES)


def _joined(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines, many to a chunk: each chunk costs a change of threads."""
    while some := b"".join(islice(lines, LINES_A_CHUNK)):
        yield some
