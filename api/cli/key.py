"""`el key`: keys that open the project on a server."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.output import GAP, Json, Project, err, say, say_json, say_table
from api.client import connect
from api.keys import expiry
from ledger.application import utc_now

app = typer.Typer(help="Keys that open the project on a server.", no_args_is_help=True)


@app.command()
def issue(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Stands as actor `key:NAME` in the log.")],
    scope: Annotated[
        list[str],
        typer.Option("--scope", metavar="SCOPE", help="submit, report, read, publish or admin (all); repeat it."),
    ],
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="Good for so long: 30d, 12h, 90m, 45s.", show_default="never"),
    ] = None,
    project: Project = None,
    json: Json = False,
) -> None:
    """Hand out a key. It is shown now and never again; nothing else goes to standard output.

    Example: el key issue --name ci --scope submit --scope report --expires 30d
    """
    ends = None if expires is None else expiry(expires, utc_now())
    issued = connect(project=project).issue_key(name, scope, expires_at=ends)
    if json:
        say_json(issued)
        return
    until = f", until {issued.expires_at}" if issued.expires_at else ""
    say(issued.key)
    err().print(f"key {issued.name} ({', '.join(issued.scopes)}{until}); keep it now, it is not shown again")


@app.command("list")
def list_(project: Project = None, json: Json = False) -> None:
    """List the keys, without the keys themselves.

    Example: el key list
    """
    found = connect(project=project).keys()
    if json:
        say_json(found)
        return
    say_table(
        ["name", "status", "scopes", "expires", "id"],
        [[key.name, key.status, " ".join(key.scopes), key.expires_at or GAP, key.id] for key in found.keys],
    )


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="NAME|ID", help="The last key of that name, or a key's id.")],
    project: Project = None,
) -> None:
    """Take a key back. Within a second it opens nothing any more; again is harmless.

    Example: el key revoke ci
    """
    client = connect(project=project)
    # Of one name only the last key can be valid; after it was taken back, the same again names it still.
    named = [one.id for one in client.keys().keys if one.name == key]
    revoked = client.revoke_key(named[-1] if named else key)
    say(f"key {revoked.key.name} opens nothing any more")
