"""What the mock must know of an API of language models to speak it.

    request ─> key_of ─> check ─> endpoints[path] ─> Answer: body, or events      200
                 │         └───────────┴──> RejectedError: its 400, 404
                 └─ unknown, unpaid ──────> refuse("unauthorized"), refuse("quota")

Everything here is pure; quotas, faults and sockets are the service's (``service.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn

from ..api import MockPlan, Reply
from ..dialects import Dialect, LimitStatuses
from ..dialects.dialect import DAY, HOUR, MINUTE, RETRY_WHEN_UNKNOWN
from ..providers.provider_api import MockRequest
from ..quota import LimitStatus, Quota, make_quota

MISSING = "missing"
"""Models whose name begins like this do not exist; all others do."""
LONGEST_MODEL = 80


class RejectedError(Exception):
    """The API does not take this request, and says so with this reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Stamp:
    """What one answer is known by."""

    token: str
    created: int
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; ``data`` is an object for JSON, or text as it is."""

    data: Any
    name: str = ""


class Answer(ABC):
    """One request as it was parsed, and what it will be told."""

    model: str
    streamed: bool
    tokens_in: int
    tokens_out: int

    @property
    def tokens(self) -> int:
        """What it costs: exactly what ``usage`` will say."""
        return self.tokens_in + self.tokens_out

    @abstractmethod
    def body(self, stamp: Stamp) -> dict[str, Any]: ...

    def events(self, stamp: Stamp) -> Iterator[Event]:
        """The same, piece by piece, of one that is ``streamed``; a kind that never is has no pieces."""
        return iter(())

    def failure(self, body: Any, stamp: Stamp) -> Event:
        """How an error is told in a stream that has begun."""
        return Event(body)


Endpoint = Callable[[Mapping[str, Any], str], Answer]
"""Reads the fields of a request; the second argument is the seed. Raises ``RejectedError``."""


class LanguageApi(ABC):
    name: str
    site: str
    root = ""
    """What clients take for a part of the address."""
    dialect: Dialect
    endpoints: ClassVar[Mapping[str, Endpoint]]
    """By the path below the root."""

    @abstractmethod
    def key_of(self, asked: MockRequest) -> str:
        """The key the request carries, or nothing."""

    def check(self, asked: MockRequest) -> None:
        """Whether the request is one at all; raises ``RejectedError``."""
        if not isinstance(asked.body, dict):
            self.reject("invalid", "We could not parse the JSON body of your request.")

    def reject(self, trouble: str, why: str) -> NoReturn:
        raise RejectedError(self.refuse(trouble, why))

    @abstractmethod
    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        """A trouble as this API tells it, when nothing is known but its name."""

    @abstractmethod
    def refuse_limit(self, refusal: Refusal, model: str) -> Reply:
        """What it says to a key that may not do this, with the numbers."""

    @abstractmethod
    def sign(self, reply: Reply, stamp: Stamp) -> Reply:
        """The reply with the request's id, where this API puts it."""


# ---------------------------------------------------------------------- what a key may do
# What one key may still do: calls and tokens by the minute, calls by the day. A call fits into all, or spends nothing.


@dataclass(frozen=True, slots=True)
class Refusal:
    trouble: str
    """too_large, daily or rate_limited."""
    unit: str
    """What the limit counts: calls or tokens."""
    status: LimitStatus
    """Where it stands; ``retry`` is this call's own wait."""
    requested: int

    @classmethod
    def scripted(cls, trouble: str, wait: float) -> Refusal:
        """One that no limit asked for: of a small limit on calls, which is used up."""
        window, wait = (DAY, HOUR) if trouble == "daily" else (MINUTE, wait)
        return cls(trouble, "calls", LimitStatus(60.0, window, 60.0, 0.0, wait, wait, 60.0, wait), 1)


@dataclass(slots=True)
class KeyBudget:
    plan: MockPlan
    per_day: int | None
    today: int = 0
    _day: float = -1.0
    _steps_taken: int = 0
    _calls: Quota = field(init=False)
    _tokens: Quota | None = None

    def __post_init__(self) -> None:
        self._calls = self.plan.make_quota()
        rate = self.plan.tokens
        if rate is not None:
            counted = "bucket" if self.plan.algorithm == "concurrency" else self.plan.algorithm
            self._tokens = make_quota(counted, rate=rate, burst=max(1.0, rate.amount), at_once=1)

    def take(self, elapsed: float, wall: float, tokens: int) -> Refusal | None:
        """Let a call of so many tokens through, or say what keeps it out; ``end`` follows one that was let through."""
        self._catch_up(elapsed, wall)
        refusal = self._too_large(elapsed, tokens) or self._daily(wall) or self._rate_limited(elapsed, tokens)
        self.today += refusal is None
        for quota, amount in ((self._calls, 1), (self._tokens, tokens)):
            if quota is not None:
                (quota.take if refusal is None else quota.refuse)(elapsed, amount)
        return refusal

    def end(self, elapsed: float) -> None:
        self._calls.end(elapsed)

    def statuses(self, elapsed: float, wall: float) -> LimitStatuses:
        self._catch_up(elapsed, wall)
        statuses = [("calls", self._calls.status(elapsed))]
        return statuses if self._tokens is None else [*statuses, ("tokens", self._tokens.status(elapsed))]

    def _too_large(self, elapsed: float, tokens: int) -> Refusal | None:
        if self._tokens is None:
            return None
        status = self._tokens.status(elapsed)
        return Refusal("too_large", "tokens", status, tokens) if tokens > status.burst else None

    def _daily(self, wall: float) -> Refusal | None:
        if self.per_day is None or self.today < self.per_day:
            return None
        left = (self._day + 1) * DAY - wall
        status = LimitStatus(self.per_day, DAY, self.today, 0.0, left, left, self.per_day, left)
        return Refusal("daily", "calls", status, 1)

    def _rate_limited(self, elapsed: float, tokens: int) -> Refusal | None:
        """By the limit that keeps it out longest."""
        longest, refusal = 0.0, None
        for unit, quota, amount in (("calls", self._calls, 1), ("tokens", self._tokens, tokens)):
            wait = 0.0 if quota is None else quota.wait(elapsed, amount)
            told = RETRY_WHEN_UNKNOWN if wait is None else wait
            if quota is not None and told > longest:
                longest = told
                refusal = Refusal("rate_limited", unit, replace(quota.status(elapsed), retry=wait), amount)
        return refusal

    def _catch_up(self, elapsed: float, wall: float) -> None:
        """Take every step that fell due, at its own instant, and begin the day anew at midnight."""
        for step in self.plan.steps[self._steps_taken :]:
            if step.at > elapsed:
                break
            self._calls.scale(step.factor, step.at)
            if self._tokens is not None:
                self._tokens.scale(step.factor, step.at)
            self._steps_taken += 1
        if wall // DAY > self._day:
            self.today, self._day = 0, wall // DAY
