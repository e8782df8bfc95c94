"""What the server, leaderboards and proofs brought: jobs by what one asks for, snapshots, tiles and checkpoints.

Read models whose definition has changed, and those that begin again here, are built anew from the log afterwards.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.migrations.columns import number, octets, text

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add to the read models, and make that of leaderboards and what proofs are made from."""
    _jobs()
    _trials()
    _snapshots()
    _proofs()


def _jobs() -> None:
    op.add_column("jobs", text("model", nullable=True))
    for name in ("agent_run", "dataset", "model", "profile", "status"):
        op.create_index(f"jobs_{name}", "jobs", ["project_id", name, "position"])
    op.create_table(
        "job_tags",
        text("project_id"),
        text("name"),
        text("value"),
        number("position"),
        sa.PrimaryKeyConstraint("project_id", "name", "value", "position"),
        sqlite_with_rowid=False,
    )


def _trials() -> None:
    op.create_index(
        "trials_revised",
        "trials",
        ["project_id", "job_id", "task"],
        sqlite_where=sa.text("trials.reward IS NOT trials.first_reward"),
        postgresql_where=sa.text("reward IS DISTINCT FROM first_reward"),
    )
    # Every row needs its time in the log, which only the log knows: the read model begins again.
    op.drop_table("audit_trail")
    op.execute("DELETE FROM positions WHERE follower = 'audit_trail'")
    op.create_table(
        "audit_trail",
        text("project_id"),
        number("position"),
        number("recorded_us"),
        number("log_us"),
        text("tag"),
        text("actor"),
        text("job_id", nullable=True),
        number("attempt", nullable=True),
        text("task", nullable=True),
        sa.PrimaryKeyConstraint("project_id", "position"),
        sqlite_with_rowid=False,
    )
    asked_for = (("job", "job_id"), ("actor", "actor"), ("tag", "tag"), ("task", "task"), ("time", "log_us"))
    for name, column in asked_for:
        op.create_index(f"audit_trail_{name}", "audit_trail", ["project_id", column, "position"])


def _snapshots() -> None:
    op.create_table(
        "snapshots",
        text("project_id"),
        text("snapshot_id"),
        text("cohort"),
        text("job_id"),
        octets("fact"),
        number("position"),
        number("added_us"),
        text("added_by"),
        number("withdrawn_position", nullable=True),
        number("withdrawn_us", nullable=True),
        text("withdrawn_by", nullable=True),
        text("reason", nullable=True),
        sa.PrimaryKeyConstraint("project_id", "snapshot_id"),
    )
    op.create_index("snapshots_cohort", "snapshots", ["project_id", "cohort", "position"])
    op.create_index("snapshots_job", "snapshots", ["project_id", "job_id"])


def _proofs() -> None:
    op.create_table(
        "tiles",
        text("project_id"),
        number("level"),
        number("tile_index"),
        octets("hashes"),
        sa.PrimaryKeyConstraint("project_id", "level", "tile_index"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checkpoints",
        text("project_id"),
        number("size"),
        text("note"),
        sa.PrimaryKeyConstraint("project_id", "size"),
        sqlite_with_rowid=False,
    )
