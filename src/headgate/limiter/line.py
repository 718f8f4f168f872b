"""Those who wait for a key: first come, first served, with one timer for the head of the line.

A waiter is a thread or a task. Whoever holds the limiter's lock may serve a line: it
grants to the head while nothing objects, then sets the timer of the new head and goes. The
timer runs where that head lives, in its own thread or on its own event loop, so a limiter
needs no thread and is bound to no loop.

A signal handler must not call in. It may run on top of the wait of its own thread, which does not hear a
bell that it rings itself, or in the middle of a decision, whose lock it would wait for without end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..core.costs import costs_of
from ..core.decision import UNKNOWN, Wait
from ..core.pace import INSTANT
from .checks import Cost

if TYPE_CHECKING:
    import asyncio

    from .key_gate import KeyGate
    from .permit import Permit
    from .serving import Serving

MOST_WAITING = 100_000
"""Callers that may wait for one key."""
LATE = 0.02
"""A turn that comes so many seconds later than was said is late."""
TOLERANCE = 0.99
"""A pace that has fallen by less than this since forecasts were made breaks no promise."""
GONE_BEFORE_SWEEP = 64
"""Cancelled waiters that may stand in a line before it is swept."""


class Waiter:
    """One caller in line, perhaps in several lines at once."""

    __slots__ = (
        "armed",
        "asked_at",
        "cost",
        "gates",
        "give_up_at",
        "limiter",
        "permit",
        "refusal",
        "settled",
        "thread",
        "wake_at",
    )

    def __init__(self, limiter: Serving, cost: Cost) -> None:
        self.limiter = limiter
        self.cost = cost
        self.gates: list[KeyGate] = []
        """In whose lines it stands."""
        self.asked_at = 0.0
        self.give_up_at = self.wake_at = UNKNOWN
        self.armed = False
        """Whether ``wake_at`` is when it will really tick, and not only when it would give up."""
        self.thread = threading.get_ident()
        self.permit: Permit | None = None
        self.refusal: Exception | None = None
        self.settled = False
        """Granted, refused or gone: no longer in line."""

    def settle(self, permit: Permit | None, refusal: Exception | None) -> None:
        self.permit, self.refusal, self.settled = permit, refusal, True
        self.wake()

    def outcome(self) -> Permit:
        """What the wait ended with."""
        if self.permit is None:
            assert self.refusal is not None
            raise self.refusal
        return self.permit

    def wake(self) -> None:
        raise NotImplementedError

    def arm(self, wake_at: float) -> None:
        """Call ``limiter.tick(self)`` at that instant, instead of any set before."""
        wake_at = min(wake_at, self.give_up_at)
        if self.armed and abs(wake_at - self.wake_at) <= INSTANT:
            return
        self.armed, self.wake_at = True, wake_at
        self.set_timer()

    def set_timer(self) -> None:
        """Heed the new ``wake_at``."""
        raise NotImplementedError

    def watch_time(self) -> None:
        """Take care that it gives up in time, also while others are ahead of it."""

    def is_up(self) -> None:
        """The waiter runs again, for whatever reason; what it was armed for is over."""
        self.armed = False

    def is_dead(self) -> bool:
        """Nobody will ever wake up here."""
        return False


class ThreadWaiter(Waiter):
    """A thread, asleep on a lock of its own."""

    __slots__ = ("bell", "rung")

    def __init__(self, limiter: Serving, cost: Cost) -> None:
        super().__init__(limiter, cost)
        self.bell = threading.Lock()
        self.bell.acquire()
        self.rung = False

    def wake(self) -> None:
        if not self.rung and threading.get_ident() != self.thread:
            self.rung = True
            self.bell.release()

    def set_timer(self) -> None:
        self.wake()

    def is_up(self) -> None:
        self.armed, self.wake_at = False, self.give_up_at
        if self.rung:
            self.rung = False
            self.bell.acquire(blocking=False)  # if it rang after the time was up

    def sleep(self) -> None:
        """Wait for the bell or the time to get up, whichever comes first."""
        clock = self.limiter.clock
        wait = self.wake_at - clock.now()
        real = getattr(clock, "runs_in_real_time", False)
        if wait == UNKNOWN or not (real or self.armed):  # another clock's sleep would not hear the bell
            self.bell.acquire()
        elif not real:
            clock.sleep(max(0.0, wait))
        elif wait > 0:
            self.bell.acquire(timeout=min(wait, threading.TIMEOUT_MAX))


class TaskWaiter(Waiter):
    """A task, awaiting a future of its own loop."""

    __slots__ = ("future", "loop", "timer")

    def __init__(self, limiter: Serving, cost: Cost) -> None:
        import asyncio  # here, because a program without an event loop should not load one

        super().__init__(limiter, cost)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.timer: _Timer | None = None

    def wake(self) -> None:
        self._on_loop(self._wake)

    def set_timer(self) -> None:
        self._on_loop(self._set_timer)

    def is_up(self) -> None:
        self.armed, self.timer = False, None

    def watch_time(self) -> None:
        if self.give_up_at != UNKNOWN:
            self.arm(self.give_up_at)

    def is_dead(self) -> bool:
        return self.loop.is_closed()

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _on_loop(self, act: Callable[[], None]) -> None:
        if self.loop.is_closed():
            return
        if threading.get_ident() == self.thread:
            act()
        else:
            try:
                self.loop.call_soon_threadsafe(act)
            except RuntimeError:  # closed just now: the line finds out when it looks again
                return

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def _set_timer(self) -> None:
        self.disarm()
        if self.settled:
            return
        clock = self.limiter.clock
        wait = max(0.0, self.wake_at - clock.now())
        if getattr(clock, "runs_loop_timers", False):
            self.timer = self.loop.call_later(wait, self.limiter.tick, self)
        else:
            self.timer = self.loop.create_task(self._sleep_then_tick(wait))

    async def _sleep_then_tick(self, seconds: float) -> None:
        await self.limiter.clock.sleep_async(seconds)
        self.limiter.tick(self)


class _Timer(Protocol):
    def cancel(self) -> object: ...


class Line:
    """The waiters of one key, and what they will take together."""

    __slots__ = (
        "costs",
        "forecast",
        "forecast_head",
        "gone",
        "impatient",
        "opens_at",
        "rate",
        "requests",
        "waiters",
    )

    def __init__(self) -> None:
        self.waiters: deque[Waiter] = deque()
        self.gone = 0
        self.requests = 0.0
        """Calls' worth of pace that everybody in line will take."""
        self.costs: dict[str, float] = {}
        """... and what they will take of each known limit."""
        self.impatient = 0
        """How many have a time by which they give up; their forecasts are looked after."""
        self.rate, self.opens_at = 0.0, UNKNOWN
        self.forecast_head: Waiter | None = None
        self.forecast = Wait(0.0, "")
        """What the forecasts were based on: the pace, and what the head was told."""

    def __len__(self) -> int:
        return len(self.waiters) - self.gone

    def join(self, waiter: Waiter) -> None:
        self.waiters.append(waiter)
        self._count(waiter, 1)

    def waiting(self) -> list[Waiter]:
        """All who still wait, the first one first."""
        return [waiter for waiter in self.waiters if not waiter.settled]

    def head(self) -> Waiter | None:
        """The first who still waits."""
        waiters = self.waiters
        while waiters:
            if not waiters[0].settled:
                return waiters[0]
            waiters.popleft()
            self.gone -= 1
        return None

    def leave(self, waiter: Waiter) -> None:
        """Take note that a waiter has settled; it goes from the line when its turn comes, or in a sweep."""
        self._count(waiter, -1)
        self.gone += 1
        if self.gone > GONE_BEFORE_SWEEP and self.gone > len(self.waiters) // 2:
            self.waiters = deque(self.waiting())
            self.gone = 0

    def take_forecast(self, head: Waiter, wait: Wait, rate: float, opens_at: float) -> bool:
        """Take what forecasts are based on now; True if those made before may no longer hold."""
        later = head is self.forecast_head and wait.until > self.forecast.until + LATE
        worse = later or rate < TOLERANCE * self.rate or opens_at > self.opens_at
        if worse or rate > self.rate or opens_at < self.opens_at:
            self.rate, self.opens_at = rate, opens_at
        self.forecast_head, self.forecast = head, wait
        return worse and self.impatient > 0

    def is_arranged(self, rate: float, now: float) -> bool:
        """Whether the head will be served in time and the last to join changes nothing for those ahead of it."""
        head = self.head()
        return (
            head is not None
            and head is self.forecast_head
            and now < head.wake_at
            and rate <= self.rate  # a pace that has grown is a promise to the one who joined
            and len(self.waiters) > 2  # the second in line may have to be the deputy
            and len(head.gates) == 1
            and not head.is_dead()
        )

    def arm_deputy(self, until: float) -> None:
        """If the head lives on an event loop, which may hang, somebody who lives elsewhere looks after its turn too."""
        if len(self.waiters) > 1:
            head, deputy = self.waiters[0], self.waiters[1]
            if head.thread != deputy.thread and not deputy.settled and isinstance(head, TaskWaiter):
                deputy.arm(until + LATE)

    def _count(self, waiter: Waiter, sign: int) -> None:
        costs = costs_of(waiter.cost)
        for dimension, amount in costs.items():
            self.costs[dimension] = self.costs.get(dimension, 0.0) + sign * amount
        self.requests += sign * costs["requests"]
        self.impatient += sign * (waiter.give_up_at != UNKNOWN)
