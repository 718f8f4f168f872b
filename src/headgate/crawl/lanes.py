"""A lane: the way to one host, along which its addresses leave one by one.

    an address is there? ─> the host is not shut ─> a worker is free ─> crawl-delay ─> permit ─> robots.txt read ─> go
          └─────────────────── no: sleep until something rings or the time comes ───────────────────┘

A lane gets leave first and takes an address then, so a host that has to wait holds neither a worker nor a permit.
One that must wait for long (its circuit is open, it asked for an hour's rest, its robots.txt cannot be had) is shut:
its addresses go back to the frontier with the time to come back, and it costs nothing meanwhile.

A slow host holds workers for as long as its answers take. Of those, a host may have a share of what is free alone
(``SHARE``): the fewer are left, the fewer each may have, down to one. So many slow hosts together never take
the last workers from those that are quick.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ..batch.bell import Bell
from ..core.budget import RetryBudget
from ..core.decision import NEVER, UNKNOWN
from ..core.words import span
from .address import origin_of
from .frontier import Visit
from .keys import Leave
from .robots import Rules
from .visit import GivenUp, PutOff

if TYPE_CHECKING:
    from .crawling import Crawl

FORBIDDEN = "robots: robots.txt forbids it"
SHARE = 16
"""A host may have one in so many of the workers that are free."""


class Lane:
    def __init__(self, crawl: Crawl, host: str) -> None:
        self.crawl, self.host = crawl, host
        self.stock: deque[Visit] = deque()
        """Addresses of the host in memory, in the order to be visited."""
        self.budget = RetryBudget(crawl.config.retry_budget)
        self._rules: dict[str, tuple[Rules, float]] = {}
        """By origin, and until when: http and https of one host have a robots.txt each."""
        self._hopeless: dict[str, GivenUp] = {}
        """Why nothing of an origin can be visited at all."""
        self.in_flight = 0
        self.next_at = NEVER
        """Before this instant the crawl-delay holds."""
        self.opens_at = NEVER
        """Before this instant the host is shut ..."""
        self.why_shut = ""
        """... and why."""
        self.waits_for = ""
        self.has_turn = False
        self.bell = Bell(crawl.clock)
        self.task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return not self.stock and not self.in_flight and self.task is None

    def take_in(self, visit: Visit) -> bool:
        """Whether there is one more to send along; what robots.txt forbids is refused at once."""
        origin = origin_of(visit.url)
        rules, _ = self._rules.get(origin, (None, NEVER))
        if origin in self._hopeless:
            self.crawl.fates.give_up(visit, self._hopeless[origin])
        elif rules is not None and not rules.allows(visit.url):
            self.crawl.fates.refuse(visit, FORBIDDEN)
        else:
            self.stock.append(visit)
            return True
        return False

    def follow(self, origin: str, rules: Rules, until: float) -> None:
        """From now on these rules hold, for what is waiting too."""
        self._rules[origin] = rules, until
        self._take_in_again()

    def despair(self, origin: str, fate: GivenUp) -> None:
        """Nothing of this origin can be visited."""
        self._hopeless[origin] = fate
        self._take_in_again()

    def _take_in_again(self) -> None:
        waiting, self.stock = self.stock, deque()
        for visit in waiting:
            self.take_in(visit)

    def knows_rules_of(self, url: str) -> bool:
        _, until = self._rules.get(origin_of(url), (None, NEVER))
        return self.crawl.clock.now() < until

    def keep_distance(self, now: float) -> None:
        """The host was asked just now: the crawl-delay begins."""
        told = [rules.delay or 0.0 for rules, _ in self._rules.values()]
        if (seconds := max(*told, self.crawl.config.delay, self.crawl.visiting.least_distance(self.host))) > 0.0:
            self.next_at = now + seconds

    async def go(self) -> None:
        """Send addresses along for as long as there are any."""
        crawl = self.crawl
        while self.stock and not crawl.stopping:
            now = crawl.clock.now()
            if self.opens_at > now:
                crawl.fates.put_host_off(self, self.opens_at - now)
            elif (obstacle := self._obstacle(now) or await self._send()) is not None:
                await self._wait(*obstacle)
        self.waits_for = ""

    async def _wait(self, what: str, seconds: float) -> None:
        self.waits_for = what
        if what != "workers":
            self.has_turn = False
            self.crawl.crew.pass_on()
        await self.bell.wait(seconds)

    # ------------------------------------------------------------------ may an address go?

    def _obstacle(self, now: float) -> tuple[str, float] | None:
        """What stands in the way and for how many seconds, as far as can be told without asking the limiter."""
        crew = self.crawl.crew
        if self.crawl.is_paused:
            return "paused", UNKNOWN
        if not any(self._may_go(visit, now) for visit in self.stock):
            return "retry_budget", UNKNOWN  # until one of the retries in flight has ended
        if self.in_flight >= max(1, min(self.crawl.config.per_host, crew.free // SHARE)):
            return "answers", UNKNOWN
        if not crew.is_free or (not self.has_turn and crew.is_wanted_beside(self)):
            crew.want(self)
            crew.pass_on()
            return "workers", UNKNOWN
        if self.next_at > now:
            return "crawl_delay", self.next_at - now
        return None

    async def _send(self) -> tuple[str, float] | None:
        """Get leave, then let an address go. Returns what came in between, if something did."""
        crawl = self.crawl
        now = crawl.clock.now()
        first = next((visit for visit in self.stock if self._may_go(visit, now)), None)
        if first is None:
            return None
        has_rules = self.knows_rules_of(first.url)
        if not has_rules and await crawl.manners.recall(self, origin_of(first.url)):
            return None  # what stands in the way may be another thing now
        self.waits_for = "pace"
        crawl.crew.pass_on()
        leave = await crawl.visiting.leave(first.url)
        if isinstance(leave, PutOff):
            self.shut(leave.seconds, leave.reason)
            return None
        now = crawl.clock.now()
        if not crawl.crew.is_free or crawl.is_paused:
            leave.abandon()
            return None
        self.has_turn = False
        if not has_rules:
            await self._read_rules(origin_of(first.url), leave)
            return None
        visit = self._take(now, origin_of(first.url))
        if visit is None:
            leave.abandon()
            return None
        self.waits_for = ""
        self.keep_distance(now)
        crawl.start(self, visit, leave)
        return None

    async def _read_rules(self, origin: str, leave: Leave) -> None:
        """Robots.txt comes before every page, and is a call like any other."""
        crew = self.crawl.crew
        self.waits_for = "robots"
        self.in_flight += 1
        crew.working += 1
        try:
            await self.crawl.manners.read(self, origin, leave)
        finally:
            crew.working -= 1
            self.in_flight -= 1
            crew.pass_on()
        self.keep_distance(self.crawl.clock.now())

    # ------------------------------------------------------------------ which address?

    def _may_go(self, visit: Visit, now: float) -> bool:
        return not visit.attempts or self.budget.allows(now)

    def _take(self, now: float, origin: str) -> Visit | None:
        """The next of this origin, for which there is leave."""
        for visit in self.stock:
            if origin_of(visit.url) != origin or not self.knows_rules_of(visit.url):
                continue
            if not visit.attempts:
                self.budget.called(now)
            elif not self.budget.take(now):
                continue
            self.stock.remove(visit)
            return visit
        return None

    # ------------------------------------------------------------------ when it has to wait for long

    def shut(self, seconds: float, reason: str) -> None:
        """Nothing of this host starts for so long; its addresses wait on disk."""
        self.opens_at, self.why_shut = self.crawl.clock.now() + seconds, reason
        self.crawl.tell("host_shut", self.host, reason=reason, seconds=seconds)

    # ------------------------------------------------------------------ looking

    def standing(self, now: float) -> str:
        """What it waits for, in a word or two."""
        if self.opens_at > now:
            return "shut"
        return "under way" if not self.waits_for else self.waits_for.replace("_", " ")

    def why(self, now: float) -> str:
        """Why nothing leaves here at this moment, in a few words; empty if something does."""
        if self.opens_at > now:
            return f"{self.why_shut}, {span(self.opens_at - now)} to go"
        if self.waits_for == "pace":
            return next((seen.reason for seen in self.crawl.visiting.looks(self.host) if seen.reason), "")
        if self.waits_for == "crawl_delay":
            return f"crawl-delay, {span(max(0.0, self.next_at - now))} to go"
        words = {
            "answers": f"{self.in_flight} answers awaited",
            "workers": self._why_no_worker(),
            "paused": "paused by an operator",
            "robots": "reading robots.txt",
            "retry_budget": "the retry budget is spent",
        }
        return words.get(self.waits_for, self.waits_for)

    def _why_no_worker(self) -> str:
        if self.crawl.is_full:
            return "enough pages are under way"
        return "all workers are busy" if self.crawl.room.is_open else "enough bytes are in memory"
