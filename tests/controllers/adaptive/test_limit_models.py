"""The history and the delay watch of the adaptive controller, one promise each."""

from __future__ import annotations

import random
import sys
from math import inf
from types import SimpleNamespace

import pytest

from headgate.controllers.adaptive import AdaptiveSettings
from headgate.controllers.adaptive.call_history import MARKS, RUNS, RefusalLog, SendLog
from headgate.controllers.adaptive.latency_model import LatencyModel
from headgate.controllers.adaptive.limit_models import LimitModels
from headgate.controllers.adaptive.rate_search import RateSearch
from headgate.controllers.adaptive.state import Phase
from headgate.core.policy import Ticket

pytestmark = pytest.mark.no_cover

SEED = 7


@pytest.mark.parametrize(
    ("field", "value"),
    [("initial", 0.0), ("initial", float("nan")), ("least", -1.0), ("most", 0.001), ("most", float("nan"))],
)
def test_a_policy_out_of_range_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"{field} must be .*{value!r}"):
        AdaptiveSettings(**{field: value})


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
    assert sys.getsizeof(log.instants) + sys.getsizeof(log.ordinals) < 4000


def test_a_send_log_keeps_the_last_minute_as_sharp_as_there_is_room_for():
    """A pause of half a second half a minute ago: a log of 30 s has room when what was sent before it has left."""
    log, sent = SendLog(), 0
    for tick in range(1200):
        now = 0.1 * tick
        sent += 0 if 90.0 <= now < 90.5 else 2
        log.mark(now, sent)
    assert log.seq_at(90.5) - log.seq_at(90.0) <= 4.0
    assert len(log.instants) <= MARKS


def test_a_clock_that_went_back_empties_the_send_log():
    log = SendLog()
    log.mark(100.0, 5)
    log.mark(50.0, 6)
    assert list(log.instants) == [50.0]


# -- refusals -------------------------------------------------------------------------------------


def test_refusals_are_counted_exactly_while_there_is_room():
    refusals, source = RefusalLog(), random.Random(SEED)
    seqs = source.sample(range(1, 60), 30)
    for seq in seqs:
        refusals.add(seq)
    for low, high in [(0, 60), (10, 20), (30, 31), (59, 60), (5, 5)]:
        assert refusals.between(low, high) == sum(low < seq <= high for seq in seqs)


def test_old_refusals_are_blurred_but_never_lost():
    refusals = RefusalLog()
    for seq in range(10, 20_000, 10):
        refusals.add(seq)
    assert len(refusals.firsts) <= RUNS
    assert refusals.between(0, 20_000) == 1999
    assert refusals.between(9_000, 10_000) == pytest.approx(100, abs=1)


def test_a_streak_is_in_the_order_of_sending_whatever_the_order_of_answers():
    refusals = RefusalLog()
    for seq in (12, 10, 14, 11):
        refusals.add(seq)
    assert [refusals.streak(seq) for seq in (9, 10, 11, 12, 13, 14)] == [0, 1, 2, 3, 0, 1]


def test_a_refusal_inside_a_blurred_run_is_counted_but_never_more_often_than_there_were_calls():
    refusals = RefusalLog()
    for seq in (10, 14, 20, 30, 40):
        refusals.add(seq)
    refusals.rest()
    assert (refusals.firsts[0], refusals.lasts[0], refusals.counts[0]) == (10, 20, 3)
    for _ in range(20):
        refusals.add(12)
    assert refusals.between(0, 20) == 11


# -- delay ----------------------------------------------------------------------------------------


def test_the_median_of_a_cohort_is_known_once_the_rest_is_slower():
    watch = LatencyModel()
    watch.begin(0, 0, 0.0)
    for seq in range(1, 10):
        assert watch.sample(seq, 16, 0.1, seq, 0.05) is None, "the others may still be faster"
    assert watch.sample(10, 16, 0.1, 10, 0.3) == 0.1


def test_slow_answers_and_no_more_throughput_cap_what_is_in_flight():
    watch, now = LatencyModel(), 0.0
    assert watch.judge(0.1, 5, 50, True, True, now + 1.0) is None
    watch.begin(50, 50, 1.0)
    assert watch.judge(0.5, 40, 100, True, True, 2.0) == pytest.approx(50.0)
    assert watch.cap == pytest.approx(1.2 * 50 * 0.1, rel=0.05)


