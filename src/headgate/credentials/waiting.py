"""Those who wait for a credential: threads and tasks in one line, each woken where it lives.

Whoever holds the coordinator's lock may hand a credential to the head of the line; it is
taken for the waiter before the waiter runs again, so nobody can come in between and no
wake-up can be lost. The head also has an alarm for when the first credential is back. It
rings in the head's own thread or on its own event loop: there is no thread, and no loop, of ours.

A signal handler must not call in. It may run on top of the wait of its own thread, which does not hear a
bell that it rings itself, or in the middle of a decision, whose lock it would wait for without end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..core.decision import UNKNOWN
from ..core.pace import INSTANT

if TYPE_CHECKING:
    import asyncio

    from ..clock import Clock
    from .lease import Lease


class Ticking(Protocol):
    """What a waiter needs of those it waits for."""

    clock: Clock

    def tick(self, waiter: Waiter) -> None:
        """The alarm rang: look whether there is something for the waiter, or its time is up."""


class Waiter:
    """One caller in line, with the lease it will have."""

    __slots__ = ("give_up_at", "home", "joined_at", "lease", "prefer", "refusal", "settled", "source", "wake_at")

    def __init__(self, source: Ticking, lease: Lease, prefer: str | None) -> None:
        self.source = source
        self.lease = lease
        self.prefer = prefer
        self.home = threading.get_ident()
        self.joined_at = 0.0
        self.give_up_at = self.wake_at = UNKNOWN
        self.refusal: Exception | None = None
        self.settled = False
        """Served, refused or gone: no longer in line."""

    def settle(self, refusal: Exception | None = None) -> bool:
        """End its wait. False if there is nobody to be told."""
        self.refusal, self.settled = refusal, True
        return self.wake()

    def arm(self, wake_at: float) -> None:
        """Tick at that instant, or when it is time to give up, instead of any set before."""
        wake_at = min(wake_at, self.give_up_at)
        if abs(wake_at - self.wake_at) > INSTANT:
            self.wake_at = wake_at
            self.set_alarm()

    def wake(self) -> bool:
        """Let it run and find out how its wait ended. False if it never will."""
        raise NotImplementedError

    def set_alarm(self) -> object:
        """Follow the new ``wake_at``."""
        raise NotImplementedError

    def is_up(self) -> None:
        """It runs again, for whatever reason: what its alarm was set to is over."""
        self.wake_at = UNKNOWN

    def is_dead(self) -> bool:
        """Whether it can never run again."""
        return False


class ThreadWaiter(Waiter):
    """A thread, asleep on a lock of its own."""

    __slots__ = ("bell", "rung")

    def __init__(self, source: Ticking, lease: Lease, prefer: str | None) -> None:
        super().__init__(source, lease, prefer)
        self.bell = threading.Lock()
        self.bell.acquire()
        self.rung = False

    def wake(self) -> bool:
        if not self.rung and threading.get_ident() != self.home:
            self.rung = True
            self.bell.release()
        return True

    set_alarm = wake

    def is_up(self) -> None:
        super().is_up()
        if self.rung:
            self.rung = False
            self.bell.acquire(blocking=False)  # if it rang after the time was up

    def sleep(self) -> None:
        """Wait for the bell or the alarm, whichever comes first."""
        clock = self.source.clock
        wake_at = min(self.wake_at, self.give_up_at)
        if wake_at == UNKNOWN:
            self.bell.acquire()
        elif not getattr(clock, "runs_in_real_time", False):
            clock.sleep(max(0.0, wake_at - clock.now()))  # another clock's sleep does not hear the bell
        elif (wait := wake_at - clock.now()) > 0:
            self.bell.acquire(timeout=min(wait, threading.TIMEOUT_MAX))


class TaskWaiter(Waiter):
    """A task, awaiting a future of its own loop."""

    __slots__ = ("alarm", "future", "loop")

    def __init__(self, source: Ticking, lease: Lease, prefer: str | None) -> None:
        import asyncio  # here, because a program without an event loop should not load one

        super().__init__(source, lease, prefer)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.alarm: asyncio.TimerHandle | asyncio.Task[None] | None = None

    def wake(self) -> bool:
        return self._on_loop(self._wake)

    def set_alarm(self) -> object:
        return self._on_loop(self._set_alarm)

    def is_up(self) -> None:
        super().is_up()
        self.alarm = None

    def is_dead(self) -> bool:
        return self.loop.is_closed()

    def disarm(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    def _on_loop(self, act: Callable[[], None]) -> bool:
        if self.loop.is_closed():
            return False
        if threading.get_ident() == self.home:
            act()
            return True
        try:
            self.loop.call_soon_threadsafe(act)
        except RuntimeError:  # closed just now
            return False
        return True

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def _set_alarm(self) -> None:
        self.disarm()
        if self.settled or self.wake_at == UNKNOWN:
            return
        clock = self.source.clock
        wait = max(0.0, self.wake_at - clock.now())
        if getattr(clock, "runs_loop_timers", False):
            self.alarm = self.loop.call_later(wait, self.source.tick, self)
        else:
            self.alarm = self.loop.create_task(self._sleep_then_tick(wait))

    async def _sleep_then_tick(self, seconds: float) -> None:
        await self.source.clock.sleep_async(seconds)
        self.source.tick(self)
