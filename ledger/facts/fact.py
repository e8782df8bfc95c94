"""What every fact is."""

from __future__ import annotations

import msgspec


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="fact", gc=False):
    """A thing that happened, in the past tense. Its tag is its name on disk and outlives modules and classes."""
