"""What the server's headers say is left, followed as long as it proves right."""

from __future__ import annotations

from math import ceil

import pytest

from headgate.controllers.adaptive.call_history import CallHistory, SendLog
from headgate.controllers.adaptive.headers import (
    EARLY,
    EVEN,
    LONGEST_BELIEF,
    MUTED,
    PATIENCE,
    TARGET,
    HeaderModel,
    HeaderReading,
)
from headgate.core.decision import NEVER
from headgate.core.policy import Ticket
from headgate.core.signal import Limit

pytestmark = pytest.mark.no_cover


def heard(law, limit, remaining, reset, window, *, seq=10, now=100.0, dimension="requests"):
    told = Limit(dimension=dimension, limit=limit, remaining=remaining, reset=reset, window=window)
    return read(law, (told,), seq, now)


def read(law, limits, seq, now, log=None):
    ticket = Ticket(None, seq, now - 0.1, 0)
    return law.read(HeaderReading(limits, ticket, CallHistory(sends=log or SendLog()), 0.1, 0.05, now))


def test_a_window_is_spread_over_the_time_that_is_left():
    law, log = HeaderModel(), SendLog()
    for n in range(12):
        heard(law, 600, 300 - n, 30 - n, 60, seq=10 + n, now=100.0 + n)
    rate, hold = law.pace(21, log, 111.0)
    assert rate == pytest.approx(289 / 19, rel=0.05)
    assert hold == NEVER


def test_an_empty_window_is_waited_for_but_never_longer_than_believed():
    law, log = HeaderModel(), SendLog()
    for n in range(12):
        heard(law, 600, 12 - n, 1800 - n, 3000, seq=10 + n, now=100.0 + n)
    _, hold = law.pace(30, log, 111.0)
    assert 111.0 < hold <= 111.0 + LONGEST_BELIEF + 0.02


def test_an_empty_token_budget_holds_until_it_is_refilled_and_no_longer_than_the_next_header():
    law = HeaderModel()
    heard(law, 100_000, 0, 12, 60, dimension="tokens")
    assert law.empty_until == 112.0
    heard(law, 100_000, 500, 12, 60, dimension="tokens", seq=11)
    assert law.empty_until == NEVER


def test_an_older_answer_does_not_overrule_a_newer_one():
    law = HeaderModel()
    heard(law, 600, 300, 30, 60, seq=10)
    heard(law, 600, 400, 30, 60, seq=9)
    assert law.remaining == 300


def test_the_tightest_of_several_budgets_leads():
    law = HeaderModel()
    minute = Limit(limit=60, remaining=50, reset=30, window=60)
    burst = Limit(limit=1000, remaining=900, reset=5, window=10)
    read(law, (minute, burst), 10, 100.0)
    assert law.limit == 60
    read(law, (burst, minute), 11, 101.0)
    assert law.limit == 60


def test_a_budget_without_a_limit_and_one_of_a_day_only_stop_us_when_empty():
    law = HeaderModel()
    read(law, (Limit(remaining=0, reset=7),), 10, 100.0)
    assert (law.empty_until, law.leads) == (107.0, False)
    heard(law, 10_000, 0, 40_000, 86_400, seq=11)
    assert (law.empty_until, law.leads) == (100.0 + LONGEST_BELIEF, False)


def test_a_budget_that_does_not_say_when_or_how_much_is_no_budget():
    law = HeaderModel()
    read(law, (Limit(limit=60, remaining=5), Limit(limit=60, reset=5.0)), 10, 100.0)
    assert not law.leads


# -- windows --------------------------------------------------------------------------------------


def counting_down(limit=600, remaining=300, reset=30, window=60, answers=12):
    law = HeaderModel()
    for n in range(answers):
        heard(law, limit, remaining, reset - n, window, seq=10 + n, now=100.0 + n)
    return law


def test_what_was_sent_since_the_answer_is_taken_off_what_it_said_remains():
    law, log = counting_down(), SendLog()
    rate, _ = law.pace(21, log, 111.0)
    later, _ = law.pace(121, log, 111.0)
    assert later == pytest.approx(rate * (200 + EARLY) / (300 + EARLY))


def test_a_window_that_has_turned_since_is_whole_again_but_for_what_was_sent_in_it():
    law, log = counting_down(), SendLog()
    log.mark(129.9, 40)
    log.mark(140.0, 90)
    rate, hold = law.pace(90, log, 140.0)
    assert rate == pytest.approx((600 - 50) / 50, rel=0.01)
    assert hold == NEVER


