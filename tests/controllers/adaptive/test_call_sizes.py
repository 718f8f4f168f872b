"""Servers that count tokens: calls are worth what they take, once measurements say so."""

from __future__ import annotations

import random

import pytest

from headgate import RateLimitConfig
from headgate.controllers.adaptive.call_sizes import CallSizes, tokens_of
from headgate.core.answer_length import TokenCost
from headgate.core.decision import Outcome
from headgate.core.gate import Gate
from headgate.core.policy import Ticket
from headgate.core.signal import Signal
from headgate.lab.experiment import run
from headgate.lab.scenario_file import named

SMALL, LARGE = 100.0, 900.0


def measured(*pairs):
    """Sizes after measurements of so many calls with a surplus of so many usual calls, each over a second."""
    sizes = CallSizes()
    for calls, surplus in pairs:
        sizes.surplus = surplus
        sizes.measure(calls, 1.0)
    return sizes


def test_only_a_single_call_that_says_its_tokens_has_a_size():
    assert [tokens_of(cost) for cost in (1, 2.5, {"requests": 1}, {"requests": 3, "tokens": 9})] == [0.0] * 4
    assert tokens_of({"tokens": 9}) == tokens_of({"requests": 1, "tokens": 9}) == 9


def test_the_unit_in_which_measurements_agree_is_the_one_that_counts():
    assert measured((50, 10), (70, -10), (40, 20)).tokens_are_counted
    assert not measured((50, 10), (50, -10), (50, 20)).tokens_are_counted
    assert not measured((50, 10)).tokens_are_counted
    assert not measured().tokens_are_counted


def test_a_call_is_worth_its_tokens_only_where_they_count():
    sizes = CallSizes()
    assert [sizes.note_sent(tokens) for tokens in (LARGE, SMALL)] == [1.0, 1.0]
    assert sizes.usual == (SMALL + LARGE) / 2
    assert sizes.worth(LARGE) == 1.0
    sizes.change_in_calls = 0.1
    assert sizes.worth(LARGE) == LARGE / sizes.usual
    assert sizes.worth(0.0) == 1.0
    assert sizes.note_sent(LARGE) == pytest.approx((SMALL + LARGE) / 2 / sizes.usual)


def test_a_refused_call_takes_nothing_and_says_that_half_of_it_was_left():
    sizes = CallSizes()
    for tokens in (LARGE, SMALL, SMALL):
        sizes.note_sent(tokens)
    before = sizes.surplus
    sizes.note_refused(LARGE)
    over = LARGE / sizes.usual - 1.0
    assert sizes.surplus == pytest.approx(before - over)
    sizes.restart()
    assert sizes.surplus == pytest.approx(-over / 2)
    sizes.note_refused(0.0)
    assert sizes.refused == 0.0


class TokenServer:
    """A bucket of tokens behind a gate, one call at a time."""

    def __init__(self, rate=5_000.0, burst=10_000.0, **config):
        self.gate = Gate.local(RateLimitConfig(**config).gate_config())
        self.rate, self.burst, self.left, self.now = rate, burst, burst, 0.0
        self.sent = self.refused = 0
        rng = random.Random(1)
        for _ in range(3_000):
            self.call(rng.choice((SMALL, LARGE)))

    def call(self, tokens):
        cost = {"requests": 1, "tokens": tokens}
        while not isinstance(answer := self.gate.ask(self.now, cost), Ticket):
            self.left = min(self.burst, self.left + (answer.until - self.now) * self.rate)
            self.now = answer.until
        ok = tokens <= self.left
        self.left -= tokens * ok
        self.sent, self.refused = self.sent + 1, self.refused + (not ok)
        signal = Signal(outcome=Outcome.OK if ok else Outcome.RATE_LIMITED)
        self.gate.record(answer, signal, 0.0, self.now, 0.5)


def test_a_gate_learns_in_tokens_and_goes_on_from_a_stored_state():
    server = TokenServer()
    controller = server.gate.controller
    assert controller.models.search.estimator.sizes.tokens_are_counted
    assert server.refused < 0.02 * server.sent
    assert controller.worth({"tokens": LARGE}) > 8 * controller.worth({"tokens": SMALL})
    assert controller.rate == pytest.approx(10.0, rel=0.1)  # usual calls a second
    fresh = RateLimitConfig().gate_config().controller()
    assert fresh.worth({"tokens": LARGE}) == 1
    fresh.load_state(controller.to_state())
    assert fresh.to_state() == controller.to_state()
    assert fresh.worth({"tokens": LARGE}) == controller.worth({"tokens": LARGE})
    assert controller.worth({"requests": 2}) == 2


@pytest.mark.parametrize("bound", ["max_rps", "ceiling"])
def test_small_calls_stay_within_the_calls_a_second_that_are_allowed(bound):
    server = TokenServer(**({"max_rps": 20.0} if bound == "max_rps" else {}))
    assert server.gate.controller.models.search.estimator.sizes.tokens_are_counted
    if bound == "ceiling":
        server.gate.set_ceiling(20.0, server.now)
    starts = []
    for _ in range(400):
        server.call(5.0)
        starts.append(server.now)
    burst = server.gate.pacer.configured_burst
    assert all(later - first >= 1.0 for first, later in zip(starts, starts[20 + int(burst) :], strict=False))
    assert starts[-1] - starts[0] == pytest.approx(400 / 20, rel=0.05)


def test_after_a_rest_no_more_small_calls_start_at_once_than_others():
    server = TokenServer(rate=500.0, max_rps=20.0)
    assert server.gate.pacer.rate < 2.0
    server.now += 60.0
    at, before = server.now, server.sent
    while server.now < at + 1.0:
        server.call(1.0)
    assert server.sent - before <= 20 + server.gate.pacer.configured_burst + 1


@pytest.mark.parametrize("tokens", [1e5, 1e7])
def test_a_call_that_never_fits_holds_up_the_next_one_for_a_moment_only(tokens):
    server = TokenServer()
    usual, rate = server.gate.controller.models.search.estimator.sizes.usual, server.gate.controller.rate
    for _ in range(5):
        server.call(tokens)
        at = server.now
        server.call(LARGE)
        assert server.now - at < 4.0
    sizes = server.gate.controller.models.search.estimator.sizes
    assert sizes.usual == pytest.approx(usual, rel=0.1)
    assert server.gate.controller.rate == pytest.approx(rate, rel=0.3)


def test_larger_calls_count_in_full_once_they_are_let_in():
    sizes = CallSizes()
    for tokens in [SMALL] * 5 + [100 * SMALL] * 5:
        sizes.note_sent(tokens)
    assert sizes.largest == 100 * SMALL
    sizes.note_refused(100 * SMALL)
    assert sizes.largest == 100 * SMALL


def test_what_a_call_asks_for_is_its_size_whatever_is_reserved_of_it():
    sets = {"of_prompt": frozenset({"tokens"}), "of_answer": frozenset({"tokens"})}
    asked = TokenCost({"tokens": LARGE}, prompt=50.0, answer=850.0, **sets)
    assert tokens_of(asked) == tokens_of(asked.replaced({"tokens": SMALL})) == LARGE


@pytest.mark.no_cover
def test_few_calls_are_refused_where_tokens_are_what_is_limited():
    done = run(named("tokens"), "adaptive", 0)
    assert done.refused_share <= 0.012
    assert done.ok >= 0.98 * run(named("tokens"), "oracle", 0).ok
