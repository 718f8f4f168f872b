"""The lanes of a batch: one for each gate key, or for each credential of it.

    key "api" ── queue ──┬── lane api/key-1 ──> permit of api/key-1, credential key-1
                         └── lane api/key-2 ──> permit of api/key-2, credential key-2

All lanes of a key take rows from the same queue: what one cannot send goes by another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.cooldown import Cooldown
from ..core.decision import NEVER, UNKNOWN, Explanation
from ..engine.lane import Lane, LaneDriver, LaneWait
from ..engine.scheduler import KeyQueue, Scheduler
from ..errors import CostTooLargeError
from ..limiter import AdaptiveRateLimiter
from ..limiter.permit import check_cost
from ..reason_text import lane_text, reason_text
from .config import RunContext
from .cooldowns import Cooldowns
from .item import Item

if TYPE_CHECKING:
    from ..credentials import CredentialCoordinator

IDLE_LANES = 1000
"""Lanes that may stand idle before some of them are closed."""

AFTER_AN_ANSWER = frozenset(
    (
        LaneWait.RETRY_BUDGET,
        LaneWait.CAPS,
        LaneWait.CIRCUIT,
        LaneWait.CREDENTIAL,
        LaneWait.CREDENTIAL_HELD,
        LaneWait.SPEND,
        LaneWait.MODEL,
        LaneWait.LIMITER,
    )
)
"""What lanes wait for that the end of a call may bring."""
FOR_ROWS = frozenset((LaneWait.ROWS, LaneWait.RETRY_BUDGET))
AFTER_FAILURES = (
    LaneWait.CIRCUIT,
    LaneWait.COOLDOWN,
    LaneWait.CREDENTIAL,
    LaneWait.SPEND,
    LaneWait.MODEL,
    LaneWait.RETRY_BUDGET,
)
"""What a lane waits for because a call has failed."""
FOR_THE_LIMITER = (LaneWait.PACE, LaneWait.LIMITER)
UNKNOWN_MODEL_ROWS = 3
"""Rows that fail because the server has no such model before the others of that model are not sent."""
LONGEST_SAID = 160
"""Characters of a server's words that are shown of a lane."""


@dataclass(slots=True, eq=False)
class KeyGroup:
    """One key: its queue, and the lanes that take from it."""

    key: str
    queue: KeyQueue[Item]
    has_limits: bool
    """Whether limits are known for this key, so that rows differ in what they ask for."""
    lanes: list[RowLane] = field(default_factory=list)
    failures_in_a_row: int = 0
    """Of all its lanes together: with several credentials each circuit sees only a part of an outage."""
    feeds: str = ""
    """The key of another target that takes this one's rows, while this one cannot."""
    unknown_model: int = 0
    """Rows since the last success to which the server said that it has no such model."""

    @property
    def is_stopped(self) -> bool:
        """Whether its model is taken to be gone: its other rows stay open."""
        return self.unknown_model >= UNKNOWN_MODEL_ROWS

    def is_shut(self, until: float) -> bool:
        """Whether nothing can start by any of its lanes before this instant."""
        return all(max(lane.opens_at, lane.route.cooldown.until) > until for lane in self.lanes)

    @property
    def cooled_down_at(self) -> float:
        """When the first of its lanes has no cooldown any more."""
        return min(lane.route.cooldown.until for lane in self.lanes)


@dataclass(slots=True, eq=False)
class Route:
    """Where one lane leads."""

    group: KeyGroup
    label: str | None
    """Of its credential, if it has one."""
    gate_key: str
    cooldown: Cooldown
    last_sent_at: float = NEVER
    was_refused: bool = False
    """Whether its circuit has been open since its last success."""
    last_failure: str = ""
    """What the server said to its last call that failed, redacted; empty after a success."""
    credentials: CredentialCoordinator | None = None
    """Whose label that is."""
    account: str = ""
    """What is billed, where a run has several targets."""
    refused_until: float = NEVER
    """Until when the limiter has refused a permit, as far as it said ..."""
    refused_why: Explanation | None = None
    """... and why."""
    capacity_refusals: int = 0
    """Refusals of a full tier since its last success."""


