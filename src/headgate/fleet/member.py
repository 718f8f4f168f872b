"""``FleetMember``: one worker process of a fleet run; it reports to the store, and gets orders and a lease of the caps.

    member = FleetMember(open_run_state("redis://cache:6379"), "nightly", caps=Caps(max_cost=20), report=counts)
    member.start()
    BatchRunner(..., budget=member.budget)

A thread reports once a second, and at once where the lease of the caps is used up. A store that is down stops nothing:
what is leased may be spent, the last orders hold, and the next report that arrives has everything again.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from .. import fork_safety
from ..clock import Clock, SystemClock
from ..distributed.store import StoreDown, member_name
from ..engine.supervisor import StopReason
from ..limiter.key_lines import KeyLine, WaitLine
from .leased_budget import LeasedBudget
from .protocol import COUNTED, Caps, Counts, MemberReply, MemberRequest, Past
from .state_store import RunStateStore, check_run_name

log = logging.getLogger("headgate")

REPORT_EVERY = 1.0
SHORTEST_APART = 0.05
"""Seconds between two reports, at least."""
RECENTLY = 10.0
"""Seconds by whose pace the rate is told."""
MOST_KEYS, MOST_WAITS = 20, 8
LONGEST_DETAIL = 16_384
"""Characters; keys and waits that do not fit are left out."""
CLOSE_WITHIN = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the store tells its members."""

    stop: StopReason | None = None
    """Start no row any more."""
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport(Counts):
    """What a member did so far, and how it is."""

    in_flight: int = 0
    waits: tuple[WaitLine, ...] = ()
    keys: tuple[KeyLine, ...] = ()


