"""Calls with resilience: one function around every call to a provider.

    result = await execute_with_resilience(search, "tavily", time_budget=20)

taxonomy    what an error means                    manager   all providers of a process
config      how calls behave, and who decides it   target    one provider: its settings and its keys
call        what may happen next to one call       passage   what it takes on its way through the gate
executor    the waiting, with await and without    streaming the same for answers that come in pieces
switch      the operator's way out                 story     what is told to those who listen
"""

from .config import GLOBAL_DEFAULTS, PROVIDER_CONFIGS, ProviderResilienceConfig, RateLimiterConfig
from .context import CallContext
from .decorating import guarded
from .executor import execute_with_resilience, execute_with_resilience_sync
from .manager import (
    ProviderResilienceManager,
    ProviderStatus,
    get_resilience_manager,
    reset_resilience_manager_for_testing,
)
from .streaming import ResilientStream, stream_with_resilience
from .taxonomy import ErrorClassification, classify_error

__all__ = [
    "GLOBAL_DEFAULTS",
    "PROVIDER_CONFIGS",
    "CallContext",
    "ErrorClassification",
    "ProviderResilienceConfig",
    "ProviderResilienceManager",
    "ProviderStatus",
    "RateLimiterConfig",
    "ResilientStream",
    "classify_error",
    "execute_with_resilience",
    "execute_with_resilience_sync",
    "get_resilience_manager",
    "guarded",
    "reset_resilience_manager_for_testing",
    "stream_with_resilience",
]
