"""The waiters of a key: first come, first served.

    waiting ──its turn has come──> notified ──it runs──> takes its token itself, or waits on in its old place
                                      │ its event loop hangs
                                      └──> keeps its place; waiters that run elsewhere pass it

A waiter is a thread or a task. A token is taken when its waiter runs, never before: between being chosen and running a
task may spend seconds in the queue of a busy event loop, and many tokens taken beforehand would all be used at once.
The first waiter has a timer, in its own thread or on its own event loop, so a limiter needs no thread and is bound to
no loop.

A signal handler must not call in. It may run on top of the wait of its own thread, which does not hear a
bell that it rings itself, or in the middle of a decision, whose lock it would wait for without end.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..core.costs import NOTHING, costs_of
from ..core.decision import UNKNOWN, Refuse, Wait
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
HUNG_AFTER = 0.05
"""An event loop that has not run a notified waiter for so many seconds hangs; waiters elsewhere pass its waiters."""
TOLERANCE = 0.99
"""A pace that has fallen by less than this since forecasts were made breaks no promise."""
T = TypeVar("T")
_ordinals = count(1)


class Waiter:
    """One caller in line, perhaps in several lines at once."""

    __slots__ = (
        "armed",
        "asked_at",
        "cost",
        "costs",
        "gates",
        "give_up_at",
        "limiter",
        "ordinal",
        "permit",
        "refusal",
        "runs_on",
        "settled",
        "thread",
        "waits_when_open",
        "wake_at",
    )

    may_hang = False
    """Whether it may fail to run although it was notified."""

    def __init__(self, limiter: Serving, cost: Cost, when_open: str = "refuse") -> None:
        self.limiter = limiter
        self.cost = cost
        self.waits_when_open = when_open == "wait"
        """Whether it stays in line while the circuit lets nothing through."""
        self.costs = NOTHING
        self.ordinal = 0
        """Its place among all waiters, from the moment it joins a line."""
        self.gates: list[KeyGate] = []
        """In whose lines it stands."""
        self.asked_at = 0.0
        self.give_up_at = self.wake_at = UNKNOWN
        self.armed = False
        """Whether ``wake_at`` is when it will really tick, and not only when it would give up."""
        self.thread = threading.get_ident()
        self.runs_on: object = self.thread
        """Its thread or its event loop: what must be alive for it to take its turn."""
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

    def takes(self, decision: Wait | Refuse) -> Wait | Refuse:
        """What a decision means for this one: it may wait for what others are refused by."""
        if self.waits_when_open and isinstance(decision, Refuse):
            return decision.waited_for() or decision
        return decision

    def wake(self) -> None:
        raise NotImplementedError

    def arm(self, wake_at: float) -> None:
        """Run at that instant, and call ``limiter.tick(self)``, instead of at any set before."""
        wake_at = min(wake_at, self.give_up_at)
        if self.armed and abs(wake_at - self.wake_at) <= INSTANT:
            return
        self.armed, self.wake_at = True, wake_at
        self.set_timer()

    def set_timer(self) -> None:
        """Follow the new ``wake_at``."""
        raise NotImplementedError

    def watch_time(self) -> None:
        """Make sure that it gives up in time, also while others are ahead of it."""

    def is_up(self) -> None:
        """The waiter runs again, for whatever reason; what it was armed for is over."""
        self.armed = False

    def is_dead(self) -> bool:
        """Whether it can never run again."""
        return False


class ThreadWaiter(Waiter):
    """A thread, asleep on a lock of its own."""

    __slots__ = ("bell", "rung")

    def __init__(self, limiter: Serving, cost: Cost, when_open: str = "refuse") -> None:
        super().__init__(limiter, cost, when_open)
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
    may_hang = True

    def __init__(self, limiter: Serving, cost: Cost, when_open: str = "refuse") -> None:
        import asyncio  # here, because a program without an event loop should not load one

        super().__init__(limiter, cost, when_open)
        self.loop = self.runs_on = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.timer: _Timer | None = None

    def wake(self) -> None:
        self._on_loop(self._wake)

    def set_timer(self) -> None:
        self._on_loop(self._set_timer)

    def is_up(self) -> None:
        self.disarm()
        self.armed = False
        self.future = self.loop.create_future()

    def watch_time(self) -> None:
        if self.give_up_at != UNKNOWN and not self.armed:
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
            self.timer = self.loop.call_later(wait, self._wake)
        else:
            self.timer = self.loop.create_task(self._sleep_then_wake(wait))

    async def _sleep_then_wake(self, seconds: float) -> None:
        await self.limiter.clock.sleep_async(seconds)
        self._wake()


class _Timer(Protocol):
    def cancel(self) -> object: ...


class Demand:
    """What several waiters will take together."""

    __slots__ = ("costs", "count", "requests")

    def __init__(self) -> None:
        self.count = 0
        self.requests = 0.0
        """Calls' worth of pace ..."""
        self.costs: dict[str, float] = {}
        """... and what they take of each known limit."""

    def add(self, waiter: Waiter) -> None:
        self._count(waiter, 1)

    def remove(self, waiter: Waiter) -> None:
        self._count(waiter, -1)

    def _count(self, waiter: Waiter, sign: int) -> None:
        self.count += sign
        for dimension, amount in waiter.costs.items():
            self.costs[dimension] = self.costs.get(dimension, 0.0) + sign * amount
        self.requests += sign * waiter.costs["requests"]


