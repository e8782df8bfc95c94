"""Where sealed secrets lie: beside the log, never in it. A fact holds a secret's name and keyed fingerprint only."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.database import insert_into, metadata
from ledger.errors import NotFound
from ledger.secrets import SecretBox

sealed_secrets = sa.Table(
    "sealed_secrets",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("profile", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
)


def fingerprints(box: SecretBox, project: str, profile: str, values: Mapping[str, str]) -> dict[str, str]:
    """The keyed fingerprint of each secret, by name: what the profile's fact holds."""
    return {
        name: box.fingerprint(project=project, profile=profile, name=name, value=value)
        for name, value in values.items()
    }


def put_secrets(connection: Connection, box: SecretBox, project: str, profile: str, values: Mapping[str, str]) -> None:
    """Seal the secrets of a profile, those that are not there yet: when it is published, or when they were lost."""
    for name, value in values.items():
        sealed = box.seal(project=project, profile=profile, name=name, value=value)
        row = {"project_id": project, "profile": profile, "name": name, "sealed": sealed}
        connection.execute(insert_into(connection, sealed_secrets).values(row).on_conflict_do_nothing())


def open_secrets(connection: Connection, box: SecretBox, project: str, profile: str) -> dict[str, str]:
    """The secret values of a profile, by name. For the process that runs a trial, and nobody else."""
    query = sa.select(sealed_secrets.c.name, sealed_secrets.c.sealed).where(
        sealed_secrets.c.project_id == project, sealed_secrets.c.profile == profile
    )
    return {
        name: box.open(bytes(sealed), project=project, profile=profile, name=name)
        for name, sealed in connection.execute(query)
    }


def require_secrets(values: Mapping[str, str], names: Mapping[str, str], profile: str) -> dict[str, str]:
    """The named secrets out of `values`; refuses when the store does not have one."""
    if absent := sorted(set(names) - set(values)):
        raise NotFound(f"The secret {absent[0]} of profile {profile} is not in this store; create the profile here.")
    return {name: values[name] for name in names}
