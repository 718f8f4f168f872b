"""Runs in virtual time: what becomes of calls, which client gets items when, and that it all repeats to the byte."""

import math
import os
import subprocess
import sys

import pytest

from headgate.config import RateLimitConfig
from headgate.lab.baselines import BASELINES, Baseline
from headgate.lab.experiment import LAB_CONFIG, run
from headgate.lab.scenario import Budget, Limit, Mark, Scenario, Stream
from headgate.lab.simulated_server import Answer, SimulatedServer
from headgate.units import Outage, Rate, Step


def scenario(rate=20.0, **more):
    budgets = (Budget(limits=(Limit(rate=Rate(rate), burst=5.0),)),)
    return Scenario(**{"name": "small", "horizon": 30.0, "workers": 8, "budgets": budgets} | more)


def still(**more):
    """A scenario without chance: no way to go, and every call takes a second."""
    return scenario(**{"round_trip": 0.0, "jitter": 0.0, "workers": 1, "horizon": 10.0} | more)


class Scripted(SimulatedServer):
    """Answers after a second, with the statuses it is given, then with 200; writes down what arrives."""

    def __init__(self, of, *statuses, after=1.0):
        super().__init__(of, 0)
        self.statuses, self.after, self.arrived = list(statuses), after, []

    def answer(self, now, key, tokens=0.0):
        self.arrived.append((now, key))
        status = self.statuses.pop(0) if self.statuses else 200
        return Answer(status, self.after, None, status == 429)


class WhatIf:
    """A contract that sends whenever it is asked, unless it is told to say something else first."""

    def __init__(self, *waits):
        self.waits, self.asked_at, self.answers = list(waits), [], []

    def on_send(self, now):
        self.asked_at.append(now)
        return self.waits.pop(0) if self.waits else 0.0

    def on_response(self, now, status, latency, headers):
        self.answers.append((now, status, latency))


@pytest.fixture
def seat_contracts(monkeypatch):
    """Run contracts of the test's own as the strategy ``mine``, all workers behind them."""

    def put(*contracts, foresees=False):
        baseline = Baseline(lambda seat: [(list(contracts), seat.workers)], "of a test", foresees)
        monkeypatch.setitem(BASELINES, "mine", baseline)

    return put


class TestCallsOnTheirWay:
    def test_a_call_takes_a_way_there_a_service_and_a_way_back(self, seat_contracts):
        contract = WhatIf()
        seat_contracts(contract)
        of = still(round_trip=0.5)
        server = Scripted(of)
        result = run(of, "mine", 0, server=server)
        assert server.arrived[:2] == [(0.25, 0), (1.75, 0)]
        assert contract.answers[:2] == [(1.5, 200, 1.5), (3.0, 200, 1.5)]
        assert (result.sent, result.ok) == (7, 6)

    def test_jitter_moves_each_way_by_its_share_at_most(self, seat_contracts):
        contract = WhatIf()
        seat_contracts(contract)
        of = still(round_trip=0.5, jitter=0.2, horizon=600.0)
        run(of, "mine", 3, server=Scripted(of, after=0.0))
        latencies = [latency for _, _, latency in contract.answers]
        assert 0.4 <= min(latencies) < 0.42
        assert 0.58 < max(latencies) <= 0.6

    def test_without_an_answer_in_time_the_client_gives_up(self, seat_contracts):
        contract = WhatIf()
        seat_contracts(contract)
        of = still(timeout=2.0)
        result = run(of, "mine", 0, server=Scripted(of, after=math.inf))
        assert contract.answers == [(2.0, 0, 2.0), (4.0, 0, 2.0), (6.0, 0, 2.0), (8.0, 0, 2.0), (10.0, 0, 2.0)]
        assert (result.ok, result.errors, result.refused, sum(result.admitted_per_bin)) == (0, 5, 0, 0)

    def test_what_was_foreseen_is_decided_when_it_is_sent(self, seat_contracts):
        seat_contracts(WhatIf(), foresees=True)
        of = still(round_trip=0.5, jitter=0.2, horizon=1.0)
        server = Scripted(of)
        run(of, "mine", 0, server=server)
        assert server.arrived == [(0.25, 0)]

    def test_nothing_happens_after_the_horizon(self, seat_contracts):
        seat_contracts(WhatIf())
        of = still(horizon=3.0)
        result = run(of, "mine", 0, server=Scripted(of))
        assert (result.ok, result.sent) == (3, 4)


