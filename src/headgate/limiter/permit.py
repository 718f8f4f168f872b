"""A permit: the right to make one call now, and the checks of what callers ask for. It ends exactly once.

    report(...)   the answer came in: the limiter learns
    release()     sent, outcome unknown: what it took stays taken, nothing is learned
    abandon()     nothing was sent: everything is refunded

Leaving its ``with`` block without any of these releases it; an exception that leaves the block is classified and
reported. Ending it twice is harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from .. import wire
from ..checks import shown
from ..core.decision import Outcome
from ..core.policy import Ticket, costs_of
from ..core.quota import never_fits
from ..core.signal import SILENT, Signal
from ..errors import ConfigError, CostTooLargeError, Refused
from ..wire import Headers
from .events import CallInfo, around

if TYPE_CHECKING:
    from ..clock import Clock
    from .key_entry import KeyEntry
    from .limiter import AdaptiveRateLimiter


log = logging.getLogger("headgate")

Cost = float | Mapping[str, float]
WhenOpen = Literal["wait", "refuse"]
"""What a call does at an open circuit: wait for the next probe, or fail at once so that others can take over."""
MOST_DIMENSIONS = 32
MOST_COST = 1e12
"""Of any dimension, in one call: more is a mistake, and sums of it could overflow."""
MOST_ALSO = 16
LONGEST_NAME, LONGEST_COST = 40, 200
"""Characters of a dimension's name, and of a wrong cost, that are worth showing."""


def check_request(
    cost: Cost, max_wait: float | None, deadline_at: float | None, also: Iterable[str], when_open: object
) -> tuple[str, ...]:
    """Check all that a caller says of one call; returns the other keys it counts under."""
    if max_wait is not None:
        check_wait("max_wait", max_wait)
    if deadline_at is not None:
        check_wait("deadline_at", deadline_at, "-inf")
    if type(cost) is not int or cost != 1:
        check_cost(cost)
    if when_open != "refuse":
        check_when_open(when_open)
    return check_also(also) if also else ()


def check_wait(name: str, value: float, least: str = "0") -> None:
    try:
        fine = value + 0.0 >= float(least)
    except (TypeError, ArithmeticError):  # no number, or one that no clock can add
        fine = False
    if not fine:
        raise ConfigError(f"{name}={shown(value)} must be a number of seconds, {least} or more")


def check_when_open(value: object) -> None:
    if value not in ("wait", "refuse"):
        raise ConfigError(f"when_open={value!r} must be 'wait' or 'refuse'")


def check_also(also: Iterable[str]) -> tuple[str, ...]:
    keys = tuple(islice(also, MOST_ALSO + 1))
    if len(keys) > MOST_ALSO or isinstance(also, str):
        raise ConfigError(f"also={keys!r} must be a list of at most {MOST_ALSO} other keys")
    return keys


def check_cost(cost: Cost) -> None:
    is_one = isinstance(cost, int | float)
    amounts: Collection[float] = cost.values() if isinstance(cost, dict | Mapping) else (cost,) if is_one else ()
    fine = 0 < len(amounts) <= MOST_DIMENSIONS
    try:
        for amount in amounts:
            if not 0 <= amount + 0.0 <= MOST_COST:  # a Decimal compares, but cannot be added to what is spent
                fine = False
    except (TypeError, ArithmeticError):
        fine = False
    if not fine or cost == 0:
        raise ConfigError(
            f"cost={_shown(cost)} must be a number above 0, or numbers of 0 or more for up to {MOST_DIMENSIONS} "
            f"dimensions, each at most {MOST_COST:,.0f}"
        )


def check_fits(entry: KeyEntry, cost: Cost) -> None:
    """Raise if a known limit is smaller than what one call takes."""
    costs = costs_of(cost)
    quota = never_fits(entry.gate.config.quotas, costs) if entry.has_quotas else None
    if quota is not None:
        amount = costs[quota.dimension]
        reason = f"cost[{quota.dimension!r}]={amount:,.10g} is above the limit of {quota.amount:,.10g}"
        raise CostTooLargeError(entry.key, f"{reason} and can never be admitted")


def real_cost(cost: Cost) -> dict[str, float]:
    """What a call really cost, by dimension.

    The call was made, so a wrong amount must not lose its answer: one above ``MOST_COST`` is clamped, and one
    that is NaN leaves what was reserved. Both are logged as a warning.
    """
    if isinstance(cost, dict) and 0 < len(cost) <= MOST_DIMENSIONS:
        try:
            for amount in cost.values():
                if not 0 <= amount + 0.0 <= MOST_COST:
                    break
            else:
                return cost  # as nearly always
        except (TypeError, ArithmeticError):
            pass  # told below
    amounts = dict(cost) if isinstance(cost, dict | Mapping) else {"requests": cost}
    wrong: list[str] = []
    try:
        for dimension, amount in list(amounts.items()):
            if amount > MOST_COST:
                amounts[dimension] = MOST_COST
            elif amount != amount:
                del amounts[dimension]
            else:
                continue
            wrong.append(str(dimension)[:LONGEST_NAME])
    except (TypeError, ArithmeticError):
        pass  # told below
    if not wrong:
        check_cost(cost)
    else:
        if amounts:
            check_cost(amounts)
        log.warning(
            "report(cost=%s): the limit is %.0f; %s was clamped or left as reserved",
            _shown(cost),
            MOST_COST,
            ", ".join(map(repr, wrong[:MOST_DIMENSIONS])),
            extra={"event": "cost_clamped"},
        )
    return amounts


