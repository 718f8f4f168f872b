"""Headgate: the gate between your program and the rate-limited APIs it calls."""

from ._version import __version__
from .breaker import CircuitBreaker
from .clock import Clock, SystemClock
from .config import RateLimitConfig
from .core.control.protocol import Controller
from .core.decision import CircuitState, Outcome
from .core.signal import Limit, Signal
from .errors import (
    CircuitOpenError,
    ConfigError,
    CostTooLargeError,
    HeadgateError,
    Refused,
    TimeBudgetExceededError,
    TooManyKeysError,
    WaitTooLongError,
)
from .events import Event
from .limiter import AdaptiveRateLimiter, Feedback, KeySnapshot, LimiterSnapshot, Permit
from .recovery import RecoveryRateLimiter
from .retry import async_retry_with_backoff, retry_with_backoff

__all__ = [
    "AdaptiveRateLimiter",
    "CircuitBreaker",
    "CircuitOpenError",
    "CircuitState",
    "Clock",
    "ConfigError",
    "Controller",
    "CostTooLargeError",
    "Event",
    "Feedback",
    "HeadgateError",
    "KeySnapshot",
    "Limit",
    "LimiterSnapshot",
    "Outcome",
    "Permit",
    "RateLimitConfig",
    "RecoveryRateLimiter",
    "Refused",
    "Signal",
    "SystemClock",
    "TimeBudgetExceededError",
    "TooManyKeysError",
    "WaitTooLongError",
    "__version__",
    "async_retry_with_backoff",
    "retry_with_backoff",
]
