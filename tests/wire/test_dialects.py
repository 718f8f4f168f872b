"""Every dialect's real answers, read into one signal."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.core.decision import Outcome
from headgate.core.signal import SILENT, Limit, Signal
from headgate.wire import read
from headgate.wire.dialect import Dialect
from headgate.wire.dialects import DIALECTS

Read = Callable[..., Signal]
RESET = 2600.0
MIDNIGHT_PACIFIC = 17.5 * 3600
"""From 13:30 UTC, 6:30 in California's summer, to midnight there."""


@pytest.fixture
def said(answers: dict[str, tuple[int, dict[str, str], object]], wall: float) -> Read:
    """Read one of the answers, after changing headers or body if the test says so."""

    def read_answer(name: str, *, without: tuple[str, ...] = (), url: str | None = None, **headers: str) -> Signal:
        status, sent, body = answers[name]
        kept = {key: value for key, value in sent.items() if key.lower() not in without}
        kept.update({key.replace("_", "-"): value for key, value in headers.items()})
        return read(status, kept, body, wall=wall, url=url)  # type: ignore[arg-type]

    return read_answer


def test_every_answer_reads_the_same_as_text_bytes_and_object(
    answers: dict[str, tuple[int, dict[str, str], Any]], wall: float
) -> None:
    for name, (status, headers, body) in answers.items():
        if isinstance(body, dict):
            text = json.dumps(body)
            signal = read(status, headers, body, wall=wall)
            assert read(status, headers, text, wall=wall) == signal, name
            assert read(status, list(headers.items()), text.encode(), wall=wall) == signal, name


def test_openai_limits(said: Read) -> None:
    signal = said("openai")
    assert (signal.outcome, signal.dialect, signal.retry_after) == (Outcome.OK, "openai", None)
    assert signal.limits == (
        Limit(dimension="requests", limit=5000, remaining=4999, reset=0.012, window=60),
        # Six minutes to be whole: whatever the window is, it is not the minute.
        Limit(dimension="tokens", limit=160000, remaining=159976, reset=360, window=None),
    )


def test_openai_long_go_duration(said: Read) -> None:
    assert said("openai", x_ratelimit_reset_tokens="16m17.764s").limits[1].reset == pytest.approx(977.764)


def test_openai_project_and_usage_based_tokens_are_budgets_of_their_own(wall: float) -> None:
    signal = read(
        200,
        {
            "x-ratelimit-limit-project-tokens": "1000",
            "x-ratelimit-remaining-project-tokens": "900",
            "x-ratelimit-reset-project-tokens": "6s",
            "x-ratelimit-limit-tokens_usage_based": "2000",
            "x-ratelimit-remaining-tokens_usage_based": "2000",
        },
        wall=wall,
    )
    assert signal.limits == (
        Limit(dimension="tokens", limit=1000, remaining=900, reset=6, name="project-tokens"),
        Limit(dimension="tokens", limit=2000, remaining=2000, name="tokens_usage_based"),
    )


def test_openai_429_waits_as_long_as_its_message_says(said: Read) -> None:
    signal = said("openai 429")
    assert signal == Signal(
        outcome=Outcome.RATE_LIMITED,
        retry_after=pytest.approx(0.374),
        limits=(Limit(dimension="tokens", limit=30000, remaining=14468, window=60, name="TPM"),),
        scope="gpt-4o",
        dialect="openai",
        reason="rate_limit_exceeded",
    )