def _shown(cost: object) -> str:
    try:
        return repr(cost)[:LONGEST_COST]
    except ValueError:  # a whole number of thousands of digits
        return type(cost).__name__


_OK = SILENT[Outcome.OK]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """How a call ended, for ``AdaptiveRateLimiter.feedback``."""

    status_code: int | None = None
    latency: float = 0.0
    err: BaseException | None = None
    retry_after: float | None = None
    headers: Headers | None = None


class Permit(Ticket):
    """The right to make one call now. It ends once: by ``report``, ``release`` or ``abandon``."""

    __slots__ = ("entry",)
    entry: KeyEntry
    others: tuple[Permit, ...] = ()
    """The permits of the other keys this call counts under."""

    def __init__(self, entry: KeyEntry) -> None:
        """The gate fills in the rest when it admits the call."""
        self.entry = entry

    @property
    def key(self) -> str:
        return self.entry.key

    @property
    def clock(self) -> Clock:
        """The limiter's clock."""
        return self.entry.sink.clock

    @property
    def has_ended(self) -> bool:
        """Whether it was reported, released or abandoned, or counts as lost."""
        in_flight, seq = self.gate.in_flight, self.seq
        return seq not in in_flight.pending and seq not in in_flight.stale

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

        ``answer`` is a response (of httpx2, aiohttp, requests or the like) or an exception;
        without one, give ``status_code`` and whatever else is known; a ``cost`` or a ``latency`` alone means
        success. ``latency`` defaults to the time since the permit was given. ``cost`` is what the call really cost.
        """
        sink = self.entry.sink
        if status_code is None and answer is None and (cost is not None or latency is not None):
            status_code = 200  # a caller that knows its cost or its latency has had an answer
        if status_code == 200 and answer is None and headers is None and body is None and retry_after is None:
            signal = _OK
        else:
            signal = wire.signal_of(answer, status_code, headers, body, retry_after, sink.clock.wall())
        sink.end(self, signal, latency, cost, status_code if answer is None else answer)
        return signal.outcome

    def report_signal(
        self,
        signal: Signal,
        *,
        latency: float | None = None,
        cost: Cost | None = None,
        answer: object = None,
        is_call: bool = True,
        draw: float | None = None,
    ) -> float:
        """``report`` for an answer that was read already. For observers of calls: ``answer`` is what it was read from,
        and of two permits for one call only one ``is_call``.

        Returns the random draw by which its Retry-After was lengthened. Two permits of one call wait for the same
        Retry-After until the same instant: the second is given the ``draw`` of the first.
        """
        return self.entry.sink.end(self, signal, latency, cost, answer, is_call, draw)

    def release(self) -> None:
        """The call was sent, its outcome is not known and never will be."""
        self.entry.sink.drop(self, sent=True)

    def abandon(self) -> None:
        """The call was not sent after all."""
        self.entry.sink.drop(self, sent=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.has_ended:
            return
        if not isinstance(error, Exception):  # none, or cancelled or interrupted: it may have been sent
            self.release()
        elif isinstance(error, Refused) and not error.sent:
            self.abandon()
        elif isinstance(error, Refused):
            self.release()
        else:
            try:
                self.report(error)
            except Exception:  # an error that cannot be read must not take the place of itself
                self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<Permit {self.seq} of {self.entry.key!r}>"


class LongPermit(Permit):
    """A permit that took longer to get: it waited, costs more than one request, or counts under several keys."""

    __slots__ = ("cost", "others", "waited")

    def __init__(self, entry: KeyEntry, cost: Cost, waited: float, others: tuple[Permit, ...] = ()) -> None:
        self.entry = entry
        self.cost = cost
        self.waited = waited
        self.others = others


class PermitContext:
    """``with limiter.permit(key) as permit`` and ``async with``: one permit for one block."""

    __slots__ = ("_around", "_limiter", "_permit", "_request")

    def __init__(
        self,
        limiter: AdaptiveRateLimiter,
        request: tuple[str, Cost, float | None, float | None, Iterable[str], WhenOpen],
    ) -> None:
        self._limiter = limiter
        self._request = request
        self._permit: Permit | None = None
        self._around: AbstractContextManager[object] | None = None

    def __enter__(self) -> Permit:
        self._permit = permit = self._limiter.acquire(*self._request)
        return permit if not self._limiter.events.around else self._observed(permit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        permit = self._permit
        assert permit is not None
        if self._around is not None:
            self._around.__exit__(kind, error, trace)
        if not permit.has_ended:
            permit.__exit__(kind, error, trace)

    async def __aenter__(self) -> Permit:
        self._permit = permit = await self._limiter.acquire_async(*self._request)
        return permit if not self._limiter.events.around else self._observed(permit)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _observed(self, permit: Permit) -> Permit:
        self._around = around(self._limiter.events.around, permit, CallInfo())
        self._around.__enter__()
        return permit