@pytest.mark.parametrize(
    ("counted_by", "latencies", "turn"),
    [
        ("the call", (1.0, 3.0), 130.0),
        ("the answer", (1.0, 3.0), 130.0),
        ("the answer", (2.0, 2.0), 130.0),
        ("the call", (2.0, 2.0), 132.0),  # nothing tells, so it may be late, but never early
    ],
)
def test_a_window_turns_when_it_said_whether_that_was_to_the_call_or_with_the_answer(counted_by, latencies, turn):
    law = HeaderModel()
    for n in range(24):
        sent_at = 98.0 + n / 2
        answered_at = sent_at + latencies[n % 2]
        reset = 130.0 - (sent_at if counted_by == "the call" else answered_at)
        told = Limit(limit=600, remaining=0, reset=reset, window=60)
        law.read(HeaderReading((told,), Ticket(None, 10 + n, sent_at, 0), CallHistory(), 2.0, 0.1, answered_at))
    assert law.pace(33, SendLog(), 112.5)[1] == pytest.approx(turn, abs=0.2)


def test_an_empty_window_holds_until_it_turns():
    law = counting_down(remaining=0)
    _, hold = law.pace(21, SendLog(), 111.0)
    assert hold == pytest.approx(130.0, abs=0.1)


def test_a_small_limit_is_followed_only_once_it_counts_down():
    law, led = HeaderModel(), []
    for n in range(4):
        heard(law, 10, 9, 50 - n, 60, seq=10 + n, now=100.0 + n)
        led.append(law.leads)
    assert led == [False, False, True, True]
    assert law.steers(1, 104.0)
    assert law.pace(13, SendLog(), 103.0)[0] == pytest.approx((9 + EARLY) / 47, rel=0.01)


def every_two_seconds(law, levels):
    """Answers of a bucket of ten, one every two seconds, by what they say is left."""
    led = []
    for n, left in enumerate(levels):
        heard(law, 10, left, 30, 60, seq=10 + n, now=100.1 + 2.0 * n)
        led.append(law.leads)
    return led


def test_a_small_bucket_is_followed_once_it_was_full_and_its_refill_is_measured():
    law = HeaderModel()
    led = every_two_seconds(law, [9] * 8 + [8, 7, 6, 5] * 2 + [5] * 30)
    assert 20 <= led.index(True) <= 32
    assert all(led[32:])
    assert law.told_rate == pytest.approx(0.5, rel=0.1)
    assert law.steers(0, 205.0)
    law.mute(205.0)
    assert not law.is_gauged


def test_a_small_limit_that_was_never_full_may_be_of_a_log_and_is_not_followed():
    assert not any(every_two_seconds(HeaderModel(), [5] * 60))


def test_a_few_calls_in_a_second_are_heard_but_not_followed():
    law = HeaderModel()
    assert heard(law, 5, 4, 1, 1)
    assert not law.leads
    assert not law.steers(1, 100.0)


def told_late(law, remaining, seq, log, *, now, limit=50):
    """A second's limit that is heard of most of a second later."""
    told = Limit(limit=limit, remaining=remaining, reset=1, window=1)
    log.mark(now - 0.8, seq)
    return law.read(HeaderReading((told,), Ticket(None, seq, now - 0.8, 0), CallHistory(sends=log), 0.8, 0.05, now))


def test_a_window_shorter_than_the_answers_take_is_used_evenly_whatever_was_left_of_it():
    law, log = HeaderModel(), SendLog()
    for n in range(40):
        assert told_late(law, (40 - n) % 50, 10 + n, log, now=100.0 + n / 40)
    assert law.leads
    for remaining in (0, 45):
        law.remaining = remaining
        assert law.pace(49, log, 101.0) == (pytest.approx(0.95 * 50, rel=0.04), NEVER)


def test_a_bucket_that_fills_faster_than_answers_come_back_is_not_followed():
    law, log = HeaderModel(), SendLog()
    for n in range(8):
        assert told_late(law, 49, 10 + n, log, now=100.0 + n / 10)
    assert not law.leads
    assert law.is_full


def test_a_latency_that_wavers_does_not_change_how_a_short_window_is_followed():
    law, told = HeaderModel(), Limit(limit=50, remaining=40, reset=1, window=1)
    found = []
    for n, latency in enumerate((0.4, 0.6, 0.4, 0.3, 0.2)):
        law.read(HeaderReading((told,), Ticket(None, 10 + n, 100.0 + n, 0), CallHistory(), latency, 0.05, 100.5 + n))
        found.append(law.late)
    assert found == [False, True, True, True, False]


def jumping(limit, seconds=16.5):
    """A window of two seconds, used evenly."""
    law, log = HeaderModel(), SendLog()
    per_call = 2.0 / limit
    for n in range(int(seconds / per_call)):
        now = 100.0 + n * per_call
        log.mark(now, 10 + n)
        told = Limit(limit=limit, remaining=limit - 1 - n % limit, reset=2, window=2)
        law.read(HeaderReading((told,), Ticket(None, 10 + n, now, 0), CallHistory(sends=log), 0.1, 0.05, now + 0.1))
    return law, log, 10 + n


