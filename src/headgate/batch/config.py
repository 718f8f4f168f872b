"""How a batch behaves: every setting with its default, its range and its reason; and what the parts of a run share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..checks import check_field, is_whole
from ..core.decision import LONGEST_WAIT, UNKNOWN, Outcome
from ..engine.supervisor import STANDSTILL

if TYPE_CHECKING:
    import random

    from ..clock import Clock
    from ..engine.supervisor import PauseSwitch, Supervisor
    from ..events import EventDispatcher
    from ..limiter import AdaptiveRateLimiter
    from ..resilience.classify import ClassifyError
    from ..resilience.recovery import RecoveryRateLimiter
    from .item import Backlog
    from .pricing import Budget
    from .report import BatchReport

SCOPES = ("credential", "key", "provider")
DURABILITIES = ("full", "normal")
MOST_ROWS_IN_MEMORY = 1_000_000
CATEGORIES = tuple(outcome.value for outcome in Outcome if outcome is not Outcome.OK)

# For jobs, in which no caller waits for a single row: `headgate run`, and the workers of a fleet.
ALIKE = 100
"""Rows that fail with the same error before a job stops: the others would fail too."""
RETRY_CIRCUIT_AFTER = 5.0
"""Seconds until an open circuit is probed: an early probe costs little, and every second after an outage in which
nothing is sent is lost."""


class PausePolicy(Protocol):
    """How long to pause where the server does not say: ``FixedCooldown``, ``ExponentialCooldown`` or your own."""

    def pause(self, eras_in_a_row: int) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConfig:
    """Settings of a ``BatchRunner``."""

    max_attempts: int = 3
    """Calls of one row in all; being rate limited does not count."""
    max_rate_limit_retries: int = 20
    """How often one row may be told to come back later, or to come with another credential."""
    base_delay: float = 0.2
    max_delay: float = 5.0
    """The ceiling of the backoff after a failure; only what the server asks for is longer."""
    retry_budget: float = 0.2
    """Which share of a key's calls may be retries of failures; three at a time always may."""

    cooldown: PausePolicy | None = None
    """How long to pause after a 429 that does not say; None leaves that to the strategy of the limiter."""
    cooldown_scope: str = "credential"
    """What pauses after a 429: the credential it was seen with (the key, where there are none), the key, or all."""
    ramp: RecoveryRateLimiter | None = None
    """A slow way back after a pause or an outage, for draining into a server that has just come back."""

    attempt_timeout: float | None = None
    """Seconds for one call of the worker; one that takes longer has failed."""
    item_deadline: float | None = None
    """Seconds from reading a row until it must be done; a row that is not is dead."""
    deadline: float | None = None
    """Seconds for the whole run; rows that are not done by then stay open."""
    standstill: float | None = None
    """Stop once nothing can start for so many seconds; rows stay open. None waits for as long as it takes."""

    max_tokens: float | None = None
    max_cost: float | None = None
    """Start nothing that could spend more than this, earlier runs of the same ledger included."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """What one unit of a cost's dimension costs: ``{"input_tokens": 2.5e-6, "output_tokens": 1e-5}``."""

    fail_fast: tuple[str, ...] = ("auth", "key_dead")
    """Outcomes that end the run when a row is lost to one: what is wrong with one row is wrong with all."""
    hopeless_after: int | None = None
    """Stop when the first so many rows have all failed with the same error and none was done; None: never."""
    window: int = 10_000
    """Rows in memory at most: waiting, in flight or not yet handed out. When it is full, the input waits."""
    durability: Literal["full", "normal"] = "full"
    """For a ledger that is given by its path: "full" survives a power cut, "normal" only the process."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prices", dict(self.prices))
        object.__setattr__(self, "fail_fast", tuple(self.fail_fast))
        check_field(self, "max_attempts", is_whole, "a whole number, 1 or more")
        check_field(self, "max_rate_limit_retries", lambda value: is_whole(value, 0), "a whole number, 0 or more")
        check_field(
            self,
            "base_delay",
            lambda seconds: 0 < seconds <= self.max_delay,
            f"above 0 and at most max_delay={self.max_delay}",
        )
        check_field(
            self, "max_delay", lambda seconds: 0 < seconds <= LONGEST_WAIT, "seconds above 0 and at most 31 days"
        )
        check_field(self, "retry_budget", lambda share: 0 <= share < inf, "a ratio of 0 or more")
        check_field(
            self, "cooldown", lambda policy: policy is None or callable(policy.pause), "None or an object with pause(n)"
        )
        check_field(self, "cooldown_scope", lambda scope: scope in SCOPES, f"one of {', '.join(SCOPES)}")
        check_field(self, "ramp", lambda ramp: ramp is None or _is_ramp(ramp), "a RecoveryRateLimiter")
        for name in ("attempt_timeout", "item_deadline", "deadline", "standstill", "max_tokens", "max_cost"):
            check_field(self, name, lambda value: value is None or 0 < value < inf, "None or a finite number above 0")
        check_field(self, "prices", lambda by: all(0 <= price < inf for price in by.values()), "numbers of 0 or more")
        check_field(
            self, "hopeless_after", lambda rows: rows is None or is_whole(rows), "None or a whole number, 1 or more"
        )
        check_field(
            self,
            "fail_fast",
            lambda kinds: set(kinds) <= set(CATEGORIES),
            f"a tuple with any of {', '.join(CATEGORIES)}",
            repr,
        )
        most = MOST_ROWS_IN_MEMORY
        check_field(self, "window", lambda rows: is_whole(rows) and rows <= most, f"a whole number from 1 to {most:,}")
        check_field(self, "durability", lambda kind: kind in DURABILITIES, f"one of {', '.join(DURABILITIES)}")


def job_config(*, max_attempts: int, wait: bool, keep_going: bool, **others: Any) -> BatchConfig:
    """The settings of a job, which has more time than a program that waits for its rows."""
    return BatchConfig(
        max_attempts=max_attempts,
        base_delay=1.0,
        max_delay=60.0,
        standstill=None if wait else STANDSTILL,
        hopeless_after=None if keep_going else ALIKE,
        **others,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What all parts of one run share: settings, clock, limiter, how far it has got and whether it is to stop."""

    config: BatchConfig
    clock: Clock
    rng: random.Random
    limiter: AdaptiveRateLimiter
    budget: Budget
    pause: PauseSwitch
    backlog: Backlog
    report: BatchReport
    events: EventDispatcher
    supervisor: Supervisor
    classify_error: ClassifyError | None = None
    """The caller's own reading of what a worker raises."""
    ends_at: float = UNKNOWN


def _is_ramp(given: object) -> bool:
    from ..resilience.recovery import RecoveryRateLimiter  # few runs have one

    return isinstance(given, RecoveryRateLimiter)
