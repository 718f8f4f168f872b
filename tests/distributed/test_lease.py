"""What a member holds of a coordinator's numbers, alone: when they come due, what is asked for, what is owed."""

import pytest

from headgate.core.decision import NEVER
from headgate.distributed.grants import PERIOD
from headgate.distributed.lease import LEAST_RATE, MOST_OWED, QUICKEST_FOR, USABLE_FOR, Lease, QuickestReply
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
        assert (lease.holds, lease.due_at(1, 1, NOW)) == (0, None)

    def test_a_number_comes_due_when_the_line_reaches_it(self):
        lease = lease_of(granted=3, first=20.0, line=21.0)
        assert [lease.due_at(n, n, NOW) for n in (1, 2, 3)] == pytest.approx([NOW, NOW + 0.1, NOW + 0.2])
        assert lease.due_at(4, 4, NOW) is None

    def test_during_a_hold_the_line_stands_still(self):
        assert lease_of(granted=1, first=20.0, line=20.0, hold=2.0).due_at(1, 1, NOW) == pytest.approx(NOW + 2.1)

    def test_numbers_of_a_later_range_come_after_those_between(self):
        lease = lease_of(granted=1, first=20.0, line=21.0)
        lease.take_grant(SyncReply(now=5.0, rate=10.0, granted=2, first=30.0, line=21.0), NOW)
        assert lease.holds == 3
        assert lease.due_at(2, 2, NOW) == pytest.approx(NOW + 1.0)
        lease.use(1, NOW)
        lease.use(1, NOW + 1.0)
        assert (lease.next_number, lease.holds) == (31.0, 1)

    def test_what_is_not_used_in_time_may_not_be_used(self):
        lease = lease_of(granted=1, first=20.0, line=21.0)
        assert lease.due_at(1, 1, lease.expires_at) is not None
        assert lease.due_at(1, 1, lease.expires_at + 0.001) is None

    def test_dropping_it_says_what_was_held(self):
        lease = lease_of(TOKENS)
        lease.queue = Queue({"tokens": 30})
        lease.asks(NOW, None, NEVER)
        lease.take_grant(SyncReply(now=5.0, rate=10.0, granted=1, first=0.0, line=1.0), NOW)
        assert lease.covers({"tokens": 30}, {})
        assert not lease.covers({"tokens": 31}, {})
        assert lease.drop() == (1, {"tokens": 30.0})
        assert lease.drop() == (0, {})

    def test_a_rate_of_nothing_divides_nothing(self):
        assert lease_of(granted=1, first=0.0, line=1.0, rate=0.0).rate == LEAST_RATE


class TestAsked:
    def test_nothing_where_no_caller_waits(self):
        assert lease_of().asks(NOW, None, NEVER) == ()

    def test_a_number_for_each_waiter(self):
        lease = lease_of()
        lease.queue = Queue(1, 1, 1)
        assert lease.asks(NOW, None, NEVER) == ((3, {}),)

    def test_less_what_is_held(self):
        lease = lease_of(granted=2, first=0.0, line=0.0)
        lease.queue, lease.ask_from = Queue(1, 1, 1), NEVER
        assert lease.asks(NOW, None, NEVER) == ((1, {}),)

    def test_costs_one_by_one_where_limits_are_known(self):
        lease = lease_of(TOKENS)
        lease.queue = Queue({"tokens": 30, "other": 7}, {"requests": 2, "tokens": 5})
        assert lease.asks(NOW, None, NEVER) == ((1, {"tokens": 30, "requests": 1}), (1, {"tokens": 5, "requests": 2}))

    def test_twice_what_was_used_where_calls_follow_each_other(self):
        lease = lease_of(granted=2, first=0.0, line=9.0)
        lease.use(1, NOW)
        lease.use(1, NOW + PERIOD / 4)
        assert lease.needs_more(0, NOW + PERIOD / 2)
        assert lease.asks(NOW + PERIOD / 2, None, NEVER) == ((4, {}),)

    def test_for_a_caller_that_tried_in_vain_and_may_try_again(self):
        lease = lease_of()
        lease.polled_at = NOW
        assert lease.asks(NOW + 0.5, None, NEVER) == ((1, {}),)
        assert lease.asks(NOW + 2.0, None, NEVER) == ()

    def test_under_an_operator_s_limit_no_more_than_it_lets_start(self):
        lease = lease_of()
        lease.queue = Queue(*[1] * 50)
        assert lease.asks(NOW, 100.0, NOW - 1.0) == ((4, {}),)
        assert lease.asks(NOW, 1.0, NOW) == ()

    def test_not_before_the_coordinator_said_to_ask_again(self):
        lease = lease_of(granted=1, first=0.0, line=1.0, short_of="depth", wait=0.5)
        lease.queue = Queue(1, 1)
        assert lease.asks(NOW + 0.4, None, NEVER) == ()
        assert lease.asks(NOW + 0.6, None, NEVER) != ()


