"""Several callers behind one gate: who goes first, what it costs to wait, and that nobody holds up the others."""

import pytest

from headgate.config import RateLimitConfig
from headgate.sim.experiment import run
from headgate.sim.notation import Rate
from headgate.sim.plugging import Member, plug_shared
from headgate.sim.scenario import Budget, Limit, Scenario

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

    def test_whoever_got_less_goes_first_even_if_it_came_later(self):
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
        assert first.on_send(0.1 + Member.GONE + 0.01) == 0.0

    def test_nobody_naps_for_long_because_the_pace_may_rise(self):
        first, *others = members(64)
        assert first.on_send(0.0) == 0.0
        assert max(other.on_send(0.0) for other in others) == Member.LONGEST_NAP


class TestCrowds:
    def test_many_are_served_alike_and_all_there_is_is_used(self):
        book = run(crowd(64), "adaptive", 1)
        assert book.jain > 0.99
        assert book.ok > 0.95 * 60 * 60

    def test_a_limit_on_depth_is_shared_alike(self):
        budgets = (Budget(limits=(Limit(algorithm="concurrency", at_once=24),)),)
        of = crowd(16, budgets=budgets, service_time=0.4, horizon=180.0)
        book = run(of, "adaptive", 1)
        assert book.jain > 0.99
        assert book.goodput_against(run(of, "oracle", 1)) > 0.9

    def test_a_call_takes_few_questions_however_many_wait(self, monkeypatch):
        asked = 0
        on_send = Member.on_send

        def counting(self, now):
            nonlocal asked
            asked += 1
            return on_send(self, now)

        monkeypatch.setattr(Member, "on_send", counting)
        assert asked <= 8 * run(crowd(64), "adaptive", 1).sent
