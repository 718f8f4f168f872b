"""Who is speaking? The address tells, else the words the headers use, else the shape of the numbers.

Knowing the speaker changes little, and only where vendors mean different things by the
same words: how long a window is, what a reset says, what to do when nothing is said.
"""

from __future__ import annotations

from ..core.signal import Limit
from .headers import Budget, Spoken
from .times import EPOCH_MILLISECONDS_FROM, number

HOSTS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure-openai",
    "cognitiveservices.azure.com": "azure-openai",
    "services.ai.azure.com": "azure-openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gemini",
    "aiplatform.googleapis.com": "gemini",
    "customsearch.googleapis.com": "google-search",
    "www.googleapis.com": "google-search",
    "api.mistral.ai": "mistral",
    "api.groq.com": "groq",
    "openrouter.ai": "openrouter",
    "api.tavily.com": "tavily",
    "api.perplexity.ai": "perplexity",
    "api.semanticscholar.org": "semantic-scholar",
    "api.github.com": "github",
    "gitlab.com": "gitlab",
    "reddit.com": "reddit",
    "slack.com": "slack",
    "discord.com": "discord",
    "myshopify.com": "shopify",
    "api.stripe.com": "stripe",
    "api.cloudflare.com": "cloudflare",
}
MOST_LABELS = 5
"""Labels of a host that are compared, from its end."""

_MARKS = (
    ("x-groq-region", "groq"),
    ("apim-request-id", "azure-openai"),
    ("x-ms-region", "azure-openai"),
    ("x-ratelimit-type", "azure-openai"),
    ("x-github-request-id", "github"),
    ("x-ratelimit-resource", "github"),
    ("x-ratelimit-bucket", "discord"),
    ("x-ratelimit-scope", "discord"),
    ("ratelimit-observed", "gitlab"),
    ("ratelimit-name", "gitlab"),
    ("x-shopify-shop-api-call-limit", "shopify"),
    ("stripe-rate-limited-reason", "stripe"),
    ("stripe-should-retry", "stripe"),
)

_MINUTE, _DAY = 60.0, 86400.0


def by_host(host: str) -> str:
    """The dialect of a known address, or nothing."""
    if not host:
        return ""
    labels = host.partition(":")[0].split(".")[-MOST_LABELS:]
    for first in range(len(labels) - 1):
        known = HOSTS.get(".".join(labels[first:]))
        if known:
            return known
    return ""


def by_headers(spoken: Spoken) -> str:
    """The dialect that the headers' own words give away, or nothing."""
    marks = spoken.marks
    if marks:
        for mark, dialect in _MARKS:
            if mark in marks:
                return dialect
    for budget in spoken.budgets.values():
        known = _by_budget(budget)
        if known:
            return known
    return ""


def by_pace(dialect: str, limits: list[Limit]) -> str:
    """Groq and OpenAI use the same names.

    Where neither the address nor Groq's region tells them apart, what is relied on is that Groq counts
    requests by the day, which shows in how slowly they come back.
    """
    daily = any(limit.window == _DAY and limit.dimension == "requests" for limit in limits)
    return "groq" if dialect == "openai" and daily else dialect


def by_convention(spoken: Spoken) -> str:
    """Which convention the headers follow when nobody in particular is recognised."""
    if "ratelimit" in spoken.marks or "ratelimit-policy" in spoken.marks:
        return "ietf"
    if spoken.budgets:
        return "x-ratelimit" if any(budget.meaning.family for budget in spoken.budgets.values()) else "ietf"
    return "rfc9110" if spoken.retries else ""


def implied_window(limit: float | None, remaining: float | None, reset: float | None) -> float | None:
    """The window that a bucket's own numbers imply: ``reset`` is the time in which what was used comes back.

    4,999 of 5,000 left and whole in 12 ms is 5,000 a minute; 14,370 of 14,400 and 2m59s is a day. Those who are read
    this way count calls by the minute or the day and by nothing else: 588 of 600 left and 40 s to go is
    no hour, but a window that is not a bucket.
    """
    if limit is None or remaining is None or not reset or remaining >= limit:
        return None
    window = reset * limit / (limit - remaining)
    return next((span for span in (_MINUTE, _DAY) if span / 2 <= window <= span * 2), None)


def _by_budget(budget: Budget) -> str:
    what, family, parts = budget.meaning.budget, budget.meaning.family, budget.parts
    if family == "anthropic-":
        return "anthropic"
    if family != "x-":
        return ""
    if "renewal" in parts:
        return "azure-openai"
    if what in ("req-minute", "tokens-minute"):
        return "mistral"
    if what in ("requests", "tokens"):
        return "openai"
    if what == "":
        if "reset_after" in parts:
            return "discord"
        if "used" in parts and "limit" not in parts:
            return "reddit"
        if (number(parts.get("reset", "")) or 0.0) >= EPOCH_MILLISECONDS_FROM:
            return "openrouter"
    return ""
