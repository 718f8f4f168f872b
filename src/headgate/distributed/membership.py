"""One process as a member of a key's quota: what it needs of its process, and whether it leads.

The coordinator says which member leads, by a fence that grows with each leader. A new leader goes on from what the one
before it saved; one that was solo goes on from what it has learned itself, if that counts for more. Where a member
leads, ``Leadership`` has what was learned from all members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ..config import RateLimitConfig
from ..core.circuit_breaker import Breaker
from ..core.gate_config import GateConfig
from .leader import QuotaLeader
from .observation_log import ObservationLog
from .protocol import Publication, SyncReply

if TYPE_CHECKING:
    from .lease_client import LeaseClient

log = logging.getLogger("headgate")

ENOUGH_ANSWERS = 20
"""From so many on, what a member has learned by itself counts for more than what a coordinator knows that it just
found."""


class Membership(Protocol):
    """What a client needs of its process's place among the members."""

    member: str
    """The name of this process in the store."""
    where: str
    """For people: which store."""
    refuses: bool
    """Whether nothing may start while the store is lost."""
    draw: Callable[[], float]

    @property
    def is_paused(self) -> bool:
        """Whether an operator lets nothing start."""
        ...

    def next_number(self) -> int:
        """The number of this member's next request."""
        ...

    def wake(self, client: LeaseClient) -> None:
        """This client's exchange is due."""
        ...


class KeyRecord(Protocol):
    """The limiter's own record of a key; it is only handed back."""

    used_at: float
    """When it was opened, or a call of it last ended."""


class Leadership:
    def __init__(self, config: GateConfig, observed: ObservationLog) -> None:
        self._config = config
        self._log = observed
        """What this member saw since the last exchange."""
        self.leader: QuotaLeader | None = None
        """What was learned from all members; None unless this member leads."""
        self.shift = 0.0
        """The coordinator's time minus ours."""

    @property
    def leads(self) -> QuotaLeader:
        assert self.leader is not None
        return self.leader

    def stated_rate(self) -> float | None:
        """The rate that the server states, where this member leads and knows it."""
        gate = None if self.leader is None else self.leader.gate
        return gate.pacer.learned_rate if gate is not None and gate.controller.is_told else None

    def set_time(self, there: float, now: float, *, solo: bool) -> None:
        """The coordinator's time is ``there``."""
        before, self.shift = self.shift, there - now
        if solo and self.leader is not None:  # which learns in our own time
            self.leader.base += self.shift - before

    def take_own(self, member: str, now: float, draw: float) -> None:
        """Learn from what this member saw itself."""
        self.leads.take_own(self._log, member, self.shift, now + self.shift, draw)

    def publish(self, key: str, member: str, number: int, now: float, draw: float) -> Publication | None:
        """What follows from what all members saw, where this member leads."""
        leader = self.leader
        if leader is None:
            return None
        try:
            self.take_own(member, now, draw)
            return leader.publication(now + self.shift, member, number)
        except Exception:
            self.start_over(key, leader)
            return None

    def on_reply(self, key: str, reply: SyncReply, draw: float, *, solo: bool) -> None:
        """Lead if the coordinator says so, and learn from what the others saw."""
        leader = self.leader
        if not reply.fence:
            self.leader = None
            return
        if leader is not None and leader.fence != reply.fence and solo and self._knows_more(leader, reply):
            leader.fence, leader.word = reply.fence, max(leader.word, reply.word)
            leader.read = reply.covers
        elif leader is None or leader.fence != reply.fence:
            since = min([reply.now, *(note.at for note in reply.notes)])
            leader = self.leader = QuotaLeader(self._config, reply.fence, since, reply.word)
            if reply.learned:
                leader.go_on(reply.learned, reply.covers)
        try:
            leader.take(reply.notes, reply.now, draw)
        except Exception:
            self.start_over(key, leader)

    def _knows_more(self, leader: QuotaLeader, reply: SyncReply) -> bool:
        """Whether what was learned here counts for more than what the coordinator knows."""
        return not reply.learned or leader.gate.answers >= ENOUGH_ANSWERS

    def start_over(self, key: str, before: QuotaLeader) -> None:
        """What was learned, or a strategy of the user's, is of no use: begin again, after what could not be read."""
        log.exception("%s: the learned state cannot be used; learning starts over", key)
        self.leader = QuotaLeader(self._config, before.fence, before.at, before.word)
        self.leader.read = before.read

    def begin_alone(self, config: RateLimitConfig, rate: float | None, now: float) -> None:
        """Learn without a coordinator, from the configured rate or from the one that is known."""
        gate_config = self._config
        if rate is not None:
            gate_config = replace(config, initial_rps=rate, overrides={}).gate_config()
        self.leader = QuotaLeader(gate_config, 0, now + self.shift, 0)

    def recent_failures(self, breaker: Breaker, now: float) -> tuple[int, float]:
        """Failures in a row and the error rate of all members, where this one leads; else what ``breaker`` knows."""
        if self.leader is None:
            return breaker.recent_failures(now)
        return self.leader.gate.breaker.recent_failures(now + self.shift - self.leader.base)
