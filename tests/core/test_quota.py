"""Buckets: what is known to be allowed in a window is never exceeded in any window, and is used up in full."""

from __future__ import annotations

import gc
import marshal
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf, nan
from types import FrameType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core.decision import LONGEST_WAIT
from headgate.core.quota import SLICES, Quota, QuotaBucket, QuotaPolicy, never_fits
from headgate.units import read_quota

thoroughly = settings(derandomize=True, deadline=None, max_examples=50)

REQUESTS_AND_TOKENS = (
    Quota(dimension="requests", amount=60, window=60, burst=2),
    Quota(dimension="tokens", amount=10, window=60, burst=1),
)
MOST_WAITS = 4
"""Asking again at the instant one was told must not go on for ever."""


@st.composite
def quotas(draw: st.DrawFn) -> Quota:
    amount = draw(st.sampled_from([1.0, 2.0, 3.0, 10.0, 60.0, 200_000.0]))
    share = draw(st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.9, 1.0]))
    return Quota(
        dimension="requests", amount=amount, window=draw(st.sampled_from([0.5, 1.0, 7.3, 60.0])), burst=amount * share
    )


asks = st.lists(
    st.tuples(
        st.one_of(st.floats(0.001, 0.1), st.floats(0.001, 1.0), st.just(1.0)),  # cost, as a share of the amount
        st.one_of(st.just(0.0), st.floats(0.0, 0.1), st.floats(0.0, 1.5)),  # idle before, in windows
        st.one_of(st.just(0.0), st.floats(0.0, 0.01), st.floats(0.0, 0.3)),  # served late by, in windows
        st.booleans(),  # waited for
    ),
    min_size=2,
    max_size=25,
)


def take_when_ready(bucket: QuotaBucket, amount: float, now: float, late: float, has_waiters: bool) -> float:
    """Ask, wait as told (and a little longer), take. The instant at which it was taken."""
    for _ in range(MOST_WAITS):
        ready_at = bucket.ready_at(amount, now, has_waiters)
        if ready_at <= now:
            bucket.take(amount, now)
            return now
        now = ready_at + late
    raise AssertionError(f"told to wait again and again, now until {ready_at} for {amount} of {bucket.quota}")


def bucket_of(amount: float, window: float, burst: float, *, now: float = 0.0) -> QuotaBucket:
    """A bucket that was looked at before: full at ``now``."""
    bucket = QuotaBucket(Quota(dimension="requests", amount=amount, window=window, burst=burst))
    bucket.fill(now, False)
    return bucket


def of(buckets: QuotaPolicy, dimension: str) -> QuotaBucket:
    """The bucket of a dimension that has one."""
    return next(bucket for bucket in buckets.all if bucket.dimension == dimension)


def refund(bucket: QuotaBucket, amount: float, taken_at: float) -> None:
    """Give back what was taken at ``taken_at``."""
    bucket.give_back(amount, taken_at)


def settle(buckets: QuotaPolicy, reserved: dict[str, float], real: dict[str, float], taken_at: float) -> None:
    """Settle what was reserved at ``taken_at``."""
    buckets.charge(reserved, real, taken_at)


def most_in_any_window(spent: Iterable[tuple[float, float]], window: float) -> float:
    """The most that any half-open window [a, a + window) holds."""
    log = sorted(spent)
    return max(sum(amount for at, amount in log if start <= at < start + window) for start, _ in log)


# ---------------------------------------------------------------------- never more than the limit


@pytest.mark.no_cover
@given(quotas(), asks, st.sampled_from([0.0, 1000.0, 1e6]))
@thoroughly
def test_no_window_ever_holds_more_than_the_amount(quota: Quota, script: list, start: float) -> None:
    bucket, now, spent = QuotaBucket(quota), start, []
    for share, idle, late, has_waiters in script:
        now += idle * quota.window
        now = take_when_ready(bucket, share * quota.amount, now, late * quota.window, has_waiters)
        spent.append((now, share * quota.amount))
    assert most_in_any_window(spent, quota.window) <= quota.amount * (1 + 1e-6)


