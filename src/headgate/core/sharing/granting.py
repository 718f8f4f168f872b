"""Who gets how many numbers, and who has to wait for what.

    asks ──> circuit ──> its last lease has begun ──> its turn ──> depth ──> known limits ──> numbers

All who ask get leases of the same length, and nobody gets a further one before its last has begun: so shares are equal,
however often each of them comes. What one does not ask for is the others'.
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING, NamedTuple

from .seat import ASKING, TERM, Seat
from .visit import NO_CAP, Cost, Visit

if TYPE_CHECKING:
    from .desk import Desk

PERIOD = 0.03
"""A lease is what the rate allows in so many seconds, shared by those who ask."""
LONGEST_SPAN = 0.5
"""... or a little longer if one of them has a long way to the store: all get the same, so that shares are equal."""
HUNGRY = 0.1
"""Whoever is short of something and does not come back within so many seconds loses its turn."""
AGAIN = 0.01
"""Seconds after which to ask again for what only another member's visit can bring."""
SOLO_HEARS = 0.1
"""Seconds within which a member that starts calls by itself comes and hears that another is there; if it lives."""
FURTHEST = 1.0
"""Seconds of the rate by which numbers may run ahead of the line, beyond two for each member."""
MOST_AT_ONCE = 64
"""Calls under a known limit that one visit may get."""
INSTANT = 1e-6


class Short(NamedTuple):
    """What there was too little of, and when to ask again."""

    wait: float
    of: str


NOTHING = Short(0.0, "")


def grant(desk: Desk, visit: Visit, seat: Seat, now: float) -> Short:
    """Hand out the next numbers, as many as may be had."""
    wanted = sum(count * numbers_of(cost) for count, cost in visit.asks)
    if visit.leaves:
        seat.asked_at = -ASKING
    if not wanted or visit.leaves:
        seat.hungry_at = 0.0
        return NOTHING
    seat.asked_at = now
    asking, span, solo = 0, desk.period, False
    for other in desk.seats.values():
        solo = solo or (other.solo and other is not seat and now - other.seen_at <= SOLO_HEARS + other.span)
        if now - other.asked_at <= ASKING + other.span:
            asking, span = asking + 1, max(span, other.span)
    if solo:  # it does not know yet that it is not alone
        return Short(AGAIN, "solo")
    rate = desk.pace
    heavy = numbers_of(visit.asks[0][1])
    room = min(wanted, max(heavy, ceil(rate * span / asking)))
    if desk.circuit_open:
        if now < desk.open_until:
            return Short(desk.open_until - now, "circuit")
        if len(desk.probes) >= desk.terms.probes:
            return Short(AGAIN, "circuit")
        room = heavy
    elif seat.era == desk.era and seat.first > desk.line:  # its last lease is yet to come: that is enough
        return Short(max(0.0, desk.hold_until - now) + (seat.first - desk.line) / rate, "pace")
    elif desk.issued - desk.line > FURTHEST * rate + 2 * desk.members(now):
        return Short(desk.period, "pace")
    granted, short = _fit(desk, visit, seat, room, now)
    if short.of:
        seat.hungry_at = seat.hungry_at if seat.hungry_at and not granted else now
    else:
        seat.hungry_at = 0.0
    if granted:
        seat.granted_to, seat.granted, seat.first, seat.era = visit.number, granted, desk.issued, desk.era
        seat.probe = desk.circuit_open
        seat.flying += granted
        desk.issued += granted
        if desk.circuit_open:
            desk.probes.append([visit.member, now])
    return short


def _fit(desk: Desk, visit: Visit, seat: Seat, room: int, now: float) -> tuple[int, Short]:
    """How many numbers for the calls asked for fit under cap and known limits, and what there is too little of."""
    if desk.cap == NO_CAP and not desk.allowances:
        return room, NOTHING
    since = seat.hungry_at or now
    ahead = sum(0.0 < other.hungry_at < since and now - other.seen_at <= HUNGRY for other in desk.seats.values())
    if ahead:
        return 0, Short(min(AGAIN * (1 + ahead), HUNGRY / 2), "turn")
    if desk.cap != NO_CAP:
        flying = sum(other.flying for other in desk.seats.values() if now - other.seen_at <= TERM)
        free = floor(max(1.0, desk.cap)) - flying
        if free < 1:
            return 0, Short(AGAIN, "depth")
        room = min(room, max(free, numbers_of(visit.asks[0][1])))
    if not desk.allowances:
        return room, NOTHING
    granted, room = 0, min(room, MOST_AT_ONCE)
    for count, cost in visit.asks:
        for _ in range(count):
            if granted and granted + numbers_of(cost) > room:
                return granted, NOTHING
            short = _short(desk, cost, now)
            if short.of:
                return granted, short
            granted += numbers_of(cost)
            ahead_of_line = max(0.0, desk.issued + granted - desk.line)
            starts_at = max(now, desk.hold_until) + ahead_of_line / desk.pace
            for allowance in desk.allowances:
                if cost.get(allowance.dimension, 0.0) > 0:
                    allowance.take(cost[allowance.dimension], now, starts_at)
    return granted, NOTHING


def _short(desk: Desk, cost: Cost, now: float) -> Short:
    longest = NOTHING
    for allowance in desk.allowances:
        amount = cost.get(allowance.dimension, 0.0)
        if amount > 0:
            wait = allowance.ready_at(amount, now) - now
            if wait > max(INSTANT, longest.wait):
                longest = Short(wait, allowance.dimension)
    return longest


def numbers_of(cost: Cost) -> int:
    """How many numbers a call takes: as many as it has requests' worth of pace."""
    return max(1, ceil(cost.get("requests", 1)))
