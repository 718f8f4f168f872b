"""A lease: one credential for one call, which goes back exactly once.

    report(answer)   the answer decides what becomes of the credential: free, resting or retired
    release()        the outcome is not known: free, unless it rests already

Leaving its block without either of these releases it; an exception that leaves the block is
reported. Ending twice is harmless, and a lease that is simply forgotten goes back when it is collected.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from .. import wire
from ..core.decision import Outcome
from ..core.signal import Signal
from ..errors import Refused

if TYPE_CHECKING:
    from ..clock import Clock
    from .credential import Key


class LeaseSource(Protocol):
    """What a lease needs of the coordinator it comes from."""

    clock: Clock

    @property
    def generation(self) -> int: ...

    def take(self, lease: Lease, timeout: float | None) -> None: ...

    async def take_async(self, lease: Lease, timeout: float | None) -> None: ...  # noqa: ASYNC109

    def end(self, lease: Lease, signal: Signal | None) -> None: ...

    def end_later(self, key: Key, use: int, generation: int) -> None: ...


class Lease:
    """A credential that is held for one call. Its text shows the label, never the secret."""

    __slots__ = ("_source", "_timeout", "ended", "generation", "key", "since", "use", "waited")

    def __init__(self, source: LeaseSource, timeout: float | None = None) -> None:
        self.key: Key | None = None
        self.ended = False
        self.since = 0.0
        """When it began, on the coordinator's clock ..."""
        self.waited = 0.0
        """... after so many seconds in the queue."""
        self.use = 0
        """The number of this use of the pool; once an operator frees a credential, answers to earlier uses are void."""
        self.generation = source.generation
        self._source = source
        self._timeout = timeout

    @property
    def secret(self) -> str:
        """The credential itself, for as long as the lease lasts."""
        if self.ended:
            raise RuntimeError("this lease has ended: another caller may use its secret")
        return self._taken().credential.secret

    @property
    def label(self) -> str:
        return self._taken().label

    @property
    def group(self) -> str | None:
        """The credentials that share its limits, if any do."""
        return self._taken().group

    @property
    def paced_by(self) -> str:
        """The name its pace is learned under."""
        return self._taken().paced_by

    @property
    def is_void(self) -> bool:
        """Whether it must rest since it was taken, or is retired: start nothing with it."""
        key = self.key
        if key is None or (key.limit_group.probe == self.use and key.reason == Outcome.SPEND.value):
            return False  # all others rest while this one asks whether the account can spend again
        return key.state(self._source.clock.now()) in ("resting", "retired")

    def report(self, answer: object = None, *, signal: Signal | None = None) -> Outcome:
        """Say how the call ended, which ends the lease. Returns what it counts as.

        ``answer`` is a response (of httpx2, aiohttp, requests or similar) or an exception. A rate limit rests the
        credential and its group, a quota that is used up the credential alone, both as long as the answer says;
        a credential that is not accepted is retired.
        """
        if signal is None:
            signal = wire.signal_of(answer, None, None, None, None, self._source.clock.wall())
        if not self.ended:
            self._source.end(self, signal)
        return signal.outcome

    def release(self) -> None:
        """Give it back, its outcome unknown. A rest that began meanwhile goes on."""
        if not self.ended:
            self._source.end(self, None)

    def _taken(self) -> Key:
        if self.key is None:
            raise RuntimeError("this lease has not started: use it as 'with coordinator.lease() as lease'")
        return self.key

    def _check_new(self) -> bool:
        if self.ended:
            raise RuntimeError("this lease has ended; each block needs a new one")
        if self.key is None:
            self.generation = self._source.generation
        return self.key is None

    def __enter__(self) -> Self:
        if self._check_new():
            self._source.take(self, self._timeout)
        return self

    async def __aenter__(self) -> Self:
        if self._check_new():
            await self._source.take_async(self, self._timeout)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ended:
            return
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
            self._source.end_later(key, self.use, self.generation)

    def __repr__(self) -> str:
        name = "not started" if self.key is None else repr(self.key.label)
        return f"<Lease {name}{' ended' if self.ended else ''}>"
