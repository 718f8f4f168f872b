"""Rows that go to another target because theirs cannot take them.

    one row is refused (too long, no capacity, ...)      outcomes ── after ──> queue of the next target
    a whole target is away (circuit, credit, quota)      its rows wait in its queue, and lanes of the next target that
                                                         have none take a few from there ── refill

So what waits is still there when the primary is back. ``core.fallback`` decides; this is where its state comes from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from ..core.decision import CircuitState, Outcome
from ..core.fallback import CAPACITY_REFUSALS, LONG_QUOTA, MoveReason, choose, reason_of
from ..core.row_state import FailureReason
from ..errors import CostTooLargeError
from .attempt import Attempt
from .config import RunContext
from .cooldowns import Cooldowns
from .item import Item
from .lanes import FOR_ROWS, KeyGroup, LaneSet, RowLane
from .ledger import RowState
from .row_targets import RowTargets

AT_ONCE = 16
"""Rows that a lane takes from a target that is away; those left are there when it is back."""
PASSING = frozenset((MoveReason.SPEND, MoveReason.CIRCUIT_OPEN, MoveReason.QUOTA_UNTIL))
"""Reasons that hold for a while, for a whole target. All others keep the row away from it for good."""


class RowMover:
    def __init__(
        self,
        targets: RowTargets,
        context: RunContext,
        *,
        lanes: LaneSet,
        cooldowns: Cooldowns,
        requeue: Callable[[Item, float], None],
    ) -> None:
        """``requeue(item, now)`` lets a row wait for its lanes."""
        self._targets, self._lanes, self._cooldowns, self._requeue = targets, lanes, cooldowns, requeue
        self._clock, self._limiter = context.clock, context.limiter
        self._fed_by: dict[str, set[str]] = {}
        """By the key that takes rows: the keys that are away."""
        self.moves_for_quota = any(MoveReason.QUOTA_UNTIL in one for one in targets.accepts)
        """Whether a wait for a quota need not be waited for."""

    # ------------------------------------------------------------------ one row

    def take_up(self, item: Item, path: str) -> None:
        """A row was claimed that an earlier run has moved; ``path`` is what the ledger kept of that."""
        try:
            known = json.loads(path) if path else {}
            refused = {label: MoveReason(why) for label, why in known.items()}
        except (ValueError, AttributeError):
            return
        item.refused = {n: refused[label] for n, label in enumerate(self._targets.labels) if label in refused}
        item.path = path if item.refused else ""
        if item.refused:
            self._place(item, self._clock.now())

    def after(self, attempt: Attempt, state: RowState) -> FailureReason | None:
        """Move the row of an attempt that has ended, if it may: why it moves, for people. None: it stays."""
        item, now = attempt.item, self._clock.now()
        why = attempt.refusal if state is RowState.DONE else None
        if state is not RowState.DONE:
            group, signal = attempt.lane.route.group, attempt.verdict.signal
            away = self._away(group, now)
            is_open = away is MoveReason.CIRCUIT_OPEN
            is_last = state is RowState.DEAD and not attempt.ran_out_of_time
            refusals = max(item.capacity_refusals, attempt.lane.route.capacity_refusals)
            why = reason_of(signal, is_last=is_last, is_open=is_open, refusals=refusals)
            if why is MoveReason.CAPACITY:
                self._feed(group)
            if why in PASSING and away is None:
                return None  # another of its credentials can take it
        if why is None or not self.move(item, why):
            return None
        return FailureReason(why.value, f"moved to {self._targets.labels[item.target]}")

    def move(self, item: Item, why: MoveReason) -> bool:
        """Its target does not take this row: whether it goes to another one, as it does then."""
        passing: dict[int, MoveReason] = {}
        before = dict(item.refused)
        if why in PASSING:
            passing[item.target] = why
        else:
            item.refused[item.target] = why
        if self._place(item, self._clock.now(), passing):
            item.path = json.dumps({self._targets.labels[n]: reason.value for n, reason in item.refused.items()})
            return True
        item.refused = before
        return False

    def _place(self, item: Item, now: float, passing: Mapping[int, MoveReason] | None = None) -> bool:
        """Give a row to the target whose turn it is; False if that is the one it has, or there is none."""
        was = item.target, item.why, item.key, item.cost, item.asks, item.size
        while True:
            keys = self._targets.keys(item.value)
            away = {**self._all_away(keys, now), **(passing or {})}
            choice = choose(self._targets.accepts, item.refused, away)
            if choice is None or choice.target == was[0]:
                item.target, item.why, item.key, item.cost, item.asks, item.size = was
                return False
            item.move(choice.target, "" if choice.why is None else choice.why.value, keys[choice.target])
            item.moved = f"{self._targets.labels[item.target]} {item.why}" if item.why else ""
            self._targets.key(item.value, item.target)  # as the last, since a row remembers whether its tokens count
            item.cost = self._targets.cost(item.value, item.target)
            try:
                self._lanes.fit(item)
            except CostTooLargeError:
                item.refused[item.target] = MoveReason.TOO_LONG
                continue
            return True

    # ------------------------------------------------------------------ a whole target

    def on_wait(self, lane: RowLane) -> None:
        """A lane has to wait. If its whole target is away, rows of its key may go elsewhere."""
        group = lane.route.group
        for key in self._fed_by.get(group.key, ()):
            if (source := self._lanes.groups.get(key)) is not None:
                self._feed(source)
        self._feed(group)

    def on_queued(self, item: Item) -> None:
        """A row waits in the queue of its key, from which lanes of another one may take it."""
        group = self._lanes.groups.get(item.key)
        if group is not None and group.feeds:
            self._lanes.notify(self._lanes.group(group.feeds).lanes, FOR_ROWS)

    def refill(self, group: KeyGroup, now: float) -> bool:
        """A key has no row that may leave: take some of keys that are away. Returns whether it has got any."""
        sources = self._fed_by.get(group.key)
        if not sources:
            return False
        has_moved = False
        for key in list(sources):
            source = self._lanes.groups.get(key)
            if source is None or source.feeds != group.key or self._away(source, now) is None:
                sources.discard(key)
                if source is not None and source.feeds == group.key:
                    source.feeds = ""
                continue
            for item in source.queue.pull(AT_ONCE):
                has_moved |= self._place(item, now) and item.key == group.key
                self._requeue(item, now)
        return has_moved

    def _feed(self, group: KeyGroup) -> None:
        """Find out which key takes the rows of one that is away, if any."""
        now = self._clock.now()
        first = group.queue.any()
        group.feeds = ""
        if first is None or self._away(group, now) is None:
            return
        keys = self._targets.keys(first.value)
        choice = choose(self._targets.accepts, first.refused, self._all_away(keys, now))
        if choice is None or keys[choice.target] == group.key:
            return
        group.feeds = keys[choice.target]
        self._fed_by.setdefault(group.feeds, set()).add(group.key)
        self._lanes.notify(self._lanes.group(group.feeds).lanes, FOR_ROWS)

    def _all_away(self, keys: Sequence[str], now: float) -> dict[int, MoveReason]:
        found = {}
        for target, key in enumerate(keys):
            group = self._lanes.groups.get(key)
            if group is not None and (why := self._away(group, now)) is not None:
                found[target] = why
        return found

    def _away(self, group: KeyGroup, now: float) -> MoveReason | None:
        """Why nothing can start by any lane of a key for a while; a retired credential is no reason of its own."""
        found: MoveReason | None = None
        for lane in group.lanes:
            route = lane.route
            is_retired = False
            if route.label is not None and route.credentials is not None:
                is_retired = route.credentials.back_in(route.label) is None
            if is_retired:
                continue
            why = self._lane_away(lane, now)
            if why is None:
                return None
            found = found or why
        return found

    def _lane_away(self, lane: RowLane, now: float) -> MoveReason | None:
        route = lane.route
        if route.group.is_stopped:
            return MoveReason.UNKNOWN_MODEL
        if self._cooldowns.spend.until(route.account) > now:
            return MoveReason.SPEND
        rest = 0.0
        if route.label is not None and route.credentials is not None:
            rest = route.credentials.back_in(route.label) or 0.0
            if rest > 0.0 and route.credentials.rests_because(route.label) == Outcome.SPEND.value:
                return MoveReason.SPEND
        if max(rest, route.cooldown.until - now, route.refused_until - now) > LONG_QUOTA:
            return MoveReason.QUOTA_UNTIL
        if self._limiter.circuit_state(route.gate_key) is not CircuitState.CLOSED:
            return MoveReason.CIRCUIT_OPEN
        if route.capacity_refusals >= CAPACITY_REFUSALS:
            seen = self._limiter.key_status(route.gate_key)
            return MoveReason.CAPACITY if seen is not None and seen.not_before_ms > 0.0 else None
        return None
