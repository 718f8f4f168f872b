"""What ``import headgate`` offers: these names, each with a word of explanation, and nothing else."""

from __future__ import annotations

import enum
import inspect
import types

import pytest

import headgate

LIMITING = {"AdaptiveRateLimiter", "RateLimitConfig", "Permit", "Feedback", "LimiterSnapshot", "KeySnapshot", "Event"}
RESILIENCE = {"CircuitBreaker", "CircuitState", "RecoveryRateLimiter", "retry_with_backoff", "async_retry_with_backoff"}
PAUSING = {"FixedCooldown", "ExponentialCooldown"}
CALLING = {
    "CallContext",
    "ErrorClassification",
    "Fallback",
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
    "ResilienceEvent",
}
BATCHES = {
    "BatchConfig",
    "BatchEvent",
    "BatchReport",
    "BatchRunner",
    "ItemContext",
    "LedgerError",
    "MemoryLedger",
    "Result",
    "SqliteLedger",
}
CRAWLS = {"CrawlConfig", "CrawlEvent", "CrawlReport", "Crawler", "Page"}
CREDENTIALS = {
    "Credential",
    "CredentialCoordinator",
    "CredentialState",
    "CredentialStore",
    "FileStore",
    "Lease",
    "StoreError",
    "credentials_from",
}
INTEGRATING = {"Passing"}
VENDORS = {"anthropic_client", "async_anthropic_client", "async_openai_client", "openai_client"}
"""Not in the list: they need a vendor's package, which a star import must not."""
SEARCHING = {
    "CrossrefProvider",
    "DeepResearch",
    "GoogleProvider",
    "PerplexityProvider",
    "SearchProvider",
    "SearchResult",
    "SemanticScholarProvider",
    "TavilyExtractProvider",
    "TavilyProvider",
}
SETTINGS = {"GLOBAL_DEFAULTS", "PROVIDER_CONFIGS"}
EXTENDING = {"Clock", "SystemClock", "VirtualClock", "Controller", "Outcome", "Signal", "Limit"}
ERRORS = {
    "HeadgateError",
    "ConfigError",
    "Refused",
    "CircuitOpenError",
    "WaitTooLongError",
    "TimeBudgetExceededError",
    "TooManyKeysError",
    "CostTooLargeError",
    "NoCredentialError",
    "Failed",
    "ProviderError",
    "RateLimitError",
    "AuthenticationError",
}
PROMISED = (
    LIMITING
    | RESILIENCE
    | PAUSING
    | CALLING
    | BATCHES
    | CRAWLS
    | CREDENTIALS
    | INTEGRATING
    | SEARCHING
    | EXTENDING
    | ERRORS
)

everything = pytest.mark.parametrize("name", sorted(PROMISED))


def test_the_list_is_what_is_promised() -> None:
    assert set(headgate.__all__) == PROMISED | SETTINGS | {"__version__"}


def test_nothing_is_listed_twice() -> None:
    assert len(headgate.__all__) == len(set(headgate.__all__))


def test_nothing_else_lies_around() -> None:
    others = {
        name
        for name, value in vars(headgate).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert others <= PROMISED | SETTINGS | VENDORS | {"TYPE_CHECKING"}


def test_a_star_import_gives_all_of_them() -> None:
    namespace: dict[str, object] = {}
    exec("from headgate import *", namespace)
    assert set(namespace) >= PROMISED


@everything
def test_each_can_be_imported(name: str) -> None:
    assert inspect.isclass(getattr(headgate, name)) or inspect.isfunction(getattr(headgate, name))


@everything
def test_each_is_explained_in_words_of_its_own(name: str) -> None:
    thing = getattr(headgate, name)
    words = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert words, f"{name} has no docstring"
    assert not words.startswith(f"{name}("), f"{name} has only the signature that dataclasses write"


@everything
def test_each_method_people_call_is_annotated(name: str) -> None:
    thing = getattr(headgate, name)
    functions = [thing] if inspect.isfunction(thing) else [f for f in vars(thing).values() if inspect.isfunction(f)]
    for function in functions:
        if not function.__name__.startswith("_"):
            assert "return" in function.__annotations__, f"{name}.{function.__name__} does not say what it returns"


def test_the_version_is_a_version() -> None:
    parts = headgate.__version__.split(".")
    assert len(parts) == 3
    assert all(part[0].isdigit() for part in parts)


def test_the_states_of_a_circuit_are_the_promised_three() -> None:
    assert [state.name for state in headgate.CircuitState] == ["CLOSED", "OPEN", "HALF_OPEN"]


def test_the_outcomes_are_the_promised_ten() -> None:
    values = (
        "ok rate_limited quota_exhausted capacity spend overloaded transient auth key_dead too_large invalid abandoned"
    )
    assert issubclass(headgate.Outcome, enum.Enum)
    assert [outcome.value for outcome in headgate.Outcome] == values.split()


@pytest.mark.parametrize(
    ("names", "retried", "uses_attempt", "counts"),
    [
        ("RATE_LIMITED", True, False, False),
        ("OVERLOADED TRANSIENT", True, True, True),
        ("TOO_LARGE INVALID", False, True, False),
        ("ABANDONED", False, False, False),
    ],
)
def test_an_outcome_means_what_the_table_says(names: str, retried: bool, uses_attempt: bool, counts: bool) -> None:
    for name in names.split():
        outcome = headgate.Outcome[name]
        assert (outcome.retried, outcome.uses_attempt, outcome.counts_against_target) == (
            retried,
            uses_attempt,
            counts,
        )


@pytest.mark.parametrize("name", ["QUOTA_EXHAUSTED", "SPEND", "AUTH", "KEY_DEAD"])
def test_what_another_credential_may_cure_costs_no_attempt_and_blames_nobody(name: str) -> None:
    outcome = headgate.Outcome[name]
    assert outcome.needs_other_credential
    assert (outcome.uses_attempt, outcome.counts_against_target) == (False, False)