def test_a_few_slow_answers_are_no_slow_server_where_calls_are_few():
    """Sixteen answers that vary a lot are slow by chance now and then; twice as many are not."""
    few, many = LatencyModel(), LatencyModel()
    for watch, size in ((few, 16), (many, 32)):
        watch.throughput, watch.usual, watch.wanted = 1.0, 1.0, size
    caps = []
    for number in range(1, 5):
        for watch in (few, many):
            watch.judge(2.5, 4, watch.done, True, False, float(number))
        caps.append((few.cap < inf, many.cap < inf))
    assert caps == [(False, False), (False, True), (False, True), (True, True)]


def test_a_delay_that_the_callers_own_event_loop_may_cause_is_no_slow_server():
    watch = LatencyModel()
    watch.judge(0.0005, 1, 500, True, True, 1.0)
    watch.begin(500, 500, 1.0)
    assert watch.judge(0.008, 32, 1000, True, True, 2.0) is None, "sixteen times the usual, but 8 ms"
    watch.begin(1000, 1000, 2.0)
    assert watch.judge(0.05, 200, 1500, True, True, 3.0) is None, "once may be a pause of the caller's process"
    watch.begin(1500, 1500, 3.0)
    assert watch.judge(0.05, 200, 2000, True, True, 4.0) == pytest.approx(500.0)
    assert watch.cap == pytest.approx(1.2 * 500 * 0.02), "enough in flight to keep the loop busy"


def test_a_cohort_that_does_not_come_back_is_slow_and_a_first_one_is_given_up():
    watch = LatencyModel()
    watch.begin(0, 0, 0.0)
    assert watch.sample(1, 16, 0.1, 1, 1.0) is None
    assert watch.sample(2, 16, 0.1, 2, 32.0) is None
    assert watch.first == 17, "nothing is usual yet: begin again"
    watch.usual = 0.1
    watch.sample(17, 32, 0.1, 3, 40.0)
    assert watch.sample(18, 32, 0.1, 4, 40.5) == pytest.approx(0.5)


def test_a_cohort_whose_samples_are_missing_while_answers_come_is_begun_again():
    """Calls that left before a cut was known count as earlier ones where several processes share a quota."""
    watch = LatencyModel(usual=0.1)
    watch.begin(0, 0, 0.0)
    watch.sample(1, 16, 0.1, 1, 1.0)
    assert watch.sample(2, 40, 0.1, 36, 1.5) is None
    assert watch.first == 41


def test_a_cohort_mostly_refused_is_begun_again():
    watch = LatencyModel()
    watch.begin(0, 0, 0.0)
    for seq in range(1, 12):
        watch.drop(seq)
    assert watch.sample(12, 16, 0.1, 1, 1.0) is None
    assert watch.first == 17


def slow_server(cap=12.0):
    """A watch that has capped at 12 in flight: 100/s, 0.1 s each."""
    watch = LatencyModel()
    watch.cap, watch.usual, watch.throughput, watch.best, watch.trial_at = cap, 0.1, 100.0, 100.0, 0.0
    return watch


def judged(watch, median, now, *, depth=12, throughput=100.0):
    watch.done, watch.done_at = 0, now - 1.0
    watch.judge(median, depth, int(throughput), True, False, now)
    return watch.cap


def test_a_delay_cap_follows_the_median():
    assert judged(slow_server(), 0.15, 1.0) == pytest.approx(0.96 * 12.0)
    assert judged(slow_server(), 0.1, 1.0) == 13.0
    assert judged(slow_server(), 0.1, 1.0, depth=3) == 12.0, "it is not used: nothing to try"


def test_a_delay_cap_that_made_no_answer_faster_is_taken_back():
    watch, now, lowest = slow_server(cap=40.0), 0.0, 40.0
    while watch.cap <= lowest:
        lowest, now = watch.cap, now + 0.5
        assert now < 10.0, f"still at {watch.cap}"
        judged(watch, 0.25, now, depth=int(watch.cap))
    assert lowest < 0.65 * 40.0
    assert watch.cap == pytest.approx(0.96 * 40.0), "where it was first compared"
    assert watch.usual > 0.2, "that is what they take"


def test_a_delay_cap_that_makes_answers_faster_goes_on_shrinking():
    watch, now = slow_server(cap=40.0), 0.0
    while watch.cap > 18.0:
        cap, now = watch.cap, now + 0.5
        judged(watch, 0.01 * watch.cap, now, depth=int(watch.cap))
        assert watch.cap < cap


