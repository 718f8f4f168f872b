"""Buckets of several dimensions under any order of taking, refunding and settling: no window ever holds too much."""

from __future__ import annotations

import marshal

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.core.quota import Quota, QuotaPolicy, never_fits

Cost = dict[str, float]


class AnyOrder(RuleBasedStateMachine):
    @initialize(burst=st.sampled_from([1.0, 4.0, 20.0]), tokens=st.sampled_from([50.0, 500.0]))
    def start(self, burst: float, tokens: float) -> None:
        self.quotas = (
            Quota(dimension="requests", amount=20.0, window=10.0, burst=burst),
            Quota(dimension="requests", amount=50.0, window=120.0, burst=50.0),
            Quota(dimension="tokens", amount=500.0, window=30.0, burst=tokens),
        )
        self.buckets = QuotaPolicy(self.quotas)
        self.now = 1000.0
        self.taken: list[tuple[float, Cost]] = []

    @rule(seconds=st.floats(0.0, 15.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(tokens=st.sampled_from([1.0, 40.0, 120.0, 500.0]), patient=st.booleans())
    def take(self, tokens: float, patient: bool) -> None:
        cost = {"requests": 1.0, "tokens": tokens}
        assert never_fits(self.quotas, cost) is None
        ready_at, decides = self.buckets.ready_at(cost, self.now, patient, {})
        if ready_at > self.now:
            assert decides in self.quotas
            if not patient:
                return
            self.now = ready_at + 1e-6
            if self.buckets.ready_at(cost, self.now, patient, {})[0] > self.now:
                return  # what is forecast for a cost above the burst may move while it waits
        self.buckets.take(cost, self.now)
        self.taken.append((self.now, cost))

    @precondition(lambda self: getattr(self, "taken", None))
    @rule(pick=st.integers(0, 100))
    def refund(self, pick: int) -> None:
        at, cost = self.taken.pop(pick % len(self.taken))
        self.buckets.refund(cost, at)

    @precondition(lambda self: getattr(self, "taken", None))
    @rule(pick=st.integers(0, 100), share=st.floats(0.0, 1.0))
    def settle(self, pick: int, share: float) -> None:
        index = pick % len(self.taken)
        at, cost = self.taken[index]
        real = {"tokens": cost["tokens"] * share}
        self.buckets.charge(cost, real, at)
        self.taken[index] = (at, {**cost, **real})

    @rule()
    def put_away_and_take_out(self) -> None:
        state = marshal.loads(marshal.dumps(self.buckets.to_state()))
        self.buckets = QuotaPolicy(self.quotas)
        self.buckets.load_state(state)

    @invariant()
    def no_window_holds_more_than_its_limit(self) -> None:
        for quota in getattr(self, "quotas", ()):
            for start, _ in self.taken:
                inside = sum(cost[quota.dimension] for at, cost in self.taken if start <= at < start + quota.window)
                assert inside <= quota.amount * (1 + 1e-6)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(derandomize=True, deadline=None, max_examples=50, stateful_step_count=30)
