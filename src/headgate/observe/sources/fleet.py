"""The fleet runs of a store, as monitored runs: pages, terminals and JSON show them like any other run.

    members ──reports──> store ──FleetRunView──> FleetRun: one RunSnapshot of all members, their keys and waits merged

What members report was written by other machines: it is escaped, bounded, and left out where it cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from math import isfinite
from typing import Any, TypeVar

from ...clock import Clock, SystemClock
from ...fleet.protocol import NO_CAP, FleetMemberView, FleetRunView
from ...fleet.state_store import RunStateStore
from ...formatting import for_display, plural, printable
from ...reason_text import caps_text
from ..event_buffer import EventBuffer
from ..history import History
from ..snapshot import (
    MOST_KEYS,
    MOST_MEMBERS,
    Action,
    ActionRefusedError,
    EventLine,
    KeyLine,
    MemberLine,
    ProgressLine,
    RunSnapshot,
    Timeline,
    WaitLine,
    from_fields,
)
from . import Waits, in_order, pause_wait

T = TypeVar("T")

FRESH_FOR = 0.3
"""Seconds for which what the store said is good enough for the next reader."""
ENDED_FOR = 3_600.0
"""Seconds for which a run without members is listed among those that go on."""
ORDERS = {
    "stop": "stopped: every worker finishes its calls in flight and starts no row any more",
    "pause": "paused: calls in flight finish, no worker starts a row",
    "resume": "resumed",
}


class FleetRuns:
    """``MonitoredRuns`` of a store. Raises ``StoreDown`` where it cannot be reached."""

    def __init__(self, store: RunStateStore, clock: Clock | None = None, *, all_ended: bool = False) -> None:
        """``all_ended``: list runs that have ended long ago too."""
        self._store, self._all_ended = store, all_ended
        self._clock: Clock = SystemClock() if clock is None else clock
        self._known: dict[str, FleetRun] = {}

    def runs(self) -> Sequence[FleetRun]:
        """Those that go on first, of both kinds the one that was reported last."""
        found: dict[str, FleetRun] = {}
        for view in self._store.views():
            if self._all_ended or state_of(view)[0] != "ended" or view.now - view.seen_at <= ENDED_FOR:
                run = self._known.get(view.run) or FleetRun(self._store, view, self._clock)
                run.take(view)
                found[view.run] = run
        self._known = found
        return sorted(found.values(), key=lambda run: run.snapshot().state == "ended")


class FleetRun:
    """``MonitoredRun`` of all members together."""

    def __init__(self, store: RunStateStore, view: FleetRunView, clock: Clock) -> None:
        self.key = view.run
        """Its name in the store."""
        self.name = printable(view.run)
        self._store, self._clock = store, clock
        self._buffer = EventBuffer(clock)
        self._history = History()
        self._view = view
        self._snapshot = self._make(view)
        self._fresh_until = float("-inf")
        self._members: dict[str, bool] = {one.name: one.is_lost for one in view.members}

    def take(self, view: FleetRunView) -> None:
        """The newest that the store has said."""
        self._note(self._view, view)
        self._view, self._snapshot = view, self._make(view)
        self._fresh_until = self._clock.now() + FRESH_FOR
        if self._history.is_due(self._snapshot.at):
            self._history.add(self._snapshot.at, self._snapshot.keys)

    def snapshot(self) -> RunSnapshot:
        if self._clock.now() >= self._fresh_until:
            view = self._store.view(self.key)
            if view is not None:
                self.take(view)
        return replace(self._snapshot, charted=tuple(self._history.keys()))

    def events(self, after: int, most: int = 200) -> Sequence[EventLine]:
        return self._buffer.after(after, most)

    def timelines(self, keys: Sequence[str], since: float) -> Sequence[Timeline]:
        self._history.want(keys)
        return self._history.timelines(keys, since)

    def act(self, action: Action) -> str:
        if action.kind not in ORDERS:
            raise ActionRefusedError(
                "a fleet can be paused, resumed and stopped; change keys and limits in its programs"
            )
        if self.snapshot().state == "ended":
            raise ActionRefusedError("This run has no workers")
        if not self._store.order(self.key, action.kind):
            raise ActionRefusedError("the store does not know this run any more")
        self._buffer.add("operator", "", ORDERS[action.kind])
        self._fresh_until = float("-inf")
        return ORDERS[action.kind]

    def _note(self, before: FleetRunView, view: FleetRunView) -> None:
        """What changed, as events."""
        seen = {one.name: one.is_lost for one in view.members}
        for name, is_lost in seen.items():
            if name not in self._members:
                self._buffer.add("member_joined", worker_name(name), "")
            elif is_lost and not self._members[name]:
                self._buffer.add("member_lost", worker_name(name), "no report for a few seconds; its rows are retried")
        for name in self._members.keys() - seen.keys():
            self._buffer.add("member_left", worker_name(name), "")
        self._members = seen
        if (before.paused, before.stopped) != (view.paused, view.stopped):
            self._buffer.add("orders", "", "stopped" if view.stopped else "paused" if view.paused else "resumed")

    # ------------------------------------------------------------------ one snapshot of all members

    def _make(self, view: FleetRunView) -> RunSnapshot:
        live = [one for one in view.members if not one.is_lost]
        details = [_detail(one.detail) for one in live]
        keys = merged_keys(line for detail in details for line in _lines_of(KeyLine, detail.get("keys")))
        state, ending = state_of(view)
        counts, wall = view.counts, self._clock.wall()
        progress = ProgressLine(
            done=counts.done,
            dead=counts.failed,
            open=sum(one.in_flight for one in live),
            in_flight=sum(one.in_flight for one in live),
            rate=0.0 if state in ("paused", "ended") else sum(one.rate for one in live),
            tokens=round(counts.tokens),
            cost=counts.cost,
        )
        waits = merged_waits(line for detail in details for line in _lines_of(WaitLine, detail.get("waits")))
        found = Waits([*_cap_waits(view), *waits], sum(line.behind for line in waits))
        if state == "paused":
            found = pause_wait("run", progress, found.behind)
        elif state == "ended":
            found = Waits([], 0)
        members = sorted(view.members, key=lambda one: (not one.is_lost, -one.counts.done, one.name))
        return RunSnapshot(
            run=self.name,
            title=self.name,
            kind="fleet",
            pid=0,
            host=for_display(self._store.where),
            started_at=wall - (view.now - view.began_at),
            at=wall - (view.now - view.seen_at if state == "ended" else 0.0),
            state=state,
            ending=ending,
            progress=progress,
            waits=in_order(found.lines),
            blocked=found.behind,
            keys=tuple(keys[:MOST_KEYS]),
            more_keys=max(0, len(keys) - MOST_KEYS),
            counters={
                "calls": counts.calls,
                "rate_limited": counts.rate_limited,
                "recalled": counts.recalled,
                "repeated": counts.repeated,
                "workers": len(live),
                "lost_workers": len(view.members) - len(live),
            },
            store=f"{plural(len(live), 'worker')}, {for_display(self._store.where)}",
            members=tuple(member_line(one) for one in members[:MOST_MEMBERS]),
            more_members=max(0, len(members) - MOST_MEMBERS),
        )


def state_of(view: FleetRunView) -> tuple[str, str]:
    """The state of a run, and how it ended if it has."""
    if any(not one.is_lost for one in view.members):
        return ("stopping" if view.stopped else "paused" if view.paused else "running"), ""
    return "ended", "stopped" if view.stopped else "lost" if view.members else "done"


def worker_name(member: str) -> str:
    """``1234@host``, without the digits that make it unique."""
    return for_display(member.partition("-")[2] or member)


def member_line(one: FleetMemberView) -> MemberLine:
    name = worker_name(one.name)
    return MemberLine(
        name=name,
        host=name.partition("@")[2],
        state="lost" if one.is_lost else "working",
        done=one.counts.done,
        failed=one.counts.failed,
        rate=0.0 if one.is_lost else one.rate,
        in_flight=one.in_flight,
        refused=one.counts.rate_limited,
        tokens=round(one.counts.tokens),
        cost=one.counts.cost,
        seen_ago=one.seen_ago,
    )


def merged_keys(lines: Iterable[KeyLine]) -> list[KeyLine]:
    """A key of several members as one line, the busiest first: counts are added up, the learned rate is the fleet's."""
    found: dict[str, KeyLine] = {}
    for line in lines:
        known = found.get(line.key)
        found[line.key] = line if known is None else _both(known, line)
    return sorted(found.values(), key=lambda line: (-(line.in_flight + line.waiting), -line.sent, line.key))