class TestOwed:
    def reply(self, line, now=6.0, **more):
        return SyncReply(now=now, rate=10.0, line=line, **more)

    def test_calls_on_credit_are_paid_for_as_far_as_others_used_the_rate(self):
        lease = lease_of()
        lease.settle_debt(self.reply(100.0, now=5.0))
        lease.lent = 4.0
        lease.settle_debt(self.reply(105.0, now=6.0))  # half of what the rate allowed was handed out
        assert (lease.debt, lease.lent, lease.free) == (2, 0.0, pytest.approx(0.5))

    def test_the_next_numbers_pay_for_them(self):
        lease = lease_of()
        lease.debt = 2
        lease.take_grant(self.reply(0.0, granted=3, first=0.0), NOW)
        assert (lease.holds, lease.next_number, lease.debt) == (1, 2.0, 0)

    def test_no_more_is_owed_than_a_share_of_half_a_second(self):
        lease = lease_of()
        lease.lent = 1000.0
        lease.settle_debt(self.reply(100.0, members=2))
        assert lease.debt == MOST_OWED * 10.0 / 2 + 0.5

    def test_a_number_used_long_after_its_time_counts_in_part(self):
        lease = lease_of(granted=1, first=0.0, line=50.0)
        lease.overdue = 10.0
        lease.use(1, NOW)
        assert lease.lent == pytest.approx(0.4)

    def test_what_is_forgotten_is_not_owed(self):
        lease = lease_of()
        lease.debt, lease.lent = 3, 2.0
        lease.forget()
        assert (lease.debt, lease.lent, lease.synced_at) == (0, 0.0, NEVER)


class TestHeldUp:
    """Replies that take longer than others, and the numbers that they bring."""

    def test_one_exchange_that_was_held_up_hardly_counts_for_how_long_they_take(self):
        lease = lease_of()
        lease.note_trip(0.001)
        lease.note_trip(1.0)
        assert lease.trip <= 0.011
        for _ in range(20):
            lease.note_trip(1.0)
        assert lease.trip >= 0.9

    def test_a_reply_was_held_up_by_what_the_quickest_was_not(self):
        quickest = QuickestReply()
        for there, sent_at, now in ((5.0, NOW, NOW + 0.3), (6.0, NOW + 1.1, NOW + 1.12), (7.0, NOW + 2.1, NOW + 2.3)):
            quickest.note(there, sent_at, now)
        assert (quickest.delayed, quickest.trip) == pytest.approx((0.18, 0.02))

    def test_what_was_quick_long_ago_counts_no_more(self):
        quickest, at = QuickestReply(), NOW
        quickest.note(5.0, at, at + 0.01)
        while at < NOW + 3 * QUICKEST_FOR:
            at += 0.5
            quickest.note(5.0 + at - NOW, at, at + 0.4)
        assert (quickest.delayed, quickest.trip) == pytest.approx((0.0, 0.4))

    def test_a_clock_that_is_set_back_is_followed_at_once(self):
        quickest = QuickestReply()
        quickest.note(500.0, NOW, NOW + 0.01)
        quickest.note(5.0, NOW + 1.0, NOW + 1.01)
        assert (quickest.shift, quickest.delayed) == pytest.approx((5.0 - NOW - 1.01, 0.0))

    @pytest.mark.parametrize(("members", "usable"), [(8, False), (1, True)])
    def test_a_number_of_a_late_reply_is_used_only_where_no_other_could_come_in_time(self, members, usable):
        lease = lease_of()
        lease.members = members
        for there, sent_at, now in ((5.0, NOW, NOW + 0.01), (5.2, NOW + 0.15, NOW + 0.45)):
            lease.quickest.note(there, sent_at, now)
        lease.trip, lease.synced_at = 0.3, NOW + 0.15
        lease.take_grant(SyncReply(now=5.2, rate=10.0, granted=1, first=2.0, line=3.0), NOW + 0.45)
        late = 0.24 - USABLE_FOR
        assert (lease.due_at(1, 1, NOW + 0.45) is not None) is usable
        assert (lease.ahead(NOW + 0.45) > 10.0 * late) is not usable
