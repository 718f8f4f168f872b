"""A lane: the way to one gate, along which work leaves piece by piece.

    send: may something start? ─> get a permit ─> take a piece of work ─> start it
      ^        └──── an obstacle: sleep until a notification or until its time
      └────────────────────────────┘

A lane gets its permit first and takes work then. So a lane that has to wait holds neither work nor a worker, and what
it cannot send goes by another lane. A ``Notifier`` is what it sleeps on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..clock import Clock, call_later
from ..core.decision import NEVER, UNKNOWN

R = TypeVar("R")


class Notifier:
    """Waits for a notification or for a time, whichever is first: one waiter, any number of notifiers.

    A notification that comes while nothing waits is kept for the next ``wait``.
    """

    __slots__ = ("_clock", "_future", "_notified")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._future: asyncio.Future[None] | None = None
        self._notified = False

    def notify(self) -> None:
        self._notified = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float = UNKNOWN) -> None:
        """Sleep until a notification, or for so long."""
        if self._notified:
            self._notified = False
            return
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = None if seconds == UNKNOWN else call_later(self._clock, loop, seconds, self.notify)
        try:
            await self._future
        finally:
            self._future, self._notified = None, False
            if timer is not None:
                timer.cancel()


class Alarm:
    """A sleep until an instant that may be moved forward meanwhile."""

    __slots__ = ("_clock", "_notifier", "_wakes_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notifier = Notifier(clock)
        self._wakes_at = UNKNOWN

    def wake_by(self, instant: float) -> None:
        if instant < self._wakes_at:
            self._notifier.notify()

    async def sleep_until(self, instant: float) -> None:
        self._wakes_at = instant
        await self._notifier.wait(instant if instant == UNKNOWN else instant - self._clock.now())


class LaneWait(StrEnum):
    """What a lane waits for; the values are those of ``LaneStanding.waits_for`` and ``HostStatus.waits_for``."""

    NOTHING = ""
    ROWS = "rows"
    WORKERS = "workers"
    PAUSED = "paused"
    """An operator lets nothing start."""
    COOLDOWN = "cooldown"
    CREDENTIAL = "credential"
    CREDENTIAL_HELD = "credential_held"
    SPEND = "spend"
    """The account has no credit or has reached a limit on spending; a call goes out now and then to find out."""
    MODEL = "model"
    """The server has no such model; nothing will start any more."""
    CIRCUIT = "circuit"
    RAMP = "ramp"
    RETRY_BUDGET = "retry_budget"
    CAPS = "caps"
    LIMITER = "limiter"
    """The limiter has refused a permit."""
    PACE = "pace"
    """Waiting in the limiter's queue for a permit."""
    ANSWERS = "answers"
    """As many calls are under way here as this lane may have."""
    CRAWL_DELAY = "crawl_delay"
    ROBOTS = "robots"
    SHUT = "shut"


class Obstacle(NamedTuple):
    """Why nothing starts, and for how many seconds at most, where that is known."""

    wait: LaneWait
    seconds: float = UNKNOWN


class LaneDriver(Protocol[R]):
    """Decides for all lanes of a run."""

    async def send(self, lane: Lane[R], now: float) -> Obstacle | None:
        """Get a permit and start a piece of work, or say what prevents it. None: call it again."""

    def on_wait(self, lane: Lane[R], obstacle: Obstacle) -> float:
        """A lane has to wait: seconds after which it looks again at the latest."""


class Lane(Generic[R]):
    """``route`` is where it leads; everything about waiting is here."""

    __slots__ = (
        "_clock",
        "_driver",
        "has_turn",
        "in_flight",
        "notifier",
        "opens_at",
        "route",
        "waits_for",
        "waits_since",
    )

    def __init__(self, route: R, driver: LaneDriver[R], clock: Clock) -> None:
        self.route, self._driver, self._clock = route, driver, clock
        self.notifier = Notifier(clock)
        self.in_flight = 0
        self.waits_for = LaneWait.ROWS
        self.waits_since = clock.now()
        self.opens_at = NEVER
        """Before this instant nothing can start here, as far as is known; UNKNOWN: never, as it is now."""
        self.has_turn = False
        """Whether the worker pool has promised it the next free worker."""

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Send work along until ``is_over``."""
        clock, driver = self._clock, self._driver
        while not is_over():
            obstacle = await driver.send(self, clock.now())
            if obstacle is not None:
                self.wait_for(obstacle.wait)
                await self.notifier.wait(driver.on_wait(self, obstacle))

    def wait_for(self, what: LaneWait) -> None:
        """From now on it waits for this."""
        if what is not self.waits_for:
            self.waits_for, self.waits_since = what, self._clock.now()
