"""Lanes are opened with a key's first row, share its queue, and are closed when they are idle."""

import asyncio
import random

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch import lanes as module
from headgate.batch.config import BatchConfig, RunContext
from headgate.batch.cooldowns import Cooldowns
from headgate.batch.item import Backlog
from headgate.batch.lanes import FOR_ROWS, LaneSet
from headgate.batch.pricing import FixedBudget
from headgate.batch.report import BatchReport
from headgate.core.decision import Outcome
from headgate.core.signal import Signal
from headgate.engine.lane import LaneWait, Obstacle
from headgate.engine.scheduler import Scheduler
from headgate.engine.supervisor import PauseSwitch, Supervisor
from headgate.events import BatchEvent, EventDispatcher


class NoRows:
    """A driver that never has a row."""

    def __init__(self):
        self.checks = 0

    async def send(self, lane, now):
        self.checks += 1
        return Obstacle(LaneWait.ROWS)

    def on_wait(self, lane, obstacle):
        return obstacle.seconds


class Parts:
    def __init__(self, clock, labels=(None,), scope="credential"):
        self.limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6), clock=clock)
        self.changes = 0
        self.supervisor = Supervisor(lambda stop, now: None)
        context = RunContext(
            config=BatchConfig(cooldown_scope=scope),
            clock=clock,
            rng=random.Random(1),
            limiter=self.limiter,
            budget=FixedBudget(None, None),
            pause=PauseSwitch(),
            backlog=Backlog(clock),
            report=BatchReport(),
            events=EventDispatcher(BatchEvent, clock, lambda: None),
            supervisor=self.supervisor,
        )
        self.cooldowns = Cooldowns(context, self.on_change)
        self.scheduler = Scheduler(0.2)
        self.lanes = LaneSet(
            context,
            scheduler=self.scheduler,
            cooldowns=self.cooldowns,
            gate_keys=lambda key: {label: key if label is None else f"{key}/{label}" for label in labels},
        )
        self.driver = NoRows()
        self.lanes.start(self.driver)

    def on_change(self):
        self.changes += 1

    async def close(self):
        await asyncio.gather(*self.lanes.cancel(), return_exceptions=True)


def test_a_key_has_a_lane_for_each_credential_and_one_queue(play):
    async def scenario(lab):
        parts = Parts(lab.clock, labels=("key-1", "key-2"))
        group = parts.lanes.group("api")
        assert parts.lanes.group("api") is group
        assert [lane.route.gate_key for lane in group.lanes] == ["api/key-1", "api/key-2"]
        assert group.queue is parts.scheduler.queue("api")
        await asyncio.sleep(0)
        assert parts.driver.checks == 2
        parts.lanes.notify(group.lanes[:1], FOR_ROWS)
        parts.lanes.notify(group.lanes, (LaneWait.CIRCUIT,))
        await asyncio.sleep(1)
        assert parts.driver.checks == 3
        await parts.close()

    play(scenario)


@pytest.mark.parametrize(("scope", "paused"), [("credential", [True, False]), ("key", [True, True])])
def test_a_cooldown_holds_the_lanes_of_its_scope_and_pauses_their_gates(play, scope, paused):
    async def scenario(lab):
        parts = Parts(lab.clock, labels=("key-1", "key-2"), scope=scope)
        first, second = (lane.route for lane in parts.lanes.group("api").lanes)
        signal = Signal(outcome=Outcome.RATE_LIMITED, retry_after=60.0)
        parts.cooldowns.rate_limited(first.gate_key, first.cooldown, lab.clock.now(), signal)
        assert [route.cooldown.until >= 60.0 for route in (first, second)] == paused
        assert [parts.limiter.try_acquire(route.gate_key) is None for route in (first, second)] == paused
        assert parts.lanes.group("api").is_shut(30.0) is all(paused)
        assert parts.changes == 1
        await parts.close()

    play(scenario)


def test_idle_lanes_make_room_for_others(play, monkeypatch):
    monkeypatch.setattr(module, "IDLE_LANES", 3)

    async def scenario(lab):
        parts = Parts(lab.clock)
        for number in range(3):
            parts.lanes.group(f"host-{number}")
        await asyncio.sleep(0)
        parts.lanes.group("host-1").lanes[0].in_flight = 1
        parts.lanes.group("host-3")
        assert list(parts.lanes.groups) == ["host-1", "host-3"]
        assert len(parts.lanes.all()) == 2
        await parts.close()

    play(scenario)
