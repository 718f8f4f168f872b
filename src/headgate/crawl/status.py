"""The state of the hosts of a crawl at one moment, and why they wait, for displays and operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ..core.decision import Explanation
from ..engine.lane import Lane, LaneWait
from ..formatting import format_seconds
from ..reason_text import lane_text
from .fetch.gated_fetcher import GatedFetcher
from .fetch.memory_budget import MemoryBudget
from .pipeline import PageLimit
from .scheduler import Host, Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """One host at one moment."""

    host: str
    rate: float | None
    """Calls a second, as learned so far."""
    in_flight: int
    waiting: int
    """Its URLs in memory."""
    opens_in: float | None
    """Seconds for which nothing starts here, where that is known."""
    reason: str
    """Why nothing leaves at this moment; empty if something does."""
    waits_for: str = ""
    """... in a word: shut, paused, pace, crawl_delay, answers, workers, robots or retry_budget."""
    explanation: Explanation | None = None
    """Of a wait for the limiter: what ``reason`` is made of, as data."""


class CrawlStatus:
    """Reads the lanes of one crawl; may be called from another thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        fetcher: GatedFetcher,
        limit: PageLimit,
        memory: MemoryBudget,
        now: Callable[[], float],
    ) -> None:
        self._scheduler, self._fetcher, self._limit, self._memory, self._now = scheduler, fetcher, limit, memory, now

    def hosts(self, most: int) -> list[HostStatus]:
        """The busiest hosts, and some that are shut."""
        now, lanes = self._now(), self._lanes()
        shut = [lane for lane in lanes if lane.opens_at > now and self._scheduler.is_idle(lane)][: most // 3]
        busy = [lane for lane in lanes if not self._scheduler.is_idle(lane)]
        busy.sort(key=lambda lane: -(lane.in_flight + len(lane.route.queue)))
        return [self._status(lane, now) for lane in (*busy[: most - len(shut)], *shut)]

    def waits(self) -> dict[str, int]:
        """How many hosts wait for what, in a word or two each."""
        now = self._now()
        waiting = [lane for lane in self._lanes() if lane.opens_at > now or not self._scheduler.is_idle(lane)]
        return dict(Counter(_wait(lane, now).replace("_", " ") or "under way" for lane in waiting))

    def _lanes(self) -> list[Lane[Host]]:
        return list(self._scheduler.lanes.values())

    def _status(self, lane: Lane[Host], now: float) -> HostStatus:
        gates, wait = self._fetcher.key_statuses(lane.route.name), _wait(lane, now)
        explained = next((gate.explanation for gate in gates if gate.reason), None)
        return HostStatus(
            host=lane.route.name,
            rate=sum(gate.rate for gate in gates) if gates else None,
            in_flight=lane.in_flight,
            waiting=len(lane.route.queue),
            opens_in=lane.opens_at - now if lane.opens_at > now else None,
            reason=self._reason(lane, now),
            waits_for=wait.value,
            explanation=explained if wait is LaneWait.PACE else None,
        )

    def _reason(self, lane: Lane[Host], now: float) -> str:
        """Why nothing starts here at this moment; empty if something does."""
        host, wait = lane.route, _wait(lane, now)
        if wait is LaneWait.SHUT:
            return f"{host.shut_reason}, {format_seconds(lane.opens_at - now)} to go"
        if wait is LaneWait.PACE:
            return next((gate.reason for gate in self._fetcher.key_statuses(host.name) if gate.reason), "")
        if wait is LaneWait.CRAWL_DELAY:
            return lane_text(wait.value, host.next_at - now)
        return lane_text(self._no_worker() if wait is LaneWait.WORKERS else wait.value, in_flight=lane.in_flight)

    def _no_worker(self) -> str:
        """Which of the things that keep calls from starting does, as a code of ``lane_text``."""
        if self._limit.is_full:
            return "pages"
        return "workers" if self._memory.is_open else "memory"


def _wait(lane: Lane[Host], now: float) -> LaneWait:
    return LaneWait.SHUT if lane.opens_at > now else lane.waits_for
