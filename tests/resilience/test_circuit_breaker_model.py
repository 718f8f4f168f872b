"""CircuitBreaker beside a model that remembers everything: calls that overlap, end late, or never end."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from headgate import CircuitBreaker, CircuitOpenError, CircuitState
from headgate.lab.virtual_time import LoopClock, run

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
RECOVERY = 10.0
STEPS = 1000
MOST_CALLS = 6


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


def random_step(rng: random.Random) -> tuple[str, object]:
    step = rng.choices(["start", "end", "sleep"], [5, 4, 2])[0]
    if step == "end":
        return step, rng.choices(["ok", "failed", "limited", "cancelled"], [3, 4, 1, 1])[0]
    return step, rng.choice([0.5, 1.0, 4.0, RECOVERY])


@pytest.mark.no_cover
@pytest.mark.parametrize("probes_allowed", [1, 2])
@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_it_lets_through_and_learns_exactly_what_the_rules_say(seed: int, threshold: int, probes_allowed: int) -> None:
    async def main(clock: LoopClock) -> None:
        rng = random.Random(f"{seed} {threshold} {probes_allowed}")
        breaker = CircuitBreaker(
            failure_threshold=threshold, recovery_timeout=RECOVERY, half_open_probes=probes_allowed, clock=clock
        )
        model, calls = Model(threshold, probes_allowed), {}
        for number in range(STEPS):
            step, detail = random_step(rng)
            if step == "sleep":
                await asyncio.sleep(detail)
            elif step == "start" and len(calls) < MOST_CALLS:
                answer = asyncio.get_running_loop().create_future()
                task = asyncio.create_task(breaker.call_async(lambda answer=answer: answer))
                await asyncio.sleep(0)
                if model.start(number, clock.now()):
                    assert not task.done(), f"step {number}: should have been let through"
                    calls[number] = task, answer
                else:
                    assert task.done(), f"step {number}: should have been refused"
                    assert isinstance(task.exception(), CircuitOpenError)
            elif step == "end" and calls:
                call = rng.choice(list(calls))
                task, answer = calls.pop(call)
                match detail:
                    case "cancelled":
                        task.cancel()
                    case "ok":
                        answer.set_result(None)
                    case _:
                        answer.set_exception(ConnectionError() if detail == "failed" else Limited())
                await asyncio.wait([task])
                assert task.cancelled() or (task.exception() is None) is (detail == "ok")
                model.end(call, detail, clock.now())
            assert breaker.state is model.seen(clock.now()), f"step {number}: {step} {detail}"
        for task, _ in calls.values():
            task.cancel()

    run(main)