@given(quotas(), asks, st.lists(st.tuples(st.integers(0, 24), st.integers(1, 6)), max_size=8))
@example(
    Quota(dimension="requests", amount=10.0, window=60.0, burst=10.0),
    [(0.5, 0.0, 0.0, False), (0.5, 0.5, 0.0, False), (1.0, 0.02, 0.0, False)],
    [(0, 2)],
)
@thoroughly
def test_refunding_calls_that_were_never_sent_frees_no_more_than_they_took(
    quota: Quota, script: list, refunds: list[tuple[int, int]]
) -> None:
    """Any call may be refunded a few calls later; what was really sent still fits into every window."""
    bucket, now, spent = QuotaBucket(quota), 0.0, {}
    for number, (share, idle, late, has_waiters) in enumerate(script):
        for refunded, later in refunds:
            if refunded + later == number and refunded in spent:
                taken_at, amount = spent.pop(refunded)
                refund(bucket, amount, taken_at)
        now += idle * quota.window
        now = take_when_ready(bucket, share * quota.amount, now, late * quota.window, has_waiters)
        spent[number] = (now, share * quota.amount)
    assert most_in_any_window(spent.values(), quota.window) <= quota.amount * (1 + 1e-6)


@given(quotas(), asks, st.floats(0.0, 1.0))
@example(
    Quota(dimension="requests", amount=10.0, window=60.0, burst=10.0),
    [(0.5, 0.0, 0.0, False), (0.5, 0.5, 0.0, False), (1.0, 0.02, 0.0, False)],
    0.0,
)
@thoroughly
def test_settling_at_less_frees_no_more_than_was_saved(quota: Quota, script: list, really: float) -> None:
    """Every call is answered right before the next but one leaves, and cost less than was reserved for it."""
    buckets, now, spent = QuotaPolicy([replace(quota, dimension="tokens")]), 0.0, []
    for number, (share, idle, late, has_waiters) in enumerate(script):
        if number >= 2:
            at, reserved = spent[number - 2]
            settle(buckets, {"tokens": reserved}, {"tokens": really * reserved}, at)
            spent[number - 2] = (at, really * reserved)
        now += idle * quota.window
        bucket = of(buckets, "tokens")
        now = take_when_ready(bucket, share * quota.amount, now, late * quota.window, has_waiters)
        spent.append((now, share * quota.amount))
    assert most_in_any_window(spent, quota.window) <= quota.amount * (1 + 1e-6)


@pytest.mark.parametrize("has_waiters", [False, True])
@pytest.mark.parametrize(
    "quota",
    [
        Quota(dimension="requests", amount=500, window=60, burst=4),
        Quota(dimension="requests", amount=100, window=10, burst=50),
    ],
)
def test_a_busy_caller_gets_nearly_the_whole_amount(quota: Quota, has_waiters: bool) -> None:
    bucket, now, spent = QuotaBucket(quota), 0.0, 0
    while (now := take_when_ready(bucket, 1.0, now, 0.0, has_waiters)) < quota.window:
        spent += 1
    assert 0.99 * quota.amount - 1 <= spent <= quota.amount


def test_being_served_a_little_late_costs_a_waiter_nothing() -> None:
    quota = Quota(dimension="requests", amount=600, window=60, burst=4)
    punctual, late = QuotaBucket(quota), QuotaBucket(quota)
    ends = [0.0, 0.0]
    for _ in range(300):
        ends[0] = take_when_ready(punctual, 1.0, ends[0], 0.0, True)
        ends[1] = take_when_ready(late, 1.0, ends[1], 0.02, True)
    assert ends[1] == pytest.approx(ends[0], abs=0.05)


# ---------------------------------------------------------------------- above the burst


def test_a_cost_over_the_burst_waits_for_a_full_bucket() -> None:
    bucket = bucket_of(100, 10, 10)
    bucket.take(1.0, 0.0)
    assert bucket.ready_at(50.0, 0.0, False) == pytest.approx(1 / bucket.refill)


