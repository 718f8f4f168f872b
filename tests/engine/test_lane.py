"""A lane sends while nothing stands in the way, and sleeps no longer than its obstacle lasts."""

from __future__ import annotations

import asyncio

import pytest

from headgate.core.decision import UNKNOWN
from headgate.engine.lane import Lane, LaneWait, Notifier, Obstacle


class OwnClock:
    """A clock that runs no loop timers."""

    def __init__(self, clock):
        self._clock = clock

    def now(self):
        return self._clock.now()

    async def sleep_async(self, seconds):
        await self._clock.sleep_async(seconds)


@pytest.mark.parametrize("wrap", [lambda clock: clock, OwnClock])
def test_a_wait_ends_with_its_time_or_earlier_with_a_notification(play, wrap):
    async def scenario(clock):
        notifier = Notifier(wrap(clock))
        await notifier.wait(3.0)
        assert clock.now() == pytest.approx(3.0)
        asyncio.get_running_loop().call_later(1.0, notifier.notify)
        await notifier.wait(3.0)
        assert clock.now() == pytest.approx(4.0)

    play(scenario)


def test_a_notification_is_kept_for_the_next_wait_alone(play):
    async def scenario(clock):
        notifier = Notifier(clock)
        notifier.notify()
        notifier.notify()
        await notifier.wait(5.0)
        assert clock.now() == 0.0
        await notifier.wait(5.0)
        assert clock.now() == pytest.approx(5.0)

    play(scenario)


class Driver:
    """Lets one piece of work go every two seconds."""

    def __init__(self, clock, pieces):
        self.clock, self.pieces, self.sent, self.waited = clock, pieces, [], []

    async def send(self, lane, now):
        if not self.pieces:
            return Obstacle(LaneWait.ROWS)
        if self.sent and now < self.sent[-1] + 2.0:
            return Obstacle(LaneWait.CRAWL_DELAY, self.sent[-1] + 2.0 - now)
        self.pieces -= 1
        self.sent.append(now)
        if len(self.sent) == 2:
            return Obstacle(LaneWait.CIRCUIT, 10.0)
        return None

    def on_wait(self, lane, obstacle):
        self.waited.append((lane.waits_for, obstacle.seconds))
        return obstacle.seconds


def test_it_sends_waits_and_goes_on_when_notified(play):
    async def scenario(clock):
        driver = Driver(clock, 3)
        lane = Lane("route", driver, clock)
        running = asyncio.create_task(lane.run(lambda: len(driver.sent) == 4))
        await asyncio.sleep(20.0)
        assert driver.sent == [0.0, 2.0, 12.0]
        assert driver.waited[:2] == [(LaneWait.CRAWL_DELAY, 2.0), (LaneWait.CIRCUIT, 10.0)]
        assert driver.waited[-1] == (LaneWait.ROWS, UNKNOWN)
        assert (lane.waits_for, lane.waits_since) == (LaneWait.ROWS, 12.0)
        driver.pieces = 1
        lane.notifier.notify()
        await running
        assert driver.sent[-1] == 20.0

    play(scenario)
