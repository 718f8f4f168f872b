"""What every rate controller is: an opinion on the pace, and nothing else.

A controller never waits and owns no queue. It watches calls leave and answers come
back, and keeps three numbers up to date that its gate enforces:

    rate         calls a second that may start
    hold_until   nothing starts before this instant
    cap          calls that may be in flight at once

Times are instants on the caller's clock. A ticket carries its ordinal (``seq``, the
gate's first call is 1), so "sent before the last cut" is an exact question even when
many calls leave in the same instant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .decision import NEVER, UNKNOWN, ControllerNote, PaceReason
from .policy import Cost, Ticket, requests_of
from .signal import Signal


class Controller:
    """A strategy for one key. Subclass it and write ``on_answer``; the rest has defaults."""

    __slots__ = ()

    watches_sends: ClassVar[bool] = False
    """Whether the gate calls ``on_send`` and ``on_wait``; most strategies learn from answers alone."""

    learns: ClassVar[bool] = True
    """Whether anything follows from a success. Where the key is shared with other processes, it is told only then."""

    rate: float
    hold_until: float = NEVER
    cap: float = UNKNOWN

    @property
    def is_told(self) -> bool:
        """Whether the server states ``rate`` itself: then it may be below the least that is learned."""
        return False

    @property
    def is_guess(self) -> bool:
        """Whether ``rate`` is only a beginning, neither told nor measured: nothing is refused because of it."""
        return False

    @property
    def learned(self) -> float:
        """Calls a second that the server takes, as far as is known. ``rate`` may go above and below it on the way."""
        return self.rate

    def on_send(self, ticket: Ticket, now: float) -> None:
        """A call leaves now. ``ticket.depth`` others are in flight."""

    def worth(self, cost: Cost) -> float:
        """How many calls' worth of pace a call takes whose cost is no plain number."""
        return requests_of(cost)

    def take(self, cost: Cost) -> float:
        """The same of a call that leaves now."""
        return self.worth(cost)

    def on_wait(self, now: float) -> None:
        """A call has to wait for the pace (not for a hold, a cap or a configured limit)."""

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        """An answer came in. Returns how many slots to let pass before the next call starts (mostly 0).

        ``ticket.gate.seq`` is the ordinal of the last call that has left: an answer whose
        ``ticket.seq`` is not above that number at the last cut belongs to the era before it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define on_answer")

    def why(self) -> ControllerNote | str:
        """What the controller goes by. A strategy of your own may say it in words, after "paced at 12.0 calls/s, "."""
        return ControllerNote(PaceReason.OWN_STRATEGY)

    def why_cap(self) -> ControllerNote | str:
        """Why no more than ``cap`` calls are in flight; in words, after "12 calls in flight, "."""
        return ControllerNote(PaceReason.OWN_CAP)

    def listen(self, listener: Callable[[float, Any], None]) -> None:
        """Call ``listener(now, event)`` at each turning point from now on; strategies without a trace do not."""

    def rest(self) -> None:
        """Nothing was sent for a while: drop details that matter only under load, before being put away."""

    def to_state(self) -> tuple[Any, ...] | None:
        """Everything learned, as plain numbers, strings and tuples; None if it cannot be put away."""
        return None

    def load_state(self, state: tuple[Any, ...]) -> None:
        """Go on from ``to_state()``."""
