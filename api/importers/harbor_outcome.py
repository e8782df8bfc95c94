"""What a `result.json` of Harbor says a trial came to: how it ended, its reward and its dimensions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from api.importers.harbor_documents import ExceptionInfo, Step, Timing, TrialResult
from api.importers.rewards import dimensions_of, reward_of
from api.importers.run import Failure, NoReward, Status
from api.importers.strict_json import to_text
from ledger.errors import BadInput
from ledger.facts.trial import Phase
from ledger.rules.forms import checked_text
from ledger.rules.trial import DIMENSIONS_MAX

CANCELED = "CancelledError"
DIMENSION_CHARS_MAX = 200

# What an exception's type says of the phase; of every other type, the phase that had begun says it.
_PHASES: dict[str, Phase] = {
    "EnvironmentStartTimeoutError": "setup",
    "SandboxBuildFailedError": "setup",
    "AgentSetupTimeoutError": "setup",
    "HealthcheckError": "setup",
    "AgentTimeoutError": "agent",
    "NonZeroAgentExitCodeError": "agent",
    "AddTestsDirError": "verifier",
    "VerifierTimeoutError": "verifier",
    "DownloadVerifierDirError": "verifier",
    "VerifierOutputParseError": "verifier",
    "RewardParseError": "verifier",
    "RewardFileNotFoundError": "verifier",
    "RewardFileEmptyError": "verifier",
    "RegradeError": "verifier",
}


def status_of(result: TrialResult) -> Status:
    """How a trial ended. Raises BadInput when its exception has no name that can be kept."""
    error = _error_of(result)
    if error is None:
        return "succeeded"
    if error.exception_type == CANCELED:
        return "canceled"
    checked_text(error.exception_type, what="exception_type", chars_max=200)
    return "failed"


def _error_of(result: TrialResult) -> ExceptionInfo | None:
    """The exception of the trial, else that of the first step that had one."""
    step = _failed_step(result)
    return result.exception_info or (step.exception_info if step else None)


def _failed_step(result: TrialResult) -> Step | None:
    return next((step for step in result.step_results or () if step.exception_info), None)


def rewards_of(result: TrialResult) -> tuple[float | NoReward | None, dict[str, float] | bytes | None]:
    """The reward and the dimensions. Of several keys only `reward` is the reward; steps' numbers are dimensions."""
    left_none = NoReward("null") if _error_of(result) is None else None
    dimensions: dict[str, Any] = {}
    for step in result.step_results or ():
        given = step.verifier_result.rewards if step.verifier_result else None
        if isinstance(given, dict):
            dimensions |= {f"{step.step_name}.{key}": value for key, value in given.items()}
    reward: float | NoReward | None
    if result.verifier_result is None:
        reward = NoReward("not-reported") if left_none else None
    elif (rewards := result.verifier_result.rewards) is None:
        reward = left_none
    elif not isinstance(rewards, dict):
        reward = NoReward("not-a-number", to_text(rewards))
    elif len(rewards) == 1:
        reward = reward_of(next(iter(rewards.values())))
    else:
        reward = reward_of(rewards["reward"]) if "reward" in rewards else NoReward("no-reward-key")
        dimensions |= {key: value for key, value in rewards.items() if key != "reward"}
    return reward, _dimensions(dimensions)


def _dimensions(values: dict[str, Any]) -> dict[str, float] | bytes | None:
    """Dimensions that a fact can hold, else what stood there."""
    if not values:
        return None
    if len(values) > DIMENSIONS_MAX:
        return to_text(values)
    try:
        for name in values:
            checked_text(name, what="dimension name", chars_max=DIMENSION_CHARS_MAX)
    except BadInput:
        return to_text(values)
    return dimensions_of(values)


def failure_of(result: TrialResult) -> Failure:
    """How a failed trial failed; the message is the exception's own with its traceback."""
    error = _error_of(result)
    assert error is not None  # noqa: S101 - told to mypy; the trial failed
    text = "\n".join(part for part in (error.exception_message, error.exception_traceback) if part)
    step = None if result.exception_info else _failed_step(result)
    message = f"Step {step.step_name}:\n{text}" if step else text
    return Failure(error.exception_type, _phase(error, result, step), message=message or None)


def _phase(error: ExceptionInfo, result: TrialResult, step: Step | None) -> Phase:
    """By the exception's type where that says it, else by what had begun when it was raised."""
    if phase := _PHASES.get(error.exception_type):
        return phase
    agent, verifier = (step.agent_execution, step.verifier) if step else (result.agent_execution, result.verifier)
    began = utc(verifier.started_at) if verifier else None
    at = utc(error.occurred_at)
    if _began(verifier) and (began is None or at is None or at >= began):
        return "verifier"
    if _began(agent):
        return "agent"
    return "setup" if step or _began(result.environment_setup) or _began(result.agent_setup) else "unknown"


def _began(timing: Timing | None) -> bool:
    return timing is not None and timing.started_at is not None


def utc(at: datetime | None, *, assume: bool = False) -> datetime | None:
    """A time in UTC; one without a zone is none, unless it only has to give an order."""
    if at is None:
        return None
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC) if assume else None
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise BadInput(f"its time {at} has no place in UTC.") from error
