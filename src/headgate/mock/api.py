"""A rate-limited API without its sockets: what it lets through, refuses, and knows to be true.

    first call            --step 0.5@10s      --outage 12s+3s
    |  quota: all of it   |  half of it       |  503  |  half of it ...
    0 s                   10 s                12 s    15 s

Everything is counted from the first call, so that a client that takes its time to
start meets the same weather as one that does not. An API may have several keys, each with a
quota and steps of its own; outages are the same for all. Pure: ``now`` and the random draw
are arguments.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import Any

from ..units import LONGEST_DURATION, MOST_PER_WINDOW, Outage, Rate, Step
from .quota import LimitStatus, Quota, make_quota

MOST_IDS = 1_000_000
"""How many ``Idempotency-Key`` values are remembered; later ones are answered but not counted."""
MOST_CHANGES = 1_000
"""How many steps and outages a plan may hold."""
MOST_KEYS = 100
LATENCY_SPREAD = 0.25
"""Service times are spread evenly within this share around the configured latency."""


DEFAULT_RATE = Rate(50.0)
DEFAULT_AT_ONCE = 16
SCOPES = ("key", "project", "organization", "vendor")


@dataclass(frozen=True, slots=True, kw_only=True)
class MockPlan:
    """What the API allows, how fast it is, and what happens to it when."""

    rate: Rate = DEFAULT_RATE
    algorithm: str = "bucket"
    burst: float | None = None
    """What a bucket holds when full; ``None`` is the rate's whole amount."""
    at_once: int = DEFAULT_AT_ONCE
    latency: float = 0.04
    steps: tuple[Step, ...] = ()
    outages: tuple[Outage, ...] = ()
    tokens: Rate | None = None
    """What the APIs of language models allow beside the calls; no other counts tokens."""
    input_tokens: Rate | None = None
    output_tokens: Rate | None = None
    """What Anthropic allows of each."""
    per_day: int | None = None
    """Calls that a key of a provider may make in a day."""
    scope: str = "key"
    """Whose budgets those of language models are: each key's, its project's, its organisation's, or as the vendor has
    them, by model and tier where it does so."""
    per_model: bool = False
    """... and whether each model has its own."""
    keys: tuple[MockPlan, ...] = ()
    """What each key may do, if there are several; outages, latency and the way of counting are the same for all."""

    def __post_init__(self) -> None:
        if len(self.keys) > MOST_KEYS:
            raise ValueError(f"too many keys; the limit is {MOST_KEYS}")
        if not 0 <= self.latency <= 3600:
            raise ValueError(f"latency must be from 0 to 1 h, not {self.latency:g} s")
        if len(self.steps) + len(self.outages) > MOST_CHANGES:
            raise ValueError(f"too many steps and outages; the limit is {MOST_CHANGES}")
        if self.per_day is not None and not 1 <= self.per_day <= MOST_PER_WINDOW:
            raise ValueError(f"per_day must be from 1 to {MOST_PER_WINDOW:,}, not {self.per_day}")
        object.__setattr__(self, "steps", tuple(sorted(self.steps, key=lambda step: step.at)))
        common = {
            name: getattr(self, name) for name in ("algorithm", "at_once", "latency", "outages", "scope", "per_model")
        }
        keys = (replace(key, keys=(), per_day=key.per_day or self.per_day, **common) for key in self.keys)
        object.__setattr__(self, "keys", tuple(keys))
        if self.scope not in SCOPES:
            raise ValueError(f"scope must be one of {', '.join(SCOPES)}, not {self.scope!r}")
        self.make_quota()

    @property
    def accounts(self) -> tuple[MockPlan, ...]:
        """The plan of each key; of an API that knows no keys, its own."""
        return self.keys or (self,)

    @property
    def counts_tokens(self) -> bool:
        return bool(self.tokens or self.input_tokens or self.output_tokens)

    def make_quota(self) -> Quota:
        burst = max(1.0, self.rate.amount) if self.burst is None else self.burst
        return make_quota(self.algorithm, rate=self.rate, burst=burst, at_once=self.at_once)

    def factor_at(self, elapsed: float) -> float:
        return next((step.factor for step in reversed(self.steps) if step.at <= elapsed), 1.0)

    def is_down_at(self, elapsed: float) -> bool:
        return any(outage.at <= elapsed < outage.until for outage in self.outages)

    def rate_at(self, elapsed: float) -> float | None:
        """Calls per second that are truly allowed; ``None`` where only simultaneous calls are counted."""
        if self.is_down_at(elapsed):
            return 0.0
        if self.algorithm == "concurrency":
            return None
        return sum(key.rate.per_second * key.factor_at(elapsed) for key in self.accounts)

    def allowed_between(self, start: float, end: float) -> float | None:
        """How many calls the quota refills from ``start`` to ``end``, without any burst."""
        edges = {start, end}
        edges.update(step.at for key in self.accounts for step in key.steps)
        edges.update(edge for outage in self.outages for edge in (outage.at, outage.until))
        total = 0.0
        for left, right in pairwise(sorted(edge for edge in edges if start <= edge <= end)):
            rate = self.rate_at(left)
            if rate is None:
                return None
            total += rate * (right - left)
        return total


