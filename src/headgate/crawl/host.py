"""One host of a crawl: its URLs in memory, its rules, and when it may be asked next.

Decides and remembers, and neither waits nor reads a clock: the lane that leads to the host does (``host_driver.py``).
"""

from __future__ import annotations

from collections import deque

from ..core.decision import NEVER
from ..core.retry import RetryBudget
from .fetch.gated_fetcher import FetchFailed
from .frontier.records import Reason, Visit
from .robots import Rules
from .url import origin_of

FORBIDDEN = FetchFailed(Reason("robots", "robots.txt forbids it"), sent=False)

Rejected = list[tuple[Visit, FetchFailed]]
"""Visits that may not start, and why."""


class Host:
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
