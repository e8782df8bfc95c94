"""The `command` runner: one trial as real processes, an agent and then a verifier, turned into facts to report.

Life of a trial. (1) A fresh folder gets the task's content, checked against its digest. (2) The agent runs. (3) Its
leftovers are killed; reward files that it wrote are set aside, and the task's content is made anew: the verifier
trusts nothing of the agent's but what lies in work/ and output/. (4) The verifier runs, also when the agent failed or
ran out of time: a trial that failed may have a reward. It does not when the agent could not be started, or when the
trial was canceled. (5) Files, reward and result are read and redacted, and what is free text goes to the artifact
store. Nothing is written to the ledger here: the caller reports the facts, all in one transaction.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial

import msgspec

from api.el import Artifacts
from api.runners.guard import Guard
from api.runners.keeping import Keeper, keep_outputs
from api.runners.patience import Patience
from api.runners.plans import JobPlan
from api.runners.rewards import REWARD_BYTES_MAX, REWARD_FILES, Reward, read_reward
from api.runners.sandbox import StepEnd, Stop, run_step
from api.runners.sources import TaskContentChanged, materialise
from api.runners.structured_result import RESULT_BYTES_MAX, StructuredResult, fits, read_structured_result
from api.runners.trial_folder import TrialFolder, remove, trial_folder
from ledger.errors import BadInput, NotFound
from ledger.facts.catalogue import Task
from ledger.facts.trial import (
    Phase,
    ReportedFact,
    RewardRecorded,
    RewardRejected,
    Slot,
    StructuredResultRecorded,
    StructuredResultRejected,
    TrialCanceled,
    TrialFailed,
    TrialSucceeded,
)
from ledger.rules.trial import Ended

MESSAGE_BYTES_MAX = 8 * 1024


class Outcome(msgspec.Struct, frozen=True):
    """What became of a trial: the facts to report, its end the last of them; and its end and its reward, to show."""

    facts: list[ReportedFact]
    ended: Ended
    reward: float | None = None


class _Run(msgspec.Struct):
    """How far a trial came. `set_aside` is what the agent wrote in the place of the verifier's reward."""

    agent: StepEnd | None = None
    verifier: StepEnd | None = None
    changed: TaskContentChanged | None = None
    set_aside: dict[str, bytes] = {}
    duration_s: float | None = None


def run_trial(
    plan: JobPlan,
    slot: Slot,
    task: Task,
    store: Artifacts,
    stop: Stop,
    *,
    guard: Guard | None = None,
    patience: Patience | None = None,
) -> Outcome:
    """Run one trial to its end. The `guard` ends its processes when this process is killed.

    While the server is away, what came of the trial is kept, for as long as the `patience` lasts.

    Raises:
        StoreUnreachable: the artifacts cannot be kept.
        OSError: there is no place for the trial's folder.
    """
    with trial_folder() as folder, guard.watching(folder.root) if guard else nullcontext():
        run = _run_steps(plan, slot, task, folder, stop)

        def collect() -> Outcome:
            with store.batch() as batch:
                return _collected(plan, folder, run, stop, Keeper(batch, plan.secrets, plan.redactor))

        try:
            return patience(collect) if patience else collect()
        finally:
            for step in (run.agent, run.verifier):
                if step:
                    step.close()


def _run_steps(plan: JobPlan, slot: Slot, task: Task, folder: TrialFolder, stop: Stop) -> _Run:
    run = _Run()
    environment = folder.environment(slot, plan.values)
    try:
        materialise(plan.source, task, folder.task)
        started = time.monotonic()
        step = partial(run_step, cwd=folder.work, env=environment, stop=stop)
        run.agent = step(folder.argv(plan.agent.command), timeout_s=plan.agent.timeout_s)
        if run.agent.ran and not stop.asked():
            folder.ensure()
            run.set_aside = _set_aside(folder)
            remove(folder.task)
            materialise(plan.source, task, folder.task)
            run.verifier = step(folder.argv(plan.verifier.command), timeout_s=plan.verifier.timeout_s)
        run.duration_s = round(time.monotonic() - started, 3)
    except TaskContentChanged as error:
        run.changed = error
    return run


def _set_aside(folder: TrialFolder) -> dict[str, bytes]:
    """Take away what stands where the verifier's reward will stand; of ordinary files, the content."""
    found: dict[str, bytes] = {}
    for name in REWARD_FILES:
        data = _content(folder, f"output/{name}", REWARD_BYTES_MAX)
        if isinstance(data, bytes):
            found[f"agent/{name}"] = data
        remove(folder.output / name)
    return found