def test_a_cost_over_the_burst_leaves_debt_that_the_next_waits_for() -> None:
    bucket = bucket_of(100, 10, 10)
    bucket.take(50.0, 0.0)
    assert bucket.level == pytest.approx(-40.0)
    assert bucket.ready_at(1.0, 0.0, False) == pytest.approx(41 / bucket.refill)


def test_two_costs_over_the_burst_do_not_share_a_window_they_do_not_fit_into() -> None:
    bucket = bucket_of(100, 10, 10)
    bucket.take(60.0, 0.0)
    assert bucket.ready_at(60.0, 9.999, False) >= 10.0


def test_the_whole_amount_in_one_call_fits_once_per_window() -> None:
    bucket = bucket_of(100, 10, 10)
    assert bucket.ready_at(100.0, 0.0, False) == 0.0
    bucket.take(100.0, 0.0)
    assert bucket.ready_at(100.0, 0.0, False) >= 10.0


def test_a_cost_over_the_amount_never_fits() -> None:
    quotas = (
        Quota(dimension="requests", amount=10, window=1, burst=2),
        Quota(dimension="tokens", amount=100, window=1, burst=9),
    )
    assert never_fits(quotas, {"requests": 1, "tokens": 100.0}) is None
    assert never_fits(quotas, {"requests": 1, "tokens": 100.1}).dimension == "tokens"
    assert never_fits(quotas, {"requests": 11}).dimension == "requests"
    assert never_fits(quotas, {"images": 1e9}) is None


# ---------------------------------------------------------------------- all at once


def test_a_burst_of_the_whole_amount_is_a_window_of_its_own() -> None:
    bucket = bucket_of(3, 10, 3)
    assert bucket.quota.all_at_once
    taken = [take_when_ready(bucket, 1.0, 0.0, 0.0, False) for _ in range(3)]
    assert taken == [0.0] * 3
    assert bucket.ready_at(1.0, 0.5, False) == 10.0


def test_what_was_spent_is_free_exactly_one_window_later() -> None:
    bucket = bucket_of(2, 10, 2)
    bucket.take(1.0, 0.0)
    bucket.take(1.0, 4.0)
    assert [bucket.ready_at(1.0, now, False) for now in (4.0, 9.999)] == [10.0, 10.0]
    assert bucket.ready_at(1.0, 10.0, False) == 10.0
    assert bucket.ready_at(2.0, 10.0, False) == 14.0


def test_those_ahead_in_line_are_counted_into_the_forecast() -> None:
    """One a second: with two ahead and one just gone, the turn comes with the third window from now."""
    bucket = bucket_of(1, 1, 1)
    bucket.take(1.0, 0.0)
    assert bucket.ready_at(1.0, 0.0, True, ahead=2.0) == pytest.approx(3.0)


def test_those_ahead_are_counted_under_a_refilling_bucket_too() -> None:
    bucket = bucket_of(60, 60, 2)
    bucket.take(2.0, 0.0)
    assert bucket.ready_at(1.0, 0.0, True, ahead=9.0) == pytest.approx(10 / bucket.refill)


# ---------------------------------------------------------------------- refunds and settling


def test_a_refund_gives_back_exactly_what_was_taken() -> None:
    bucket = bucket_of(100, 10, 10)
    bucket.take(3.0, 0.0)
    bucket.take(4.0, 0.0)
    refund(bucket, 4.0, 0.0)
    assert bucket.fill(0.0, False) == 7.0


