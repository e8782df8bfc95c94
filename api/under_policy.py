"""A job's numbers under a named policy, beside what the tool printed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from sqlalchemy.engine import Connection

from api.answers import Compared, PolicyAnswer
from ledger.facts.catalogue import Scalar
from ledger.facts.job import Origin
from projections import job_metrics, trials
from projections.jobs import JobRow
from projections.metrics import Metrics
from projections.policies import Policy, PolicyNumbers, apply_policy

# Tools add floats in their own order: the last digits of the same number differ.
_FLOAT_NOISE = 1e-12

# Printed zeros with such a word in their name are no scores.
_NO_SCORES = frozenset({"cost", "duration", "n", "seconds", "std", "stderr", "time", "tokens", "usd"})

# The spellings of a number for one k: `pass@2`, `pass_at_2`, `pass_at_k.2`, `pass^2`, `pass_hat_ks[2]`.
_FOR_ONE_K = re.compile(r"(.*)pass(?:(@|_at_(?:ks?)?)|(?:\^|_hat_(?:ks?)?))[ ._/:\[]*(\d{1,9})\]?")


def answer_under(connection: Connection, project_id: str, row: JobRow, policy: Policy) -> PolicyAnswer:
    """The job's numbers under a policy. Reads every member once; memory does not grow with them."""
    manifest, job_id = row.manifest, row.job_id
    left_out = trials.ended_by(connection, project_id, job_id, policy.leaves_out) if policy.leaves_out else set()
    found = apply_policy(
        policy,
        manifest.attempts,
        manifest.member_count,
        job_metrics.members_of(connection, project_id, job_id),
        left_out,
    )
    origin = manifest.origin
    return PolicyAnswer(
        name=policy.name,
        rule=policy.rule,
        numbers=found.numbers,
        counts=found.counts,
        reported_under=origin.policy,
        compared=list(_compared(policy, origin.as_reported, found)) if origin.policy == policy.name else [],
    )


def remarks(measured: Metrics, origin: Origin) -> list[str]:
    """What has to be said of the numbers that the tool printed: a zero that nothing was measured for."""
    zeros = [
        name
        for name, value in origin.as_reported.items()
        if isinstance(value, float) and value == 0 and _NO_SCORES.isdisjoint(re.split("[^a-z]+", name.lower()))
    ]
    if measured.score_counts.scored or not zeros:
        return []
    return [f"the tool reported 0.0 with nothing scored ({', '.join(zeros)}): that zero was not measured"]


def plain_name(name: str) -> str:
    """One spelling for a number for one k, `pass@2` or `pass^2`; any other name as it is."""
    match = _FOR_ONE_K.fullmatch(name)
    return f"{match[1]}pass{'@' if match[2] else '^'}{int(match[3])}" if match else name


def _compared(policy: Policy, as_reported: Mapping[str, Scalar], found: PolicyNumbers) -> Iterator[Compared]:
    """The printed numbers that the policy gives too, or would give for another k."""
    ours: dict[str, int | float | None] = {**found.counts}
    families = set()
    for name, number in found.numbers.items():
        if isinstance(number, dict):
            families.add(plain_name(f"{name}.0").removesuffix("0"))
            ours |= {plain_name(f"{name}.{k}"): value for k, value in number.items()}
        else:
            ours[name if name in as_reported else policy.printed_as.get(name, name)] = number
    for name, reported in as_reported.items():
        plain = plain_name(name)
        if isinstance(reported, str | bool) or (plain not in ours and plain.rstrip("0123456789") not in families):
            continue
        value = ours.get(plain)
        difference = None if value is None else float(value - reported)
        equal = value is not None and math.isclose(value, reported, rel_tol=_FLOAT_NOISE, abs_tol=_FLOAT_NOISE)
        yield Compared(name, reported, value, difference, equal)