@pytest.mark.parametrize("limit", [50, 300])
def test_a_short_window_that_refills_in_jumps_is_used_evenly_however_many_answers_it_has(limit):
    law, log, seq = jumping(limit)
    assert law.jumps >= 2.0
    assert law.pace(seq, log, 117.0) == (pytest.approx(0.955 * limit / 2, rel=0.01), NEVER)


def test_refusals_of_one_episode_are_taken_off_an_even_pace_once():
    law, log, seq = jumping(50)
    before, _ = law.pace(seq, log, 117.0)
    for refused in (seq - 2, seq - 1, seq):
        assert law.refused(refused, seq, 0.0, 117.0)
    assert law.pace(seq, log, 117.0)[0] == pytest.approx(0.93 * before)
    law.refused(seq + 5, seq + 5, 0.0, 117.0)
    assert law.pace(seq, log, 117.0)[0] == pytest.approx(0.93 * 0.93 * before)


def test_a_bucket_that_refills_within_a_second_does_not_jump():
    """20 at once and 117 a second, told as 20 a second: it is whole again after every pause."""
    law, log = HeaderModel(), SendLog()
    for n in range(200):
        now = 100.0 + 0.3 * n
        log.mark(now, 10 + n)
        told = Limit(limit=20, remaining=19 if n % 2 else 2, reset=1, window=1)
        law.read(HeaderReading((told,), Ticket(None, 10 + n, now, 0), CallHistory(sends=log), 0.1, 0.05, now + 0.1))
        assert law.jumps == 0.0


# -- buckets --------------------------------------------------------------------------------------


def bucket(remaining):
    """One answer of a bucket of 100 that fills in 10 s."""
    law = HeaderModel()
    heard(law, 100, remaining, (100 - remaining) / 10, 10)
    return law


def test_a_bucket_is_settled_at_a_third_faster_above_and_slower_below():
    assert bucket(100 * TARGET).pace(10, SendLog(), 100.0)[0] == pytest.approx(10.0)
    assert bucket(50 * TARGET).pace(10, SendLog(), 100.0)[0] == pytest.approx(2.5)
    assert bucket(100).pace(10, SendLog(), 100.0)[0] == pytest.approx(40.0), "four times the refill at most"


def test_an_empty_bucket_fills_while_we_are_silent_so_it_does_not_stall_for_ever():
    law = bucket(0)
    rate, hold = law.pace(10, SendLog(), 100.0)
    assert (1.0 / rate, hold) == (pytest.approx(10.0), NEVER), "the next call leaves once it has surely refilled"
    assert law.pace(10, SendLog(), 100.0 + 10.0 * TARGET)[0] == pytest.approx(10.0)


def test_a_bucket_that_settles_too_full_is_taken_from_faster_and_one_too_empty_slower():
    full, empty = HeaderModel(), HeaderModel()
    for n in range(40):
        heard(full, 100, 90, 1, 10, seq=10 + n, now=100.0 + 0.2 * n)
        heard(empty, 100, 5, 9, 10, seq=10 + n, now=100.0 + 0.2 * n)
    assert full.bucket_gain > 1.5
    assert empty.bucket_gain < 0.7


def rounded_bucket(answers=600, per_second=12.0, left=600.0):
    """A bucket of 600 a minute that says its reset in whole seconds."""
    law = HeaderModel()
    for n in range(answers):
        now, left = 100.0 + n / per_second, left - 1 + 10 / per_second
        heard(law, 600, int(left), ceil((600 - left) / 10), 60, seq=10 + n, now=now)
    return law


def test_a_bucket_whose_reset_is_rounded_to_seconds_is_not_taken_for_a_window():
    assert rounded_bucket().counts_down <= 0.5
    assert rounded_bucket(per_second=8.0, left=200.0).counts_down <= 0.5


def test_a_window_is_not_steered_as_a_bucket_and_does_not_tune_one():
    assert counting_down(answers=25).bucket_gain == 1.0


def test_a_burst_that_is_refused_while_a_bucket_has_plenty_is_the_last_one():
    law = rounded_bucket(answers=300)
    assert law.pace(309, SendLog(), 125.0)[0] > 15.0
    verdicts = [law.refused(seq, 330, 1.0, 125.5) for seq in range(310, 330)]
    assert all(verdicts), "those that were in flight by then say nothing new"
    assert law.pace(330, SendLog(), 125.5)[0] == pytest.approx(10.0 * EVEN), "about as fast as it refills"
    later = [law.refused(seq, seq, 1.0, 130.0) for seq in range(331, 337)]
    assert later == [True] * int(PATIENCE) + [False]


