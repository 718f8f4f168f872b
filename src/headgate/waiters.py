"""Waiters: a caller that sleeps in its own thread, or awaits on its own event loop, until its turn comes.

    queue, under its lock ──wake()───> the waiter runs ──> on_wake(): takes its turn, or sleeps again
                          ──arm(at)──> it runs by itself at that instant
                          ──settle()─> it runs and finds that its wait has ended

A queue needs no thread and is bound to no event loop: a timer runs in the thread or on the loop of its waiter, and any
thread may wake any waiter.

A signal handler must not call a queue. It may run on top of the wait of its own thread, which does not hear a wakeup
that it sends to itself, or in the middle of a decision, whose lock it would wait for without end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from .clock import call_later
from .core.decision import INSTANT, UNKNOWN

if TYPE_CHECKING:
    import asyncio

    from .clock import Clock, Timer


class Waiter(Protocol):
    """What a queue knows of a waiter, and what both kinds of them share."""

    __slots__ = ("armed", "clock", "give_up_at", "home", "settled", "thread", "wake_at")  # 100,000 may wait for one key

    clock: Clock
    thread: int
    home: object
    """Its thread or its event loop: what must be alive for it to run."""
    give_up_at: float
    """Its deadline."""
    armed: bool
    """Whether it runs by itself at ``wake_at``, and not only when it would give up."""
    wake_at: float
    settled: bool
    """Its wait has ended, in whatever way."""
    may_stall: bool
    """Whether it may fail to run although it was woken: an event loop can be busy or hang."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.home = self.thread = threading.get_ident()
        self.give_up_at = self.wake_at = UNKNOWN
        self.armed = self.settled = False

    def settle(self) -> bool:
        """End the wait and wake it. False if it will never run."""
        self.settled = True
        return self.wake()

    def arm(self, wake_at: float) -> None:
        """Run at that instant, or at the deadline if that is sooner; replaces any instant set before."""
        wake_at = min(wake_at, self.give_up_at)
        if self.armed and abs(wake_at - self.wake_at) <= INSTANT:
            return
        self.armed, self.wake_at = True, wake_at
        self.set_timer()

    def wake(self) -> bool:
        """Let it run. False if it never will."""
        ...

    def set_timer(self) -> None:
        """Follow the new ``wake_at``."""
        ...

    def watch_deadline(self) -> None:
        """Make sure that it runs at its deadline, also while others are ahead of it."""
        ...

    def on_wake(self) -> None:
        """It runs, for whatever reason; what it was armed for is over. Called by itself, under the queue's lock."""
        ...

    def is_dead(self) -> bool:
        """Whether it can never run again."""
        ...


class ThreadWaiter(Waiter):
    """A thread, asleep on a lock of its own."""

    __slots__ = ("signaled", "wakeup")
    may_stall = False

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.wakeup = threading.Lock()
        self.wakeup.acquire()
        self.signaled = False

    def wake(self) -> bool:
        if not self.signaled and threading.get_ident() != self.thread:
            self.signaled = True
            self.wakeup.release()
        return True

    def set_timer(self) -> None:
        self.wake()

    def watch_deadline(self) -> None:
        """Nothing to do: it never sleeps past its deadline."""

    def is_dead(self) -> bool:
        return False

    def on_wake(self) -> None:
        self.armed = False
        if self.signaled:
            self.signaled = False
            self.wakeup.acquire(blocking=False)  # if it was signaled after the time was up

    def sleep(self) -> None:
        """Wait until it is woken, armed time or deadline, whichever comes first."""
        clock = self.clock
        wait = (self.wake_at if self.armed else self.give_up_at) - clock.now()
        is_real = getattr(clock, "runs_in_real_time", False)
        if wait == UNKNOWN or not (is_real or self.armed):  # another clock's sleep would not hear the wakeup
            self.wakeup.acquire()
        elif not is_real:
            clock.sleep(max(0.0, wait))
        elif wait > 0:
            self.wakeup.acquire(timeout=min(wait, threading.TIMEOUT_MAX))


class TaskWaiter(Waiter):
    """A task, awaiting a future of its own loop."""

    __slots__ = ("future", "loop", "timer")
    may_stall = True

    def __init__(self, clock: Clock) -> None:
        import asyncio  # here, because a program without an event loop should not load one

        super().__init__(clock)
        self.loop = self.home = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.timer: Timer | None = None

    def wake(self) -> bool:
        if self.loop.is_closed():
            return False
        if threading.get_ident() != self.thread:
            return self._on_loop(self.wake)
        if not self.future.done():
            self.future.set_result(None)
        return True

    def set_timer(self) -> None:
        if self.loop.is_closed():
            return
        if threading.get_ident() != self.thread:
            self._on_loop(self.set_timer)
            return
        if self.timer is not None:
            self.disarm()
        if self.settled or not self.armed:  # it has run since another thread armed it
            return
        self.timer = call_later(self.clock, self.loop, self.wake_at - self.clock.now(), self.wake)

    def on_wake(self) -> None:
        if self.timer is not None:
            self.disarm()
        self.armed = False
        self.future = self.loop.create_future()

    def watch_deadline(self) -> None:
        if self.give_up_at != UNKNOWN and not self.armed:
            self.arm(self.give_up_at)

    def is_dead(self) -> bool:
        return self.loop.is_closed()

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _on_loop(self, act: Callable[[], object]) -> bool:
        """Have the loop's own thread do it. False if it never will."""
        try:
            self.loop.call_soon_threadsafe(act)
        except RuntimeError:  # closed just now
            return False
        return True


async def let_others_run() -> None:
    """Give every task that was woken its turn on this event loop."""
    import asyncio

    await asyncio.sleep(0)
