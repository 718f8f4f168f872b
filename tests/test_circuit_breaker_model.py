"""CircuitBreaker beside a model that remembers everything: calls that overlap, end late, or never end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import CircuitBreaker, CircuitOpenError, CircuitState
from headgate.sim.virtual import LoopClock, run

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
RECOVERY = 10.0


class Limited(Exception):
    response = type("Response", (), {"status_code": 429, "headers": {}})()


@dataclass
class Model:
    """The rules as they are told: each call knows its era, and only calls of this era count."""

    threshold: int
    probes_allowed: int
    state: CircuitState = CLOSED
    era: int = 0
    opened_at: float = 0.0
    failures: int = 0
    probes: dict[int, float] = field(default_factory=dict)
    era_of: dict[int, int] = field(default_factory=dict)

    def seen(self, now: float) -> CircuitState:
        return HALF_OPEN if self.state is OPEN and now >= self.opened_at + RECOVERY else self.state

    def start(self, call: int, now: float) -> bool:
        if self.seen(now) is OPEN:
            return False
        if self.state is OPEN:
            self.enter(HALF_OPEN)
        if self.state is HALF_OPEN:
            self.probes = {probe: sent_at for probe, sent_at in self.probes.items() if now < sent_at + RECOVERY}
            if len(self.probes) >= self.probes_allowed:
                return False
            self.probes[call] = now
        self.era_of[call] = self.era
        return True

    def end(self, call: int, how: str, now: float) -> None:
        was_probe = self.probes.pop(call, None) is not None
        if self.era_of.pop(call) != self.era or (self.state is HALF_OPEN and not was_probe):
            return
        if how == "ok":
            self.failures = 0
            if self.state is HALF_OPEN:
                self.enter(CLOSED)
        elif how == "failed":
            self.failures += 1
            if self.state is HALF_OPEN or self.failures >= self.threshold:
                self.opened_at = now
                self.enter(OPEN)

    def enter(self, state: CircuitState) -> None:
        self.state, self.era, self.failures, self.probes = state, self.era + 1, 0, {}


steps = st.lists(
    st.one_of(
        st.just(("start",)),
        st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from(["ok", "failed", "limited", "cancelled"])),
        st.tuples(st.just("sleep"), st.sampled_from([1.0, 5.0, RECOVERY])),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(steps, st.integers(1, 3), st.integers(1, 2))
def test_it_lets_through_and_learns_exactly_what_the_rules_say(script, threshold: int, probes_allowed: int) -> None:
    async def main(clock: LoopClock) -> None:
        breaker = CircuitBreaker(
            failure_threshold=threshold, recovery_timeout=RECOVERY, half_open_probes=probes_allowed, clock=clock
        )
        model, calls = Model(threshold, probes_allowed), {}
        loop = asyncio.get_running_loop()
        for number, (step, *details) in enumerate(script):
            if step == "sleep":
                await asyncio.sleep(details[0])
            elif step == "start":
                answer = loop.create_future()
                task = asyncio.create_task(breaker.call_async(lambda answer=answer: answer))
                await asyncio.sleep(0)
                let_through = model.start(number, clock.now())
                if let_through:
                    calls[number] = task, answer
                else:
                    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], CircuitOpenError)
                assert task.done() is not let_through
            elif calls:
                which, how = details
                call = list(calls)[which % len(calls)]
                task, answer = calls.pop(call)
                if how == "cancelled":
                    task.cancel()
                elif how == "ok":
                    answer.set_result(None)
                else:
                    answer.set_exception(ConnectionError() if how == "failed" else Limited())
                await asyncio.wait([task])
                assert task.cancelled() or task.exception() is None or how != "ok"
                model.end(call, how, clock.now())
            assert breaker.state is model.seen(clock.now())
        for task, _ in calls.values():
            task.cancel()

    run(main)