class TestContracts:
    def test_one_that_wants_to_wait_is_asked_again_when_it_said(self, seat_contracts):
        contract = WhatIf(0.5, 0.25)
        seat_contracts(contract)
        of = still()
        run(of, "mine", 0, server=Scripted(of))
        assert contract.asked_at[:4] == [0.0, 0.5, 0.75, 1.75]

    def test_one_that_says_nothing_useful_does_not_stop_time(self, seat_contracts):
        contract = WhatIf(*[1e-12] * 10)
        seat_contracts(contract)
        of = still()
        run(of, "mine", 0, server=Scripted(of))
        assert contract.asked_at[10] == pytest.approx(1e-4)

    def test_a_key_that_must_wait_leaves_the_turn_to_the_next(self, seat_contracts):
        seat_contracts(WhatIf(), WhatIf(*[9.0] * 100), WhatIf())
        of = still(budgets=(Budget(limits=(Limit(rate=Rate(20.0)),), keys=3),))
        server = Scripted(of)
        run(of, "mine", 0, server=server)
        assert [key for _, key in server.arrived][:6] == [0, 2, 0, 2, 0, 2]

    def test_what_was_begun_goes_first(self, seat_contracts):
        seat_contracts(WhatIf(0.0, 0.0, 5.0, 5.0))
        of = still(workers=2, horizon=20.0)
        result = run(of, "mine", 0, server=Scripted(of, 200, 429))
        assert list(result.item_times)[:3] == [1.0, 7.0, 1.0]

    def test_an_error_ends_the_run(self, seat_contracts):
        seat_contracts(object())
        with pytest.raises(AttributeError, match="on_send"):
            run(still(), "mine", 0)


class TestTheRealLimiter:
    def test_it_finds_the_quota(self):
        result, oracle = run(scenario(), "adaptive", 1), run(scenario(), "oracle", 1)
        assert result.goodput_against(oracle) > 0.9
        assert result.refused_share < 0.05

    def test_an_answer_that_never_comes_is_a_failure_and_the_work_goes_on(self):
        result = run(scenario(hangs=(Outage(10.0, 5.0),), timeout=2.0), "adaptive", 1)
        assert 0 < result.errors < 8 * 4
        assert sum(result.admitted_per_bin[40:]) > 0.5 * 20 * 10

    def test_an_outage_opens_its_circuit_and_it_comes_back(self):
        result = run(scenario(outages=(Outage(10.0, 5.0),)), "adaptive", 1)
        assert 5 <= result.errors < 60
        assert sum(result.admitted_per_bin[40:]) > 0.8 * 20 * 10

    def test_every_key_is_used_for_what_it_is_worth(self):
        budgets = tuple(Budget(limits=(Limit(rate=Rate(rate), burst=5.0),)) for rate in (5.0, 10.0, 20.0))
        arrived = []

        class Listening(SimulatedServer):
            def answer(self, now, key, tokens=0.0):
                arrived.append(key)
                return super().answer(now, key, tokens)

        of = scenario(budgets=budgets, workers=24)
        result = run(of, "adaptive", 1, server=Listening(of, 1))
        assert result.ok > 0.85 * 30 * 35
        assert arrived.count(0) < arrived.count(1) < arrived.count(2)

    def test_its_settings_can_be_given(self):
        config = RateLimitConfig(initial_rps=3.0)
        result = run(scenario(), "leaky", 1, config=config)
        assert result.sent == pytest.approx(3 * 30, abs=2)

    def test_a_worker_that_fails_ends_the_run(self):
        class Broken(SimulatedServer):
            def answer(self, now, key, tokens=0.0):
                raise LookupError("lost")

        with pytest.raises(LookupError, match="lost"):
            run(scenario(), "adaptive", 0, server=Broken(scenario(), 0))


class TestItems:
    def test_of_a_stream_they_wait_for_a_worker_from_their_arrival(self, seat_contracts):
        seat_contracts(WhatIf())
        of = still(arrivals=(Stream(Rate(2.0), 0.0),), horizon=5.0)
        result = run(of, "mine", 0, server=Scripted(of))
        assert list(result.waits) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]

    def test_workers_wait_for_the_items_of_a_slow_stream(self, seat_contracts):
        seat_contracts(WhatIf())
        of = still(arrivals=(Stream(Rate(0.5), 0.0),), workers=3)
        server = Scripted(of)
        result = run(of, "mine", 0, server=server)
        assert [at for at, _ in server.arrived] == [0.0, 2.0, 4.0, 6.0, 8.0]
        assert set(result.waits) == {0.0}

    def test_a_slow_stream_is_served_by_the_limiter_as_it_comes(self):
        result = run(scenario(arrivals=(Stream(Rate(5.0), 0.0),)), "adaptive", 1)
        assert result.sent - result.refused == pytest.approx(150, abs=2)
        assert result.wait_p(0.5) < 0.2

    def test_the_items_of_a_stream_go_to_whichever_process_is_free(self, seat_contracts):
        seat_contracts(WhatIf())
        of = still(arrivals=(Stream(Rate(2.0), 0.0),), processes=2, horizon=8.25)
        result = run(of, "mine", 0, server=Scripted(of))
        assert result.per_process == [8, 7]
        assert set(result.waits) == {0.0}

    def test_all_at_once_a_worker_wants_to_send_as_soon_as_it_is_free(self, seat_contracts):
        seat_contracts(WhatIf(0.0, 0.5, 0.0, 0.0))
        of = still(horizon=3.0)
        result = run(of, "mine", 0, server=Scripted(of, 200, 429))
        assert list(result.waits) == [0.0, 0.5, 0.0]

    def test_calls_cost_the_tokens_of_their_item(self):
        budgets = (Budget(limits=(Limit(rate=Rate(2000.0), burst=2000.0, of="tokens"),)),)
        of = scenario(budgets=budgets, tokens=100.0, tokens_variation=0.3)
        spent = []

        class Counting(SimulatedServer):
            def answer(self, now, key, tokens=0.0):
                spent.append(tokens)
                return super().answer(now, key, tokens)

        result = run(of, "adaptive", 1, server=Counting(of, 1))
        assert len(set(spent)) > 50
        assert sum(spent) / len(spent) == pytest.approx(100.0, rel=0.1)
        assert result.ok > 0.7 * 30 * 20