def test_every_half_minute_a_third_more_is_tried_and_kept_if_more_gets_done():
    watch = slow_server()
    assert judged(watch, 0.1, 31.0) == pytest.approx(1.3 * 12.0)
    assert judged(watch, 0.1, 34.0, throughput=120.0) == pytest.approx(1.3 * 12.0)
    watch = slow_server()
    judged(watch, 0.1, 31.0)
    assert judged(watch, 0.13, 34.0) == 12.0, "no more got done: back"


def test_a_delay_cap_that_no_longer_matters_is_lifted():
    assert judged(slow_server(cap=60.0), 0.1, 1.0) == inf


def after_a_slow_cohort(*, steered):
    """Models that have never been refused, after sixteen calls that took five times as long as usual."""
    models = LimitModels(search=RateSearch.start(10.0, 10.0))
    models.header_model.steered = steered
    models.latency_model.begin(0, 0, 0.0)
    models.latency_model.usual, models.latency_model.throughput = 0.1, 20.0
    for seq in range(1, 17):
        models.served(Ticket(SimpleNamespace(seq=16), seq, 1.0, 3), 0.5, seq, 1.5)
    return models.latency_model


def test_one_slow_cohort_is_enough_in_a_search_but_not_at_a_pace_that_the_headers_ask_for():
    searching, told = after_a_slow_cohort(steered=False), after_a_slow_cohort(steered=True)
    assert searching.cap < inf
    assert (told.cap, told.hot) == (inf, 1)


@pytest.mark.parametrize(("rough", "quota"), [(False, 10.0), (True, 3.0)])
def test_a_slowdown_replaces_a_guess_and_never_a_quota_that_was_measured(monkeypatch, rough, quota):
    """A stall of the caller's own machine slows all answers down, and says nothing about what the server allows."""
    monkeypatch.setattr(LatencyModel, "sample", lambda *_: 0.5)
    monkeypatch.setattr(LatencyModel, "judge", lambda *_: 3.0)
    models = LimitModels(search=RateSearch.start(10.0, 10.0))
    models.search.curve.learn(10.0, rough=rough)
    models.search.cruise_from(100)
    assert models.served(Ticket(SimpleNamespace(seq=200), 200, 1.0, 3), 0.5, 200, 1.5)
    assert models.search.curve.quota == quota


@pytest.mark.parametrize(("throughput", "held"), [(9.5, True), (6.0, False)])
def test_a_cap_passes_its_trial_only_if_as_much_gets_done_as_the_quota_allows(throughput, held):
    """Fewer in flight than the quota has room for are not refused either."""
    models = LimitModels(search=RateSearch.start(10.0, 10.0))
    models.search.curve.learn(10.0, rough=False)
    models.search.cruise_from(100)
    for _ in range(2):
        models.concurrency.suspect(5, 5, 0, 100, 0.0)
    assert models.concurrency.trial
    for seq in range(101, 200):
        models.advance(1.0 / throughput, seq, 5, wanted=True, now=(seq - 100) / throughput)
    assert models.concurrency.on is held
    assert models.search.curve.quota == 10.0


@pytest.mark.parametrize(("seq", "suspected"), [(109, ()), (111, (5,))])
def test_a_shallow_depth_tells_only_once_the_calls_before_the_last_cut_are_gone(seq, suspected):
    """Five calls that leave at once are five deep, whatever refuses the sixth."""
    models = LimitModels(search=RateSearch.start(10.0, 10.0))
    models.search.curve.learn(10.0, rough=False)
    models.search.cruise_from(100)
    models.refused(Ticket(SimpleNamespace(seq=seq), seq, 1.0, 5), 0.05, 0.0, 5, 1.05)
    assert models.concurrency.depths == suspected


# -- headers that stop ----------------------------------------------------------------------------


def test_a_bucket_that_was_gauged_is_not_forgotten_when_its_headers_stop_because_nothing_is_sent():
    models = LimitModels(search=RateSearch.start(2.0, 2.0))
    models.search.phase = Phase.CRUISE
    models.search.history.sends.mark(0.0, 1)
    models.search.history.sends.mark(100.0, 10)
    headers = models.header_model
    headers.seq, headers.limit, headers.window, headers.counts_down = 10, 10.0, 1.0, 0.0
    headers.refills = headers.steered = True
    headers.gauge.rate = 20.0
    models.verdict(10, 0, 200.0)
    assert not headers.steered
    assert models.search.curve.quota == 20.0
