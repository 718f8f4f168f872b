"""One key of a limiter: its gate, the queue in front of it, and what its answers were.

What is counted here is for people: nothing is decided by it. It costs nothing for a call that just succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.decision import NEVER, UNKNOWN, CircuitState, Refuse, Wait
from ..core.gate import Gate
from ..core.policy import Ticket
from ..core.signal import Limit, Signal

if TYPE_CHECKING:
    from ..distributed.lease_client import LeaseClient
    from .completion import Completion
    from .wait_queue import WaitQueue

UNREPORTED_AFTER = 60.0
"""Seconds after which a call whose permit has not ended is taken for one that will never be reported."""


class KeyEntry:
    """A key in use."""

    __slots__ = (
        "announced",
        "circuit_noted",
        "client",
        "failed",
        "gate",
        "hold_noted",
        "key",
        "learns",
        "noted_in",
        "pause_noted",
        "queue",
        "rate_noted",
        "refused",
        "released",
        "sink",
        "used_at",
    )

    def __init__(self, key: str, gate: Gate, sink: Completion, now: float, *, learns: bool = True) -> None:
        self.key = key
        self.gate = gate
        self.sink = sink
        """What its permits end at."""
        self.learns = learns
        """False if its limiting is switched off."""
        self.used_at = now
        """When it was opened, or a call of it last ended."""
        self.queue: WaitQueue | None = None
        self.client: LeaseClient | None = None
        """Where its quota is shared through a store."""
        self.circuit_noted, self.pause_noted = CircuitState.CLOSED, NEVER
        """The circuit, and the end of the pause that holds, as they were logged last ..."""
        self.rate_noted, self.hold_noted, self.noted_in = 0.0, NEVER, 0
        """... and the pace, and the end of what holds calls back, as they were noted for a listener, and for which."""
        self.refused = self.failed = 0
        """Answers that refused the call (429, a spent quota), and all others that were no success."""
        self.released = 0
        """Calls that were sent and never reported."""
        self.announced: tuple[Limit, ...] = ()
        """The limits in the last answer that had any."""

    @property
    def has_quotas(self) -> bool:
        """Whether limits are known and kept: else a call's cost is its number of requests alone."""
        return self.learns and bool(self.gate.config.quotas)

    def has_room_for_all(self, now: float) -> bool:
        """Whether all that queue have their turn, and one more call could start beside them."""
        queue, gate = self.queue, self.gate
        if queue is None or queue.waiting or not gate.has_room(len(queue)):
            return False
        return gate.check(now, 1, queue.requests, queue.costs) is None

    @property
    def members(self) -> int:
        """Members that share its quota; 0 unless it lies in a store."""
        return 0 if self.client is None else self.client.members

    def recent_failures(self, now: float) -> tuple[int, float]:
        """Failures in a row, and the error rate: those of now, or those that opened the circuit."""
        return self.gate.breaker.recent_failures(now) if self.client is None else self.client.recent_failures(now)

    def unreported(self, now: float) -> int:
        """How many calls are over, or in flight for long, of which no report came."""
        return self.released + self.gate.in_flight.pending_since(now - UNREPORTED_AFTER)

    def reset(self, now: float) -> None:
        """In a forked child no call waits, and none is in flight."""
        if self.client is not None:
            self.client.leave(now)
        self.gate.in_flight.clear()
        if self.queue is not None:
            self.queue = None
            self.gate.set_queue(None, now)


class OpenGate(Gate):
    """The gate of a key whose limiting is switched off: it lets every call through and learns nothing."""

    __slots__ = ()

    def check(self, *_: object, **__: object) -> Wait | Refuse | None:
        return None

    def apply_limits(self, now: float) -> None:
        """The next call may start too, no matter what was taken."""
        self.pacer.tokens, self.pacer.rate, self.fast_path_from = self.pacer.burst, self.controller.rate, UNKNOWN

    def learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        self.answers += 1