def test_openai_reset_is_no_floor(answers: dict[str, Any], wall: float) -> None:
    headers = {**answers["openai"][1], "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "60s"}
    signal = read(429, headers, wall=wall)
    assert (signal.outcome, signal.retry_after) == (Outcome.RATE_LIMITED, None)
    assert signal.limits[0].reset == 60


@pytest.mark.parametrize(
    "code",
    [
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
    ],
)
@pytest.mark.parametrize("place", ["type", "code"])
def test_openai_spend_stops(code: str, place: str, wall: float) -> None:
    error = {"message": "You exceeded your current quota", "type": "x", "code": "y", place: code}
    signal = read(429, {"retry-after": "1"}, {"error": error}, wall=wall)
    assert (signal.outcome, signal.retry_after) == (Outcome.SPEND, None)


RATE = {"type": "rate_limit_error", "message": "x"}
ENFORCED = {**RATE, "details": {"error_code": "enforced_spend_limit_reached"}}
USAGE_LIMIT = "You have reached your specified workspace API usage limits. You will regain access on 2026-12-01."
PREPAID = {"code": 402, "message": "x", "status": "RESOURCE_EXHAUSTED", "details": []}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"type": "error", "error": ENFORCED}),
        (402, {"type": "error", "error": {"type": "billing_error", "message": "x"}}),
        (400, {"type": "error", "error": {"type": "invalid_request_error", "message": USAGE_LIMIT}}),
        (402, {"error": PREPAID}),
        (400, {"error": {"message": "x", "type": "invalid_request_error", "code": "blocked_api_access"}}),
    ],
)
@pytest.mark.parametrize("headers", [{}, {"retry-after": "7"}])
def test_spend_stops_of_other_vendors(status: int, body: dict[str, Any], headers: dict[str, str], wall: float) -> None:
    signal = read(status, headers, body, wall=wall)
    assert (signal.outcome, signal.retry_after) == (Outcome.SPEND, None)


def test_a_refusal_without_retry_after_is_no_spend_stop(wall: float) -> None:
    bodies = [{"type": "error", "error": RATE}, {"error": {"code": "rate_limit_exceeded", "type": "tokens"}}]
    assert {read(429, {}, body, wall=wall).outcome for body in bodies} == {Outcome.RATE_LIMITED}
    other = {"type": "error", "error": {"type": "invalid_request_error", "message": f"Quote: {USAGE_LIMIT}"}}
    assert read(400, {}, other, wall=wall).outcome is Outcome.INVALID


