"""Calls with resilience: one function around every call to a provider.

    result = await execute_with_resilience(search, "tavily", time_budget=20)

execute    the waiting, with await and without          streaming       the same for answers that come in pieces
call       what must happen next to one call            retry           whether and when to try again
classify   what an error means                          decorator       ``@guarded``
config     the settings of a provider and of one call   call_holdings   what an attempt holds: lease, permit, probe
fallback   another target, and why                      fallback_call   the calls to several targets
manager    all providers of a process, kill switches    events          what a call emits to listeners
recovery   the way back after an outage                 context         what a function may know of its call

The names here are what programs use; each is loaded when it is first taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .circuit_breaker import CircuitBreaker
    from .classify import ErrorClassification, classify_error
    from .config import GLOBAL_DEFAULTS, PROVIDER_CONFIGS, ProviderResilienceConfig, RateLimiterConfig
    from .context import CallContext
    from .decorator import guarded
    from .execute import execute_with_resilience, execute_with_resilience_sync
    from .fallback import Fallback
    from .manager import (
        ProviderResilienceManager,
        ProviderStatus,
        get_resilience_manager,
        reset_resilience_manager_for_testing,
    )
    from .recovery import RecoveryRateLimiter
    from .retry import async_retry_with_backoff, retry_with_backoff
    from .streaming import ResilientStream, stream_with_resilience

__all__ = [
    "GLOBAL_DEFAULTS",
    "PROVIDER_CONFIGS",
    "CallContext",
    "CircuitBreaker",
    "ErrorClassification",
    "Fallback",
    "ProviderResilienceConfig",
    "ProviderResilienceManager",
    "ProviderStatus",
    "RateLimiterConfig",
    "RecoveryRateLimiter",
    "ResilientStream",
    "async_retry_with_backoff",
    "classify_error",
    "execute_with_resilience",
    "execute_with_resilience_sync",
    "get_resilience_manager",
    "guarded",
    "reset_resilience_manager_for_testing",
    "retry_with_backoff",
    "stream_with_resilience",
]

__getattr__ = lazy_names(
    __name__,
    {
        "circuit_breaker": ("CircuitBreaker",),
        "classify": ("ErrorClassification", "classify_error"),
        "config": ("GLOBAL_DEFAULTS", "PROVIDER_CONFIGS", "ProviderResilienceConfig", "RateLimiterConfig"),
        "context": ("CallContext",),
        "decorator": ("guarded",),
        "execute": ("execute_with_resilience", "execute_with_resilience_sync"),
        "fallback": ("Fallback",),
        "manager": (
            "ProviderResilienceManager",
            "ProviderStatus",
            "get_resilience_manager",
            "reset_resilience_manager_for_testing",
        ),
        "recovery": ("RecoveryRateLimiter",),
        "retry": ("async_retry_with_backoff", "retry_with_backoff"),
        "streaming": ("ResilientStream", "stream_with_resilience"),
    },
)