RowLane = Lane[Route]


class LaneSet:
    """Opens the lanes of a key with its first row, and closes idle ones."""

    def __init__(
        self,
        context: RunContext,
        *,
        scheduler: Scheduler[Item],
        cooldowns: Cooldowns,
        gate_keys: Callable[[str], Mapping[str | None, str]],
        credentials_of: Callable[[str], CredentialCoordinator | None] = lambda _: None,
        account_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        """``gate_keys(key)`` gives the limiter's keys by the label of their credential."""
        self._credentials_of, self._account_of = credentials_of, account_of
        self._scheduler, self._cooldowns, self._gate_keys = scheduler, cooldowns, gate_keys
        self._clock, self._limiter, self._supervisor = context.clock, context.limiter, context.supervisor
        self.groups: dict[str, KeyGroup] = {}
        self._tasks: dict[RowLane, asyncio.Task[None]] = {}
        self._close_idle_at = IDLE_LANES
        self._driver: LaneDriver[Route]

    def start(self, driver: LaneDriver[Route]) -> None:
        """Lanes that are opened from now on are run by this driver."""
        self._driver = driver

    def group(self, key: str) -> KeyGroup:
        """The lanes of a key, opened if need be."""
        group = self.groups.get(key)
        if group is None:
            if len(self._tasks) >= self._close_idle_at:
                self._close_idle()
            group = self.groups[key] = self._open(key)
        return group

    def fit(self, item: Item) -> None:
        """Settle what the limiter is asked for. Raises ``CostTooLargeError`` if a row fits no lane of its key."""
        if item.cost == 1:
            item.ask(False)
            return None
        check_cost(item.cost)
        group = self.group(item.key)
        item.ask(group.has_limits)
        if not group.has_limits:
            return None
        *others, last = group.lanes
        for lane in others:
            with contextlib.suppress(CostTooLargeError):
                return self._limiter.check(lane.route.gate_key, item.cost)
        return self._limiter.check(last.route.gate_key, item.cost)

    def all(self) -> list[RowLane]:
        return list(self._tasks)

    def notify(self, lanes: Iterable[RowLane], waiting_for: Collection[LaneWait]) -> None:
        """Let those of the lanes look again that wait for one of these."""
        for lane in lanes:
            if lane.waits_for in waiting_for:
                lane.notifier.notify()

    def notify_all(self) -> None:
        for lane in self._tasks:
            lane.notifier.notify()

    def cancel(self) -> list[asyncio.Task[None]]:
        """Send nothing along any more; the tasks that are to end."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _open(self, key: str) -> KeyGroup:
        gate_keys = self._gate_keys(key)
        has_limits = any(self._limiter.has_limits(gate_key) for gate_key in gate_keys.values())
        group = KeyGroup(key, self._scheduler.queue(key), has_limits)
        for label, gate_key in gate_keys.items():
            cooldown = self._cooldowns.join(key, gate_key)
            route = Route(
                group,
                label,
                gate_key,
                cooldown,
                credentials=self._credentials_of(key),
                account=self._account_of(key),
            )
            lane = Lane(route, self._driver, self._clock)
            group.lanes.append(lane)
            self._tasks[lane] = self._supervisor.start(lane.run(self._is_over))
        return group

    def regroup(self) -> None:
        """Credentials were found to share a limit: from now on their lanes keep one pace."""
        for key, group in self.groups.items():
            gate_keys = self._gate_keys(key)
            for lane in group.lanes:
                route, gate_key = lane.route, gate_keys[lane.route.label]
                if gate_key != route.gate_key:
                    self._cooldowns.leave(route.gate_key, route.cooldown)
                    route.gate_key, route.cooldown = gate_key, self._cooldowns.join(key, gate_key)

    def _is_over(self) -> bool:
        return self._supervisor.stopped is not None

    def _close_idle(self) -> None:
        for key, group in list(self.groups.items()):
            if len(group.queue) or any(lane.waits_for is not LaneWait.ROWS or lane.in_flight for lane in group.lanes):
                continue
            for lane in group.lanes:
                self._tasks.pop(lane).cancel()
                self._cooldowns.leave(lane.route.gate_key, lane.route.cooldown)
            del self.groups[key], self._scheduler.queues[key]
        self._close_idle_at = IDLE_LANES + 2 * len(self._tasks)


# ---------------------------------------------------------------------- status


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStanding:
    key: str
    credential: str | None
    """The label."""
    rate: float | None
    """Calls a second, as learned so far."""
    in_flight: int
    waiting: int
    """Rows of the key that wait, for whichever of its lanes."""
    opens_in: float | None
    """Seconds for which nothing can start here, where that is known."""
    reason: str
    """Why nothing leaves at this moment; empty if something does."""
    said: str = ""
    """What the last call here that failed was told, in the server's own words; empty after a success."""
    gate_key: str = ""
    """What the limiter knows it by."""
    waits_for: str = ""
    """... in a word: rows, workers, paused, cooldown, credential, circuit, ramp, retry_budget, caps, limiter, pace."""
    explanation: Explanation | None = None
    """Of a wait for the limiter: what ``reason`` is made of, as data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    in_flight: int = 0
    held: int = 0
    """Rows in memory: waiting, in flight, or with a result that was not taken yet."""
    later: int = 0
    """Rows that failed and wait for the time to be tried again ..."""
    next_in: float | None = None
    """... the first of them in so many seconds."""
    is_stopping: bool = False


def lane_standings(lanes: LaneSet, limiter: AdaptiveRateLimiter, now: float, most: int) -> list[LaneStanding]:
    """The busiest lanes first. Safe for threads."""
    busiest = [lane for group in list(lanes.groups.values()) for lane in group.lanes]
    busiest.sort(key=lambda lane: -(lane.in_flight + len(lane.route.group.queue)))
    return [_standing(lane, limiter, now) for lane in busiest[:most]]


def _standing(lane: RowLane, limiter: AdaptiveRateLimiter, now: float) -> LaneStanding:
    route, seen = lane.route, limiter.key_status(lane.route.gate_key)
    return LaneStanding(
        key=route.group.key,
        credential=route.label,
        rate=None if seen is None else seen.rate,
        in_flight=lane.in_flight,
        waiting=len(route.group.queue),
        opens_in=_opens_in(lane, now),
        reason=lane_reason(lane, limiter, now),
        said=route.last_failure[:LONGEST_SAID] if lane.waits_for in AFTER_FAILURES else "",
        gate_key=route.gate_key,
        waits_for=lane.waits_for.value,
        explanation=_limiter_reason(lane, limiter, now) if lane.waits_for in FOR_THE_LIMITER else None,
    )


def _opens_in(lane: RowLane, now: float) -> float | None:
    return lane.opens_at - now if lane.opens_at not in (NEVER, UNKNOWN) and lane.opens_at > now else None


def lane_reason(lane: RowLane, limiter: AdaptiveRateLimiter, now: float, *, for_how_long: bool = True) -> str:
    """Why nothing leaves by a lane at this moment, for people; empty if something does."""
    if lane.waits_for in FOR_THE_LIMITER:
        why = _limiter_reason(lane, limiter, now)
        return "" if why is None else reason_text(why if for_how_long else replace(why, seconds_left=None))
    return lane_text(lane.waits_for.value, lane.opens_at - now)


def _limiter_reason(lane: RowLane, limiter: AdaptiveRateLimiter, now: float) -> Explanation | None:
    """What it refused the next row for, such as a limit on tokens; else what any call would wait for."""
    route = lane.route
    if lane.waits_for is LaneWait.LIMITER and route.refused_why is not None and route.refused_until > now:
        return replace(route.refused_why, seconds_left=route.refused_until - now)
    seen = limiter.key_status(route.gate_key)
    return None if seen is None else seen.explanation
