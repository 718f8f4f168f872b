"""The queue of one key: first come, first served.

    waiting ──its turn has come──> notified ──it runs──> takes its token itself, or waits on in its old place
                                      │ its event loop stalls
                                      └──> keeps its place; calls that wait elsewhere pass it

A token is taken when the waiter of the call runs, never before: between being chosen and running a task may spend
seconds in the queue of a busy event loop, and many tokens taken beforehand would all be used at once. The head has a
timer, in its own thread or on its own event loop, so a limiter needs no thread and is bound to no loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, TypeVar

from ..core.decision import UNKNOWN, Refuse, Wait, WaitReason
from ..core.policy import NOTHING, costs_of
from ..waiters import Waiter
from .permit import Cost

if TYPE_CHECKING:
    from .key_entry import KeyEntry
    from .permit import Permit

MOST_WAITING = 100_000
"""Calls that may wait for one key."""
LATE = 0.02
"""A turn that comes so many seconds later than forecast is late."""
STALLED_AFTER = 0.05
"""An event loop that has not run a notified waiter for so many seconds stalls; calls that wait elsewhere pass it."""
TOLERANCE = 0.99
"""A pace that has fallen by less than this since forecasts were made breaks no promise."""
T = TypeVar("T")
_ordinals = count(1)


class QueuedCall:
    """One call that waits for its turn, perhaps under several keys at once."""

    __slots__ = (
        "asked_at",
        "cost",
        "costs",
        "entries",
        "ordinal",
        "permit",
        "refusal",
        "waiter",
        "waits_when_open",
        "worth",
    )

    def __init__(self, waiter: Waiter, cost: Cost, when_open: str = "refuse") -> None:
        self.waiter = waiter
        self.cost = cost
        self.costs = NOTHING
        self.worth = 1.0
        """How much of the pace it takes, as known when it joined."""
        self.waits_when_open = when_open == "wait"
        """Whether it stays in the queue while the circuit lets nothing through."""
        self.ordinal = 0
        """Its place among all calls, from the moment it joins a queue."""
        self.entries: list[KeyEntry] = []
        """The keys in whose queues it waits."""
        self.asked_at = 0.0
        self.permit: Permit | None = None
        self.refusal: Exception | None = None

    def outcome(self) -> Permit:
        """What the wait ended with."""
        if self.permit is None:
            assert self.refusal is not None
            raise self.refusal
        return self.permit

    def interpret(self, refuse: Refuse) -> Wait | Refuse:
        """What a refusal means for this call: it may wait for what refuses others."""
        return (refuse.as_wait() or refuse) if self.waits_when_open else refuse


class TotalDemand:
    """What several calls will take together."""

    __slots__ = ("costs", "count", "requests")

    def __init__(self) -> None:
        self.count = 0
        self.requests = 0.0
        """How much of the pace they take ..."""
        self.costs: dict[str, float] = {}
        """... and what they take of each known limit."""

    def add(self, call: QueuedCall, sign: int = 1) -> None:
        """One more; with ``sign=-1``, one less."""
        self.count += sign
        for dimension, amount in call.costs.items():
            self.costs[dimension] = self.costs.get(dimension, 0.0) + sign * amount
        self.requests += sign * call.worth


class WaitQueue:
    """The calls that wait for one key, and what they will take together."""

    __slots__ = (
        "deputy",
        "forecast",
        "forecast_head",
        "homes",
        "in_charge",
        "notified",
        "notified_demand",
        "opens_at",
        "rate",
        "refusable",
        "runs_by",
        "total",
        "unrun",
        "waiting",
        "with_deadline",
    )

    def __init__(self) -> None:
        self.waiting: OrderedDict[QueuedCall, None] = OrderedDict()
        """Those that wait for their turn, in order."""
        self.notified: OrderedDict[QueuedCall, float] = OrderedDict()
        """Those whose turn has come and whose waiter has yet to run, in order, and since when."""
        self.unrun: dict[object, OrderedDict[QueuedCall, float]] = {}
        """The same for each event loop, which may stall, in the order they were notified."""
        self.total = TotalDemand()
        self.notified_demand: TotalDemand | None = None
        """What those will take that were notified, if any were."""
        self.homes: dict[object, int] = {}
        """Threads and event loops, and how many waiters run on each."""
        self.in_charge: QueuedCall | None = None
        """The call whose waiter serves the queue when it runs ..."""
        self.runs_by = UNKNOWN
        """... which should be by then ..."""
        self.deputy: QueuedCall | None = None
        """... and if its event loop stalls, this one does."""
        self.with_deadline = 0
        """How many have a deadline; their forecasts are looked after."""
        self.refusable = 0
        """How many leave at once when the circuit opens."""
        self.rate, self.opens_at = 0.0, UNKNOWN
        self.forecast_head: QueuedCall | None = None
        self.forecast = Wait(WaitReason.NONE, 0.0)
        """What the forecasts were based on: the pace, and what the head was told."""

    def __len__(self) -> int:
        return len(self.waiting) + len(self.notified)

    @property
    def requests(self) -> float:
        """How much of the pace all of them will take."""
        return self.total.requests

    @property
    def costs(self) -> Mapping[str, float]:
        """What all of them will take of each known limit."""
        return self.total.costs

    # ------------------------------------------------------------------ waiters

    def join(self, call: QueuedCall, worth: float | None = None) -> None:
        """Without a ``worth``, it takes as much of the pace as it makes requests."""
        if not call.ordinal:
            call.costs, call.ordinal = costs_of(call.cost), next(_ordinals)
            call.worth = call.costs["requests"] if worth is None else worth
        self.waiting[call] = None
        self.total.add(call)
        home = call.waiter.home
        self.homes[home] = self.homes.get(home, 0) + 1
        self.with_deadline += call.waiter.give_up_at != UNKNOWN
        self.refusable += not call.waits_when_open

    def leave(self, call: QueuedCall) -> None:
        """Its wait has ended."""
        if call in self.waiting:
            del self.waiting[call]
        elif not self._unnotify(call):  # interrupted while it joined
            return
        self.total.add(call, -1)
        self.with_deadline -= call.waiter.give_up_at != UNKNOWN
        self.refusable -= not call.waits_when_open
        home = call.waiter.home
        others = self.homes.get(home, 0) - 1
        if others > 0:
            self.homes[home] = others
        else:
            self.homes.pop(home, None)

    def in_order(self) -> list[QueuedCall]:
        """All calls, in order."""
        return sorted((*self.notified, *self.waiting), key=_ordinal)

    def waiting_costs(self) -> list[Cost]:
        """What each call takes, in order."""
        return [call.cost for call in self.in_order()]

    def head(self) -> QueuedCall | None:
        """The first in order."""
        return min((*islice(self.notified, 1), *islice(self.waiting, 1)), key=_ordinal, default=None)

    def next(self, now: float) -> QueuedCall | None:
        """The first that was not notified yet. Those of an event loop that stalls are passed over."""
        stalled = self.stalled(now) if self.unrun else ()
        if not stalled:
            return next(iter(self.waiting), None)
        return next((one for one in self.waiting if one.waiter.home not in stalled), None)

    def notify(self, call: QueuedCall, now: float) -> None:
        """Its turn has come. Its waiter is woken, and takes the token when it runs."""
        del self.waiting[call]
        _insert(self.notified, call, now)
        if self.notified_demand is None:
            self.notified_demand = TotalDemand()
        self.notified_demand.add(call)
        if call.waiter.may_stall:
            self.unrun.setdefault(call.waiter.home, OrderedDict())[call] = now

    def put_back(self, call: QueuedCall) -> None:
        """Its waiter runs: until its token is taken it is in its old place again."""
        if self._unnotify(call):
            _insert(self.waiting, call, None)

    def _unnotify(self, call: QueuedCall) -> bool:
        if self.notified.pop(call, None) is None:
            return False
        home = call.waiter.home
        unrun = self.unrun.get(home)
        if unrun is not None and unrun.pop(call, None) is not None and not unrun:
            del self.unrun[home]
        if self.notified and self.notified_demand is not None:
            self.notified_demand.add(call, -1)
        else:  # starts over, so that no rounding adds up
            self.notified_demand = None
        return True

    def dead(self) -> QueuedCall | None:
        """The first that was notified, if its waiter will never run."""
        first = next(iter(self.notified), None)
        return first if first is not None and first.waiter.is_dead() else None

    def ahead_of(self, call: QueuedCall, now: float) -> TotalDemand | None:
        """What those will take that come before it and have yet to run, unless they stall."""
        demand = self.notified_demand
        if demand is None:
            return None
        stalled = self.stalled(now)
        if not stalled and next(reversed(self.notified)).ordinal < call.ordinal:
            return demand
        demand = TotalDemand()
        for one in self.notified:
            if one.ordinal > call.ordinal:
                break
            if one.waiter.home not in stalled:
                demand.add(one)
        return demand

    def stalled(self, now: float) -> Collection[object]:
        """The event loops that stall, where waiters elsewhere could go on."""
        if len(self.homes) < 2 or not self.unrun:
            return ()
        stalled = {loop for loop, unrun in self.unrun.items() if next(iter(unrun.values())) + STALLED_AFTER <= now}
        return stalled if len(stalled) < len(self.homes) else ()

    # ------------------------------------------------------------------ when it is served next

    def begin(self, call: QueuedCall, wait: Wait, rate: float, opens_at: float) -> None:
        """The first call has joined, and waits for this: its waiter serves the queue, on time."""
        self.forecast_head, self.forecast = call, wait
        self.rate, self.opens_at = rate, opens_at
        self.in_charge, self.runs_by = call, wait.until
        call.waiter.arm(wait.until)

    def update_forecast(self, head: QueuedCall, wait: Wait, rate: float, opens_at: float) -> bool:
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
        return (worse and self.with_deadline > 0) or (wait.is_circuit and self.refusable > 0)

    def is_scheduled(self, rate: float, now: float) -> bool:
        """Whether the waiter in charge will run in time, and the last to join changes nothing for those ahead of it."""
        in_charge = self.in_charge
        return (
            in_charge is not None
            and not in_charge.waiter.settled
            and now < self.runs_by
            and rate <= self.rate  # a pace that has grown is a promise to the call that joined
            and (len(self.homes) < 2 or self.deputy is not None)
            and len(in_charge.entries) == 1
            and not in_charge.waiter.is_dead()
        )

    def schedule(self, head: QueuedCall | None, until: float, now: float) -> None:
        """Put a waiter in charge of the queue: the last that was notified, when it runs; else the head, on time.

        If the event loop of that one stalls, the first waiter that runs elsewhere serves the queue.
        """
        stalled = self.stalled(now) if self.unrun else ()
        in_charge = None
        if self.notified:
            in_charge = next((one for one in reversed(self.notified) if one.waiter.home not in stalled), None)
        if in_charge is not None:
            self.in_charge, self.runs_by = in_charge, self.notified[in_charge] + STALLED_AFTER
        elif head is not None:
            self.in_charge, self.runs_by = head, until
            head.waiter.arm(until)
        if self.in_charge is None or not self.in_charge.waiter.may_stall or len(self.homes) < 2:
            self.deputy = None
            return
        idle = {*stalled, self.in_charge.waiter.home}
        deputy = self.deputy
        if deputy is None or deputy not in self.waiting or deputy.waiter.home in idle or deputy.waiter.is_dead():
            others = (one for one in self.waiting if one.waiter.home not in idle and not one.waiter.is_dead())
            deputy = self.deputy = next(others, None)
        if deputy is not None and not (deputy.waiter.armed and deputy.waiter.wake_at <= self.runs_by + LATE):
            deputy.waiter.arm(self.runs_by + LATE)


def _ordinal(call: QueuedCall) -> int:
    return call.ordinal


def _insert(calls: OrderedDict[QueuedCall, T], call: QueuedCall, value: T) -> None:
    """Give a call its place among others: mostly the first, or the last."""
    is_last = not calls or next(reversed(calls)).ordinal < call.ordinal
    calls[call] = value
    if not is_last:
        ahead = list(takewhile(lambda one: one.ordinal < call.ordinal, calls))
        for one in (call, *reversed(ahead)):
            calls.move_to_end(one, last=False)
