"""Named policies: the rules by which other tools make their numbers of the same trials, to be read beside ours.

A policy is a rule over trials, whatever tool ran them. Its numbers bear the tool's own names. They are exact fractions,
rounded once; one that cannot be given is None, or is not among the values for each k. What is not modelled: the order
of a tool's float arithmetic, so a printed number may differ in its last digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ledger.errors import BadInput
from projections.estimators import Tasks, all_pass, any_pass, count_tasks, mean_over_tasks, powers_of_two, ratio
from projections.job_metrics import Attempt
from projections.metrics import measure
from projections.tally import JobTally, Trial, member_tally

Number = float | dict[str, float] | None  # one number, or one for each k

_ENDED = frozenset({"succeeded", "failed", "canceled"})
_TAU_TOLERANCE = 1e-6
_HARBOR_NAMES = {"mean": "reward"}  # where trials have several numbers, each mean is called like its number


class Outcome(NamedTuple):
    """How the trials of one task came out: with a reward, ended without one, passed."""

    scored: int
    missing: int
    passed: int


class JobTrials(msgspec.Struct):
    """What the policies' formulas need of a job: exact sums, never the trials themselves."""

    tally: JobTally
    slots: int  # members x k, and every trial beyond k
    outcomes: Counter[Outcome]  # of tasks with a trial that has ended or has a reward
    attempt_numbers: set[int]  # of the same trials

    @property
    def trials(self) -> int:
        """Trials that ended or have a reward."""
        return sum((task.scored + task.missing) * count for task, count in self.outcomes.items())

    @property
    def passed(self) -> int:
        """Trials that passed."""
        return sum(task.passed * count for task, count in self.outcomes.items())


class PolicyNumbers(msgspec.Struct, frozen=True):
    """What a policy makes of a job; `counts` are what its numbers were made from. Both under the tool's names."""

    numbers: dict[str, Number]
    counts: dict[str, int]


class Policy(msgspec.Struct, frozen=True):
    """A rule with its name, in one sentence, and as formulas.

    `leaves_out` names the error types it drops; `printed_as` gives a number's other name in what its tool prints.
    """

    name: str
    rule: str
    formulas: Callable[[JobTrials], PolicyNumbers]
    passes: Callable[[float], bool] = lambda reward: reward == 1
    leaves_out: frozenset[str] = frozenset()
    printed_as: Mapping[str, str] = {}


def policy_named(name: str) -> Policy:
    """The policy of that name. Raises BadInput, naming those there are."""
    if name not in POLICIES:
        raise BadInput(f"There is no policy {name[:80]!r}; there are: {', '.join(POLICIES)}.")
    return POLICIES[name]


def apply_policy(
    policy: Policy,
    attempts: int,
    total_members: int,
    members: Iterable[tuple[str, Sequence[Attempt]]],
    left_out: Collection[tuple[str, int]] = (),
) -> PolicyNumbers:
    """The numbers of a job under a policy, from the dispatched attempts of its members in any order.

    `attempts` is k; members without trials may be left out. `left_out` are the (task, attempt) of the trials that
    ended by an error of a type that the policy leaves out.
    """
    job = JobTrials(JobTally(attempts, total_members), attempts * total_members, Counter(), set())
    for task, every in members:
        rows = [row for row in every if (task, row.attempt) not in left_out] if left_out else every
        job.slots += max(0, len(rows) - attempts)
        told = [row for row in rows if row.reward is not None or row.status in _ENDED]
        trials = (Trial(row.reward, row.status in _ENDED, row.attempt > attempts) for row in rows)
        job.tally.replace_member(None, member_tally(trials))
        if told:
            rewards = [row.reward for row in told if row.reward is not None]
            passed = sum(map(policy.passes, rewards))
            job.outcomes[Outcome(len(rewards), len(told) - len(rewards), passed)] += 1
            job.attempt_numbers.update(row.attempt for row in told)
    return policy.formulas(job)


# --- the rules -------------------------------------------------------------------------------------------------------


def _unknown(job: JobTrials) -> PolicyNumbers:
    ours = measure(job.tally)
    numbers: dict[str, Number] = {
        "score": ours.score,
        "pass": ours.pass_,
        "pass_at_k": ours.pass_at_k,
        "pass_hat_k": ours.pass_hat_k,
    }
    return PolicyNumbers(numbers, {"scored": ours.score_counts.scored, "total": ours.score_counts.total})


