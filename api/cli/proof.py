"""`el audit checkpoint|proof|verify|witness|export|epoch`: the log as somebody who does not trust it may check it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from api import proving
from api.cli.output import Json, Project, progress, say, say_json, write
from api.client import Client, connect
from api.el import El
from api.evidence_check import Verified
from api.evidence_check import verify as verify_evidence
from api.settings import Settings
from ledger.checking import Checked
from ledger.digests import open_regular
from ledger.errors import BadInput, StoreUnreachable
from ledger.merkle import leaf_hash
from ledger.notes import COSIGNATURE, NOTE_BYTES_MAX, VerifierKey, load_or_create_signer
from ledger.pins import Pin, read_pin
from projections.metrics import ScoreCounts
from projections.metrics_text import coverage, percent

PinFile = Annotated[
    Path | None,
    typer.Option("--pin", metavar="FILE", help="Where the last checkpoint seen is kept; a place others cannot write."),
]
AcceptEpoch = Annotated[
    bool, typer.Option("--accept-epoch", help="Take a later epoch of the log, and give up what was pinned.")
]


def checkpoint(
    add: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the cosignatures in this file with the log first.")
    ] = None,
    key: Annotated[bool, typer.Option("--key", help="Print only the key that signs for the log.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the tiles anew from the entries first.")] = False,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="The key that signed before is lost: go on with another.")
    ] = False,
    pin: PinFile = None,
    accept_epoch: AcceptEpoch = False,
    project: Project = None,
    json: Json = False,
) -> None:
    """Print the signed size and root of the log, and pin it: what is shown later has to extend it.

    Example: el audit checkpoint > checkpoint.txt
    """
    el = connect(project=project)
    if add is not None:
        el.add_cosignatures(_text(add))
    if isinstance(el, Client) and (rebuild or accept_epoch or new_key):
        proving.checkpoint(el, rebuild=rebuild, accept_epoch=accept_epoch, new_key=new_key)
    elif rebuild or new_key:
        raise BadInput("A server's tiles are made anew, and its key is replaced, where its store is.")
    found = proving.look(el, _pin_of(el, pin), accept_epoch=accept_epoch)
    if json:
        say_json(found)
    else:
        write(f"{found.key}\n" if key else found.checkpoint)


def prove(
    position: Annotated[int, typer.Argument(min=1, help="The position of an entry.")],
    size: Annotated[int | None, typer.Option(min=1, help="In the log of so many entries; all by default.")] = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """Print the proof that an entry is in the log: its bytes, and the hashes from its leaf to the root.

    Example: el audit proof 17
    """
    found = connect(project=project).inclusion_proof(position, size)
    if json:
        say_json(found)
        return
    say(f"entry     {found.position:,} of {found.size:,}", f"leaf      {leaf_hash(bytes(found.entry)).hex()}")
    say(*(f"sibling   {hash_}" for hash_ in found.hashes), f"root      {found.root}")
    write(bytes(found.entry) + b"\n")


def verify(
    file: Annotated[Path | None, typer.Argument(help="An evidence file, checked without store or network.")] = None,
    key: Annotated[
        str | None, typer.Option(help="The key that has to have signed the evidence, as you know it from elsewhere.")
    ] = None,
    witness: Annotated[
        list[str] | None, typer.Option(help="A witness that has to have cosigned it; may be given again.")
    ] = None,
    pin: PinFile = None,
    accept_epoch: AcceptEpoch = False,
    project: Project = None,
    json: Json = False,
) -> None:
    """Check the whole log against its root, its checkpoints and what was pinned of it; or an evidence file.

    Example: el audit verify evidence.jsonl
    """
    if file is not None:
        trusted = VerifierKey.parse(key) if key else None
        with open_regular(file) as lines:
            evidence = verify_evidence(lines, key=trusted, witnesses=[VerifierKey.parse(one) for one in witness or ()])
        _tell(evidence, json=json)
        return
    if key or witness:
        raise BadInput("--key and --witness are for an evidence file; a log is checked against its pin.")
    el = connect(project=project)
    path = _pin_of(el, pin)
    with progress("verifying", el.head().entries) as done:
        if isinstance(el, Client):
            checked = proving.verify_store(el, sorted({path, el.workspace.pin(el.project)}), progress=done)
            if not checked.faults:
                proving.look(el, path, accept_epoch=accept_epoch)
        else:
            checked = proving.verify_served(el, path, accept_epoch=accept_epoch, progress=done)
    if json:
        say_json(checked)
    else:
        _tell_log(checked, read_pin(path))
    if checked.faults:
        raise typer.Exit(1)


def witness(
    file: Annotated[Path, typer.Argument(help="A checkpoint, as `el audit checkpoint` prints it.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there instead of printing.")] = None,
    key: Annotated[bool, typer.Option("--key", help="Print only the key you cosign with.")] = False,
    home: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where your own key and pin lie; EL_HOME by default.")
    ] = None,
    pin: PinFile = None,
    project: Project = None,
) -> None:
    """Cosign a checkpoint of somebody's log, after checking that it extends the last one you have cosigned.

    The log proves itself through the server at EL_API_URL, or from a store in EL_HOME that is not yours: then --home
    names your own folder.

    Example: el audit witness checkpoint.txt --out cosigned.txt
    """
    settings = Settings()
    own = (home or settings.home).absolute()
    if not settings.api_url and not key and own == settings.home.absolute():
        raise BadInput("A store cannot witness itself: --home names the folder where your own key lies.")
    signer = load_or_create_signer(own, os.environ if settings.api_url else {})
    if key:
        say(str(signer.verifier(COSIGNATURE)))
        return
    el = connect(project=project, settings=settings)
    note = proving.witness(el, _text(file), pin or proving.pin_path(own, el), signer)
    if out is None:
        write(str(note))
    else:
        _write(out, [str(note).encode()])


def export(
    target: Annotated[str, typer.Argument(metavar="JOB|SNAPSHOT", help="A job or a snapshot.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.")],
    whole: Annotated[
        bool, typer.Option("--whole", help="Put the whole log in, which proves that nothing was left out.")
    ] = False,
    project: Project = None,
) -> None:
    """Write the evidence for a job's numbers, or a snapshot's, into one file that anybody can check offline.

    Example: el audit export 3f2a1c9e --out evidence.jsonl
    """
    el = connect(project=project)
    _write(out, el.evidence(target, whole=whole))
    say(f"wrote {out}; `el audit verify {out}` checks it, with --key and the key from `el audit checkpoint --key`")


def epoch(
    reason: Annotated[str, typer.Option(help="Why: everybody who pinned the log before will read it.")],
    project: Project = None,
) -> None:
    """Go on with a log that does not extend what was seen of it, after an old backup was restored.

    What is given up stands in the log for good. Others accept the new epoch with --accept-epoch.

    Example: el audit epoch --reason "the disk failed; restored the backup of Monday"
    """
    el = connect(project=project)
    if not isinstance(el, Client):
        raise BadInput("A new epoch is begun where the store is: unset EL_API_URL there.")
    found = proving.start_epoch(el, reason=reason)
    say(f"the log goes on as {found.origin} with {found.size:,} entries")


def _pin_of(el: El, pin: Path | None) -> Path:
    """The pin that a command looks at: the file named, else the store's own, else the one kept for that server."""
    if pin is not None:
        return pin.absolute()
    return el.workspace.pin(el.project) if isinstance(el, Client) else proving.pin_path(Settings().home, el)


