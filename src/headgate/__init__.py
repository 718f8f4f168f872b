"""Headgate: the gate between your program and the rate-limited APIs it calls."""

from typing import TYPE_CHECKING

from ._version import __version__
from .clock import Clock, SystemClock
from .config import RateLimitConfig
from .core.controller import Controller
from .core.cooldown import ExponentialCooldown, FixedCooldown
from .core.decision import CircuitState, Outcome
from .core.signal import Limit, Signal
from .errors import (
    AuthenticationError,
    CircuitOpenError,
    ConfigError,
    CostTooLargeError,
    Failed,
    HeadgateError,
    NoCredentialError,
    ProviderError,
    RateLimitError,
    Refused,
    TimeBudgetExceededError,
    TooManyKeysError,
    WaitTooLongError,
)
from .events import Event, ResilienceEvent
from .formatting import filter_logs as _filter_logs
from .lazy_names import lazy_names as _lazy_names
from .limiter import AdaptiveRateLimiter, Feedback, KeySnapshot, LimiterSnapshot, Permit
from .moved import register as _register_moved

if TYPE_CHECKING:
    from .batch import (
        BatchConfig,
        BatchEvent,
        BatchReport,
        BatchRunner,
        ItemContext,
        LedgerError,
        MemoryLedger,
        Result,
        SqliteLedger,
    )
    from .crawl import CrawlConfig, Crawler, CrawlEvent, CrawlReport, Page
    from .credentials import (
        Credential,
        CredentialCoordinator,
        CredentialState,
        CredentialStore,
        FileStore,
        Lease,
        StoreError,
        credentials_from,
    )
    from .integrations.anthropic import anthropic_client as anthropic_client
    from .integrations.anthropic import async_anthropic_client as async_anthropic_client
    from .integrations.client_gate import Passing
    from .integrations.openai import async_openai_client as async_openai_client
    from .integrations.openai import openai_client as openai_client
    from .lab.virtual_time import VirtualClock
    from .providers import (
        CrossrefProvider,
        GoogleProvider,
        PerplexityProvider,
        SearchProvider,
        SearchResult,
        SemanticScholarProvider,
        TavilyExtractProvider,
        TavilyProvider,
    )
    from .research import DeepResearch
    from .resilience import (
        GLOBAL_DEFAULTS,
        PROVIDER_CONFIGS,
        CallContext,
        CircuitBreaker,
        ErrorClassification,
        Fallback,
        ProviderResilienceConfig,
        ProviderResilienceManager,
        ProviderStatus,
        RateLimiterConfig,
        RecoveryRateLimiter,
        ResilientStream,
        async_retry_with_backoff,
        classify_error,
        execute_with_resilience,
        execute_with_resilience_sync,
        get_resilience_manager,
        guarded,
        reset_resilience_manager_for_testing,
        retry_with_backoff,
        stream_with_resilience,
    )

_LATER = {
    "batch": (
        "BatchConfig",
        "BatchEvent",
        "BatchReport",
        "BatchRunner",
        "ItemContext",
        "LedgerError",
        "MemoryLedger",
        "Result",
        "SqliteLedger",
    ),
    "crawl": ("CrawlConfig", "CrawlEvent", "CrawlReport", "Crawler", "Page"),
    "credentials": (
        "Credential",
        "CredentialCoordinator",
        "CredentialState",
        "CredentialStore",
        "FileStore",
        "Lease",
        "StoreError",
        "credentials_from",
    ),
    "integrations.anthropic": ("anthropic_client", "async_anthropic_client"),
    "integrations.openai": ("async_openai_client", "openai_client"),
    "integrations.client_gate": ("Passing",),
    "providers": (
        "CrossrefProvider",
        "GoogleProvider",
        "PerplexityProvider",
        "SearchProvider",
        "SearchResult",
        "SemanticScholarProvider",
        "TavilyExtractProvider",
        "TavilyProvider",
    ),
    "research": ("DeepResearch",),
    "resilience": (
        "CallContext",
        "CircuitBreaker",
        "ErrorClassification",
        "Fallback",
        "GLOBAL_DEFAULTS",
        "PROVIDER_CONFIGS",
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
    ),
    "lab.virtual_time": ("VirtualClock",),
}
"""Parts that are loaded when one of their names is first asked for: a limiter alone should not pay for the rest.

The clients of vendors are not in ``__all__``: they need the vendor's package, which ``import *`` must not.
"""

__all__ = [
    "GLOBAL_DEFAULTS",
    "PROVIDER_CONFIGS",
    "AdaptiveRateLimiter",
    "AuthenticationError",
    "BatchConfig",
    "BatchEvent",
    "BatchReport",
    "BatchRunner",
    "CallContext",
    "CircuitBreaker",
    "CircuitOpenError",
    "CircuitState",
    "Clock",
    "ConfigError",
    "Controller",
    "CostTooLargeError",
    "CrawlConfig",
    "CrawlEvent",
    "CrawlReport",
    "Crawler",
    "Credential",
    "CredentialCoordinator",
    "CredentialState",
    "CredentialStore",
    "CrossrefProvider",
    "DeepResearch",
    "ErrorClassification",
    "Event",
    "ExponentialCooldown",
    "Failed",
    "Fallback",
    "Feedback",
    "FileStore",
    "FixedCooldown",
    "GoogleProvider",
    "HeadgateError",
    "ItemContext",
    "KeySnapshot",
    "Lease",
    "LedgerError",
    "Limit",
    "LimiterSnapshot",
    "MemoryLedger",
    "NoCredentialError",
    "Outcome",
    "Page",
    "Passing",
    "Permit",
    "PerplexityProvider",
    "ProviderError",
    "ProviderResilienceConfig",
    "ProviderResilienceManager",
    "ProviderStatus",
    "RateLimitConfig",
    "RateLimitError",
    "RateLimiterConfig",
    "RecoveryRateLimiter",
    "Refused",
    "ResilienceEvent",
    "ResilientStream",
    "Result",
    "SearchProvider",
    "SearchResult",
    "SemanticScholarProvider",
    "Signal",
    "SqliteLedger",
    "StoreError",
    "SystemClock",
    "TavilyExtractProvider",
    "TavilyProvider",
    "TimeBudgetExceededError",
    "TooManyKeysError",
    "VirtualClock",
    "WaitTooLongError",
    "__version__",
    "async_retry_with_backoff",
    "classify_error",
    "credentials_from",
    "execute_with_resilience",
    "execute_with_resilience_sync",
    "get_resilience_manager",
    "guarded",
    "reset_resilience_manager_for_testing",
    "retry_with_backoff",
    "stream_with_resilience",
]


_filter_logs()
_register_moved()


__getattr__ = _lazy_names(__name__, _LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *(name for names in _LATER.values() for name in names)})