def _collected(plan: JobPlan, folder: TrialFolder, run: _Run, stop: Stop, keeper: Keeper) -> Outcome:
    for phase, step in (("agent", run.agent), ("verifier", run.verifier)):
        if step:
            keeper.capture(f"{phase}/stdout.txt", step.stdout, "stdout")
            keeper.capture(f"{phase}/stderr.txt", step.stderr, "stderr")
    for name, data in run.set_aside.items():
        keeper.content(name, data, "output", bytes_max=REWARD_BYTES_MAX)
    reward = Reward()
    signals: list[ReportedFact] = []
    if run.verifier and run.verifier.ran and run.verifier.error_type != "Canceled":
        reward, said = _reward(folder, keeper)
        signals = [said, *_structured(plan, folder, keeper, reward)]
    if run.agent and run.agent.ran:
        keep_outputs(keeper, folder, plan.outputs)
    ended = _ended(run, stop, keeper)
    return Outcome([*signals, *keeper.facts, ended], ended, reward.value)


def _reward(folder: TrialFolder, keeper: Keeper) -> tuple[Reward, RewardRecorded | RewardRejected]:
    """Read the reward files and keep them; of a rejected reward, what stood there is kept as `raw` too."""
    files: dict[str, bytes] = {}
    for name in REWARD_FILES:
        data = _content(folder, f"output/{name}", REWARD_BYTES_MAX)
        if isinstance(data, bytes):
            files[name] = data
            keeper.content(f"output/{name}", data, "reward", bytes_max=REWARD_BYTES_MAX)
        elif not isinstance(data, NotFound):
            keeper.failed(f"output/{name}", "not-a-file")
    reward = read_reward(files)
    if reward.value is not None:
        source = "reward.json" if "reward.json" in files else "reward.txt"
        return reward, RewardRecorded(reward.value, source)
    parts = [keeper.clean(data, bytes_max=REWARD_BYTES_MAX) for data in files.values()]
    raw = keeper.text(b"\n".join(parts)) if parts else None
    return reward, RewardRejected(reward.why or "not-reported", raw)


def _structured(
    plan: JobPlan, folder: TrialFolder, keeper: Keeper, reward: Reward
) -> list[StructuredResultRecorded | StructuredResultRejected]:
    """The declared result file, and the dimensions that stood beside the reward; the declared ones win."""
    found = StructuredResult()
    if plan.structured_result is not None:
        name = f"output/{plan.structured_result}"
        data = _content(folder, name, RESULT_BYTES_MAX)
        if not isinstance(data, bytes):
            keeper.failed(name, "missing" if isinstance(data, NotFound) else "not-a-file")
            return [StructuredResultRejected("missing")]
        read = read_structured_result(data)
        if not isinstance(read, StructuredResult):
            raw = keeper.text(keeper.clean(data, bytes_max=RESULT_BYTES_MAX))
            return [StructuredResultRejected(read, raw)]
        keeper.content(name, data, "result", bytes_max=RESULT_BYTES_MAX)
        found = read
    declared = found.dimensions or {}
    dimensions = reward.dimensions | declared
    if not fits(dimensions):
        dimensions = declared
    if plan.structured_result is None and not dimensions:
        return []
    named = {keeper.redacted(name): value for name, value in dimensions.items()}
    judge = None if found.judge is None else keeper.text(found.judge.encode(errors="replace"))
    return [StructuredResultRecorded(found.composite, named, judge)]


def _ended(run: _Run, stop: Stop, keeper: Keeper) -> Ended:
    failed: Phase | None = None
    step = run.agent
    if run.agent is None:
        failed = "setup"
    elif run.agent.error_type:
        failed = "agent" if run.agent.ran else "setup"
    elif run.changed or (run.verifier and run.verifier.error_type):
        failed, step = "verifier", run.verifier
    if any(end and end.error_type == "Canceled" for end in (run.agent, run.verifier)) or (
        stop.asked() and run.verifier is None
    ):
        return TrialCanceled(stop.reason)
    if failed is None:
        return TrialSucceeded(run.agent.exit_code if run.agent else None, run.duration_s)
    if step is None:
        message = keeper.text(str(run.changed).encode())
        return TrialFailed(type(run.changed).__name__, failed, None, message, run.duration_s)
    message = keeper.text(_message(failed, step, keeper))
    return TrialFailed(step.error_type or "", failed, step.exit_code, message, run.duration_s)


def _message(phase: Phase, step: StepEnd, keeper: Keeper) -> bytes:
    """Our sentence, and the last part of what the process wrote to stderr."""
    return f"{phase}: {step.sentence}\n".encode() + keeper.tail(step.stderr, MESSAGE_BYTES_MAX)


def _content(folder: TrialFolder, name: str, bytes_max: int) -> bytes | Exception:
    """A file's beginning, one byte more than `bytes_max` when it is larger; or why it cannot be read."""
    try:
        with folder.open(name) as file:
            return file.read(bytes_max + 1)
    except (NotFound, BadInput, OSError) as error:
        return error
