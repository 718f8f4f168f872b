"""The exact codes vendors put into their errors, and the outcome each one stands for.

A code is compared whole; no message is ever searched for words. That is why the table
can be this short and why "4290 tokens" is no 429.
"""

from __future__ import annotations

from ..core.decision import Outcome

_WORDS = {
    Outcome.KEY_DEAD: """
        insufficient_quota credit_balance_exhausted organization_spend_limit_exceeded project_spend_limit_exceeded
        organization_usage_limit_exceeded billing_error billing_not_active account_deactivated
        BILLING_DISABLED CONSUMER_SUSPENDED account_inactive token_revoked""",
    Outcome.QUOTA_EXHAUSTED: "quota_exceeded quotaExceeded dailyLimitExceeded",
    Outcome.RATE_LIMITED: """
        rate_limit_exceeded rate_limit_error rate_limited ratelimited rate_limit too_many_requests
        RESOURCE_EXHAUSTED rateLimitExceeded userRateLimitExceeded userRateLimitExceededUnreg RATE_LIMIT_EXCEEDED
        THROTTLED quota-exceeded abnormal-usage-detected""",
    Outcome.OVERLOADED: "overloaded_error UNAVAILABLE temporary-reduced-capacity",
    Outcome.TRANSIENT: """
        api_error server_error internal_server_error timeout_error INTERNAL DEADLINE_EXCEEDED lock_timeout
        internal_error fatal_error service_unavailable request_timeout""",
    Outcome.AUTH: """
        authentication_error permission_error invalid_api_key invalid_auth not_authed token_expired forbidden
        keyInvalid API_KEY_INVALID UNAUTHENTICATED PERMISSION_DENIED SERVICE_DISABLED API_KEY_SERVICE_BLOCKED""",
    Outcome.TOO_LARGE: "request_too_large context_length_exceeded MAX_COST_EXCEEDED",
    Outcome.INVALID: "invalid_request_error not_found_error INVALID_ARGUMENT NOT_FOUND",
}

OUTCOME_OF = {word: outcome for outcome, words in _WORDS.items() for word in words.split()}
"""Every known code. Where a body has several, the one that weighs most decides."""

WEIGHT = tuple(_WORDS)
"""Heaviest first: a dead key is dead whatever else is said, and a plain refusal gives way to a reason."""


def heaviest(*codes: object) -> Outcome | None:
    """The outcome that the codes found in one error stand for together."""
    known = {OUTCOME_OF[code] for code in codes if isinstance(code, str) and code in OUTCOME_OF}
    return next((outcome for outcome in WEIGHT if outcome in known), None)
