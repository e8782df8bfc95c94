"""The columns that nearly every table is made of, for the revisions; what is here never changes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


def text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    """A text."""
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    """A whole number of 64 bits."""
    return sa.Column(name, sa.BigInteger(), nullable=nullable, autoincrement=False)


def octets(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    """Bytes."""
    return sa.Column(name, sa.LargeBinary(), nullable=nullable)
