"""A wait ends with a notification or with its time."""

import asyncio

import pytest

from headgate.engine.notifier import Notifier


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
