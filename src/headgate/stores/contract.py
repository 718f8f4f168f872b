"""What every store promises, whatever it is made of.

A store holds a desk for each key, lets visitors in one by one and gives them its own time. It is one place for all who
can reach it; whoever cannot is told so in time (``StoreDown``) and goes on without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..core.sharing.desk import Desk
from ..core.sharing.seat import LIVE
from ..core.sharing.visit import Reply, Visit
from ..errors import HeadgateError

FORGOTTEN_AFTER = 31 * 86_400.0
"""Seconds after which a desk that nobody has visited is removed."""


class StoreDown(HeadgateError):  # noqa: N818 - a state of the store, and for a while; nobody's mistake
    """The store cannot be used now; the message says which and why, without secrets. What was said may have arrived."""


class Store(Protocol):
    where: str
    """For people: what it is and where, without secrets."""

    def visit(self, visits: Sequence[tuple[str, Visit]]) -> list[Reply]:
        """One visit for each of these keys, one reply for each visit, in one round trip. Raises ``StoreDown``.

        Each of them is done wholly or not at all. Safe for threads, and for the children of a process that was forked.
        """
        ...

    def look(self) -> list[DeskView]:
        """What is there now, for people; changes nothing."""
        ...

    def close(self) -> None:
        """Let go of what is open. A store that is visited again opens it again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    name: str
    seen_ago: float
    flying: int
    hungry: bool
    leads: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskView:
    """One key's desk, as `headgate status` shows it."""

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


def view_of(name: str, desk: Desk, now: float, wall: float) -> DeskView:
    now = max(desk.at, now + desk.skew)
    here = {member: seat for member, seat in desk.seats.items() if not seat.gone and now - seat.seen_at <= LIVE}
    return DeskView(
        name=name,
        rate=desk.pace,
        issued=desk.issued,
        line=desk.line,
        hold=max(0.0, desk.hold_until - now),
        cap=desk.cap,
        circuit_open=desk.circuit_open,
        open_for=max(0.0, desk.open_until - now) if desk.circuit_open else 0.0,
        era=desk.era,
        leader=desk.leader if desk.leader in here else "",
        members=tuple(
            MemberView(
                name=member,
                seen_ago=now - seat.seen_at,
                flying=seat.flying,
                hungry=seat.hungry_at > 0.0,
                leads=member == desk.leader,
            )
            for member, seat in sorted(here.items())
        ),
        learned_ago=max(0.0, wall - desk.saved_wall) if desk.has_learned else None,
    )