FULL = {"error": {"message": "Resource Unavailable", "type": "resource_unavailable", "code": "resource_unavailable"}}
MODEL_FULL = {
    "error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"reason": "MODEL_CAPACITY_EXHAUSTED"}]}
}
GEMINI_FULL = {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE", "details": []}}
LIMITED = {"error": {"message": "x", "type": "tokens", "code": "rate_limit_exceeded"}}
UNNAMED = {"error": {"message": "Resource Unavailable", "type": None, "code": None}}


@pytest.mark.parametrize(
    ("status", "body", "tier", "outcome"),
    [
        (429, FULL, "", Outcome.CAPACITY),
        (429, MODEL_FULL, "", Outcome.CAPACITY),
        (429, UNNAMED, "flex", Outcome.CAPACITY),
        (429, UNNAMED, "", Outcome.RATE_LIMITED),
        (429, LIMITED, "flex", Outcome.RATE_LIMITED),
        (498, None, "flex", Outcome.CAPACITY),
        (498, None, "", Outcome.INVALID),
        (503, GEMINI_FULL, "flex", Outcome.CAPACITY),
        (503, GEMINI_FULL, "", Outcome.OVERLOADED),
        (503, None, "flex", Outcome.OVERLOADED),
    ],
)
def test_a_tier_that_is_full(status: int, body: Any, tier: str, outcome: Outcome, wall: float) -> None:
    assert read(status, {}, body, wall=wall, tier=tier).outcome is outcome


def test_groq_says_with_a_status_of_its_own_that_a_tier_is_full(said: Read) -> None:
    assert said("groq 498").outcome is Outcome.CAPACITY


def test_a_subscription_tells_when_its_windows_end(said: Read) -> None:
    signal = said("anthropic unified")
    assert (signal.outcome, signal.retry_after, signal.dialect) == (Outcome.RATE_LIMITED, 7200, "anthropic")
    assert signal.limits == (
        Limit(dimension="subscription", limit=100, remaining=0, reset=7200, window=18_000, name="5h"),
        Limit(
            dimension="subscription", limit=100, remaining=pytest.approx(58), reset=402_600, window=604_800, name="7d"
        ),
    )


@pytest.mark.parametrize(
    ("body", "is_unknown"),
    [
        ({"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}, True),
        ({"error": {"message": "x", "code": "DeploymentNotFound"}}, True),
        ({"type": "error", "error": {"type": "not_found_error", "message": "model: claude-x"}}, True),
        ({"error": {"code": 404, "message": "models/x is not found for API version v1", "status": "NOT_FOUND"}}, True),
        ({"type": "error", "error": {"type": "not_found_error", "message": "Not Found"}}, False),
        ({"error": {"message": "model_not_found", "code": None}}, False),
    ],
)
def test_a_model_that_the_server_does_not_have(body: dict[str, Any], is_unknown: bool, wall: float) -> None:
    signal = read(404, {}, body, wall=wall)
    assert (signal.outcome, signal.is_unknown_model) == (Outcome.INVALID, is_unknown)


def test_openai_requested_over_limit_can_never_pass(answers: dict[str, Any], wall: float) -> None:
    body = copy.deepcopy(answers["openai 429"][2])
    body["error"]["message"] = body["error"]["message"].replace("Requested 14655", "Requested 30001")
    assert read(429, {}, body, wall=wall).outcome is Outcome.TOO_LARGE


def test_openai_per_day_parks_until_the_reset(wall: float) -> None:
    message = (
        "Rate limit reached for o1 in organization org-x on requests per day (RPD): Limit 200, Used 200, Requested 1."
    )
    body = {"error": {"message": message, "type": "requests", "code": "rate_limit_exceeded"}}
    headers = {
        "x-ratelimit-limit-requests": "200",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "24h0m0s",
    }
    signal = read(429, headers, body, wall=wall, url="https://api.openai.com/v1/responses")
    assert (signal.outcome, signal.retry_after, signal.dialect) == (Outcome.QUOTA_EXHAUSTED, 86400, "openai")
    body["error"]["message"] += " Please try again in 7m12s."
    assert read(429, headers, body, wall=wall).retry_after == 432


def test_azure_used_up_with_reset_zero_waits_the_renewal_period(said: Read) -> None:
    signal = said("azure")
    assert (signal.outcome, signal.dialect, signal.retry_after) == (Outcome.RATE_LIMITED, "azure-openai", 60)
    assert signal.limits == (Limit(dimension="tokens", limit=5000, remaining=0, reset=60, window=60),)


def test_azure_message_and_header_the_longest_wins(said: Read) -> None:
    spare = {"x_ratelimit_remaining_tokens": "100"}
    assert said("azure", **spare).retry_after == 6
    assert said("azure", retry_after="9", **spare).retry_after == 9
    assert said("azure", retry_after_ms="9500", **spare).retry_after == 9.5


def test_azure_minus_one_means_no_data(said: Read) -> None:
    signal = said("azure", x_ratelimit_remaining_tokens="-1", x_ratelimit_reset_tokens="-1", retry_after_ms="-1")
    assert signal.limits == (Limit(dimension="tokens", limit=5000, window=60),)
    assert signal.retry_after == 6


def test_azure_ten_second_window(said: Read) -> None:
    assert said("azure", x_ratelimit_renewalperiod_tokens="10").limits[0].window == 10


def test_anthropic_limits(said: Read) -> None:
    signal = said("anthropic")
    assert signal.dialect == "anthropic"
    assert signal.limits == (
        Limit(dimension="requests", limit=50, remaining=49, reset=12, window=60),
        Limit(dimension="tokens", limit=40000, remaining=39000, reset=12, window=60),
        Limit(dimension="input_tokens", limit=30000, remaining=30000, reset=0, window=60),
        Limit(dimension="output_tokens", limit=10000, remaining=9000, reset=6, window=60),
    )


def test_anthropic_429(said: Read) -> None:
    signal = said("anthropic 429")
    assert (signal.outcome, signal.retry_after, signal.reason) == (Outcome.RATE_LIMITED, 12, "rate_limit_error")


def test_anthropic_529(said: Read) -> None:
    assert said("anthropic 529").outcome is Outcome.OVERLOADED


def test_anthropic_overload_inside_a_stream_of_200(said: Read) -> None:
    signal = said("anthropic stream")
    assert (signal.outcome, signal.dialect, signal.reason) == (Outcome.OVERLOADED, "anthropic", "overloaded_error")


def test_a_long_stream_is_read_from_its_end(answers: dict[str, Any], wall: float) -> None:
    beginning = 'event: ping\ndata: {"type":"ping"}\n\n' * 50_000
    assert read(200, {}, beginning + answers["anthropic stream"][2], wall=wall).outcome is Outcome.OVERLOADED
    assert read(200, {}, (beginning + answers["anthropic stream"][2]).encode(), wall=wall).dialect == "anthropic"


def test_gemini_speaks_in_its_body(said: Read) -> None:
    assert said("gemini") == Signal(
        outcome=Outcome.RATE_LIMITED,
        retry_after=26,
        limits=(
            Limit(
                dimension="input_tokens",
                limit=250000,
                remaining=0,
                window=60,
                name="GenerateContentInputTokensPerModelPerMinute-FreeTier",
            ),
        ),
        scope="gemini-2.5-flash",
        dialect="gemini",
        reason="RESOURCE_EXHAUSTED",
    )


def test_gemini_per_day_parks_until_midnight_pacific_whatever_the_delay_says(
    answers: dict[str, Any], wall: float
) -> None:
    body = copy.deepcopy(answers["gemini"][2])
    body["error"]["details"][0]["violations"][0]["quotaId"] = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
    signal = read(429, {}, [body], wall=wall)  # type: ignore[arg-type]
    assert (signal.outcome, signal.retry_after) == (Outcome.QUOTA_EXHAUSTED, MIDNIGHT_PACIFIC)
    assert (signal.limits[0].dimension, signal.limits[0].window) == ("requests", 86400)


def test_gemini_invalid_key_comes_as_400(wall: float) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    body = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": details}}
    assert read(400, {}, body, wall=wall).outcome is Outcome.AUTH


def test_mistral_limits_name_their_window(said: Read) -> None:
    signal = said("mistral")
    assert signal.dialect == "mistral"
    assert signal.limits == (
        Limit(dimension="tokens", limit=5000000, remaining=4999911, window=60, name="tokens-minute"),
        Limit(dimension="requests", limit=720, remaining=717, window=60, name="req-minute"),
    )


def test_mistral_429(said: Read) -> None:
    signal = said("mistral 429")
    assert (signal.outcome, signal.dialect, signal.reason) == (Outcome.RATE_LIMITED, "mistral", "rate_limited")


def test_groq_counts_requests_by_the_day(said: Read) -> None:
    signal = said("groq")
    assert signal.dialect == "groq"
    assert signal.limits == (
        Limit(dimension="requests", limit=14400, remaining=14370, reset=179.56, window=86400),
        Limit(dimension="tokens", limit=18000, remaining=17997, reset=7.66, window=60),
    )


@pytest.mark.parametrize(
    ("url", "mark"), [("https://api.groq.com/openai/v1/chat/completions", {}), (None, {"x_groq_region": "fra"})]
)
def test_groq_is_known_by_address_or_region_when_the_numbers_are_silent(
    said: Read, url: str | None, mark: dict[str, str]
) -> None:
    signal = said("groq", url=url, x_ratelimit_remaining_requests="14400", x_ratelimit_reset_requests="0s", **mark)
    assert (signal.dialect, signal.limits[0].window) == ("groq", 86400)


@pytest.mark.parametrize("hint", ["2", "7.66"])
def test_groq_retry_after(said: Read, hint: str) -> None:
    assert read(429, {"retry-after": hint}, wall=0).retry_after == float(hint)


def test_groq_413_too_large(said: Read) -> None:
    signal = said("groq 413")
    assert (signal.outcome, signal.dialect, signal.retry_after) == (Outcome.TOO_LARGE, "groq", None)


def test_openrouter_epoch_milliseconds(said: Read) -> None:
    signal = said("openrouter")
    assert (signal.dialect, signal.retry_after) == ("openrouter", RESET)
    assert signal.limits == (Limit(limit=50, reset=RESET),)


def test_openrouter_headers_inside_the_body(said: Read) -> None:
    signal = said("openrouter in the body")
    assert (signal.outcome, signal.retry_after) == (Outcome.QUOTA_EXHAUSTED, RESET)
    assert (signal.dialect, signal.reason) == ("openrouter", "free-models-per-day")
    assert signal.limits == (Limit(limit=50, remaining=0, reset=RESET),)


def test_openrouter_error_inside_a_200(said: Read, wall: float) -> None:
    assert said("openrouter in a 200").outcome is Outcome.TRANSIENT
    choice = {"choices": [{"error": {"code": 429, "message": "upstream"}, "finish_reason": "error"}]}
    assert read(200, {}, choice, wall=wall).outcome is Outcome.RATE_LIMITED


def test_openrouter_moderation_is_no_verdict_on_the_key(wall: float) -> None:
    body = {"error": {"code": 403, "message": "flagged", "metadata": {"reasons": ["x"], "flagged_input": "..."}}}
    assert read(403, {}, body, wall=wall).outcome is Outcome.INVALID


def test_tavily(said: Read) -> None:
    assert (said("tavily 429").outcome, said("tavily 429").retry_after) == (Outcome.RATE_LIMITED, 45)
    for answer in ("tavily 432", "tavily 433"):
        assert (said(answer).outcome, said(answer).dialect) == (Outcome.QUOTA_EXHAUSTED, "tavily")


def test_google_search_daily_limit_is_told_by_its_name(said: Read) -> None:
    signal = said("google search 429")
    assert (signal.outcome, signal.retry_after) == (Outcome.QUOTA_EXHAUSTED, MIDNIGHT_PACIFIC)
    assert (signal.dialect, signal.reason) == ("google-search", "rateLimitExceeded")


def test_google_search_minute_limit_is_a_rate_limit(answers: dict[str, Any], wall: float) -> None:
    body = copy.deepcopy(answers["google search 429"][2])
    body["error"]["message"] = body["error"]["message"].replace("Queries per day", "Queries per minute per user")
    signal = read(429, {}, body, wall=wall)
    assert (signal.outcome, signal.retry_after) == (Outcome.RATE_LIMITED, None)


def test_google_search_403_daily_limit(said: Read) -> None:
    signal = said("google search 403")
    assert (signal.outcome, signal.retry_after) == (Outcome.QUOTA_EXHAUSTED, MIDNIGHT_PACIFIC)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("rateLimitExceeded", Outcome.RATE_LIMITED),
        ("userRateLimitExceeded", Outcome.RATE_LIMITED),
        ("userRateLimitExceededUnreg", Outcome.RATE_LIMITED),
        ("quotaExceeded", Outcome.QUOTA_EXHAUSTED),
        ("dailyLimitExceeded", Outcome.QUOTA_EXHAUSTED),
        ("forbidden", Outcome.AUTH),
    ],
)
def test_google_403_reasons(reason: str, outcome: Outcome, wall: float) -> None:
    body = {"error": {"code": 403, "errors": [{"domain": "usageLimits", "reason": reason}]}}
    assert read(403, {}, body, wall=wall).outcome is outcome


def test_google_reason_in_details(wall: float) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED"}
    body = {"error": {"code": 403, "status": "PERMISSION_DENIED", "details": [info]}}
    assert read(403, {}, body, wall=wall).outcome is Outcome.RATE_LIMITED
    info["metadata"] = {"quota_limit": "QueriesPerDayPerProject"}  # type: ignore[assignment]
    assert read(403, {}, body, wall=wall).outcome is Outcome.QUOTA_EXHAUSTED


def test_perplexity_has_only_its_status(wall: float) -> None:
    signal = read(429, {}, b"", wall=wall, url="https://api.perplexity.ai/chat/completions")
    assert signal == Signal(outcome=Outcome.RATE_LIMITED, dialect="perplexity")


def test_semantic_scholar_code_is_a_string(said: Read) -> None:
    signal = said("semantic scholar")
    assert (signal.outcome, signal.dialect, signal.reason) == (Outcome.RATE_LIMITED, "semantic-scholar", "429")


def test_github_primary_limit_waits_for_the_reset(said: Read) -> None:
    signal = said("github")
    assert (signal.outcome, signal.retry_after, signal.scope) == (Outcome.RATE_LIMITED, RESET, "core")
    assert signal.limits == (Limit(limit=5000, remaining=0, reset=RESET, window=3600, name="core"),)


def test_github_retry_after_goes_first(said: Read) -> None:
    assert said("github", retry_after="7").retry_after == 7


def test_github_secondary_limit_waits_a_minute_at_least(said: Read) -> None:
    signal = said("github secondary")
    assert (signal.outcome, signal.retry_after) == (Outcome.RATE_LIMITED, 60)
    assert signal.reason == "secondary_rate_limit"
    assert said("github secondary", retry_after="90").retry_after == 90


def test_github_plain_refusal_stays_auth(wall: float) -> None:
    headers = {"x-ratelimit-remaining": "4321", "x-ratelimit-resource": "core"}
    signal = read(403, headers, {"message": "Resource not accessible by integration"}, wall=wall)
    assert (signal.outcome, signal.retry_after) == (Outcome.AUTH, None)


def test_github_search_counts_by_the_minute(said: Read) -> None:
    assert said("github", x_ratelimit_resource="search").limits[0].window == 60


def test_reddit_counts_over_ten_minutes(said: Read) -> None:
    signal = said("reddit")
    assert signal.dialect == "reddit"
    assert signal.limits == (Limit(limit=600, remaining=594, reset=318, window=600),)


def test_slack(said: Read, wall: float) -> None:
    assert (said("slack").outcome, said("slack").retry_after) == (Outcome.RATE_LIMITED, 30)
    hidden = said("slack 200", Retry_After="30")
    assert (hidden.outcome, hidden.retry_after, hidden.dialect) == (Outcome.RATE_LIMITED, 30, "slack")
    assert read(200, {}, {"ok": False, "error": "channel_not_found"}, wall=wall).outcome is Outcome.INVALID
    assert read(200, {}, {"ok": True, "channel": "C1"}, wall=wall) is SILENT[Outcome.OK]


def test_discord_the_longest_hint_wins(said: Read) -> None:
    signal = said("discord")
    assert (signal.outcome, signal.retry_after, signal.scope) == (Outcome.RATE_LIMITED, 65, "abcd1234")
    assert signal.limits == (Limit(limit=10, remaining=0, reset=64.57, name="abcd1234"),)
    assert said("discord", without=("retry-after",)).retry_after == 64.57


@pytest.mark.parametrize("where", ["header", "body"])
def test_discord_global(answers: dict[str, Any], where: str, wall: float) -> None:
    status, headers, body = copy.deepcopy(answers["discord"])
    if where == "header":
        headers["X-RateLimit-Scope"] = "global"
    else:
        body["global"] = True
    assert read(status, headers, body, wall=wall).scope == "global"


def test_shopify_call_limit(said: Read) -> None:
    signal = said("shopify")
    assert (signal.retry_after, signal.dialect) == (2, "shopify")
    assert signal.limits == (Limit(limit=40, remaining=8, name="shop"),)


def test_shopify_graphql_throttled_inside_a_200(said: Read) -> None:
    signal = said("shopify graphql")
    assert (signal.outcome, signal.reason) == (Outcome.RATE_LIMITED, "THROTTLED")
    assert signal.retry_after == pytest.approx((202 - 118) / 50)
    assert signal.limits == (
        Limit(dimension="cost", limit=1000, remaining=118, reset=17.64, window=20, name="graphql"),
    )


def test_shopify_graphql_budget_is_read_off_good_answers_too(answers: dict[str, Any], wall: float) -> None:
    body = {key: value for key, value in answers["shopify graphql"][2].items() if key != "errors"}
    signal = read(200, {}, json.dumps(body), wall=wall)
    assert (signal.outcome, signal.retry_after, len(signal.limits)) == (Outcome.OK, None, 1)


def test_shopify_graphql_query_over_the_maximum_can_never_pass(answers: dict[str, Any], wall: float) -> None:
    body = copy.deepcopy(answers["shopify graphql"][2])
    body["extensions"]["cost"]["requestedQueryCost"] = 1001
    assert read(200, {}, body, wall=wall).outcome is Outcome.TOO_LARGE


@pytest.mark.parametrize(
    ("reason", "scope"),
    [
        ("global-rate", "global"),
        ("endpoint-rate", "endpoint"),
        ("global-concurrency", "global"),
        ("endpoint-concurrency", "endpoint"),
        ("resource-specific", "resource"),
    ],
)
def test_stripe_says_what_was_limited(said: Read, reason: str, scope: str) -> None:
    signal = said("stripe", Stripe_Rate_Limited_Reason=reason, without=("stripe-rate-limited-reason",))
    assert (signal.outcome, signal.scope, signal.dialect) == (Outcome.RATE_LIMITED, scope, "stripe")
    dimensions = ["concurrency"] if reason.endswith("concurrency") else []
    assert [limit.dimension for limit in signal.limits] == dimensions


def test_stripe_lock_is_no_limit(said: Read) -> None:
    assert said("stripe lock").outcome is Outcome.TRANSIENT
    assert said("stripe lock", stripe_rate_limited_reason="global-rate").outcome is Outcome.RATE_LIMITED


def test_cloudflare_api(said: Read) -> None:
    signal = said("cloudflare", url="https://api.cloudflare.com/client/v4/zones")
    assert (signal.dialect, signal.retry_after) == ("cloudflare", 31)
    assert signal.limits == (
        Limit(limit=100, window=60, name="burst"),
        Limit(remaining=0, reset=30, name="default"),
    )


def test_cloudflare_edge_page(said: Read) -> None:
    assert said("cloudflare edge") == Signal(outcome=Outcome.RATE_LIMITED, dialect="cloudflare")


def test_ietf_policies(said: Read) -> None:
    signal = said("ietf policies")
    assert signal.dialect == "ietf"
    assert signal.limits == (
        Limit(limit=50, window=60, name="permin"),
        Limit(limit=1000, window=3600, name="perhr"),
    )


def test_ietf_units_and_partition_keys(said: Read) -> None:
    assert said("ietf bytes").limits == (Limit(dimension="content-bytes", limit=65535, window=10, name="peruser"),)


def test_ietf_state(said: Read) -> None:
    assert said("ietf").limits == (Limit(remaining=50, reset=30, name="default"),)


def test_ietf_state_and_policy_meet_by_name(said: Read) -> None:
    signal = said("ietf policies", RateLimit='"permin";r=0;t=12')
    assert signal.limits[0] == Limit(limit=50, remaining=0, reset=12, window=60, name="permin")


def test_ietf_used_up_is_the_floor_of_a_429_and_retry_after_wins(wall: float) -> None:
    headers = {"RateLimit": '"permin";r=0;t=12'}
    assert read(429, headers, wall=wall).retry_after == 12
    assert read(429, {**headers, "Retry-After": "5"}, wall=wall).retry_after == 5
    assert read(200, headers, wall=wall).retry_after is None


def test_ietf_fields_out_of_a_cache_are_ignored(said: Read) -> None:
    assert said("ietf", Age="12") is SILENT[Outcome.OK]
    assert said("ietf", Age="0").limits


def test_ietf_one_field_of_an_older_draft(said: Read) -> None:
    assert said("ietf one field").limits == (Limit(limit=100, remaining=50, reset=5),)
    assert said("ietf one field", RateLimit_Policy="100;w=60").limits[0].window == 60


def test_ietf_three_fields_of_an_older_draft(said: Read) -> None:
    assert said("ietf older").limits == (Limit(limit=100, remaining=50, reset=5),)


def test_several_windows_in_one_limit(said: Read) -> None:
    assert said("ietf listed").limits == (
        Limit(limit=100, remaining=42, window=60),
        Limit(limit=10000, window=86400),
    )


def test_ietf_problem_names_the_policy_that_was_hit(said: Read) -> None:
    signal = said("ietf problem")
    assert (signal.outcome, signal.retry_after, signal.reason) == (Outcome.RATE_LIMITED, 7, "quota-exceeded")


@pytest.mark.parametrize(
    ("status", "kind", "outcome"),
    [
        (429, "quota-exceeded", Outcome.RATE_LIMITED),
        (503, "temporary-reduced-capacity", Outcome.OVERLOADED),
        (429, "abnormal-usage-detected", Outcome.RATE_LIMITED),
    ],
)
def test_ietf_problem_types(status: int, kind: str, outcome: Outcome, wall: float) -> None:
    body = {"type": f"https://iana.org/assignments/http-problem-types#{kind}"}
    signal = read(status, {}, body, wall=wall)
    assert (signal.outcome, signal.reason) == (outcome, kind)


def test_gitlab_reset_is_an_instant(said: Read) -> None:
    signal = said("gitlab")
    assert (signal.dialect, signal.retry_after) == ("gitlab", RESET)
    assert signal.limits[0].name == "throttle_authenticated_web"


def test_rfc_9110(said: Read) -> None:
    assert (said("rfc 9110 seconds").outcome, said("rfc 9110 seconds").retry_after) == (Outcome.OVERLOADED, 120)
    assert said("rfc 9110 date").retry_after == 30


def test_dialects_are_loaded_with_the_first_header_and_not_with_headgate() -> None:
    code = "import sys, headgate; sys.exit('headgate.wire.dialects' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_dialect_has_an_answer_that_is_recognised(said: Read, answers: dict[str, Any]) -> None:
    by_address_alone = {dialect.name for dialect in DIALECTS if not _gives_itself_away(dialect)}
    recognised = {said(name).dialect for name in answers}
    assert {dialect.name for dialect in DIALECTS} - by_address_alone <= recognised, (
        "add a real answer of the vendor to ANSWERS in tests/wire/conftest.py, by which it is recognised"
    )


def test_the_manual_names_every_vendor() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limiter.md").read_text(encoding="utf-8")
    missing = [one.title for one in DIALECTS if one.hosts and one.title not in page]
    assert not missing, 'name these in docs/limiter.md, "What it reads"'


def _gives_itself_away(dialect: Dialect) -> bool:
    return bool(dialect.marks or dialect.reads or dialect.owns_budget or dialect.statuses or dialect.read_error)


def test_every_dialect_is_registered_once() -> None:
    names = [dialect.name for dialect in DIALECTS]
    hosts = [host for dialect in DIALECTS for host in dialect.hosts]
    marks = [mark for dialect in DIALECTS for mark in (*dialect.marks, *dialect.reads)]
    assert all(len(set(each)) == len(each) for each in (names, hosts, marks))
