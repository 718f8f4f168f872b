"""The lease of a member, alone: when its numbers come due, what it asks for, and how long exchanges take."""

import pytest

from headgate.core.decision import NEVER
from headgate.distributed.grants import PERIOD
from headgate.distributed.holdings import LEAST_RATE
from headgate.distributed.lease import QUICKEST_FOR, USABLE_FOR, Lease, RoundTrip
from headgate.distributed.protocol import QuotaTerms, SyncReply

NOW = 1000.0
TERMS = QuotaTerms(rate=10.0, burst=1.0, most=1e6)
TOKENS = QuotaTerms(rate=10.0, burst=1.0, most=1e6, limits=(("tokens", 100.0, 60.0, 100.0),))


class Queue:
    """Callers that wait, by their costs."""

    def __init__(self, *costs):
        self.costs = costs

    @property
    def requests(self):
        return sum(cost if isinstance(cost, int) else cost.get("requests", 1) for cost in self.costs)

    def __len__(self):
        return len(self.costs)

    def waiting_costs(self):
        return iter(self.costs)


def lease_of(terms=TERMS, **reply):
    lease = Lease(terms, terms.burst, NOW)
    if reply:
        lease.take_grant(SyncReply(now=5.0, **{"rate": 10.0, **reply}), NOW)
    return lease


class TestHeld:
    def test_a_new_one_holds_nothing(self):
        lease = lease_of()
        assert (lease.numbers.count, lease.due_at(1, 1, NOW)) == (0, None)

    def test_a_number_comes_due_when_the_line_reaches_it(self):
        lease = lease_of(granted=3, first=20.0, line=21.0)
        assert [lease.due_at(n, n, NOW) for n in (1, 2, 3)] == pytest.approx([NOW, NOW + 0.1, NOW + 0.2])
        assert lease.due_at(4, 4, NOW) is None

    def test_during_a_hold_the_line_stands_still(self):
        assert lease_of(granted=1, first=20.0, line=20.0, hold=2.0).due_at(1, 1, NOW) == pytest.approx(NOW + 2.1)

    def test_numbers_of_a_later_range_come_after_those_between(self):
        lease = lease_of(granted=1, first=20.0, line=21.0)
        lease.take_grant(SyncReply(now=5.0, rate=10.0, granted=2, first=30.0, line=21.0), NOW)
        assert lease.numbers.count == 3
        assert lease.due_at(2, 2, NOW) == pytest.approx(NOW + 1.0)
        lease.use(1, NOW)
        lease.use(1, NOW + 1.0)
        assert (lease.numbers.next, lease.numbers.count) == (31.0, 1)

    def test_what_is_not_used_in_time_may_not_be_used(self):
        lease = lease_of(granted=1, first=20.0, line=21.0)
        assert lease.due_at(1, 1, lease.expires_at) is not None
        assert lease.due_at(1, 1, lease.expires_at + 0.001) is None

    def test_dropping_it_says_what_was_held(self):
        lease = lease_of(TOKENS)
        lease.demand.queue = Queue({"tokens": 30})
        lease.asks(NOW, None, NEVER)
        lease.take_grant(SyncReply(now=5.0, rate=10.0, granted=1, first=0.0, line=1.0), NOW)
        assert lease.amounts.covers({"tokens": 30}, {})
        assert not lease.amounts.covers({"tokens": 31}, {})
        assert lease.drop() == (1, {"tokens": 30.0})
        assert lease.drop() == (0, {})

    def test_a_rate_of_nothing_divides_nothing(self):
        assert lease_of(granted=1, first=0.0, line=1.0, rate=0.0).rate == LEAST_RATE