def _both(one: KeyLine, other: KeyLine) -> KeyLine:
    is_shared = one.shared_by > 0 or other.shared_by > 0
    told = [said for said in (one.said, other.said) if said is not None]
    sent = one.sent + other.sent
    waiter = max(one, other, key=lambda line: line.waiting)
    return replace(
        one,
        rate=max(one.rate, other.rate) if is_shared else one.rate + other.rate,
        said=max(told, default=None),
        sent=sent,
        done=one.done + other.done,
        refused=one.refused + other.refused,
        failed=one.failed + other.failed,
        in_flight=one.in_flight + other.in_flight,
        waiting=one.waiting + other.waiting,
        latency=(one.latency * one.sent + other.latency * other.sent) / sent if sent else 0.0,
        circuit=other.circuit if one.circuit == "closed" else one.circuit,
        shared_by=max(one.shared_by, other.shared_by),
        reason=waiter.reason,
        waits_for=waiter.waits_for,
    )


def merged_waits(lines: Iterable[WaitLine]) -> list[WaitLine]:
    """One line for each scope and cause."""
    found: dict[tuple[str, str], WaitLine] = {}
    for line in lines:
        known = found.get((line.scope, line.code))
        if known is not None:
            most = max(known, line, key=lambda one: one.behind)
            line = replace(most, behind=known.behind + line.behind)
        found[line.scope, line.code] = line
    return list(found.values())