class FleetMember:
    def __init__(
        self,
        state: RunStateStore,
        run: str,
        *,
        caps: Caps | None = None,
        report: Callable[[], MemberReport],
        job: str = "",
        on_orders: Callable[[Orders], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``report`` is called in the member's thread. ``job`` names the start of the run that this process belongs
        to: an order to stop holds for the job's later members too, and not for the next job. ``on_orders`` is called in
        the member's thread whenever the orders change.
        """
        self.run = check_run_name(run)
        self.caps = Caps() if caps is None else caps
        self.orders = Orders()
        self.name = member_name()
        self._wake = threading.Event()
        self.budget = LeasedBudget(self.caps, self.wake)
        self.is_lost = False
        """Whether the store could not be reached the last time."""
        self._state, self._report, self._job, self._on_orders = state, report, job, on_orders
        self._clock: Clock = SystemClock() if clock is None else clock
        self._exchanging = fork_safety.lock(slow=True)
        self._thread: threading.Thread | None = None
        self._number = 0
        self.members = 1
        """Members of the run that are there, this one included, as of the last report."""
        self._past = Past()
        """What the store said last of members that are gone."""
        self._detail_at = float("-inf")
        self._marks: deque[tuple[float, int]] = deque(maxlen=64)
        self._before: Counts = Counts()
        """What the parent of a forked process had done."""
        fork_safety.reset_in_child(self._start_over)

    def start(self) -> None:
        """Report from now on; a member that was closed joins again."""
        if self._thread is not None:
            return
        self._wake.clear()
        self._thread = threading.Thread(
            target=_run, args=(weakref.ref(self), self._wake), name="headgate-fleet", daemon=True
        )
        self._thread.start()
        _ends_with_program.add(self)

    def close(self) -> None:
        """Report a last time, and give back what is leased and not spent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._wake.set()
        if thread is not threading.current_thread():
            thread.join(timeout=CLOSE_WITHIN)
        if not self.is_lost:
            self.step(leaves=True)

    def wake(self) -> None:
        """Report soon."""
        self._wake.set()

    def goes_on(self, wake: threading.Event) -> bool:
        return self._thread is not None and wake is self._wake

    def step(self, *, leaves: bool = False) -> None:
        """One report, and what it brings."""
        try:
            with self._exchanging:
                reply = self._state.exchange(self.run, self._request(leaves))
        except StoreDown as down:
            self._lose(down)
            return
        if self.is_lost:
            self.is_lost = False
            log.info("%s is back", self._state.where)
        self._take(reply)
        if leaves:
            self._number, self._past, self.members = 0, Past(), 1

    def _request(self, leaves: bool) -> MemberRequest:
        now, report = self._clock.now(), self._report()
        self._number += 1
        counts = _minus(report, self._before)
        wish = self.budget.collect(now, leaves=leaves)
        detail = ""
        if now >= self._detail_at + REPORT_EVERY:
            self._detail_at, detail = now, detail_text(report)
        return MemberRequest(
            member=self.name,
            number=self._number,
            job=self._job,
            caps=self.caps.as_amount(),
            counts=counts,
            spent=wish.spent,
            held=wish.held,
            need=wish.need,
            want=wish.want,
            in_flight=report.in_flight,
            rate=self._rate(now, counts.done + counts.failed),
            detail=detail,
            past=self._past,
            stopped=self.orders.stop is not None,
            paused=self.orders.paused,
            leaves=leaves,
        )

    def _take(self, reply: MemberReply) -> None:
        self.budget.on_reply(reply)
        self._past, self.members = reply.past, reply.members
        if reply.is_new:
            self._detail_at = float("-inf")
        orders = Orders(stop=StopReason.STOPPED if reply.stopped else None, paused=reply.paused)
        if orders != self.orders:
            self.orders = orders
            if self._on_orders is not None:
                self._on_orders(orders)

    def _lose(self, down: StoreDown) -> None:
        if not self.is_lost:
            self.is_lost = True
            rest = "rows wait once the lease of max_cost and max_tokens is spent" if self.caps else "rows continue"
            log.warning("%s; run %s is not reported until it is back, and %s", down, self.run, rest)

    def _rate(self, now: float, finished: int) -> float:
        marks = self._marks
        if not marks or now >= marks[-1][0] + REPORT_EVERY / 2:
            marks.append((now, finished))
        while len(marks) > 2 and marks[0][0] < now - RECENTLY:
            marks.popleft()
        since, before = marks[0]
        return max(0, finished - before) / (now - since) if now > since else 0.0

    def _start_over(self) -> None:
        """In a forked child: a member of its own, which holds nothing and has done nothing. It is not started."""
        self._before = self._report()
        self.name, self._number, self._thread = member_name(), 0, None
        self._past, self.members = Past(), 1
        self._wake = threading.Event()
        self._marks.clear()
        self.budget.start_over()


def _minus(counts: Counts, before: Counts) -> Counts:
    return Counts(**{name: max(0, getattr(counts, name) - getattr(before, name)) for name in COUNTED})


def detail_text(report: MemberReport) -> str:
    """What people see of a member, as JSON of bounded length."""
    keys = sorted(report.keys, key=lambda one: -(one.sent + one.waiting))[:MOST_KEYS]
    waits = sorted(report.waits, key=lambda one: -one.behind)[:MOST_WAITS]
    about = {"pid": os.getpid()}
    while True:
        told: dict[str, Any] = {**about, "keys": [*map(_plain, keys)], "waits": [*map(_plain, waits)]}
        text = json.dumps(told, separators=(",", ":"))
        if len(text) <= LONGEST_DETAIL or not (keys or waits):
            return text
        keys, waits = keys[: len(keys) // 2], waits[: len(waits) // 2]


def with_rows_behind(waits: Iterable[WaitLine], rows: int) -> tuple[WaitLine, ...]:
    """The causes why callers wait, with all ``rows`` behind them that wait in this process."""
    found = list(waits)
    callers = max(1, sum(one.behind for one in found))
    return tuple(replace(one, behind=max(one.behind, rows * one.behind // callers)) for one in found)


def _plain(line: KeyLine | WaitLine) -> dict[str, Any]:
    """Without what is as usual: a reader fills it in."""
    told = {one.name: getattr(line, one.name) for one in fields(line)}
    usual = {one.name: one.default for one in fields(line)}
    return {name: value for name, value in told.items() if value != usual[name]}


def _run(member: weakref.ref[FleetMember], wake: threading.Event) -> None:
    while True:
        mine = member()
        if mine is None or not mine.goes_on(wake):
            return
        wake.clear()
        began = time.monotonic()
        try:
            mine.step()
        except Exception:  # whatever it was: orders would not arrive any more
            log.exception("a report of run %s failed", mine.run)
        goes_on = mine.goes_on(wake)
        del mine
        if goes_on:
            time.sleep(max(0.0, began + SHORTEST_APART - time.monotonic()))
            wake.wait(max(0.0, began + REPORT_EVERY - time.monotonic()))


_ends_with_program: weakref.WeakSet[FleetMember] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for member in list(_ends_with_program):
        member.close()