class TestAsked:
    def test_nothing_where_no_caller_waits(self):
        assert lease_of().asks(NOW, None, NEVER) == ()

    def test_a_number_for_each_waiter(self):
        lease = lease_of()
        lease.demand.queue = Queue(1, 1, 1)
        assert lease.asks(NOW, None, NEVER) == ((3, {}),)

    def test_less_what_is_held(self):
        lease = lease_of(granted=2, first=0.0, line=0.0)
        lease.demand.queue, lease.ask_from = Queue(1, 1, 1), NEVER
        assert lease.asks(NOW, None, NEVER) == ((1, {}),)

    def test_costs_one_by_one_where_limits_are_known(self):
        lease = lease_of(TOKENS)
        lease.demand.queue = Queue({"tokens": 30, "other": 7}, {"requests": 2, "tokens": 5})
        assert lease.asks(NOW, None, NEVER) == ((1, {"tokens": 30, "requests": 1}), (1, {"tokens": 5, "requests": 2}))

    def test_twice_what_was_used_where_calls_follow_each_other(self):
        lease = lease_of(granted=2, first=0.0, line=9.0)
        lease.use(1, NOW)
        lease.use(1, NOW + PERIOD / 4)
        assert lease.needs_more(0, NOW + PERIOD / 2)
        assert lease.asks(NOW + PERIOD / 2, None, NEVER) == ((4, {}),)

    def test_for_a_caller_that_tried_in_vain_and_may_try_again(self):
        lease = lease_of()
        lease.demand.polled_at = NOW
        assert lease.asks(NOW + 0.5, None, NEVER) == ((1, {}),)
        assert lease.asks(NOW + 2.0, None, NEVER) == ()

    def test_under_an_operator_s_limit_no_more_than_it_lets_start(self):
        lease = lease_of()
        lease.demand.queue = Queue(*[1] * 50)
        assert lease.asks(NOW, 100.0, NOW - 1.0) == ((4, {}),)
        assert lease.asks(NOW, 1.0, NOW) == ()

    def test_not_before_the_coordinator_said_to_ask_again(self):
        lease = lease_of(granted=1, first=0.0, line=1.0, short_of="depth", wait=0.5)
        lease.demand.queue = Queue(1, 1)
        assert lease.asks(NOW + 0.4, None, NEVER) == ()
        assert lease.asks(NOW + 0.6, None, NEVER) != ()


class TestLate:
    def test_the_next_numbers_pay_for_calls_on_credit(self):
        lease = lease_of()
        lease.credit.owed = 2
        lease.take_grant(SyncReply(now=6.0, rate=10.0, granted=3, first=0.0), NOW)
        assert (lease.numbers.count, lease.numbers.next, lease.credit.owed) == (1, 2.0, 0)

    def test_a_number_used_long_after_its_time_counts_in_part_as_one_on_credit(self):
        lease = lease_of(granted=1, first=0.0, line=50.0)
        lease.overdue_lead = 10.0
        lease.use(1, NOW)
        assert lease.credit.on_credit == pytest.approx(0.4)

    def test_what_is_forgotten_is_not_owed(self):
        lease = lease_of()
        lease.credit.owed, lease.credit.on_credit = 3, 2.0
        lease.forget()
        assert (lease.credit.owed, lease.credit.on_credit, lease.round_trip.sent_at) == (0, 0.0, NEVER)

    @pytest.mark.parametrize(("members", "usable"), [(8, False), (1, True)])
    def test_a_number_of_a_late_reply_is_used_only_where_no_other_could_come_in_time(self, members, usable):
        lease = lease_of()
        lease.members = members
        for there, sent_at, now in ((5.0, NOW, NOW + 0.01), (5.2, NOW + 0.15, NOW + 0.45)):
            lease.round_trip.note(there, sent_at, now)
        lease.round_trip.usual = 0.3
        lease.take_grant(SyncReply(now=5.2, rate=10.0, granted=1, first=2.0, line=3.0), NOW + 0.45)
        late = 0.24 - USABLE_FOR
        assert (lease.due_at(1, 1, NOW + 0.45) is not None) is usable
        assert (lease.lead(NOW + 0.45) > 10.0 * late) is not usable


class TestRoundTrip:
    def test_one_exchange_that_was_delayed_hardly_counts_for_how_long_they_take(self):
        trip = RoundTrip()
        trip.note(5.0, NOW - 0.001, NOW)
        assert (trip.usual, trip.is_far) == (pytest.approx(0.001), False)
        trip.note(6.0, NOW, NOW + 1.0)
        assert trip.usual <= 0.011
        for second in range(1, 21):
            trip.note(6.0 + second, NOW + second, NOW + second + 1.0)
        assert trip.usual >= 0.9
        assert trip.is_far

    def test_a_reply_was_delayed_by_what_the_quickest_was_not(self):
        trip = RoundTrip()
        for there, sent_at, now in ((5.0, NOW, NOW + 0.3), (6.0, NOW + 1.1, NOW + 1.12), (7.0, NOW + 2.1, NOW + 2.3)):
            trip.note(there, sent_at, now)
        assert (trip.delayed, trip.quickest, trip.sent_at) == pytest.approx((0.18, 0.02, NOW + 2.1))

    def test_what_was_quick_long_ago_counts_no_more(self):
        trip, at = RoundTrip(), NOW
        trip.note(5.0, at, at + 0.01)
        while at < NOW + 3 * QUICKEST_FOR:
            at += 0.5
            trip.note(5.0 + at - NOW, at, at + 0.4)
        assert (trip.delayed, trip.quickest) == pytest.approx((0.0, 0.4))

    def test_a_clock_that_is_set_back_is_followed_at_once(self):
        trip = RoundTrip()
        trip.note(500.0, NOW, NOW + 0.01)
        trip.note(5.0, NOW + 1.0, NOW + 1.01)
        assert (trip.offset, trip.delayed) == pytest.approx((5.0 - NOW - 1.01, 0.0))