def test_refunds_of_calls_that_were_in_flight_together_give_back_no_more_than_would_have_fitted() -> None:
    bucket = QuotaBucket(Quota(dimension="tokens", amount=200.0, window=10.0, burst=100.0))
    bucket.fill(0.0, False)
    bucket.take(50.0, 0.0)
    bucket.take(50.0, 0.0)
    bucket.fill(5.1, False)  # half of it has come back
    half = bucket.level
    bucket.take(1.0, 5.1)
    refund(bucket, 50.0, 0.0)
    refund(bucket, 50.0, 0.0)
    assert bucket.level == pytest.approx(99.0)  # it would have been full without both
    bucket.take(50.0, 5.1)
    refund(bucket, 50.0, 0.0)
    assert bucket.level == pytest.approx(49.0)
    assert half == pytest.approx(50.0, rel=0.05)


@pytest.mark.parametrize("seed", [263, 1040, 1876, 2471, 2926, *range(20)])
def test_no_window_holds_more_than_its_limit_whatever_is_refunded_when(seed: int) -> None:
    """The first five let more through while each refund was compared with the levels that others had left."""
    rng = random.Random(seed)
    amount, window, burst = 100.0, 10.0, rng.choice([10.0, 30.0, 50.0, 80.0])
    bucket = QuotaBucket(Quota(dimension="tokens", amount=amount, window=window, burst=burst))
    now, flying, landed = 0.0, [], []
    for _ in range(80):
        draw = rng.random()
        if draw < 0.35:
            now += rng.choice([0.01, 0.3, 1.0, 3.0, 9.0]) * rng.random()
        elif draw < 0.75:
            cost = min(rng.choice([1, burst / 4, burst / 2, burst, burst * 1.3]), amount)
            if bucket.ready_at(cost, now, False) <= now + 1e-9:
                bucket.take(cost, now)
                flying.append((now, cost))
        elif flying:
            taken_at, cost = flying.pop(rng.randrange(len(flying)))
            used = rng.choice([0, 0, cost * rng.random()])
            refund(bucket, cost - used, taken_at)
            landed.append((taken_at, used))
        spent = flying + landed
        for start, _ in spent:
            assert sum(cost for at, cost in spent if start <= at < start + window) <= amount * (1 + 1e-6)


def test_a_refund_never_overfills() -> None:
    bucket = bucket_of(100, 10, 10)
    bucket.take(4.0, 0.0)
    bucket.fill(5.0, False)
    refund(bucket, 4.0, 0.0)
    assert bucket.level == 10.0


def test_a_refund_takes_nothing_away_from_what_a_late_waiter_is_owed() -> None:
    bucket = bucket_of(100_000, 10, 10)
    bucket.take(5.0, 0.0)
    before = bucket.fill(1.0, True)
    assert before > 10.0
    refund(bucket, 1.0, 0.0)
    assert bucket.level >= before


def test_a_refund_frees_the_window_it_was_taken_from() -> None:
    bucket = bucket_of(10, 60, 10)
    bucket.take(9.0, 0.0)
    bucket.take(1.0, 10.0)
    refund(bucket, 9.0, 0.0)
    assert bucket.ready_at(9.0, 11.0, False) == 11.0


def test_settling_at_less_gives_the_rest_back() -> None:
    buckets = QuotaPolicy((Quota(dimension="tokens", amount=1000, window=10, burst=100),))
    buckets.take({"tokens": 90.0}, 0.0)
    settle(buckets, {"tokens": 90.0}, {"tokens": 20.0}, 0.0)
    assert of(buckets, "tokens").level == 80.0


def test_settling_at_more_charges_the_rest_even_into_debt() -> None:
    buckets = QuotaPolicy((Quota(dimension="tokens", amount=1000, window=10, burst=100),))
    buckets.take({"tokens": 90.0}, 0.0)
    settle(buckets, {"tokens": 90.0}, {"tokens": 250.0}, 0.0)
    assert of(buckets, "tokens").level == -150.0


def test_settling_at_more_counts_in_the_window_too() -> None:
    buckets = QuotaPolicy((Quota(dimension="tokens", amount=100, window=10, burst=100),))
    buckets.take({"tokens": 10.0}, 0.0)
    settle(buckets, {"tokens": 10.0}, {"tokens": 100.0}, 0.0)
    assert buckets.ready_at({"tokens": 1.0}, 1.0, False, {}) == (10.0, buckets.all[0].quota)