def _cap_waits(view: FleetRunView) -> list[WaitLine]:
    """Caps of which nothing is left to lease."""
    caps = zip(("max_tokens", "max_cost"), view.caps, view.charged, strict=True)
    used = [(name, cap) for name, cap, charged in caps if cap != NO_CAP and charged >= cap * (1.0 - 1e-9)]
    return [WaitLine(scope=name, sentence=caps_text(name, cap), code="caps") for name, cap in used]


def _detail(text: str) -> Mapping[str, Any]:
    try:
        told = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _lines_of(kind: type[T], told: Any) -> list[T]:
    """Lines of a member's report; those that another version or a stranger has put there are left out."""
    lines = []
    for one in told if isinstance(told, list) else ():
        try:
            escaped = {name: printable(text) if isinstance(text, str) else text for name, text in one.items()}
            line = from_fields(kind, escaped)
        except (TypeError, AttributeError):
            continue
        if all(_is_sound(getattr(line, one.name), one.type) for one in fields(kind)):  # type: ignore[arg-type]
            lines.append(line)
    return lines


def _is_sound(value: object, annotation: object) -> bool:
    """Whether a value is what a field of this annotation may hold."""
    wanted = str(annotation)
    if value is None:
        return wanted.endswith("None")
    if isinstance(value, tuple):
        return wanted.startswith("tuple") and all(isinstance(one, str) for one in value)
    if isinstance(value, str):
        return wanted == "str"
    return isinstance(value, int | float) and wanted.startswith(("int", "float")) and isfinite(value)
