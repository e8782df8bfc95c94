"""A job's result as people read it: status, coverage, metrics with their denominators, tasks, what to look at next."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from api.answers import Compared, PolicyAnswer, ResultAnswer
from api.cli.output import GAP, harmless, say, say_table
from api.under_policy import plain_name
from projections.job_metrics import Attempt
from projections.metrics import Interval
from projections.metrics_text import coverage, percent

ATTEMPTS_SHOWN_MAX = 12

_ENDED_BADLY = ("failed", "canceled")


def show_result(result: ResultAnswer) -> None:
    """Print a result."""
    status = (result.status, _style(result.status))
    say(Text.assemble("job ", result.id, "  ", result.dataset, "  ", status, _endings(result)))
    say(*_numbers(result), "")
    _show_tasks(result)
    if result.revised_total:
        count = f"{result.revised_total:,} reward{'' if result.revised_total == 1 else 's'}"
        say("", f"{count} corrected by a later grading; who, when and why: el audit events --tag reward-revised")
    _show_next(result)


def _numbers(result: ResultAnswer) -> Iterator[str]:
    over, k = result.denominators, result.k
    yield f"coverage {coverage(result.score_counts, k)}"
    interval = ""
    if result.interval_95:
        low, high = _interval(result.interval_95, result)
        interval = f"; 95% interval {low} to {high}, clustered by member"
    yield _line(
        f"score {percent(result.score)}", f"mean of {_count(over.score, 'scored attempt')}{interval}", result.score
    )
    why = "not measured"
    if result.score is not None:
        why = "no member is complete" if result.pass_ is not None else "not given: a reward is neither 0 nor 1"
    yield _line(f"pass {percent(result.pass_)}", f"over {_count(over.pass_, 'scored attempt')}", result.pass_, why)
    yield _line(
        f"pass@{k} {percent(result.pass_at_k)}",
        f"at least one of {k} passed, over {_count(over.pass_at_k, 'complete member')}",
        result.pass_at_k,
        why,
    )
    yield _line(
        f"pass^{k} {percent(result.pass_hat_k)}",
        f"every one of {k} passed, over {_count(over.pass_hat_k, 'complete member')}",
        result.pass_hat_k,
        why,
    )
    if 2 < k <= ATTEMPTS_SHOWN_MAX and result.curve:
        for name, values in (("@", [p.pass_at_k for p in result.curve]), ("^", [p.pass_hat_k for p in result.curve])):
            shown = "  ".join(f"{j}: {percent(value)}" for j, value in enumerate(values, 1))
            yield f"pass{name}j {shown}"
    if result.score_bounds and result.score_counts.missing:
        least, most = result.score_bounds
        yield _line(f"bounds {percent(least)} to {percent(most)}", "were every missing reward 0, or 1", least)
    if result.as_reported:
        printed = ", ".join(f"{name} {value}" for name, value in result.as_reported.items())
        yield harmless(f"as reported by the tool: {printed}")
    yield from map(harmless, result.remarks)
    if result.policy:
        yield from _under(result.policy)
    if result.flags:
        yield f"flags {', '.join(result.flags)}"


def _under(policy: PolicyAnswer) -> Iterator[str]:
    """The numbers under a policy after its rule in words, and how they compare with the tool's own."""
    counts = ", ".join(f"{name} {count:,}" for name, count in policy.counts.items())
    yield f"under {policy.name}: {policy.rule} ({counts})"
    for name, number in policy.numbers.items():
        if isinstance(number, dict):
            yield from (f"  {plain_name(f'{name}.{k}')} {percent(value)}" for k, value in number.items())
            if not number:
                yield f"  {name} is given for no k"
        else:
            yield f"  {name} {percent(number)}"
    for compared in policy.compared:
        yield harmless(f"  as reported: {compared.name} {compared.reported}, {_difference(compared)}")
    theirs = policy.reported_under
    if theirs not in (None, policy.name):
        yield f"  the tool's own numbers follow {theirs}; compare them with --policy {theirs}"