def _tell_log(checked: Checked, pin: Pin | None) -> None:
    if checked.faults:
        say(*(f"fault: {fault}" for fault in checked.faults))
        return
    say(f"{checked.entries:,} entries are as recorded; root {checked.root}")
    if pin:
        say(f"pinned: {pin.seen.size:,} entries of {pin.seen.origin}")


def _tell(found: Verified, *, json: bool) -> None:
    if json:
        say_json(found)
    else:
        counts = msgspec.convert(msgspec.structs.asdict(found.numbers.score_counts), ScoreCounts)
        left_out = "nothing was left out" if found.complete else "that nothing was left out is not proven (--whole)"
        say(*(f"fault: {fault}" for fault in found.faults))
        say(
            f"{found.subject} in project {found.project}, as of position {found.at:,}",
            coverage(counts, found.numbers.k),
            f"score {percent(found.numbers.score)} ({found.numbers.definition})",
            f"entries {found.entries:,} of a log of {found.size:,}; {left_out}",
            f"signed by {found.key}" + ("" if found.key_given else ", the file's own word: give --key to be sure"),
            *(f"cosigned by {name}" for name in found.witnesses if not found.faults),
        )
        if not found.faults:
            say("the evidence holds: signatures, proof and numbers")
    if found.faults:
        raise typer.Exit(1)


def _text(path: Path) -> str:
    with open_regular(path) as file:
        data = file.read(NOTE_BYTES_MAX + 1)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not text in UTF-8.") from error


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file whole or not at all: half of an evidence file is no evidence."""
    temp = path.with_name(f"{path.name}.part")
    try:
        with temp.open("wb") as file:
            file.writelines(lines)
        temp.replace(path)
    except OSError as error:
        raise StoreUnreachable(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        temp.unlink(missing_ok=True)
