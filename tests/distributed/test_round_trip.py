"""How long exchanges take, and by how much the last reply was delayed."""

import pytest

from headgate.distributed.round_trip import QUICKEST_FOR, RoundTrip

NOW = 1000.0


def test_one_exchange_that_was_delayed_hardly_counts_for_how_long_they_take():
    trip = RoundTrip()
    trip.note(5.0, NOW - 0.001, NOW)
    assert (trip.usual, trip.is_far) == (pytest.approx(0.001), False)
    trip.note(6.0, NOW, NOW + 1.0)
    assert trip.usual <= 0.011
    for second in range(1, 21):
        trip.note(6.0 + second, NOW + second, NOW + second + 1.0)
    assert trip.usual >= 0.9
    assert trip.is_far


def test_a_reply_was_delayed_by_what_the_quickest_was_not():
    trip = RoundTrip()
    for there, sent_at, now in ((5.0, NOW, NOW + 0.3), (6.0, NOW + 1.1, NOW + 1.12), (7.0, NOW + 2.1, NOW + 2.3)):
        trip.note(there, sent_at, now)
    assert (trip.delayed, trip.quickest, trip.sent_at) == pytest.approx((0.18, 0.02, NOW + 2.1))


def test_what_was_quick_long_ago_counts_no_more():
    trip, at = RoundTrip(), NOW
    trip.note(5.0, at, at + 0.01)
    while at < NOW + 3 * QUICKEST_FOR:
        at += 0.5
        trip.note(5.0 + at - NOW, at, at + 0.4)
    assert (trip.delayed, trip.quickest) == pytest.approx((0.0, 0.4))


def test_a_clock_that_is_set_back_is_followed_at_once():
    trip = RoundTrip()
    trip.note(500.0, NOW, NOW + 0.01)
    trip.note(5.0, NOW + 1.0, NOW + 1.01)
    assert (trip.offset, trip.delayed) == pytest.approx((5.0 - NOW - 1.01, 0.0))
