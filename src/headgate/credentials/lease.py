"""A lease: one credential for one call, which goes back exactly once.

    report(answer)   the answer itself says what becomes of the credential: free, resting or retired
    release()        nothing is known of an answer: free, unless it rests already

Leaving its block without either of these releases it; an exception that leaves the block is
reported. Ending twice is harmless, and a lease that is simply forgotten goes back when it is collected.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from .. import wire
from ..core.decision import Outcome
from ..core.signal import Signal
from ..errors import Refused

if TYPE_CHECKING:
    from .credential import Key
    from .handing import Handing


class Lease:
    """What a caller holds. Its text shows the label, never the secret."""

    __slots__ = ("_handing", "_timeout", "ended", "generation", "key", "since", "use", "waited")

    def __init__(self, handing: Handing, timeout: float | None = None) -> None:
        self.key: Key | None = None
        self.ended = False
        self.since = 0.0
        """When it began, on the coordinator's clock ..."""
        self.waited = 0.0
        """... after so many seconds in line."""
        self.use = 0
        """As which use of the pool it began: an operator's word makes void what is heard of earlier ones."""
        self.generation = handing.generation
        self._handing = handing
        self._timeout = timeout

    @property
    def secret(self) -> str:
        """The credential itself, for as long as the lease lasts."""
        if self.ended:
            raise RuntimeError("this lease is over: its secret may be in somebody else's hands")
        return self._taken().credential.secret

    @property
    def label(self) -> str:
        return self._taken().label

    @property
    def group(self) -> str | None:
        """With whom it shares its limits, if with anybody."""
        return self._taken().group

    @property
    def is_void(self) -> bool:
        """Whether others have heard meanwhile that it must rest, or is of no use: start nothing with it."""
        return self.key is not None and self.key.state(self._handing.clock.now()) in ("resting", "retired")

    def report(self, answer: object = None, *, signal: Signal | None = None) -> Outcome:
        """Say how the call ended, which ends the lease. Returns what it counts as.

        ``answer`` is a response (of httpx2, aiohttp, requests or alike) or an exception. A rate limit rests the
        credential and its group, a quota that is used up the credential alone, both as long as the answer says;
        a credential that is not accepted is retired.
        """
        if signal is None:
            signal = wire.signal_of(answer, None, None, None, None, self._handing.clock.wall())
        self._handing.end(self, signal)
        return signal.outcome

    def release(self) -> None:
        """Give it back without a word. A rest that began meanwhile goes on."""
        self._handing.end(self, None)

    def _taken(self) -> Key:
        if self.key is None:
            raise RuntimeError("this lease has not begun: use it as 'with coordinator.lease() as lease'")
        return self.key

    def _check_new(self) -> bool:
        if self.ended:
            raise RuntimeError("this lease is over; each block needs one of its own")
        if self.key is None:
            self.generation = self._handing.generation
        return self.key is None

    def __enter__(self) -> Self:
        if self._check_new():
            self._handing.take(self, self._timeout)
        return self

    async def __aenter__(self) -> Self:
        if self._check_new():
            await self._handing.take_async(self, self._timeout)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, Refused):
            self.release()
            return
        try:
            self.report(error)
        except Exception:  # an error that cannot even be looked at must not take the place of itself
            self.release()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __del__(self) -> None:
        key = getattr(self, "key", None)  # an interrupted __init__ has not come so far
        if key is not None and not self.ended:
            self.ended = True  # collected with others, of which one may bring it back to life and end it
            self._handing.end_later(key, self.generation)

    def __repr__(self) -> str:
        name = "not begun" if self.key is None else repr(self.key.label)
        return f"<Lease {name}{' ended' if self.ended else ''}>"