class Line:
    """The waiters of one key, and what they will take together."""

    __slots__ = (
        "deputy",
        "forecast",
        "forecast_head",
        "homes",
        "impatient",
        "in_charge",
        "notified",
        "notified_demand",
        "opens_at",
        "rate",
        "refusable",
        "runs_by",
        "total",
        "unrun",
        "waiters",
    )

    def __init__(self) -> None:
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        """Those who wait for their turn, in order."""
        self.notified: OrderedDict[Waiter, float] = OrderedDict()
        """Those whose turn has come and who have yet to run, in order, and since when."""
        self.unrun: dict[object, OrderedDict[Waiter, float]] = {}
        """The same for each event loop, which may hang, in the order they were notified."""
        self.total, self.notified_demand = Demand(), Demand()
        self.homes: dict[object, int] = {}
        """Threads and event loops, and how many waiters run on each."""
        self.in_charge: Waiter | None = None
        """Looks after the line when it runs ..."""
        self.runs_by = UNKNOWN
        """... which should be by then ..."""
        self.deputy: Waiter | None = None
        """... and if its event loop hangs, this one does."""
        self.impatient = 0
        """How many have a time by which they give up; their forecasts are looked after."""
        self.refusable = 0
        """How many leave at once when the circuit opens."""
        self.rate, self.opens_at = 0.0, UNKNOWN
        self.forecast_head: Waiter | None = None
        self.forecast = Wait(0.0, "")
        """What the forecasts were based on: the pace, and what the head was told."""

    def __len__(self) -> int:
        return len(self.waiters) + len(self.notified)

    @property
    def requests(self) -> float:
        """Calls' worth of pace that all waiters will take."""
        return self.total.requests

    @property
    def costs(self) -> Mapping[str, float]:
        """What all waiters will take of each known limit."""
        return self.total.costs

    def join(self, waiter: Waiter) -> None:
        if not waiter.ordinal:
            waiter.costs, waiter.ordinal = costs_of(waiter.cost), next(_ordinals)
        self.waiters[waiter] = None
        self.total.add(waiter)
        self.homes[waiter.runs_on] = self.homes.get(waiter.runs_on, 0) + 1
        self.impatient += waiter.give_up_at != UNKNOWN
        self.refusable += not waiter.waits_when_open

    def leave(self, waiter: Waiter) -> None:
        """Its wait has ended."""
        if not self._unnotify(waiter):
            if waiter not in self.waiters:  # interrupted while it joined
                return
            del self.waiters[waiter]
        self.total.remove(waiter)
        self.impatient -= waiter.give_up_at != UNKNOWN
        self.refusable -= not waiter.waits_when_open
        left = self.homes.get(waiter.runs_on, 0) - 1
        if left > 0:
            self.homes[waiter.runs_on] = left
        else:
            self.homes.pop(waiter.runs_on, None)

    def waiting(self) -> list[Waiter]:
        """All waiters, in order."""
        return sorted((*self.notified, *self.waiters), key=_ordinal)

    def head(self) -> Waiter | None:
        """The first in order."""
        return min((one for one in (_first(self.notified), _first(self.waiters)) if one), key=_ordinal, default=None)

    def next(self, now: float) -> Waiter | None:
        """The first who was not notified yet. Waiters of an event loop that hangs are passed over."""
        hung = self.hung(now)
        if not hung:
            return _first(self.waiters)
        return next((one for one in self.waiters if one.runs_on not in hung), None)

    def notify(self, waiter: Waiter, now: float) -> None:
        """Its turn has come. It is told by ``wake``, and takes its token when it runs."""
        del self.waiters[waiter]
        _insert(self.notified, waiter, now)
        self.notified_demand.add(waiter)
        if waiter.may_hang:
            self.unrun.setdefault(waiter.runs_on, OrderedDict())[waiter] = now

    def put_back(self, waiter: Waiter) -> None:
        """It runs: until its token is taken it stands in its old place again."""
        if self._unnotify(waiter):
            _insert(self.waiters, waiter, None)

    def _unnotify(self, waiter: Waiter) -> bool:
        if self.notified.pop(waiter, None) is None:
            return False
        unrun = self.unrun.get(waiter.runs_on)
        if unrun is not None and unrun.pop(waiter, None) is not None and not unrun:
            del self.unrun[waiter.runs_on]
        if self.notified:
            self.notified_demand.remove(waiter)
        else:  # starts over, so that no rounding adds up
            self.notified_demand = Demand()
        return True

    def dead(self) -> Waiter | None:
        """The first who was notified, if it will never run."""
        first = _first(self.notified)
        return first if first is not None and first.is_dead() else None

    def ahead_of(self, waiter: Waiter, now: float) -> Demand:
        """What those will take who come before it and have yet to run, unless they hang."""
        demand, hung = self.notified_demand, self.hung(now)
        if not demand.count or (not hung and next(reversed(self.notified)).ordinal < waiter.ordinal):
            return demand
        demand = Demand()
        for one in self.notified:
            if one.ordinal > waiter.ordinal:
                break
            if one.runs_on not in hung:
                demand.add(one)
        return demand

    def hung(self, now: float) -> Collection[object]:
        """The event loops that hang, where others could go on."""
        if len(self.homes) < 2 or not self.unrun:
            return ()
        hung = {loop for loop, unrun in self.unrun.items() if next(iter(unrun.values())) + HUNG_AFTER <= now}
        return hung if len(hung) < len(self.homes) else ()

    def take_forecast(self, head: Waiter, wait: Wait, rate: float, opens_at: float) -> bool:
        """Take what forecasts are based on now; True if those made before may no longer hold.

        While notified waiters have yet to run, what the head is told moves on with the time: that is judged after them.
        """
        is_same = head is self.forecast_head
        later = is_same and not self.notified and wait.until > self.forecast.until + LATE
        worse = later or rate < TOLERANCE * self.rate or opens_at > self.opens_at
        if worse or rate > self.rate or opens_at < self.opens_at:
            self.rate, self.opens_at = rate, opens_at
        if not (is_same and self.notified):
            self.forecast_head, self.forecast = head, wait
        return (worse and self.impatient > 0) or (wait.is_circuit and self.refusable > 0)

    def is_arranged(self, rate: float, now: float) -> bool:
        """Whether a waiter in charge will run in time, and the last to join changes nothing for those ahead of it."""
        in_charge = self.in_charge
        return (
            in_charge is not None
            and not in_charge.settled
            and now < self.runs_by
            and rate <= self.rate  # a pace that has grown is a promise to the one who joined
            and (len(self.homes) < 2 or self.deputy is not None)
            and len(in_charge.gates) == 1
            and not in_charge.is_dead()
        )

    def arm(self, head: Waiter | None, until: float, now: float) -> None:
        """Put a waiter in charge of the line: the last who was notified, when it runs; else the head, on time.

        If the event loop of that one hangs, the first waiter that runs elsewhere looks after the line.
        """
        hung = self.hung(now)
        in_charge = next((one for one in reversed(self.notified) if one.runs_on not in hung), None)
        if in_charge is not None:
            self.in_charge, self.runs_by = in_charge, self.notified[in_charge] + HUNG_AFTER
        elif head is not None:
            self.in_charge, self.runs_by = head, until
            head.arm(until)
        if self.in_charge is None or not self.in_charge.may_hang or len(self.homes) < 2:
            self.deputy = None
            return
        idle = {*hung, self.in_charge.runs_on}
        deputy = self.deputy
        if deputy is None or deputy not in self.waiters or deputy.runs_on in idle or deputy.is_dead():
            others = (one for one in self.waiters if one.runs_on not in idle and not one.is_dead())
            deputy = self.deputy = next(others, None)
        if deputy is not None and not (deputy.armed and deputy.wake_at <= self.runs_by + LATE):
            deputy.arm(self.runs_by + LATE)


def _ordinal(waiter: Waiter) -> int:
    return waiter.ordinal


def _first(waiters: OrderedDict[Waiter, Any]) -> Waiter | None:
    return next(iter(waiters), None)


def _insert(waiters: OrderedDict[Waiter, T], waiter: Waiter, value: T) -> None:
    """Give a waiter its place among others: mostly the first, or the last."""
    is_last = not waiters or next(reversed(waiters)).ordinal < waiter.ordinal
    waiters[waiter] = value
    if not is_last:
        ahead = list(takewhile(lambda one: one.ordinal < waiter.ordinal, waiters))
        for one in (waiter, *reversed(ahead)):
            waiters.move_to_end(one, last=False)
