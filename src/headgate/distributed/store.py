"""What every store promises.

A store holds a coordinator for each key, serves the members one by one and gives them its own time. It is one place for
all processes that can reach it; one that cannot gets ``StoreDown`` in time and goes on without it.
"""

from __future__ import annotations

import os
import secrets
import socket
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import HeadgateError
from .coordinator import QuotaCoordinator
from .grants import LIVE
from .protocol import SyncReply, SyncRequest

FORGOTTEN_AFTER = 31 * 86_400.0
"""Seconds after which a key that no member has asked about is removed."""


class StoreDown(HeadgateError):  # noqa: N818 - a state of the store, and for a while; not a mistake
    """The store cannot be used now; the message says which and why, without secrets. What was sent may have arrived."""


class Store(Protocol):
    where: str
    """For people: what it is and where, without secrets."""

    def sync(self, requests: Sequence[tuple[str, SyncRequest]]) -> list[SyncReply]:
        """Exchange one request for each of these keys: one reply for each, in one round trip. Raises ``StoreDown``.

        Each of them is done wholly or not at all. Safe for threads, and for the children of a process that was forked.
        """
        ...

    def snapshot(self) -> list[QuotaView]:
        """What is there now, for people; changes nothing."""
        ...

    def close(self) -> None:
        """Close what is open. A store that is used again opens it again."""
        ...


class FormerStoreNames:
    """What a store's methods were called in earlier versions; each warns."""

    def visit(self: Store, visits: Sequence[tuple[str, SyncRequest]]) -> list[SyncReply]:
        _warn("visit", "sync")
        return self.sync(visits)

    def look(self: Store) -> list[QuotaView]:
        _warn("look", "snapshot")
        return self.snapshot()


class FormerStore:
    """A store of the user's whose methods have their former names."""

    def __init__(self, store: Any) -> None:
        _warn("visit", "sync")
        self.where: str = store.where
        self.sync, self.snapshot, self.close = store.visit, store.look, store.close


def _warn(former: str, name: str) -> None:
    warnings.warn(f"Store.{former} has been renamed: use {name}", DeprecationWarning, stacklevel=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    name: str
    seen_ago: float
    flying: int
    hungry: bool
    leads: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaView:
    """The shared quota of one key, as `headgate status` shows it."""

    name: str
    """The first digits of its keyed hash; a store does not know more."""
    rate: float
    issued: float
    line: float
    hold: float
    cap: float
    circuit_open: bool
    open_for: float
    era: int
    leader: str
    members: tuple[MemberView, ...]
    learned_ago: float | None
    """None if nothing was learned yet."""


def view_of(name: str, coordinator: QuotaCoordinator, now: float, wall: float) -> QuotaView:
    now = max(coordinator.at, now + coordinator.skew)
    here = {
        name: member for name, member in coordinator.members.items() if not member.gone and now - member.seen_at <= LIVE
    }
    return QuotaView(
        name=name,
        rate=coordinator.pace,
        issued=coordinator.issued,
        line=coordinator.line,
        hold=max(0.0, coordinator.hold_until - now),
        cap=coordinator.cap,
        circuit_open=coordinator.circuit_open,
        open_for=max(0.0, coordinator.open_until - now) if coordinator.circuit_open else 0.0,
        era=coordinator.era,
        leader=coordinator.leader if coordinator.leader in here else "",
        members=tuple(
            MemberView(
                name=name,
                seen_ago=now - member.seen_at,
                flying=member.flying,
                hungry=member.hungry_at > 0.0,
                leads=name == coordinator.leader,
            )
            for name, member in sorted(here.items())
        ),
        learned_ago=max(0.0, wall - coordinator.saved_wall) if coordinator.has_learned else None,
    )


# ------------------------------------------------------------------ how long an exchange may take

TIMEOUT = 0.25
"""Seconds to connect, or to wait for a lock."""
FIRST_PATIENCE = 10.0
"""Seconds that an exchange has before the first answer: a member that never had one knows of no other, and would start
the whole limit. A server that cannot be connected to is lost sooner."""
PATIENCE = 2.0
"""... and then at most: a member that gives up too soon each time never hears how many there are. No call waits that
long for an exchange: ``leased_policies.CREDIT_AFTER``."""
SHORTEST_TIMEOUT = 0.05
"""... and at least: with less, a machine that is busy would lose a store for nothing."""
TIMES_USUAL = 8.0
"""How many times a usual exchange ..."""
MORE_AFTER_FAILURE, MOST_AFTER_FAILURE = 1.5, 0.5
"""... how much more after one that failed, and up to how many seconds: a store that is back is soon found."""
SMOOTHING = 0.2


class AdaptiveTimeout:
    """The timeout of exchanges with one store: several times as long as they usually take.

        near (1 ms)   50 ms           a store that stalls is lost soon, and tried again soon
        far (30 ms)  240 ms           one that is just far away is not
        unknown       10 s, unless a timeout was chosen: a busy machine may need it to start

    Each exchange that fails gives the next one more time, so a store that has become slow is found again: calls go on
    meanwhile, at this member's share.
    """

    __slots__ = ("_least", "_most", "_usual", "seconds")

    def __init__(self, chosen: float | None = None, *, least: float = 0.0) -> None:
        self._least = least
        self._most, self.seconds = (PATIENCE, FIRST_PATIENCE) if chosen is None else (chosen, chosen)
        self._usual = 0.0

    def answered(self, took: float) -> None:
        self._usual += (took - self._usual) * (SMOOTHING if self._usual else 1.0)
        self.seconds = min(self._most, max(SHORTEST_TIMEOUT, self._least, TIMES_USUAL * self._usual))

    def failed(self) -> None:
        more = min(self._most, MORE_AFTER_FAILURE * self.seconds, MOST_AFTER_FAILURE)
        self.seconds = max(self.seconds, more)


# -------------- What keys and members are called in a store: keys by a keyed hash, members so that people can find them

LONGEST_MEMBER = 80
SHOWN_DIGITS = 6
"""Of a key's hash, where people read it."""


def member_name() -> str:
    """A unique name, ending in what a person can look for: ``9f0c...-1234@host``."""
    host = "".join(letter for letter in socket.gethostname() if letter.isascii() and letter.isprintable())
    return f"{secrets.token_hex(8)}-{os.getpid()}@{host}"[:LONGEST_MEMBER]


def shown(name: str) -> str:
    return name[:SHOWN_DIGITS]
