"""Platforms, code forges and search APIs: each has words of its own, or next to none.

Slack             {"ok": false, "error": "ratelimited"}                      also with 200
Discord           {"message": ..., "retry_after": 64.57, "global": false}
Shopify GraphQL   {"errors": [{"extensions": {"code": "THROTTLED"}}],
                   "extensions": {"cost": {"throttleStatus": {...}}}}        with 200
Stripe            the error object of OpenAI, and headers that say why
Reddit            x-ratelimit-used without a limit
Cloudflare        its edge answers with a page
GitHub            {"message": "You have exceeded a secondary rate limit...", "documentation_url": ...}
Tavily            {"detail": {"error": ...}}                                 its status says all: 432, 433
Semantic Scholar  {"message": "Too Many Requests...", "code": "429"}
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.decision import Outcome
from ...core.signal import Limit
from ..dialect import Dialect, read_flat_error
from ..error_body import ErrorDetails, Json, code_text, objects, outcome_of_codes
from ..headers import RateLimitHeaders
from ..ietf_fields import LARGEST_COUNT
from ..limits import count_of
from ..retry_after import Arrival, seconds_of, within_bounds

SECONDARY_LIMIT_PAUSE = 60.0
"""GitHub's own advice where it refuses and says nothing: at least a minute."""

_SECONDARY_LIMIT = "You have exceeded a secondary rate limit"


def read_slack_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    error = body.get("error")
    if body.get("ok") is not False or not isinstance(error, str):
        return None
    return ErrorDetails(outcome=outcome_of_codes(error) or Outcome.INVALID, reason=code_text(error), dialect="slack")


def read_discord_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    floor = seconds_of(body.get("retry_after"), now=arrival.now)
    if floor is None or "global" not in body:
        return None
    return ErrorDetails(
        outcome=Outcome.RATE_LIMITED,
        reason=code_text(body.get("code")),
        floor=floor,
        scope="global" if body["global"] is True else None,
        dialect="discord",
    )


def _discord_scope(headers: RateLimitHeaders, is_spent: bool) -> str | None:
    marks = headers.marks
    if code_text(marks.get("x-ratelimit-scope")) == "global" or code_text(marks.get("x-ratelimit-global")) == "true":
        return "global"
    return code_text(marks.get("x-ratelimit-bucket") or marks.get("x-ratelimit-scope")) or None


def _shopify_limits(marks: Mapping[str, str], arrival: Arrival) -> list[Limit]:
    """``x-shopify-shop-api-call-limit: 32/40``, used of the whole."""
    used, _, limit = marks.get("x-shopify-shop-api-call-limit", "").partition("/")
    spent, whole = count_of(used), count_of(limit)
    if spent is None or not whole:
        return []
    return [Limit(limit=whole, remaining=max(0.0, whole - spent), name="shop")]


def read_shopify_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    codes = [
        extensions.get("code")
        for error in objects(body.get("errors"))
        if isinstance(extensions := error.get("extensions"), Mapping)
    ]
    outcome = outcome_of_codes(*codes)
    extensions = body.get("extensions")
    cost = extensions.get("cost") if isinstance(extensions, Mapping) else None
    state = cost.get("throttleStatus") if isinstance(cost, Mapping) else None
    if not isinstance(state, Mapping) or not isinstance(cost, Mapping):
        return ErrorDetails(outcome=outcome, reason=code_text(codes[0])) if outcome is not None else None
    details = ErrorDetails(outcome=outcome, reason=code_text(codes[0]) if codes else "", dialect="shopify")
    whole, left, pace = (_count(state.get(key)) for key in ("maximumAvailable", "currentlyAvailable", "restoreRate"))
    asked = _count(cost.get("requestedQueryCost"))
    if whole is None or left is None:
        return details
    details.limits = (
        Limit(
            dimension="cost",
            limit=whole,
            remaining=left,
            reset=within_bounds((whole - left) / pace) if pace else None,
            window=whole / pace if pace and whole else None,
            name="graphql",
        ),
    )
    if outcome is Outcome.RATE_LIMITED and asked is not None:
        if asked > whole:
            details.outcome = Outcome.TOO_LARGE
        elif pace:
            details.floor = within_bounds((asked - left) / pace)
    return details


def read_github_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    message, link = body.get("message"), body.get("documentation_url")
    secondary = isinstance(message, str) and message.startswith(_SECONDARY_LIMIT)
    if secondary or (isinstance(link, str) and link[-64:].endswith("secondary-rate-limits")):
        return ErrorDetails(outcome=Outcome.RATE_LIMITED, reason="secondary_rate_limit", dialect="github")
    return None


def _github_scope(headers: RateLimitHeaders, is_spent: bool) -> str | None:
    return (code_text(headers.marks.get("x-ratelimit-resource")) or None) if is_spent else None


def _count(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_COUNT:
        return None
    return float(value)


SLACK = Dialect(name="slack", title="Slack", hosts=("slack.com",), read_error=read_slack_error, hides_errors=True)
DISCORD = Dialect(
    name="discord",
    title="Discord",
    hosts=("discord.com",),
    marks={"x-ratelimit-bucket": True, "x-ratelimit-scope": True},
    reads={"x-ratelimit-global": True},
    owns_budget=lambda budget: (
        (budget.meaning.family, budget.meaning.budget) == ("x-", "") and "reset_after" in budget.parts
    ),
    scope=_discord_scope,
    read_error=read_discord_error,
)
SHOPIFY = Dialect(
    name="shopify",
    title="Shopify",
    hosts=("myshopify.com",),
    marks={"x-shopify-shop-api-call-limit": True},
    read_limits=_shopify_limits,
    read_error=read_shopify_error,
    hides_errors=True,
)
STRIPE = Dialect(
    name="stripe",
    title="Stripe",
    hosts=("api.stripe.com",),
    marks={"stripe-rate-limited-reason": True, "stripe-should-retry": False},
)
REDDIT = Dialect(
    name="reddit",
    title="Reddit",
    hosts=("reddit.com",),
    owns_budget=lambda budget: (
        (budget.meaning.family, budget.meaning.budget) == ("x-", "")
        and "used" in budget.parts
        and "limit" not in budget.parts
    ),
    windows={"": 600.0},
)
CLOUDFLARE = Dialect(
    name="cloudflare",
    title="Cloudflare",
    hosts=("api.cloudflare.com",),
    reads={"cf-ray": False},
    page_mark="cf-ray",
)
GITHUB = Dialect(
    name="github",
    title="GitHub",
    hosts=("api.github.com",),
    marks={"x-github-request-id": False, "x-ratelimit-resource": True},
    windows={"": 3600.0},
    resource_windows={"search": 60.0, "code_search": 60.0},
    silent_pause=SECONDARY_LIMIT_PAUSE,
    scope=_github_scope,
    read_error=read_github_error,
)
GITLAB = Dialect(
    name="gitlab",
    title="GitLab",
    hosts=("gitlab.com",),
    marks={"ratelimit-observed": True, "ratelimit-name": True},
)
TAVILY = Dialect(
    name="tavily",
    title="Tavily",
    hosts=("api.tavily.com",),
    statuses=(432, 433),
)
PERPLEXITY = Dialect(name="perplexity", title="Perplexity", hosts=("api.perplexity.ai",))
SEMANTIC_SCHOLAR = Dialect(
    name="semantic-scholar",
    title="Semantic Scholar",
    hosts=("api.semanticscholar.org",),
    read_error=read_flat_error,
)
