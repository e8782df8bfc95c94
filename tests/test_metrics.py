"""A job's numbers: right to the last bit, in any order, and never more than was measured."""

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.metrics import Metrics, measure, measure_trials
from projections.metrics_text import coverage, percent
from projections.tally import JobTally, MemberTally, Trial, member_tally
from tests.metrics_reference import reference

CASES = json.loads((Path(__file__).parent / "metrics_cases.json").read_text())
TINY, HUGE = 5e-324, 1.7976931348623157e308

Members = dict[str, list[Trial]]
Job = tuple[int, int, Members]  # attempts, total members, the trials of those that have any


def trials_of(case: dict[str, Any]) -> Members:
    members: Members = {}
    for row in case["trials"]:
        ended = row["status"] in {"succeeded", "failed", "canceled"}
        members.setdefault(row["member"], []).append(Trial(row.get("reward"), ended, row["attempt"] > case["attempts"]))
    return members


def wire(metrics: Metrics) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(msgspec.json.encode(metrics))
    return answer


def tally_of(attempts: int, total_members: int, members: Members) -> JobTally:
    tally = JobTally(attempts, total_members)
    for trials in members.values():
        tally.replace_member(None, member_tally(trials))
    return tally


def one_each(*rewards: float | None, attempts: int = 1) -> Metrics:
    """The numbers of a job in which every member had one trial, which has ended."""
    members = {str(i): [Trial(reward, True)] for i, reward in enumerate(rewards)}
    return measure_trials(attempts, len(members), members)


any_float = st.floats(allow_nan=False, allow_infinity=False)
rewards_of_a_kind = st.sampled_from(
    [
        st.sampled_from([0.0, 1.0]),
        st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0, -1.0]),
        st.integers(-9, 9).map(float),
        st.floats(0, 1),
        any_float,
        st.sampled_from([TINY, -TINY, HUGE, -HUGE, 1.0]),
    ]
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job at any moment: members untouched, half done, complete or dispatched beyond k."""
    rewards = draw(rewards_of_a_kind)
    attempts = draw(st.integers(1, 4))
    gaps = draw(st.booleans())
    beyond = st.just(False) if draw(st.booleans()) else st.booleans()
    trial = st.builds(Trial, st.one_of(st.none(), rewards) if gaps else rewards, st.booleans(), beyond)
    most = attempts + draw(st.integers(0, 2))
    complete = st.lists(trial, min_size=attempts, max_size=attempts)
    per_member = st.lists(st.one_of(complete, st.lists(trial, min_size=1, max_size=most)), max_size=6)
    members = {str(i): trials for i, trials in enumerate(draw(per_member))}
    return attempts, len(members) + draw(st.integers(0, 2)), members


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_known_answers(case: dict[str, Any]) -> None:
    """Every kept case, the user's own example first, comes out to the last bit."""
    answer = wire(measure_trials(case["attempts"], len(case["members"]), trials_of(case)))
    expected = case["expected"] | {"score_counts": answer["score_counts"] | case["expected"]["score_counts"]}
    assert {name: answer[name] for name in expected} == expected


@settings(max_examples=300, deadline=None)
@given(jobs())
def test_agrees_with_the_reference(job: Job) -> None:
    """Any job's numbers equal those of a second method that lists rewards and enumerates subsets."""
    assert wire(measure_trials(*job)) == reference(*job)


@settings(max_examples=100, deadline=None)
@given(jobs(), st.data())
def test_arrival_order_leaves_no_trace(job: Job, data: st.DataObject) -> None:
    """Trials told one by one in any order leave the same stored bytes as the whole job told at once."""
    attempts, total, members = job
    arrivals = data.draw(st.permutations([(m, t) for m, trials in members.items() for t in trials]))
    live, seen = JobTally(attempts, total), dict[str, list[Trial]]()
    for member, trial in arrivals:
        old = member_tally(seen[member]) if member in seen else None
        seen.setdefault(member, []).append(trial)
        live.replace_member(old, member_tally(seen[member]))
        live = JobTally.from_json(live.to_json())
    assert live.to_json() == tally_of(*job).to_json()
    assert measure(live) == measure_trials(*job)


@settings(max_examples=100, deadline=None)
@given(jobs(), jobs())
def test_a_replaced_past_leaves_no_trace(past: Job, job: Job) -> None:
    """Whatever members looked like before, and though some leave, only what they are now is counted."""
    attempts, total, now = job
    before = past[2]
    live = JobTally(attempts, total)
    for trials in before.values():
        live.replace_member(None, member_tally(trials))
    for member in before.keys() | now.keys():
        old = member_tally(before[member]) if member in before else None
        new = member_tally(now[member]) if member in now else None
        live.replace_member(old, new)
    assert live.to_json() == tally_of(*job).to_json()