def _difference(compared: Compared) -> str:
    if compared.equal:
        return "equal to ours"
    if compared.difference is None:
        return "of which this policy gives no number here"
    more = "more" if compared.difference > 0 else "less"
    return f"ours is {compared.ours:.6g}, {abs(compared.difference):.6g} {more}"


def _line(number: str, meaning: str, value: object, why_not: str = "not measured") -> str:
    return f"{number:<22}  {why_not if value is None else meaning}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _interval(interval: Interval, result: ResultAnswer) -> tuple[str, str]:
    """The interval as people read it: no further than the scale that the rewards have kept to."""
    if result.score is None or not 0 <= result.score <= 1:
        return percent(interval.low), percent(interval.high)
    return percent(max(0.0, interval.low)), percent(min(1.0, interval.high))


def _endings(result: ResultAnswer) -> str:
    """How the trials ended, when not all of them succeeded: a failed job may still have scores."""
    if set(result.endings) <= {"succeeded"}:
        return ""
    return f"  ({', '.join(f'{count:,} {status}' for status, count in sorted(result.endings.items()))})"


def _show_tasks(result: ResultAnswer) -> None:
    last = max([result.k, *(attempt.attempt for task in result.tasks for attempt in task.attempts)])
    columns = min(last, ATTEMPTS_SHOWN_MAX)
    first = {(row.task, row.attempt): row.first for row in result.revised}
    rows: list[list[str | Text]] = []
    for task in result.tasks:
        by_number = {attempt.attempt: attempt for attempt in task.attempts}
        cells = [_cell(by_number.get(number)) for number in range(1, columns + 1)]
        for number, cell in enumerate(cells, 1):
            if (task.task, number) in first:
                cell.append(f" (was {_reward(first[task.task, number])})", style="yellow")
        rows.append([task.task, *cells])
    say_table(["task", *(f"#{number}" + ("+" if number > result.k else "") for number in range(1, columns + 1))], rows)
    if columns < last:
        say(f"{columns} of {last} attempts shown; all of them: el job trials {result.id}")
    if result.tasks_more and result.tasks:
        shown = result.tasks_after + len(result.tasks)
        members = result.score_counts.total_members
        say(f"{shown:,} of {members:,} tasks shown; further: el job result {result.id} --after {shown}")


def _cell(attempt: Attempt | None) -> Text:
    """A reward, or a gap that says why; a reward of a trial that did not succeed says that too."""
    if attempt is None:
        return Text(GAP, style="dim")
    if attempt.reward is None:
        words = {"dispatched": "waiting", "running": "running", "succeeded": "no reward"}
        return Text(f"{GAP} {words.get(attempt.status, attempt.status)}", style="yellow")
    style = "green" if attempt.reward == 1 else "red" if attempt.reward == 0 else ""
    number = Text(f"{attempt.reward:.6g}", style=style)
    if attempt.status in _ENDED_BADLY:
        number.append(f" ({attempt.status})", style="yellow")
    return number


def _reward(reward: float | None) -> str:
    return GAP if reward is None else f"{reward:.6g}"


def _show_next(result: ResultAnswer) -> None:
    if not result.lost:
        return
    names = {"unknown": "an unknown phase"}
    phases = ", ".join(f"{count:,} in {names.get(phase, phase)}" for phase, count in sorted(result.lost.items()))
    say("", f"rewards lost: {phases}; look at")
    for trial in result.lost_trials:
        error = f", {trial.error_type}" if trial.error_type else ""
        say(f"  el trial log {trial.trial_id}   {trial.task} #{trial.attempt}: {trial.phase}, {trial.why}{error}")


def _style(status: str) -> str:
    return {"completed": "green", "failed": "yellow", "canceled": "yellow"}.get(status, "cyan")
