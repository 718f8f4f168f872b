"""The rooms of the adaptive controller, one promise each."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest

from headgate.core.control.adaptive import Adaptive, AdaptivePolicy
from headgate.core.control.adaptive.concurrency import ConcurrencyCap, Verdict
from headgate.core.control.adaptive.delay import DelayWatch
from headgate.core.control.adaptive.estimator import Meter
from headgate.core.control.adaptive.growth import Curve, doubled
from headgate.core.control.adaptive.headers import LONGEST_BELIEF, MUTED, HeaderLaw
from headgate.core.control.adaptive.refusals import RUNS, Refusals
from headgate.core.control.adaptive.sendlog import MARKS, SendLog
from headgate.core.decision import NEVER, Outcome
from headgate.core.signal import SILENT, Limit
from headgate.core.ticket import Ticket

SEED = 7


@pytest.mark.parametrize(
    ("field", "value"),
    [("initial", 0.0), ("initial", float("nan")), ("least", -1.0), ("most", 0.001), ("most", float("nan"))],
)
def test_a_policy_out_of_range_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"{field} must be .*{value!r}"):
        AdaptivePolicy(**{field: value})


def test_a_fresh_key_is_tiny():
    policy = AdaptivePolicy()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        controllers = [Adaptive(policy) for _ in range(200)]
        for at, controller in enumerate(controllers):
            for n in range(1, 6):
                ticket = Ticket(controller, n, 10.0 * n + at, 0)
                controller.on_send(ticket, ticket.sent_at)
                controller.on_answer(ticket, SILENT[Outcome.OK], 0.1, ticket.sent_at + 0.1)
        del ticket
        each = (tracemalloc.get_traced_memory()[0] - before) / len(controllers)
    finally:
        tracemalloc.stop()
    assert each < 512


# -- the log of sends -----------------------------------------------------------------------------


def test_a_send_log_answers_for_the_last_second_and_the_last_hour():
    log, rate = SendLog(), 40.0
    for n in range(int(3600 * rate)):
        log.mark(n / rate, n)
    now = (3600 * rate - 1) / rate
    for age in (0.5, 1.0, 10.0, 60.0, 600.0, 3000.0):
        sent = 3600 * rate - 1 - log.seq_at(now - age)
        assert sent == pytest.approx(age * rate, rel=0.05, abs=3), f"{age} s"


def test_a_send_log_is_bounded_however_long_it_runs():
    log, now = SendLog(), 0.0
    source = random.Random(SEED)
    for n in range(50_000):
        now += source.choice([0.001, 0.06, 5.0, 4000.0])
        log.mark(now, n)
        assert len(log.instants) == len(log.ordinals) <= MARKS
    assert sys.getsizeof(log.instants) + sys.getsizeof(log.ordinals) < 3000


def test_a_clock_that_went_back_empties_the_send_log():
    log = SendLog()
    log.mark(100.0, 5)
    log.mark(50.0, 6)
    assert list(log.instants) == [50.0]


# -- refusals -------------------------------------------------------------------------------------


def test_refusals_are_counted_exactly_while_there_is_room():
    refusals, source = Refusals(), random.Random(SEED)
    seqs = source.sample(range(1, 60), 30)
    for seq in seqs:
        refusals.add(seq)
    for low, high in [(0, 60), (10, 20), (30, 31), (59, 60), (5, 5)]:
        assert refusals.between(low, high) == sum(low < seq <= high for seq in seqs)


def test_old_refusals_are_blurred_but_never_lost():
    refusals = Refusals()
    for seq in range(10, 20_000, 10):
        refusals.add(seq)
    assert len(refusals.firsts) <= RUNS
    assert refusals.between(0, 20_000) == 1999
    assert refusals.between(9_000, 10_000) == pytest.approx(100, abs=1)


def test_a_streak_is_in_the_order_of_sending_whatever_the_order_of_answers():
    refusals = Refusals()
    for seq in (12, 10, 14, 11):
        refusals.add(seq)
    assert [refusals.streak(seq) for seq in (9, 10, 11, 12, 13, 14)] == [0, 1, 2, 3, 0, 1]


# -- measuring and growing ------------------------------------------------------------------------


def test_between_two_refusals_a_quota_is_measured():
    meter = Meter()
    meter.restart(100, 10.0)
    assert meter.quota(499, 20.0, steady=True) == pytest.approx(50.0, rel=0.002)


def test_too_few_calls_measure_nothing():
    meter = Meter()
    meter.restart(100, 10.0)
    assert meter.quota(3, 20.0, steady=True) is None


def test_a_clean_measurement_teaches_how_much_of_a_hold_is_lost():
    meter = Meter()
    for _ in range(20):
        meter.restart(0, 0.0)
        meter.held = 2.0
        meter.quota(400, 10.0, steady=True)  # 50/s, and the held 2 s brought nothing
        meter.restart(0, 0.0)
        meter.quota(500, 10.0, steady=True)
    assert meter.lost_share == pytest.approx(1.0, abs=0.03)


def test_a_search_never_goes_beyond_twice_what_is_really_sent():
    assert doubled(10.0, 0.4, 0.4, sent_lately=100, at_least=4.0) == pytest.approx(20.0)
    assert doubled(10.0, 0.4, 0.4, sent_lately=6, at_least=4.0) == pytest.approx(12.0)
    assert doubled(10.0, 0.4, 0.4, sent_lately=0, at_least=4.0) == 10.0


def test_the_cubic_starts_below_the_quota_meets_it_at_the_period_and_ends_above():
    curve = Curve(50.0)
    curve.learn(50.0, 0.03)
    assert curve.start() == pytest.approx(48.5)
    assert curve.cruise(curve.period) == pytest.approx(50.0)
    assert curve.cruise(curve.period) == pytest.approx(51.5)
    assert not curve.outgrown(held=0.0)
    curve.cruise(2.5 * curve.period)
    assert curve.outgrown(held=0.0)


def test_the_period_keeps_refusals_inside_the_budget():
    curve = Curve(2.0)
    for _ in range(20):
        curve.learn(2.0, 0.03)
    assert curve.cost / (curve.period * 2.0) <= 0.0065
    curve.learn(1.0, 0.03)
    assert curve.agreed == 0, "a measurement that moved is looked at again sooner"


# -- headers --------------------------------------------------------------------------------------


def heard(law, limit, remaining, reset, window, *, seq=10, now=100.0, dimension="requests"):
    told = Limit(dimension=dimension, limit=limit, remaining=remaining, reset=reset, window=window)
    return law.read((told,), seq, 0.1, 0.05, now)


def test_a_window_is_spread_over_the_time_that_is_left():
    law, log = HeaderLaw(), SendLog()
    for n in range(12):
        heard(law, 600, 300 - n, 30 - n, 60, seq=10 + n, now=100.0 + n)
    rate, hold = law.pace(21, log, 111.0)
    assert rate == pytest.approx(289 / 19, rel=0.05)
    assert hold == NEVER


def test_an_empty_window_is_waited_for_but_never_longer_than_believed():
    law, log = HeaderLaw(), SendLog()
    for n in range(12):
        heard(law, 600, 12 - n, 1800 - n, 3000, seq=10 + n, now=100.0 + n)
    _, hold = law.pace(30, log, 111.0)
    assert 111.0 < hold <= 111.0 + LONGEST_BELIEF + 0.02


def test_an_empty_token_budget_holds_until_it_is_refilled_and_no_longer_than_the_next_header():
    law = HeaderLaw()
    heard(law, 100_000, 0, 12, 60, dimension="tokens")
    assert law.empty_until == 112.0
    heard(law, 100_000, 500, 12, 60, dimension="tokens", seq=11)
    assert law.empty_until == NEVER


def test_headers_too_coarse_to_steer_by_are_left_alone():
    law = HeaderLaw()
    assert not heard(law, 5, 4, 1, 1)
    assert law.muted_until == 100.0 + MUTED
    assert not law.steers(1, 101.0)


def test_an_older_answer_does_not_overrule_a_newer_one():
    law = HeaderLaw()
    heard(law, 600, 300, 30, 60, seq=10)
    heard(law, 600, 400, 30, 60, seq=9)
    assert law.remaining == 300


# -- caps -----------------------------------------------------------------------------------------


def test_refusals_at_one_depth_are_a_cap_and_at_many_are_not():
    cap = ConcurrencyCap()
    assert [cap.suspect(16, 15, 0, 100, 1.0) for _ in range(3)][-1] is Verdict.MINE
    assert cap.on
    assert cap.cap == 16
    quota = ConcurrencyCap()
    verdicts = [quota.suspect(depth, 40, 0, 100, 1.0) for depth in (16, 30, 9, 16, 22, 16)]
    assert set(verdicts) == {Verdict.NOT_MINE}


def test_a_quota_measured_to_the_digit_rules_a_cap_out():
    cap = ConcurrencyCap()
    assert {cap.suspect(16, 15, 3, 100, 1.0) for _ in range(6)} == {Verdict.NOT_MINE}


def test_a_cap_refused_where_it_was_fine_is_let_go_and_rested():
    cap = ConcurrencyCap()
    for _ in range(3):
        cap.suspect(16, 15, 0, 100, 1.0)
    verdicts = [cap.refused(101 + n, 101 + n, 40.0, 1.5, 2.0) for n in range(3)]
    assert verdicts == [Verdict.MINE, Verdict.MINE, Verdict.LET_GO]
    assert not cap.on
    assert cap.suspect(16, 15, 0, 200, 3.0) is Verdict.NOT_MINE


def test_the_median_of_a_cohort_is_known_once_the_rest_is_slower():
    watch = DelayWatch()
    watch.begin(0, 0, 0.0)
    for seq in range(1, 10):
        assert watch.sample(seq, 16, 0.1, seq, 0.05) is None, "the others may still be faster"
    assert watch.sample(10, 16, 0.1, 10, 0.3) == 0.1


def test_slow_answers_and_no_more_throughput_cap_what_is_in_flight():
    watch, now = DelayWatch(), 0.0
    assert watch.judge(0.1, 5, 50, True, True, now + 1.0) is None
    watch.begin(50, 50, 1.0)
    assert watch.judge(0.5, 40, 100, True, True, 2.0) == pytest.approx(50.0)
    assert watch.cap == pytest.approx(1.2 * 50 * 0.1, rel=0.05)
