"""Find out what a server allows, from nothing but its answers, and stay just inside it.

    a call leaves ----> a look, at most every fiftieth to tenth of a second: how far has the curve come?
    an answer ----+---> served: next to nothing
                  +---> refused, headers, a sample of the latency: rooms.py, which knows the kinds of limit
                                     |
            rate, hold_until, cap <--+  published for the gate to enforce

A key that was never refused, got no headers and has sent little has no rooms at all: its pace
doubles as long as somebody waits for it. Nothing is learned from an idle caller, and nothing
from failures: those are the breaker's business.
"""

from __future__ import annotations

from math import inf
from typing import Any

from ...decision import LONGEST_WAIT, NEVER, Outcome
from ...signal import Signal
from ...ticket import Ticket
from ..protocol import Controller
from .growth import FASTEST, doubled, search_doubling
from .policy import AdaptivePolicy
from .rooms import Rooms
from .story import Telling

ROOMS_FROM = 16
"""Calls below which a key that was never refused keeps no books."""

SEARCHING_LOOK, CRUISING_LOOK = 0.02, 0.1
"""Seconds between two looks at the pace: in between, a call that leaves costs next to nothing."""

LONGEST_STEP = 0.5
"""Seconds that one look may let the curves advance: longer gaps are idleness."""

RECENTLY = 0.25
"""Seconds (or three slots) within which somebody must have waited for the pace, or it does not grow."""

IDLE = 1.0
"""Seconds (or three slots) without anybody waiting after which what was sent says nothing about a quota."""

UNANSWERED, UNPROVEN = 10.0, 8.0
"""Without an answer for so many seconds the pace does not grow beyond so many times the initial one."""

DEPTH_MEMORY = 10.0
"""Seconds after which the greatest depth let in becomes the former one, and twice that until it is forgotten."""

DOWN = 5
"""Failures in a row after which what was sent says nothing about a quota."""


_NOT_STORED = ("policy", "rooms", "telling")