@settings(max_examples=100, deadline=None)
@given(jobs(), st.data())
def test_parts_merge_into_the_whole(job: Job, data: st.DataObject) -> None:
    """A job split over machines by member, and merged in either order, is the job."""
    attempts, total, members = job
    left = {m: trials for m, trials in members.items() if data.draw(st.booleans())}
    right = {m: trials for m, trials in members.items() if m not in left}
    a, b = tally_of(attempts, len(left), left), tally_of(attempts, total - len(left), right)
    whole = tally_of(*job).to_json()
    assert a.merged(b).to_json() == b.merged(a).to_json() == whole


def test_tallies_of_different_attempts_do_not_merge() -> None:
    """Sums over different k mean different things; adding them is refused."""
    with pytest.raises(ValueError, match="2 and 3 attempts"):
        JobTally(2, 1).merged(JobTally(3, 1))


@given(st.lists(any_float, min_size=1, max_size=50))
def test_the_score_is_fsum_over_n(rewards: list[float]) -> None:
    """The score is `math.fsum(rewards) / n` wherever fsum can say it."""
    try:
        expected = math.fsum(rewards) / len(rewards)
    except OverflowError:
        return
    assert one_each(*rewards).score == expected


@given(st.lists(st.sampled_from([HUGE, -HUGE, HUGE / 2, TINY]), min_size=1, max_size=50))
def test_a_sum_too_large_for_a_float_still_has_its_mean(rewards: list[float]) -> None:
    """The mean of finite rewards is always a finite float within their range."""
    score = one_each(*rewards).score
    assert score is not None
    assert min(rewards) <= score <= max(rewards)


def test_extreme_rewards_are_stored_exactly() -> None:
    """The largest and smallest floats, by the million, survive storage: no limit on digits is met."""
    tally = JobTally(4, 10**6)
    member = member_tally([Trial(HUGE, True), Trial(HUGE, True), Trial(-TINY, True), Trial(TINY, True)])
    for _ in range(20):  # doubling: 1,048,576 members
        tally.replace_member(None, member)
        tally = tally.merged(tally)
    text = tally.to_json()
    assert JobTally.from_json(text) == tally
    assert max(len(part) for part in text.replace("/", '"').split('"')) < 2000
    tiny = tally_of(1, 2, {"A": [Trial(TINY, True)], "B": [Trial(TINY, True)]})
    assert Fraction(json.loads(tiny.to_json())["sum_squares"]) == 2 * Fraction(TINY) ** 2


def test_an_interval_too_wide_for_a_float_is_null() -> None:
    """No infinity ever leaves the formulas; a standard error below every float is a zero."""
    assert one_each(HUGE, -HUGE).interval_95 is None
    narrow = one_each(TINY, 2 * TINY).interval_95
    assert narrow is not None
    assert narrow.standard_error == 0


def test_minus_zero_is_zero() -> None:
    """A reward of -0.0 is the binary 0, to the last byte of the tally."""
    assert member_tally([Trial(-0.0, True)]) == member_tally([Trial(0.0, True)])
    assert tally_of(1, 1, {"A": [Trial(-0.0, True)]}).to_json() == tally_of(1, 1, {"A": [Trial(0.0, True)]}).to_json()
    assert math.copysign(1, one_each(-0.0).score or 0.0) == 1


def test_the_stored_form_is_pinned() -> None:
    """Equal tallies are equal bytes: fields in order, whole sums without a slash, the histogram by passes."""
    members = {
        "A": [Trial(1, True)] * 10,
        "B": [Trial(0, True)] * 9 + [Trial(1, True)] * 1,
        "C": [Trial(0.5, False)],
    }
    assert tally_of(10, 4, members).to_json() == (
        '{"attempts":10,"total_members":4,"dispatched":21,"scored":21,"covered":21,"extra":0,"invalid":0,'
        '"non_binary":1,"outside_unit":0,"scored_members":3,"count_squares":201,"reward_sum":"23/2",'
        '"sum_squares":"405/4","sum_products":"221/2","passes":{"1":1,"10":1}}'
    )


@given(jobs())
def test_a_number_says_what_it_is_over(job: Job) -> None:
    """A denominator is 0 exactly where its number is null; nothing scored makes every number null."""
    answer = wire(measure_trials(*job))
    for name, denominator in answer["denominators"].items():
        assert (denominator == 0) == (answer[name] in (None, []))
    if answer["score_counts"]["scored"] == 0:
        assert not any(answer[name] for name in answer["denominators"])


@given(jobs())
def test_the_curve_bends_one_way(job: Job) -> None:
    """More attempts never lower pass@k nor raise pass^k, and with one attempt both are the same."""
    metrics = measure_trials(*job)
    for one, more in pairwise(metrics.curve):
        assert one.pass_at_k <= more.pass_at_k
        assert one.pass_hat_k >= more.pass_hat_k
    if metrics.curve:
        assert metrics.curve[0].pass_at_k == metrics.curve[0].pass_hat_k