def small_bucket(each, left):
    """Two at once; calls leave so many seconds apart, and this is what their answers say is left."""
    law = HeaderModel()
    for n, remaining in enumerate([1] * 8 + left):
        told = Limit(limit=2, remaining=remaining, reset=1, window=1)
        sent_at = 100.0 + n * each
        law.read(HeaderReading((told,), Ticket(None, 10 + n, sent_at, 0), CallHistory(), 0.1, 0.1, sent_at + 0.1))
    return law


def test_two_calls_that_come_in_together_do_not_make_a_small_bucket_empty():
    assert not small_bucket(0.04, [0, 1, 0, 0, 0]).is_spent
    assert small_bucket(0.04, [0, 1, 0, 0, 0, 0]).is_spent
    assert small_bucket(0.5, [0]).is_spent, "they cannot have come in together"


def test_a_full_budget_is_no_news_for_a_while_after_a_look_that_it_asked_for_was_refused():
    law = small_bucket(0.5, [])
    assert law.is_full
    law.doubted = 3
    seen = []
    for n in range(4):
        seen.append(law.is_full)
        told = Limit(limit=2, remaining=1, reset=1, window=1)
        law.read(HeaderReading((told,), Ticket(None, 40 + n, 110.0 + n, 0), CallHistory(), 0.1, 0.1, 110.1 + n))
    assert seen == [False, False, False, True]


# -- of no use ------------------------------------------------------------------------------------


def test_a_reset_of_nothing_without_a_window_is_too_vague_to_follow():
    law = HeaderModel()
    useful = [heard(law, 100, 50, 0, None, seq=10 + n, now=100.0 + n) for n in range(7)]
    assert useful == [True] * 6 + [False]
    assert law.muted_until == 106.0 + MUTED


def test_headers_that_are_muted_are_left_alone_until_the_time_is_up():
    law = HeaderModel()
    law.mute(100.0)
    assert heard(law, 600, 300, 30, 60, now=100.0 + MUTED - 1.0)
    assert not law.leads
    heard(law, 600, 300, 30, 60, now=100.0 + MUTED)
    assert law.leads


def test_headers_that_are_muted_leave_nothing_behind_but_how_many_places_there_are():
    law = HeaderModel(full=9, refills=True, even_after=70, brim=5.0, places=8)
    law.mute(100.0)
    assert law.to_state() == HeaderModel(muted_until=100.0 + MUTED, places=8).to_state()
    assert not law.is_spent, "a search of our own would end at every answer"


def test_a_header_under_which_calls_are_refused_again_and_again_is_wrong():
    law = counting_down()
    verdicts = [law.refused(99, 0, 0.0, 112.0) for _ in range(int(PATIENCE) + 1)]
    assert verdicts == [True] * int(PATIENCE) + [False]
    assert not law.leads


def test_answers_in_between_forgive_refusals():
    law = counting_down()
    for n in range(20):
        assert law.refused(99, 0, 0.0, 112.0 + n)
        for answer in range(100):
            heard(law, 600, 300, 18, 60, seq=100 * n + answer + 30, now=112.0 + n)


def test_an_old_header_is_not_followed_unless_calls_of_it_are_still_out():
    law = counting_down()
    assert law.steers(0, 230.0)
    assert not law.steers(0, 232.0)
    assert law.steers(1, 232.0)


def test_a_refusal_for_seconds_while_plenty_is_left_is_not_the_headers_word():
    law = HeaderModel()
    heard(law, 5000, 4900, 1800, 3600)
    assert law.refused(10, 10, 1.0, 101.0)
    assert not law.refused(11, 11, 60.0, 102.0)
    assert law.muted_until == 102.0 + MUTED


def test_a_bucket_that_is_full_with_far_less_than_its_limit_is_not_taken_for_an_empty_one():
    law, log = HeaderModel(), SendLog()
    for n in range(20):  # calls a few seconds apart: ten at once, refilled at 10/s
        heard(law, 600, 9, 0.1, 60, seq=10 + n, now=100.0 + 5 * n)
    rate, hold = law.pace(29, log, 195.0)
    assert 9.0 < rate <= 40.0
    assert hold == NEVER
    kept = HeaderModel()
    kept.load_state(law.to_state())
    assert kept.pace(29, log, 195.0)[0] == rate
    rate, _ = law.pace(38, log, 195.0)
    assert rate < 2.0  # nothing is left of the ten
    heard(law, 600, 2, 0.8, 60, seq=38, now=196.0)
    assert law.pace(38, log, 196.0)[0] < 2.0


@pytest.mark.parametrize("window", [0.5, 0.9, 1.0])
def test_windows_of_less_than_a_second_are_read_too(window):
    law = HeaderModel()
    for n in range(20):
        assert heard(law, 10, n % 10, 0.1, window, seq=10 + n, now=100.0 + 0.1 * n) in (True, False)
