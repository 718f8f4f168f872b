"""Whatever a server says and in whatever order answers come back, the controller stays sane."""

from __future__ import annotations

import sys
from math import inf, isfinite, nan

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.controllers.adaptive import Adaptive, AdaptiveSettings
from headgate.controllers.adaptive.headers import SLOWEST
from headgate.core.decision import LONGEST_WAIT, Outcome
from headgate.core.policy import Ticket
from headgate.core.signal import Limit, Signal

pytestmark = pytest.mark.no_cover

LEAST, MOST = 0.05, 500.0
BIGGEST = 14_000
"""Bytes."""

numbers = st.one_of(
    st.none(), st.sampled_from([0.0, 1.0, 20.0, 600.0, 1e-9, 1e18, LONGEST_WAIT]), st.floats(0.0, 1e6, allow_nan=False)
)
limits = st.builds(
    Limit,
    dimension=st.sampled_from(["requests", "tokens", "concurrency"]),
    limit=numbers,
    remaining=numbers,
    reset=numbers,
    window=numbers,
)
signals = st.builds(
    Signal,
    outcome=st.one_of(st.sampled_from([Outcome.OK, Outcome.RATE_LIMITED]), st.sampled_from(list(Outcome))),
    retry_after=st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0, 60.0, LONGEST_WAIT, 1e12, inf, nan])),
    limits=st.one_of(st.just(()), st.lists(limits, max_size=3).map(tuple)),
)


def size(value, seen):
    """Bytes of everything a controller holds on to."""
    if id(value) in seen or isinstance(value, (type, AdaptiveSettings)):
        return 0
    seen.add(id(value))
    parts = (
        list(value) if isinstance(value, tuple) else [getattr(value, name) for name in getattr(value, "__slots__", ())]
    )
    return sys.getsizeof(value) + sum(size(part, seen) for part in parts)


class AnyServer(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.controller = Adaptive(AdaptiveSettings(initial=4.0, least=LEAST, most=MOST))
        self.now = self.latest = 1000.0
        self.seq = 0
        self.out = []

    @rule(step=st.one_of(st.floats(0.0, 0.1), st.floats(0.0, 100.0), st.just(1e7)))
    def time_passes(self, step):
        self.now += step
        self.latest = max(self.latest, self.now)

    @rule(step=st.floats(0.0, 50.0))
    def the_clock_goes_back(self, step):
        self.now -= step

    @rule(calls=st.integers(1, 40), gap=st.sampled_from([0.0, 0.001, 0.02, 1.0]), waited=st.booleans())
    def calls_leave(self, calls, gap, waited):
        for _ in range(calls):
            self.now += gap
            self.latest = max(self.latest, self.now)
            if waited:
                self.controller.on_wait(self.now)
            self.seq += 1
            ticket = Ticket(self, self.seq, self.now, len(self.out))
            self.controller.on_send(ticket, self.now)
            self.out = [*self.out, ticket][-200:]

    @rule(signal=signals, which=st.integers(0, 199), answers=st.integers(1, 30), latency=st.floats(-1.0, 1000.0))
    def answers_come_in(self, signal, which, answers, latency):
        for _ in range(min(answers, len(self.out))):
            ticket = self.out.pop(which % len(self.out))
            skip = self.controller.on_answer(ticket, signal, latency, self.now)
            assert 0.0 <= skip <= 10.0

    @rule()
    def it_is_put_away_and_taken_out(self):
        state = self.controller.to_state()
        self.controller = Adaptive(self.controller.settings)
        self.controller.load_state(state)
        assert self.controller.to_state() == state

    @invariant()
    def the_numbers_are_sane(self):
        controller = self.controller
        assert isfinite(controller.rate)
        assert (min(LEAST, SLOWEST) if controller.is_told else LEAST) <= controller.rate <= MOST
        assert controller.hold_until <= self.latest + LONGEST_WAIT
        assert controller.cap >= 1
        assert controller.why()

    @invariant()
    def it_stays_small(self):
        assert size(self.controller, set()) <= BIGGEST


AnyServer.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None, derandomize=True)
TestAnyServer = AnyServer.TestCase
