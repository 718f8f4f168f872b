"""Several callers behind one gate: which goes first, what it costs to wait, and that none holds up the others."""

import pytest

from headgate.config import RateLimitConfig
from headgate.lab.adapters import SharedClient, plug_shared
from headgate.lab.experiment import run
from headgate.lab.scenario import Budget, Limit, Scenario
from headgate.units import Rate

pytestmark = pytest.mark.no_cover

STEADY = RateLimitConfig(initial_rps=10.0, token_bucket_capacity=1)
"""A call each tenth of a second, and no more than one at once."""


def members(count, config=STEADY):
    return plug_shared("leaky", count, config=config)


def crowd(processes, **more):
    budgets = (Budget(limits=(Limit(rate=Rate(60.0), burst=30.0),)),)
    fields = {"horizon": 60.0, "workers": 4, "budgets": budgets, "together": True} | more
    return Scenario(name=f"{processes} together", processes=processes, **fields)


class TestTurns:
    def test_each_is_told_a_turn_of_its_own(self):
        first, *others = members(4)
        assert first.on_send(0.0) == 0.0
        assert [other.on_send(0.0) for other in others] == pytest.approx([0.1, 0.2, 0.3])

    def test_the_one_that_got_less_goes_first_even_if_it_came_later(self):
        first, second = members(2)
        assert first.on_send(0.0) == 0.0
        assert first.on_send(0.0) == pytest.approx(0.1)
        assert second.on_send(0.05) == pytest.approx(0.05)
        assert first.on_send(0.1) == pytest.approx(0.1)
        assert second.on_send(0.1) == 0.0

    def test_of_two_that_got_the_same_the_one_served_longer_ago_goes_first(self):
        first, second = members(2)
        assert first.on_send(0.0) == 0.0
        assert second.on_send(0.1) == 0.0
        assert second.on_send(0.1) == pytest.approx(0.1)
        assert first.on_send(0.1) == pytest.approx(0.1)
        assert second.on_send(0.2) > 0
        assert first.on_send(0.2) == 0.0

    def test_one_that_does_not_come_back_loses_its_turn(self):
        first, gone = members(2)
        assert first.on_send(0.0) == 0.0
        assert gone.on_send(0.0) == pytest.approx(0.1)
        assert first.on_send(0.1) > 0
        assert first.on_send(0.1 + SharedClient.GONE + 0.01) == 0.0

    def test_none_naps_for_long_because_the_pace_may_rise(self):
        first, *others = members(64)
        assert first.on_send(0.0) == 0.0
        assert max(other.on_send(0.0) for other in others) == SharedClient.LONGEST_NAP


class TestCrowds:
    def test_many_are_served_alike_all_there_is_is_used_and_a_call_takes_few_questions(self, monkeypatch):
        asked = 0
        on_send = SharedClient.on_send

        def counting(self, now):
            nonlocal asked
            asked += 1
            return on_send(self, now)

        monkeypatch.setattr(SharedClient, "on_send", counting)
        result = run(crowd(64), "adaptive", 1)
        assert result.jain > 0.99
        assert result.ok > 0.95 * 60 * 60
        assert result.sent <= asked <= 8 * result.sent

    def test_a_limit_on_depth_is_shared_alike(self):
        budgets = (Budget(limits=(Limit(algorithm="concurrency", at_once=12),)),)
        of = crowd(8, budgets=budgets, service_time=0.4, horizon=90.0)
        result = run(of, "adaptive", 1)
        assert result.jain > 0.99
        assert result.goodput_against(run(of, "oracle", 1)) > 0.9
