"""What a member's gate goes by without the coordinator, alone: its share, an operator's limit, a lost store."""

import pytest

from headgate import RateLimitConfig
from headgate.controllers.fixed import Fixed
from headgate.core.circuit_breaker import Breaker, BreakerSettings
from headgate.core.concurrency import InFlight
from headgate.core.decision import RefuseReason, WaitReason
from headgate.core.policy import Demand, LongTicket, Ticket
from headgate.distributed.member_policies import (
    CeilingPolicy,
    MemberPacer,
    MemberPolicies,
    StoreLostPolicy,
    share_config,
    terms_of,
)

NOW = 1000.0
CONFIG = RateLimitConfig(strategy="fixed", initial_rps=10.0, token_bucket_capacity=4.0)


def test_an_operator_s_limit_spaces_the_calls_of_this_process():
    ceiling = CeilingPolicy()
    assert not ceiling.may_object()
    ceiling.set_ceiling(2.0)
    wait = ceiling.check(NOW, Demand(requests_ahead=1.0, last_sent_at=NOW))
    assert (wait.reason, wait.until) == (WaitReason.CEILING, NOW + 1.0)
    assert ceiling.check(NOW + 1.0, Demand(last_sent_at=NOW)) is None
    ceiling.set_ceiling(None)
    assert ceiling.check(NOW, Demand(last_sent_at=NOW)) is None


def test_a_store_that_is_lost_refuses_where_that_was_chosen():
    lost = StoreLostPolicy()
    assert (lost.check(NOW, Demand()), lost.may_object()) == (None, False)
    lost.store = "redis"
    found = lost.check(NOW, Demand())
    assert (found.reason, found.subject, lost.may_object()) == (RefuseReason.STORE_LOST, "redis", True)


class TestPacer:
    def pacer(self, *, is_share=False):
        self.counted, self.queues = [], []
        heard = lambda queue, now: self.queues.append(queue)  # noqa: E731
        config = CONFIG.gate_config()
        return MemberPacer(Fixed(10.0), config, heard, self.counted.append, NOW, is_share=is_share)

    def test_it_counts_what_starts(self):
        pacer = self.pacer()
        assert not pacer.try_take(NOW)
        assert pacer.try_take(NOW + 0.1)
        pacer.admit(Ticket(None, 1, NOW, 0), NOW + 0.1)
        pacer.admit(LongTicket(None, 2, NOW, 0, {"tokens": 5}, 0.0), NOW + 0.1)
        assert self.counted == [1, 1, {"tokens": 5}]

    def test_the_lease_hears_of_the_queue_too(self):
        pacer, queue = self.pacer(), object()
        pacer.on_queue(queue, NOW)
        assert (pacer.has_waiters, self.queues) == (True, [queue])

    def test_an_operator_s_limit_is_not_its_business_and_its_state_lies_in_the_store(self):
        pacer = self.pacer()
        pacer.set_ceiling(1.0)
        assert (pacer.ceiling, pacer.to_state()) == (None, None)

    def test_a_share_is_what_it_says_of_its_rate(self):
        pacer = self.pacer(is_share=True)
        pacer.rate = 2.5
        assert pacer.learned_rate == 2.5
        assert self.pacer().learned_rate == 10.0


class TestShares:
    def test_a_large_limit_on_requests_bounds_the_pace_and_others_are_kept_by_their_windows(self):
        config = RateLimitConfig(limits={"requests": "6000/min", "tokens": "1000/min"}).gate_config()
        terms = terms_of(config, 500.0)
        assert terms.rate == terms.most < 100.0
        assert [limit[0] for limit in terms.limits] == ["tokens"]

    def test_a_share_is_that_part_of_the_rate_and_of_the_burst(self):
        config = share_config(CONFIG, 100.0, 4)
        assert (config.controller().rate, config.most, config.burst) == (25.0, 25.0, 1.0)

    def test_and_as_much_of_a_known_limit_in_a_longer_window(self):
        config = RateLimitConfig(limits={"tokens": "1000/min"})
        (whole,), (share,) = config.quotas(), share_config(config, 100.0, 4).quotas
        assert (share.amount, share.window) == (whole.amount, 4 * whole.window)
        assert share.burst <= 0.1 * whole.amount / 4

    def test_a_long_window_stays_as_it_is(self):
        config = RateLimitConfig(limits={"tokens": "1000/day"})
        assert share_config(config, 100.0, 4).quotas == config.quotas()

    @pytest.mark.parametrize(("known_until", "opens_at"), [(NOW + 5.0, NOW + 5.0), (NOW - 1.0, float("-inf"))])
    def test_a_pause_that_is_known_is_kept(self, known_until, opens_at):
        config = share_config(CONFIG, 100.0, 2)
        made = MemberPolicies(Breaker(BreakerSettings()), InFlight(), lambda queue, now: None, lambda cost: None)
        policies = made.share(config, config.controller(), known_until, NOW)
        assert policies.hold.opens_at == opens_at
        assert made.ceiling in policies.in_order
        assert made.store_lost in [policies.in_order[place] for place in policies.hooks.may_object]
