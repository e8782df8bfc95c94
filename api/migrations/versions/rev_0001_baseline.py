"""The schema before there were migrations: the log, the read models, leases and sealed secrets.

A revision is written out in full and never changes: it says what a store of its time looks like, whatever the tables
have become since.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.migrations.columns import number, octets, text

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make every table. Only tests go this way: a store of this age is stamped with the revision when it is adopted."""
    _log()
    _catalogue()
    _jobs()
    _trials()
    _beside_the_log()


def _log() -> None:
    """The log, and how far its followers are."""
    op.create_table(
        "log_heads",
        text("project_id"),
        number("size"),
        octets("frontier"),
        octets("root"),
        sa.PrimaryKeyConstraint("project_id"),
    )
    op.create_table(
        "entries",
        text("project_id"),
        number("position"),
        text("stream_id"),
        number("stream_version"),
        text("tag"),
        octets("body"),
        sa.PrimaryKeyConstraint("project_id", "position"),
        sa.UniqueConstraint("project_id", "stream_id", "stream_version", name="entries_stream_version"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "positions",
        text("project_id"),
        text("follower"),
        number("position"),
        sa.Column("definition", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "follower"),
    )


def _catalogue() -> None:
    """The read model `catalogue`."""
    op.create_table(
        "datasets",
        text("project_id"),
        text("ref"),
        text("runner"),
        number("member_count"),
        text("members_digest"),
        text("digests"),
        number("published_us"),
        number("position"),
        sa.PrimaryKeyConstraint("project_id", "ref"),
    )
    op.create_table(
        "dataset_tasks",
        text("project_id"),
        text("ref"),
        number("ordinal"),
        text("task"),
        text("digest"),
        sa.PrimaryKeyConstraint("project_id", "ref", "ordinal"),
        sa.UniqueConstraint("project_id", "ref", "task"),
    )
    op.create_table(
        "runners",
        text("project_id"),
        text("ref"),
        octets("spec"),
        number("published_us"),
        number("position"),
        sa.PrimaryKeyConstraint("project_id", "ref"),
    )
    op.create_table(
        "profiles",
        text("project_id"),
        text("ref"),
        octets("spec"),
        number("published_us"),
        number("position"),
        sa.PrimaryKeyConstraint("project_id", "ref"),
    )


def _jobs() -> None:
    """The read models `jobs` and `job_metrics`."""
    op.create_table(
        "jobs",
        text("project_id"),
        text("job_id"),
        text("status"),
        text("dataset"),
        text("profile", nullable=True),
        text("agent_run", nullable=True),
        octets("manifest"),
        text("reason", nullable=True),
        number("submitted_us"),
        number("ended_us", nullable=True),
        number("position"),
        sa.PrimaryKeyConstraint("project_id", "job_id"),
    )
    op.create_index("jobs_position", "jobs", ["project_id", "position"])
    op.create_table(
        "job_members",
        text("project_id"),
        text("job_id"),
        number("ordinal"),
        text("task"),
        text("digest"),
        sa.PrimaryKeyConstraint("project_id", "job_id", "ordinal"),
    )
    op.create_table(
        "job_metrics",
        text("project_id"),
        text("job_id"),
        text("tally"),
        text("endings"),
        text("lost"),
        sa.PrimaryKeyConstraint("project_id", "job_id"),
    )
    op.create_table(
        "job_tasks",
        text("project_id"),
        text("job_id"),
        text("task"),
        octets("attempts"),
        sa.PrimaryKeyConstraint("project_id", "job_id", "task"),
        sqlite_with_rowid=False,
    )


def _trials() -> None:
    """The read models `trials`, `work_queue` and `audit_trail`."""
    op.create_table(
        "trials",
        text("project_id"),
        text("job_id"),
        number("attempt"),
        text("task"),
        text("trial_id"),
        text("task_digest"),
        text("status"),
        text("worker", nullable=True),
        number("exit_code", nullable=True),
        text("error_type", nullable=True),
        text("phase", nullable=True),
        text("message", nullable=True),
        sa.Column("reward", sa.Float(precision=53), nullable=True),
        sa.Column("first_reward", sa.Float(precision=53), nullable=True),
        text("no_reward", nullable=True),
        text("raw_reward", nullable=True),
        octets("structured", nullable=True),
        number("artifacts_kept"),
        number("artifacts_failed"),
        number("dispatched_us"),
        number("started_us", nullable=True),
        number("ended_us", nullable=True),
        sa.Column("duration_s", sa.Float(precision=53), nullable=True),
        number("position"),
        sa.PrimaryKeyConstraint("project_id", "job_id", "attempt", "task"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "trials_at_work",
        "trials",
        ["project_id", "worker"],
        sqlite_where=sa.text("ended_us IS NULL AND worker IS NOT NULL"),
        postgresql_where=sa.text("ended_us IS NULL AND worker IS NOT NULL"),
    )
    op.create_index("trials_id", "trials", ["project_id", "trial_id"], unique=True)
    op.create_index(
        "trials_unscored",
        "trials",
        ["project_id", "job_id", "ended_us"],
        sqlite_where=sa.text("reward IS NULL AND ended_us IS NOT NULL"),
        postgresql_where=sa.text("reward IS NULL AND ended_us IS NOT NULL"),
    )
    op.create_table(
        "work_queue",
        text("project_id"),
        text("job_id"),
        number("attempt"),
        text("task"),
        sa.PrimaryKeyConstraint("project_id", "job_id", "attempt", "task"),
        sqlite_with_rowid=False,
    )
    op.create_table("queued_jobs", text("project_id"), text("job_id"), sa.PrimaryKeyConstraint("project_id", "job_id"))
    op.create_table(
        "audit_trail",
        text("project_id"),
        number("position"),
        number("recorded_us"),
        text("tag"),
        text("actor"),
        text("job_id", nullable=True),
        number("attempt", nullable=True),
        text("task", nullable=True),
        sa.PrimaryKeyConstraint("project_id", "position"),
        sqlite_with_rowid=False,
    )
    op.create_index("audit_trail_job", "audit_trail", ["project_id", "job_id", "position"])


def _beside_the_log() -> None:
    """What lies beside the log."""
    op.create_table(
        "leases",
        text("project_id"),
        text("stream_id"),
        text("worker"),
        sa.Column("expires_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "stream_id"),
    )
    op.create_table(
        "sealed_secrets",
        text("project_id"),
        text("profile"),
        text("name"),
        octets("sealed"),
        sa.PrimaryKeyConstraint("project_id", "profile", "name"),
    )