def _harbor_zero(job: JobTrials) -> PolicyNumbers:
    tasks = _by_size(job, lambda task: task.scored + task.missing)
    return _harbor(job, tasks, job.trials)


def _harbor_left_out(job: JobTrials) -> PolicyNumbers:
    return _harbor(job, _by_size(job, lambda task: task.scored), job.tally.scored)


def _harbor(job: JobTrials, tasks: Tasks, trials: int) -> PolicyNumbers:
    """Its pass@k is empty where any reward is not 0 or 1."""
    least = 0 if job.tally.non_binary else min(tasks, default=0)
    ks = set(range(5, least + 1, 5)) | powers_of_two(least)
    return PolicyNumbers(
        {"mean": ratio(job.tally.reward_sum, trials), "pass_at_k": mean_over_tasks(tasks, sorted(ks), any_pass)},
        {"trials": trials, "tasks": count_tasks(tasks)},
    )


def _terminal_bench(job: JobTrials) -> PolicyNumbers:
    """Its k are powers of two, 5 and 10."""
    tasks = _by_size(job, lambda task: task.scored + task.missing)
    least = min(tasks, default=0)
    ks = powers_of_two(least) | {k for k in (5, 10) if k <= least}
    return PolicyNumbers(
        {"accuracy": ratio(job.passed, job.trials), "pass_at_k": mean_over_tasks(tasks, sorted(ks), any_pass)},
        {"n_resolved": job.passed, "n_unresolved": job.trials - job.passed},
    )


def _tau_1(job: JobTrials) -> PolicyNumbers:
    """It takes the number of different trial numbers as the n of every task, also of one with fewer trials."""
    most = len(job.attempt_numbers)
    tasks = _by_size(job, lambda _: most)
    return PolicyNumbers(
        {
            "avg_reward": ratio(job.tally.reward_sum, job.trials),
            "pass_hat_k": mean_over_tasks(tasks, range(1, most + 1), all_pass),
        },
        {"trials": job.trials, "tasks": count_tasks(tasks)},
    )


def _tau_2(job: JobTrials) -> PolicyNumbers:
    """A trial that it keeps and that has no reward is no success, and is not among the rewards that it averages."""
    tasks = _by_size(job, lambda task: task.scored + task.missing)
    most = min(job.tally.attempts, min(tasks, default=0))
    return PolicyNumbers(
        {
            "avg_reward": ratio(job.tally.reward_sum, job.tally.scored),
            "pass_hat_ks": mean_over_tasks(tasks, range(1, most + 1), all_pass),
        },
        {"total_simulations": job.trials, "total_tasks": count_tasks(tasks)},
    )


def _swe_bench(job: JobTrials) -> PolicyNumbers:
    return PolicyNumbers(
        {"resolved_rate": ratio(job.passed, job.slots)},
        {"resolved_instances": job.passed, "total_instances": job.slots},
    )


def _passes_in_tau(reward: float) -> bool:
    return 1 - _TAU_TOLERANCE <= reward <= 1 + _TAU_TOLERANCE


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("unknown", "What is unknown stays unknown: a trial without a reward is in no number.", _unknown),
        Policy(
            "harbor-0.25",
            "A trial that ended without a reward counts as 0, and its task stays.",
            _harbor_zero,
            printed_as=_HARBOR_NAMES,
        ),
        Policy(
            "harbor-0.26",
            "A trial without a reward is left out, and so is a task with no other.",
            _harbor_left_out,
            printed_as=_HARBOR_NAMES,
        ),
        Policy("terminal-bench", "A trial that ended without a reward counts as not resolved.", _terminal_bench),
        Policy("tau-1", "A run that died counts as a reward of 0.0.", _tau_1, _passes_in_tau),
        Policy(
            "tau-2",
            "A trial that ended by an infrastructure error is left out; any other without a reward is no success.",
            _tau_2,
            _passes_in_tau,
            frozenset({"infrastructure_error"}),
        ),
        Policy(
            "swe-bench",
            "Whatever was asked for and not resolved counts as 0: an error, an empty patch, and what was never run.",
            _swe_bench,
        ),
    )
}


def _by_size(job: JobTrials, size: Callable[[Outcome], int]) -> Tasks:
    """The job's tasks by their number of trials and of passes; those of size 0 have none."""
    tasks: Tasks = {}
    for task, count in job.outcomes.items():
        if n := size(task):
            tasks.setdefault(n, Counter())[task.passed] += count
    return tasks