def test_dimensions_left_out_of_the_real_cost_stand_as_reserved() -> None:
    quota = Quota(dimension="requests", amount=1000, window=10, burst=100)
    buckets = QuotaPolicy(replace(quota, dimension=name) for name in ("input", "output"))
    buckets.take({"input": 10.0, "output": 50.0}, 0.0)
    settle(buckets, {"input": 10.0, "output": 50.0}, {"output": 5.0}, 0.0)
    assert [bucket.level for bucket in buckets.all] == [90.0, 95.0]


# ---------------------------------------------------------------------- several dimensions


def test_the_latest_dimension_decides_and_is_named() -> None:
    buckets = QuotaPolicy(
        (
            Quota(dimension="requests", amount=60, window=60, burst=2),
            Quota(dimension="tokens", amount=10, window=60, burst=1),
        )
    )
    cost = {"requests": 1.0, "tokens": 1.0}
    assert buckets.ready_at(cost, 0.0, False, {}) == (0.0, None)
    buckets.take(cost, 0.0)
    ready_at, decides = buckets.ready_at(cost, 0.0, False, {})
    assert decides.dimension == "tokens"
    assert ready_at == pytest.approx(1 / of(buckets, "tokens").refill)


def test_what_costs_nothing_of_a_dimension_does_not_wait_for_it() -> None:
    buckets = QuotaPolicy(
        (
            Quota(dimension="requests", amount=60, window=60, burst=2),
            Quota(dimension="tokens", amount=10, window=60, burst=1),
        )
    )
    buckets.take({"tokens": 10.0}, 0.0)
    assert buckets.ready_at({"requests": 1.0, "tokens": 0.0}, 0.0, False, {}) == (0.0, None)


def test_refunding_touches_only_what_was_taken() -> None:
    quota = Quota(dimension="requests", amount=100, window=10, burst=10)
    buckets = QuotaPolicy(replace(quota, dimension=name) for name in ("requests", "tokens"))
    buckets.take({"requests": 1.0, "tokens": 5.0}, 0.0)
    buckets.refund({"tokens": 5.0, "images": 3.0}, 0.0)
    assert [bucket.level for bucket in buckets.all] == [9.0, 10.0]


def test_it_is_whole_when_every_dimension_is_full_and_its_window_has_passed() -> None:
    buckets = QuotaPolicy(
        (
            Quota(dimension="requests", amount=60, window=60, burst=2),
            Quota(dimension="tokens", amount=10, window=10, burst=1),
        )
    )
    assert buckets.idle_from(5.0) == 5.0
    buckets.take({"requests": 1.0, "tokens": 1.0}, 5.0)
    assert buckets.idle_from(5.0) == 65.0
    assert buckets.idle_from(65.0) == 65.0


# ---------------------------------------------------------------------- clocks, costs, states


def test_a_clock_that_goes_back_neither_gives_nor_takes() -> None:
    bucket = bucket_of(100, 10, 10, now=100.0)
    bucket.take(10.0, 100.0)
    level = bucket.fill(100.5, False)
    assert bucket.fill(99.0, False) == level
    assert bucket.fill(100.5, False) == level
    assert bucket.fill(101.0, False) == pytest.approx(level + 0.5 * bucket.refill)


def test_taking_at_an_earlier_instant_does_not_make_it_forgotten_sooner() -> None:
    bucket = bucket_of(2, 10, 2)
    bucket.take(1.0, 100.0)
    bucket.take(1.0, 99.0)
    assert bucket.ready_at(2.0, 109.5, False) == 110.0


