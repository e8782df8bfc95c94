"""What a job was and what it measured, in the words of the API, for the formats that carry more than trials."""

from __future__ import annotations

from typing import Any

import msgspec

from api.exporters.reading import Job
from projections.metrics import Metrics


def summary(job: Job) -> dict[str, Any]:
    """The manifest in short and the metrics under their names; of secrets only the names."""
    manifest = job.manifest
    return {
        "job": job.id,
        "status": job.status,
        "dataset": manifest.dataset,
        "runner": manifest.runner,
        "profile": manifest.profile,
        "attempts": manifest.attempts,
        "members": manifest.member_count,
        "subset": manifest.subset,
        "parameters": manifest.parameters,
        "secrets": sorted(manifest.secrets),
        "tags": manifest.tags,
        "agent_run": manifest.agent_run,
        "agent_round": manifest.agent_round,
        "tool": manifest.origin.tool,
        "tool_version": manifest.origin.tool_version,
        "flags": manifest.origin.flags,
        "as_reported": manifest.origin.as_reported,
        "submitted_at": job.submitted_at,
        "ended_at": job.ended_at,
        "as_of": job.as_of,
        "metrics": msgspec.to_builtins(job.metrics),
    }


def named_metrics(metrics: Metrics) -> dict[str, float]:
    """The numbers that could be given, under names without `@` and `^`: `pass_at_2`, `pass_pow_2`."""
    named = {"score": metrics.score, "pass": metrics.pass_}
    for point in metrics.curve:
        named |= {f"pass_at_{point.k}": point.pass_at_k, f"pass_pow_{point.k}": point.pass_hat_k}
    if metrics.score_bounds:
        named |= {"score_bound_low": metrics.score_bounds[0], "score_bound_high": metrics.score_bounds[1]}
    if interval := metrics.interval_95:
        named |= {"interval_95_low": interval.low, "interval_95_high": interval.high}
    return {name: value for name, value in named.items() if value is not None}


def model_of(job: Job) -> str | None:
    """The model under evaluation: the effective parameter of that name, if it is a text."""
    model = job.manifest.parameters.get("model")
    return model if isinstance(model, str) and model else None