def test_the_seed_names_the_estimators_value() -> None:
    """n=5, c=3, k=2 gives 90% and 30%, not what the naive powers of 3/5 give."""
    metrics = measure_trials(5, 1, {"A": [Trial(1, True)] * 3 + [Trial(0, True)] * 2})
    assert (metrics.curve[1].pass_at_k, metrics.curve[1].pass_hat_k) == (0.9, 0.3)


def test_a_trial_with_a_reward_counts_before_it_ends() -> None:
    """A reward counts whatever the status; only an ended trial without one is invalid."""
    rows = [Trial(1, False), Trial(None, False), Trial(None, True)]
    assert member_tally(rows) == MemberTally(
        dispatched=3, scored=1, passed=1, non_binary=0, outside_unit=0, invalid=1, reward_sum=Fraction(1)
    )


def test_bounds_are_the_missing_at_zero_and_at_one() -> None:
    """The bounds hold for whatever the missing rewards turn out to be, and close when none is missing."""
    assert one_each(1, 0, 0.5, None).score_bounds == (1.5 / 4, 2.5 / 4)
    assert one_each(1, 0, 0.5).score_bounds == (0.5, 0.5)
    assert one_each(1, 0, 1.5).score_bounds is None
    assert measure_trials(1, 2, {"A": [Trial(1, True), Trial(1, True, extra=True)]}).score_bounds is None


def test_one_attempt_each_gives_the_usual_standard_error() -> None:
    """Without clusters to speak of, the interval is the textbook one: deviation / sqrt(n)."""
    interval = one_each(1, 0, 0, 1, 1).interval_95
    assert interval is not None
    reach = NormalDist().inv_cdf(0.975) * math.sqrt(0.3 / 5)
    assert (interval.low, interval.high) == pytest.approx((0.6 - reach, 0.6 + reach), rel=1e-14)
    assert interval.standard_error == pytest.approx(math.sqrt(0.3 / 5), rel=1e-15)
    assert interval.clusters == 5
    assert one_each(1).interval_95 is None


def test_copies_of_an_attempt_do_not_narrow_the_interval() -> None:
    """Repeating each task's result adds no knowledge of other tasks, and the clustered error knows it."""
    once = {m: [Trial(r, True)] for m, r in [("A", 1), ("B", 0), ("C", 1)]}
    often = {m: trials * 8 for m, trials in once.items()}
    a, b = measure_trials(1, 3, once).interval_95, measure_trials(8, 3, often).interval_95
    assert a is not None
    assert a == b


def test_a_long_curve() -> None:
    """A thousand attempts per member need no large binomials, and the curve ends where it must."""
    passes: Sequence[int] = range(1001)
    tally = JobTally(1000, len(passes), passes=dict.fromkeys(passes, 1), scored=1_001_000, scored_members=1001)
    curve = measure(tally).curve
    assert (curve[0].pass_at_k, curve[-1].pass_at_k, curve[-1].pass_hat_k) == (0.5, 1000 / 1001, 1 / 1001)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.75, "75%"),
        (1.0, "100%"),
        (1, "100%"),
        (0.0, "0%"),
        (-0.0, "0%"),
        (0.6, "60%"),
        (4 / 7, "57.1%"),
        (0.1, "10%"),
        (0.001, "0.1%"),
        (0.999, "99.9%"),
        (0.9999999, ">99.9%"),
        (math.nextafter(1, 0), ">99.9%"),
        (1e-9, "<0.1%"),
        (TINY, "<0.1%"),
        (1.5, "1.5"),
        (12.0, "12"),
        (10 / 3, "3.3333"),
        (-0.25, "-0.25"),
        (-1e-9, "-1e-09"),
        (1.0000001, "1.0000001"),
        (1e300, "1e+300"),
    ],
)
def test_a_score_as_people_read_it(value: float | None, text: str) -> None:
    """A percentage within [0, 1], its own scale outside, a gap for no number."""
    assert percent(value) == text


@given(any_float)
def test_only_one_reads_100_and_only_zero_reads_0(value: float) -> None:
    """Rounding never turns nearly all into all, nearly none into none, or another scale into a percentage."""
    assert (percent(value) == "100%") == (value == 1)
    assert (percent(value) == "0%") == (value == 0)
    assert percent(value).endswith("%") == (0 <= value <= 1)


def test_coverage_says_what_is_there_and_what_is_not() -> None:
    """Coverage names what was scored out of what was asked for; what is zero is left out."""
    seed = measure_trials(2, 3, trials_of(CASES[0]))
    assert coverage(seed.score_counts, 2) == "5/6 attempts scored, 1 missing, 1 invalid; 2/3 members complete"
    whole = measure_trials(1, 1, {"A": [Trial(1, True)]})
    assert coverage(whole.score_counts, 1) == "1/1 attempts scored; 1/1 members complete"
    beyond = measure_trials(1, 1, {"A": [Trial(1, True), Trial(0, True, extra=True)]})
    assert coverage(beyond.score_counts, 1) == "2/1 attempts scored, 1 extra beyond k=1; 0/1 members complete"