def test_a_key_not_used_for_ages_is_full_and_no_fuller() -> None:
    bucket = bucket_of(2, 86400, 1)
    bucket.take(2.0, 0.0)
    assert bucket.ready_at(1.0, 1e12, False) == 1e12
    assert bucket.fill(1e12, False) == 1.0


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python ``work`` runs."""
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Callable:
        nonlocal count
        count += event == "line"
        return trace

    gc.collect()
    gc.disable()  # what others left behind would be counted when it goes
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


@pytest.mark.no_cover
def test_a_big_cost_is_no_more_work_than_a_small_one() -> None:
    def spend(cost: float) -> int:
        bucket = bucket_of(1e9, 60, 1e8)
        return lines_run(lambda: (bucket.ready_at(cost, 0.0, False), bucket.take(cost, 0.0), refund(bucket, cost, 0.0)))

    assert spend(1.0) == spend(100_000.0)


def test_what_is_remembered_stays_small_however_much_is_spent() -> None:
    bucket = bucket_of(1e6, 60, 1e6)
    for step in range(5000):
        bucket.take(1.0, step * 0.1)
    assert len(bucket.spent) <= SLICES + 2


@pytest.mark.no_cover
@given(quotas(), asks, asks)
@thoroughly
def test_a_copy_from_its_state_goes_on_the_same_way(quota: Quota, before: list, after: list) -> None:
    limits = (quota, Quota(dimension="tokens", amount=50, window=5, burst=5))
    original, now = QuotaPolicy(limits), 0.0

    def step(buckets: QuotaPolicy, now: float, share: float, late: float, has_waiters: bool) -> float:
        cost = {"requests": share * quota.amount, "tokens": 50 * share}
        ready_at, _ = buckets.ready_at(cost, now, has_waiters, {})
        buckets.take(cost, ready_at + late)
        return ready_at + late

    for share, idle, late, has_waiters in before:
        now = step(original, now + idle, share, late, has_waiters)
    copy = QuotaPolicy(limits)
    copy.load_state(marshal.loads(marshal.dumps(original.to_state())))
    for share, idle, late, has_waiters in after:
        then = step(original, now + idle, share, late, has_waiters)
        assert step(copy, now + idle, share, late, has_waiters) == then
        now = then
    assert copy.to_state() == original.to_state()


# ---------------------------------------------------------------------- how limits are written


@pytest.mark.parametrize(
    ("text", "amount", "window"),
    [
        ("500/min", 500, 60),
        ("10/s", 10, 1),
        ("10/sec", 10, 1),
        ("10/second", 10, 1),
        ("10 / seconds", 10, 1),
        ("200_000 per day", 200_000, 86400),
        ("200,000/d", 200_000, 86400),
        ("100/10s", 100, 10),
        ("0.5/s", 0.5, 1),
        ("2/1.5 hours", 2, 5400),
        ("3/hr", 3, 3600),
        ("3/m", 3, 60),
        ("3/mins", 3, 60),
        ("7 PER Minute", 7, 60),
        ("  5000/h  ", 5000, 3600),
    ],
)
def test_a_limit_is_read_as_written(text: str, amount: float, window: float) -> None:
    assert read_quota(text) == (amount, window)


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "500", "500/", "/min", "min", "500/fortnight", "-5/s", "5/-1s", "1e3/min", "five/min", "500 min"),
        *("500/min/s", "5//s", "nan/s", "inf/s", "٥/s", "5/min; drop", "9" * 100 + "/s"),
        *("10/ms", "5/500ms"),
    ],
)
def test_what_is_no_limit_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a limit; write it like '500/min'"):
        read_quota(text)


@given(st.text(max_size=200))
@thoroughly
def test_any_text_is_a_limit_or_a_value_error(text: str) -> None:
    try:
        amount, window = read_quota(text)
    except ValueError:
        return
    assert amount >= 0
    assert window >= 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("amount", value) for value in (0, -1, nan, inf)),
        *(("window", value) for value in (0, -1, nan, inf, LONGEST_WAIT + 1)),
        *(("burst", value) for value in (0, -1, nan, inf, 11)),
    ],
)
def test_a_quota_out_of_range_names_field_and_value(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{field}={value!r}".replace("+", r"\+")):
        Quota(**{"dimension": "requests", "amount": 10, "window": 60, "burst": 5, field: value})