class TestProcesses:
    def test_each_starts_when_it_should(self):
        result = run(scenario(processes=3, starts=(0.0, 10.0, 29.99)), "adaptive", 1)
        assert result.per_process[0] > result.per_process[1] > 0 == result.per_process[2]

    def test_together_they_are_served_alike(self):
        result = run(scenario(processes=4, together=True), "adaptive", 1)
        assert result.jain > 0.99
        assert result.ok > 0.9 * 20 * 30

    def test_side_by_side_they_take_the_strategies_in_turn(self):
        result = run(scenario(), "adaptive+backoff", 1)
        assert len(result.per_process) == 2
        assert min(result.per_process) > 0
        assert result.strategy == "adaptive+backoff"
        assert len(run(scenario(horizon=2.0, processes=3), "fixed+backoff", 1).per_process) == 3

    def test_an_unknown_strategy_is_told_with_those_there_are(self):
        with pytest.raises(ValueError, match=r"strategy 'best' must be one of adaptive, .*oracle"):
            run(scenario(), "adaptive+best", 0)


class TestTheOracle:
    def test_it_is_never_refused_and_uses_all_there_is(self):
        result = run(scenario(steps=(Step(0.5, 10.0),), marks=(Mark("start", 0.0), Mark("down", 10.0))), "oracle", 1)
        assert result.refused == 0
        assert sum(result.admitted_per_bin) == pytest.approx(5 + 200 + 200, abs=2)
        assert result.convergence() == {"start": 0.0, "down": 0.0}


class TestWatching:
    def test_an_onlooker_changes_nothing(self):
        of = scenario(outages=(Outage(10.0, 12.0),))
        for strategy in ("adaptive", "cubic"):
            plain, watched = run(of, strategy, 1), run(of, strategy, 1, watch=True)
            assert watched.samples
            watched.samples, watched.decisions = plain.samples, plain.decisions
            assert watched == plain

    def test_there_is_a_sample_for_each_half_second(self):
        result = run(scenario(), "adaptive", 1, watch=True)
        assert [sample.at for sample in result.samples] == [number / 2 for number in range(61)]
        last = result.samples[-1]
        assert last.learned == pytest.approx(20.0, rel=0.2)
        assert last.in_flight + last.waiting == 8
        assert "paced at" in last.reason

    def test_a_gate_that_several_processes_share_is_counted_once(self):
        result = run(scenario(processes=4, together=True), "adaptive", 1, watch=True)
        assert result.samples[-1].learned == pytest.approx(20.0, rel=0.3)

    def test_a_strategy_without_a_rate_has_none(self):
        assert run(scenario(), "backoff", 1, watch=True).samples[-1].learned is None


IN_ANOTHER_PROCESS = """
from headgate.lab.experiment import run
from headgate.units import Outage, Rate, Step
from headgate.lab.scenario import Budget, Limit, Scenario

budgets = tuple(Budget(limits=(Limit(rate=Rate(rate), burst=5.0),)) for rate in (10.0, 20.0))
alone = Scenario(name="repeat", horizon=40.0, workers=12, budgets=budgets, steps=(Step(0.5, 15.0),),
                 outages=(Outage(25.0, 3.0),), flapping=0.02, retry_after="exact", headers="ratelimit")
together = Scenario(name="repeat", horizon=40.0, workers=6, processes=3, together=True, budgets=budgets[:1])
for scenario, strategy in ((alone, "adaptive"), (alone, "cubic"), (alone, "adaptive+sre"), (together, "adaptive")):
    result = run(scenario, strategy, 7, watch=True)
    print(result.ok, result)
"""


class TestRepeating:
    def test_two_processes_give_the_same_to_the_byte_whatever_their_hashes(self):
        def outputs(hash_seed):
            environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
            command = [sys.executable, "-c", IN_ANOTHER_PROCESS]
            return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

        first = outputs("1")
        assert [int(line.split()[0]) > 100 for line in first.splitlines()] == [True] * 4
        assert first == outputs("2")

    def test_another_seed_is_another_run(self):
        assert run(scenario(), "adaptive", 1).waits != run(scenario(), "adaptive", 2).waits

    def test_the_labs_settings_differ_from_the_products_in_the_circuit_alone(self):
        assert RateLimitConfig(open_state_duration=LAB_CONFIG.open_state_duration) == LAB_CONFIG