class Adaptive(Controller):
    __slots__ = (
        "answered_at",
        "cap",
        "deepest",
        "deepest_before",
        "deepest_until",
        "done",
        "failed_after",
        "failures",
        "hold_until",
        "look_at",
        "looked_at",
        "opened_at",
        "policy",
        "rate",
        "rooms",
        "telling",
        "waited_at",
    )

    watches_sends = True

    def __init__(self, policy: AdaptivePolicy) -> None:
        self.policy = policy
        self.rate = self._within(policy.initial)
        self.hold_until = NEVER
        self.cap = inf
        self.opened_at = NEVER
        """When the first call left."""
        self.looked_at = self.look_at = NEVER
        self.answered_at = NEVER
        """When the last answer came in."""
        self.waited_at = NEVER
        """When somebody last had to wait for the pace."""
        self.done = 0
        """Calls served."""
        self.failed_after = -1
        """How many were done at the last failure: as long as that has not moved, nothing grows."""
        self.failures = 0
        """Failures in a row."""
        self.deepest = self.deepest_before = 0
        """The greatest depth at which a call was lately let in, and in the time before."""
        self.deepest_until = NEVER
        self.rooms: Rooms | None = None
        self.telling: Telling | None = None

    # -- the contract -----------------------------------------------------------------------------

    @property
    def is_told(self) -> bool:
        return self.rooms is not None and self.rooms.law.steered

    @property
    def is_guess(self) -> bool:
        rooms = self.rooms
        return rooms is None or not (rooms.law.steered or rooms.seeker.measured)

    @property
    def learned(self) -> float:
        """Where the headers are followed, what they say: the pace itself is spread over what is left of a window."""
        if self.rooms is None or not self.rooms.law.steered:
            return self.rate
        return min(self.rooms.law.told_rate, self.policy.most)

    def on_send(self, ticket: Ticket, now: float) -> None:
        if self.looked_at <= now < self.look_at:
            return
        rooms = self.rooms
        if rooms is not None and rooms.blocked:
            rooms.seeker.send_blocked(ticket, now)
        self._look(ticket.seq, ticket.depth + 1, now)

    def on_wait(self, now: float) -> None:
        self.waited_at = now

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        rooms = self.rooms
        self.answered_at = now
        if signal.limits:
            rooms = self._rooms(now)
            rooms.read_headers(ticket, signal.limits, now)
            self._publish(rooms, ticket.gate.seq, ticket.depth, now)
        if signal.outcome is not Outcome.OK:
            return self._not_served(ticket, signal, latency, now)
        self.done += 1
        if ticket.depth > self.deepest:
            self.deepest = ticket.depth
        if rooms is None:
            return 0.0
        if not ticket.seq % rooms.delay.every and rooms.served(ticket, latency, self.done, now):
            self._publish(rooms, ticket.gate.seq, ticket.depth, now)
        probe = rooms.seeker.block.probe_seq
        if probe and probe <= ticket.seq:
            skip = rooms.seeker.resume(ticket.gate.seq, now)
            self._publish(rooms, ticket.gate.seq, ticket.depth, now)
            return skip
        return 0.0

    def listen(self, telling: Telling) -> None:
        self.telling = telling
        if self.rooms is not None:
            self.rooms.listen(telling)

    def why(self) -> str:
        return "looking for the limit" if self.rooms is None else self.rooms.why()

    def why_cap(self) -> str:
        return super().why_cap() if self.rooms is None else self.rooms.why_cap()

    def rest(self) -> None:
        if self.rooms is not None:
            self.rooms.rest()

    def to_state(self) -> tuple[Any, ...]:
        own = tuple(getattr(self, name) for name in self.__slots__ if name not in _NOT_STORED)
        return (*own, None if self.rooms is None else self.rooms.to_state())

    def load_state(self, state: tuple[Any, ...]) -> None:
        names = [name for name in self.__slots__ if name not in _NOT_STORED]
        for name, value in zip(names, state[:-1], strict=True):
            setattr(self, name, value)
        self.rooms = None
        if state[-1] is not None:
            self.rooms = Rooms()
            self.rooms.load_state(state[-1])
            if self.telling is not None:
                self.rooms.listen(self.telling)

    # -- looking ----------------------------------------------------------------------------------

    def _look(self, seq: int, depth: int, now: float) -> None:
        """Bring the pace up to now. ``seq`` is the last call sent, ``depth`` how many are in flight."""
        dt = min(now - self.looked_at, LONGEST_STEP)
        self.looked_at, self.look_at = now, now + SEARCHING_LOOK
        if self.opened_at == NEVER:
            self.opened_at = now
        if not 0.0 <= self.deepest_until - now <= DEPTH_MEMORY:
            self.deepest_before, self.deepest, self.deepest_until = self.deepest, 0, now + DEPTH_MEMORY
        waited = now - self.waited_at <= max(RECENTLY, 3.0 / self.rate)
        wanted = dt > 0.0 and waited and self.done != self.failed_after
        if now - self.answered_at > UNANSWERED and self.rate > UNPROVEN * self.policy.initial:
            wanted = False
        rooms = self.rooms
        if rooms is None and seq >= ROOMS_FROM:
            rooms = self._rooms(now)
            rooms.delay.begin(seq, self.done, now)
        if rooms is not None:
            if not waited and now - max(self.waited_at, self.hold_until) > max(IDLE, 3.0 / self.rate):
                rooms.idle(seq, now)
            rooms.advance(max(dt, 0.0), seq, depth, wanted, now)
            self._publish(rooms, seq, depth, now)
        elif wanted:
            self.rate = self._within(doubled(self.rate, dt, search_doubling(self.rate), seq, self.policy.initial))

    def _publish(self, rooms: Rooms, seq: int, depth: int, now: float) -> None:
        """Publish what the rooms say, and decide when to look again."""
        pace, hold, self.cap = rooms.verdict(seq, depth, now)
        self.rate = min(pace, self.policy.most) if rooms.law.steered else self._within(pace)
        self.hold_until = min(hold, now + LONGEST_WAIT)
        if rooms.blocked:
            self.look_at = NEVER  # every call that leaves in a block matters
        elif not rooms.searching:
            self.look_at = self.looked_at + CRUISING_LOOK

    def _within(self, pace: float) -> float:
        policy = self.policy
        return min(max(pace, policy.least), policy.most, max(FASTEST, policy.least))

    def _rooms(self, now: float) -> Rooms:
        if self.rooms is None:
            opened_at = self.opened_at if self.opened_at > NEVER else now
            self.rooms = Rooms(self.policy.initial, self.rate, opened_at, self.policy.least)
            if self.telling is not None:
                self.rooms.listen(self.telling)
        return self.rooms

    # -- answers that are not what was asked for --------------------------------------------------

    def _not_served(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        outcome, floor, rooms = signal.outcome, _bounded(signal.retry_after), self.rooms
        if outcome is Outcome.RATE_LIMITED:
            rooms = self._rooms(now)
            self._look(ticket.gate.seq, ticket.depth, now)
            skip = rooms.refused(ticket, latency, floor, max(self.deepest, self.deepest_before), now)
        else:
            skip = 0.0
            if outcome.counts_against_target:
                self.failures = self.failures + 1 if self.failed_after == self.done else 1
                self.failed_after = self.done
            if rooms is None:
                return 0.0
            if self.failures >= DOWN and self.failed_after == self.done:
                rooms.seeker.meter.forget()
            if floor > 0.0:
                rooms.seeker.hold(now + floor, now)
        rooms.delay.drop(ticket.seq)
        self._publish(rooms, ticket.gate.seq, ticket.depth, now)
        return skip


def _bounded(floor: float | None) -> float:
    """A Retry-After within what is ever waited, 0 for none."""
    return min(floor, LONGEST_WAIT) if floor is not None and floor > 0.0 else 0.0
