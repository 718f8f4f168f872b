"""The hosts of a crawl, and which URLs are next: taken from the frontier in small lots, and queued for their host.

The frontier is asked while there is room in memory, when there is news, and when something that was deferred is due.
The crawl is over when the frontier has nothing more to give and nothing is held that could lead to more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

from ..clock import Clock
from ..core.decision import NEVER, UNKNOWN
from ..core.retry import RetryBudget
from ..engine.lane import Lane, LaneWait, Notifier
from ..engine.supervisor import Supervisor
from .fetch.gated_fetcher import FetchFailed
from .frontier import Reason, Visit
from .frontier.frontier import Frontier
from .report import CrawlReport
from .robots import Rules
from .url import origin_of

FORBIDDEN = FetchFailed(Reason("robots", "robots.txt forbids it"), sent=False)

Rejected = list[tuple[Visit, FetchFailed]]
"""Visits that may not start, and why."""


class Host:
    """One host: its URLs in memory, its rules, and when it may be asked next. Its lane does the waiting."""

    def __init__(self, name: str, retry_budget: float) -> None:
        self.name = name
        self.queue: deque[Visit] = deque()
        """In the order to be visited."""
        self.budget = RetryBudget(retry_budget)
        self.next_at = NEVER
        """Before this instant the crawl-delay holds."""
        self.shut_reason = Reason("")
        """Why nothing starts here, while its lane is shut."""
        self._rules: dict[str, tuple[Rules, float]] = {}
        """By origin, and until when: http and https of one host have a robots.txt each."""
        self._unreachable: dict[str, FetchFailed] = {}
        """Why nothing of an origin can be visited at all."""

    # ------------------------------------------------------------------ which URLs may be visited

    def add(self, visit: Visit) -> FetchFailed | None:
        """Queue a visit, or say why it may not be made."""
        origin = origin_of(visit.url)
        if origin in self._unreachable:
            return self._unreachable[origin]
        rules, _ = self._rules.get(origin, (None, NEVER))
        if rules is not None and not rules.allows(visit.url):
            return FORBIDDEN
        self.queue.append(visit)
        return None

    def set_rules(self, origin: str, rules: Rules, until: float) -> Rejected:
        """From now on these rules hold; returns what they forbid of what is queued."""
        self._rules[origin] = rules, until
        return self._recheck()

    def mark_unreachable(self, origin: str, why: FetchFailed) -> Rejected:
        """Nothing of this origin can be visited; returns what is queued of it."""
        self._unreachable[origin] = why
        return self._recheck()

    def _recheck(self) -> Rejected:
        queued, self.queue = self.queue, deque()
        return [(visit, why) for visit in queued if (why := self.add(visit)) is not None]

    def knows_rules_of(self, url: str, now: float) -> bool:
        _, until = self._rules.get(origin_of(url), (None, NEVER))
        return now < until

    # ------------------------------------------------------------------ which is next, and when

    def first(self, now: float) -> Visit | None:
        """The visit whose turn it is; None if there are only retries that their budget does not allow."""
        return next((visit for visit in self.queue if not visit.attempts or self.budget.allows(now)), None)

    def take(self, origin: str, now: float) -> Visit | None:
        """The next of this origin, for which there is a permit."""
        for visit in self.queue:
            if origin_of(visit.url) != origin or not self.knows_rules_of(visit.url, now):
                continue
            if not visit.attempts:
                self.budget.called(now)
            elif not self.budget.take(now):
                continue
            self.queue.remove(visit)
            return visit
        return None

    def take_all(self) -> list[Visit]:
        visits = list(self.queue)
        self.queue.clear()
        return visits

    def start_delay(self, now: float, min_delay: float) -> None:
        """The host was asked just now: its crawl-delay begins, or ``min_delay`` where that is longer."""
        delay = max([min_delay, *(rules.delay or 0.0 for rules, _ in self._rules.values())])
        if delay > 0.0:
            self.next_at = now + delay


# ---------------------------------------------------------------------- hosts in turn

MOST_HELD = 10_000
"""URLs in memory: queued, under way or not yet recorded."""
TAKE_EVERY = 0.01
"""Seconds between two looks into the frontier while there is news."""
IDLE_LANES = 1_000
"""Hosts without URLs that stay in memory, with their rules."""


class Backlog:
    """How many URLs are in memory, and how many are open in all; its news wake the scheduler."""

    def __init__(self, report: CrawlReport, clock: Clock) -> None:
        self._report = report
        self.held = 0
        self.news = Notifier(clock)
        """Notified when there may be something to take, or the crawl may be over."""

    def opened(self, count: int) -> None:
        """So many more URLs are open."""
        self._report.open += count

    def release(self, visits: int, opened: int) -> None:
        """So many URLs are recorded, or back in the frontier; so many more are open by that."""
        self.held -= visits
        self._report.open += opened
        self.news.notify()


class Scheduler:
    def __init__(
        self,
        frontier: Frontier,
        backlog: Backlog,
        supervisor: Supervisor,
        clock: Clock,
        *,
        make_lane: Callable[[str], Lane[Host]],
        reject: Callable[[Visit, FetchFailed], None],
        is_enough: Callable[[], bool],
        is_too_long: Callable[[float], bool],
    ) -> None:
        """``make_lane`` makes the lane to a host; ``reject`` records a visit that may not be made. The crawl ends when
        it ``is_enough``, or when nothing is under way and the next URL is due after a wait that ``is_too_long``."""
        self._frontier, self._backlog, self._supervisor, self._clock = frontier, backlog, supervisor, clock
        self._make_lane, self._reject, self._is_enough, self._is_too_long = make_lane, reject, is_enough, is_too_long
        self.lanes: OrderedDict[str, Lane[Host]] = OrderedDict()
        """By host, those that were busy last at the end."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._sweep_at = IDLE_LANES

    async def run(self) -> None:
        """Until there is nothing more, or something stops the crawl."""
        frontier, backlog = self._frontier, self._backlog
        while self._supervisor.stopped is None:
            room = MOST_HELD - backlog.held
            visits = await frontier.take(room) if room > 0 else []
            for visit in visits:
                self._queue(visit)
            if self._is_enough():
                return
            wait = UNKNOWN
            if len(visits) < room:
                next_at = await frontier.next_at()
                if next_at is None and not backlog.held:
                    return
                wait = UNKNOWN if next_at is None else max(TAKE_EVERY, next_at - frontier.now())
                if not backlog.held and self._is_too_long(wait):
                    return
            await backlog.news.wait(wait)
            await self._clock.sleep_async(TAKE_EVERY)

    def wake(self) -> None:
        """Let every lane look again: an operator lets fetches start."""
        for lane in self.lanes.values():
            lane.notifier.notify()

    def stop(self) -> list[asyncio.Task[None]]:
        """Start nothing any more; returns the lanes that are still on their way to their end."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        return tasks

    def is_idle(self, lane: Lane[Host]) -> bool:
        return not lane.route.queue and not lane.in_flight and lane.route.name not in self._running

    # ------------------------------------------------------------------ lanes

    def _queue(self, visit: Visit) -> None:
        lane = self.lanes.get(visit.host)
        if lane is None:
            if len(self.lanes) >= self._sweep_at:
                self._forget_idle()
            lane = self.lanes[visit.host] = self._make_lane(visit.host)
        self._backlog.held += 1
        if (why_not := lane.route.add(visit)) is not None:
            self._reject(visit, why_not)
        elif visit.host in self._running:
            lane.notifier.notify()
        else:
            self._running[visit.host] = asyncio.create_task(self._run_lane(lane))

    async def _run_lane(self, lane: Lane[Host]) -> None:
        host, supervisor = lane.route, self._supervisor
        try:
            await supervisor.guarded(lane.run, lambda: not host.queue or supervisor.stopped is not None)
        finally:
            lane.wait_for(LaneWait.NOTHING)
            del self._running[host.name]
        self.lanes.move_to_end(host.name)

    def _forget_idle(self) -> None:
        """The hosts that have been idle for longest make room for others."""
        idle = [name for name, lane in self.lanes.items() if self.is_idle(lane)]
        for name in idle[: max(1, len(idle) - IDLE_LANES // 2)]:
            del self.lanes[name]
        self._sweep_at = max(IDLE_LANES, 2 * len(self.lanes))
