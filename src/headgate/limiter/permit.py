"""A permit: leave to make one call now, which ends exactly once.

    report(...)   the answer came in: teaches
    release()     sent, outcome unknown: what it took stays taken, nothing is learned
    abandon()     nothing was sent: everything goes back

Leaving its ``with`` block without any of these releases it; an exception that leaves the
block is classified and reported. Ending twice is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .. import wire
from ..core.decision import Outcome
from ..core.signal import SILENT
from ..core.ticket import LongTicket, Ticket
from ..errors import Refused
from ..wire import Headers

if TYPE_CHECKING:
    from .key_gate import KeyGate

_OK = SILENT[Outcome.OK]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """How a call ended, for those who pass it to ``AdaptiveRateLimiter.feedback``."""

    status_code: int | None = None
    latency: float = 0.0
    err: BaseException | None = None
    retry_after: float | None = None
    headers: Headers | None = None


class Permit(Ticket):
    """Leave to make one call now. It ends once: by ``report``, ``release`` or ``abandon``."""

    __slots__ = ()
    gate: KeyGate
    others: tuple[Permit, ...] = ()
    """The permits of the other keys this call counts under."""

    @property
    def key(self) -> str:
        return self.gate.key

    def report(
        self,
        answer: object = None,
        *,
        status_code: int | None = None,
        latency: float | None = None,
        headers: Headers | None = None,
        body: bytes | str | Mapping[str, object] | None = None,
        retry_after: float | None = None,
        cost: float | Mapping[str, float] | None = None,
    ) -> Outcome:
        """Say how the call ended, so that the next ones can be paced by it. Returns what it counts as.

        ``answer`` is a response (of httpx2, aiohttp, requests or alike) or an exception;
        without one, give ``status_code`` and whatever else is known; a ``cost`` or a ``latency`` alone means
        success. ``latency`` defaults to the time since the permit was given. ``cost`` is what the call really cost.
        """
        limiter = self.gate.limiter
        if status_code is None and answer is None and (cost is not None or latency is not None):
            status_code = 200  # whoever knows what it cost, or how long it took, has had an answer
        if status_code == 200 and answer is None and headers is None and body is None and retry_after is None:
            signal = _OK
        else:
            signal = wire.signal_of(answer, status_code, headers, body, retry_after, limiter.clock.wall())
        limiter.end(self, signal, latency, cost, status_code if answer is None else answer)
        return signal.outcome

    def release(self) -> None:
        """The call was sent, its outcome is not known and never will be."""
        self.gate.limiter.drop(self, sent=True)

    def abandon(self) -> None:
        """The call was not sent after all."""
        self.gate.limiter.drop(self, sent=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception):  # none, or cancelled or interrupted: it may have been sent
            self.release()
        elif isinstance(error, Refused) and not error.sent:
            self.abandon()
        elif isinstance(error, Refused):
            self.release()
        else:
            try:
                self.report(error)
            except Exception:  # an error that cannot even be looked at must not take the place of itself
                self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<Permit {self.seq} of {self.gate.key!r}>"


class LongPermit(Permit, LongTicket):
    """A permit that took longer to get: it waited, costs more than one request, or counts under several keys."""

    __slots__ = ("others",)

    def __init__(
        self, gate: Any, seq: int, sent_at: float, depth: int, cost: float | Mapping[str, float], waited: float
    ) -> None:
        LongTicket.__init__(self, gate, seq, sent_at, depth, cost, waited)
        self.others = ()