class Verdict(Enum):
    ADMITTED = "admitted"
    RATE_LIMITED = "rate_limited"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to one call, and what the API may tell about its quota."""

    verdict: Verdict
    status: LimitStatus
    service_time: float = 0.0


@dataclass(slots=True)
class Account:
    """What one key may do and has done."""

    plan: MockPlan
    quota: Quota = field(init=False)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    steps_taken: int = 0

    def __post_init__(self) -> None:
        self.quota = self.plan.make_quota()

    def catch_up(self, elapsed: float) -> None:
        """Take every step that fell due, at its own instant."""
        for step in self.plan.steps[self.steps_taken :]:
            if step.at > elapsed:
                break
            self.quota.scale(step.factor, step.at)
            self.steps_taken += 1

    def truth(self, elapsed: float) -> dict[str, Any]:
        self.catch_up(elapsed)
        status = self.quota.status(elapsed)
        return {
            "quota_per_second": self.plan.rate_at(elapsed),
            "limit": status.limit,
            "remaining": round(status.remaining, 3),
            "asked": self.verdicts.total(),
            "admitted": self.verdicts[Verdict.ADMITTED],
            "rate_limited": self.verdicts[Verdict.RATE_LIMITED],
            "down_answers": self.verdicts[Verdict.DOWN],
        }


@dataclass(slots=True)
class MockApi:
    plan: MockPlan
    accounts: list[Account] = field(init=False)
    started_at: float | None = None
    answered: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    times_done: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.accounts = [Account(plan) for plan in self.plan.accounts]

    def begin(self, now: float, draw: float, key: int = 0) -> Decision:
        """Rule on a call that arrives ``now``; an admitted one must be followed by ``end``. ``draw`` is in [0, 1)."""
        if self.started_at is None:
            self.started_at = now
        elapsed, account = self.elapsed(now), self.accounts[key]
        account.catch_up(elapsed)
        if self.plan.is_down_at(elapsed):
            verdict = Verdict.DOWN
        else:
            verdict = Verdict.ADMITTED if account.quota.take(elapsed) else Verdict.RATE_LIMITED
        account.verdicts[verdict] += 1
        if verdict is not Verdict.ADMITTED:
            return Decision(verdict, account.quota.status(elapsed))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        service_time = self.plan.latency * (1 + LATENCY_SPREAD * (2 * draw - 1))
        return Decision(verdict, account.quota.status(elapsed), service_time)

    def end(self, now: float, *, answered: bool, item_id: str = "", key: int = 0) -> None:
        """An admitted call is over: ``answered``, or the caller hung up before."""
        self.in_flight -= 1
        self.accounts[key].quota.end(self.elapsed(now))
        self.answered += answered
        if answered and item_id and (item_id in self.times_done or len(self.times_done) < MOST_IDS):
            self.times_done[item_id] = self.times_done.get(item_id, 0) + 1

    def elapsed(self, now: float) -> float:
        return 0.0 if self.started_at is None else min(max(0.0, now - self.started_at), LONGEST_DURATION)

    def truth(self, now: float) -> dict[str, Any]:
        """What only the server knows, for displays: of all keys together, and of each if there are several."""
        elapsed = self.elapsed(now)
        keys = [account.truth(elapsed) for account in self.accounts]
        sums = {name: sum(key[name] for key in keys) for name in keys[0] if name != "quota_per_second"}
        return {
            "elapsed": round(elapsed, 3),
            "algorithm": self.plan.algorithm,
            "down": self.plan.is_down_at(elapsed),
            "quota_per_second": self.plan.rate_at(elapsed),
            "allowed_so_far": self.plan.allowed_between(0.0, elapsed),
            **sums,
            "answered": self.answered,
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
            "ids_done": len(self.times_done),
            "ids_done_twice": sum(times > 1 for times in self.times_done.values()),
            **({"keys": keys} if self.plan.keys else {}),
        }


@dataclass(frozen=True, slots=True)
class Reply:
    """What a mocked API answers, before it is put on a socket or handed to a simulated client."""

    status: int
    body: Any
    """An object for JSON, or text or bytes as they are."""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
