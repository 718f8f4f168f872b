"""What every dialect says, read back by our own reader: the limits, the reset and the wait that the server meant."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from headgate.core.decision import Outcome
from headgate.mock.dialects import DIALECTS
from headgate.mock.quota import Concurrency, FixedWindow, LimitStatus, SlidingLog, TokenBucket
from headgate.units import Rate
from headgate.wire import read

WALL = 1_800_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def own(status: LimitStatus) -> float:
    return status.limit


def at_once(status: LimitStatus) -> float:
    return status.burst


def per(period: float) -> Callable[[LimitStatus], float]:
    return lambda status: status.limit * period / (status.window or period)


@dataclass(frozen=True)
class Says:
    """What can be heard in a dialect. Numbers are in how far it may be off, by rounding; ``None`` is for not at all."""

    limit: Callable[[LimitStatus], float] | None = None
    window: float | None = None
    """``own`` windows are 0."""
    remaining: bool = True
    reset: float | None = None
    relief: bool = False
    """Whether the reset is when the first calls come back, instead of all."""
    wait: float | None = None
    """Of a refusal."""
    wait_is_reset: bool = False
    """Where no wait is told, one comes back when the budget is whole."""


SILENT = Says()
TABLE = {
    "none": SILENT,
    "retry-after": Says(wait=1),
    "retry-after-date": Says(wait=2),
    "ratelimit": Says(limit=at_once, window=0, reset=1, relief=True, wait=1, wait_is_reset=True),
    "x-ratelimit": Says(limit=own, window=0, reset=1, wait=1, wait_is_reset=True),
    "ietf": Says(limit=own, window=0, reset=1, wait=1),
    "ietf-one-field": Says(limit=own, window=0, reset=1, wait=1),
    "openai": Says(limit=per(MINUTE), window=MINUTE, reset=0.001, wait=0.001),
    "azure-openai": Says(limit=own, window=0, reset=1, wait=1, wait_is_reset=True),
    "anthropic": Says(limit=per(MINUTE), window=MINUTE, reset=1, wait=1),
    "gemini": Says(wait=1),
    "mistral": Says(limit=per(MINUTE), window=MINUTE),
    "groq": Says(limit=per(DAY), window=DAY, wait=1),
    "openrouter": Says(limit=at_once, remaining=False, reset=0.001, wait=0.001, wait_is_reset=True),
    "tavily": Says(wait=1),
    "google-search": SILENT,
    "perplexity": SILENT,
    "semantic-scholar": SILENT,
    "github": Says(limit=per(HOUR), window=HOUR, reset=1, wait=1, wait_is_reset=True),
    "github-secondary": SILENT,
    "gitlab": Says(limit=at_once, reset=1, wait=1),
    "reddit": Says(limit=per(10 * MINUTE), window=10 * MINUTE, reset=1, wait=1, wait_is_reset=True),
    "slack": Says(wait=1),
    "discord": Says(limit=at_once, reset=0.001, wait=1),
    "shopify": Says(limit=at_once, wait=1),
    "stripe": SILENT,
    "cloudflare": Says(limit=own, window=0, reset=1, wait=1),
}
RECOGNISED = {
    # Known by what a refusal says; the others follow a convention, or say nothing that gives the vendor away.
    "openai", "azure-openai", "anthropic", "gemini", "mistral", "groq", "openrouter", "google-search",
    "semantic-scholar", "github", "gitlab", "reddit", "slack", "discord", "shopify", "stripe",
}  # fmt: skip

QUOTAS = {
    "window": lambda: FixedWindow(Rate(600.0, 60.0)),
    "bucket": lambda: TokenBucket(Rate(600.0, 60.0), burst=100),
    "fast bucket": lambda: TokenBucket(Rate(50.0), burst=20),
    "log": lambda: SlidingLog(Rate(600.0, 60.0)),
}


def some_used(kind: str) -> LimitStatus:
    quota = QUOTAS[kind]()
    for _ in range(12):
        quota.take(20.0)
    return quota.status(20.1)


def all_used(kind: str) -> LimitStatus:
    quota = QUOTAS[kind]()
    while quota.take(20.0):
        pass
    return quota.status(20.003)


def heard(dialect: str, status: LimitStatus):
    return read(200, DIALECTS[dialect].announce([("calls", status)], WALL), wall=WALL)


def refusal(dialect: str, status: LimitStatus, unit: str = "calls"):
    """How a refusal is parsed, its body being what goes over the wire."""
    spoken = DIALECTS[dialect]
    reply = spoken.refuse(unit, status, WALL)
    headers = spoken.announce([(unit, status)], WALL) | reply.headers
    return read(reply.status, headers, json.dumps(reply.body), wall=WALL)


def test_every_dialect_is_in_the_table():
    missing = set(DIALECTS) ^ set(TABLE)
    assert not missing, "a dialect of mock/dialects says something or is SILENT; write which in TABLE above"


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", QUOTAS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_announcement_is_understood_as_it_was_meant(dialect, kind):
    says, status = TABLE[dialect], some_used(kind)
    signal = heard(dialect, status)
    assert (signal.outcome, signal.retry_after) == (Outcome.OK, None)
    if dialect == "github-secondary":
        assert signal.limits[0].remaining > status.limit, "the announced limit is not the one that will refuse"
        return
    if says.limit is None:
        assert not signal.limits
        return
    window = says.window
    if window == 0:
        size = status.burst if says.limit is at_once else status.limit
        window = size * status.window / status.limit
    (limit,) = signal.limits
    assert (limit.dimension, limit.limit) == ("requests", pytest.approx(says.limit(status)))
    assert limit.window == (None if window is None else pytest.approx(window, abs=1))
    if dialect == "groq":
        assert limit.limit - limit.remaining == pytest.approx(status.used, abs=1)
        assert limit.reset == pytest.approx(status.used * DAY / limit.limit, abs=0.2)
        return
    assert limit.remaining == (pytest.approx(status.remaining, abs=1) if says.remaining else None)
    meant = status.relief if says.relief else status.reset
    assert limit.reset == (None if says.reset is None else pytest.approx(meant, abs=says.reset))


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", QUOTAS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_refusal_is_understood_as_it_was_meant(dialect, kind):
    says, status = TABLE[dialect], all_used(kind)
    signal = refusal(dialect, status)
    assert signal.outcome is Outcome.RATE_LIMITED
    if dialect == "github-secondary":
        assert (signal.retry_after, signal.reason) == (60, "secondary_rate_limit")
        return
    if says.wait is None:
        assert signal.retry_after is None
        return
    meant = status.retry
    if says.wait_is_reset:
        meant = status.relief if says.relief else status.reset
    assert meant - 0.001 <= signal.retry_after <= meant + says.wait
    for limit in signal.limits:
        assert limit.remaining in (0, None) or dialect == "groq"


@pytest.mark.parametrize("dialect", sorted(RECOGNISED))
def test_a_refusal_gives_its_vendor_away(dialect):
    assert refusal(dialect, all_used("window")).dialect == dialect


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_outage_is_understood_whatever_its_status(dialect):
    reply = DIALECTS[dialect].overloaded
    assert read(reply.status, reply.headers, json.dumps(reply.body), wall=WALL).outcome is Outcome.OVERLOADED


def test_openrouter_hides_an_outage_inside_a_200():
    assert DIALECTS["openrouter"].overloaded.status == 200


@pytest.mark.parametrize("dialect", ["gemini", "google-search", "groq", "openrouter"])
def test_a_spent_day_is_told_apart_from_a_spent_minute(dialect):
    quota = FixedWindow(Rate(3.0, DAY))
    while quota.take(HOUR):
        pass
    signal = refusal(dialect, quota.status(HOUR))
    assert signal.outcome is Outcome.QUOTA_EXHAUSTED
    midnight = 24 * HOUR  # 1.8e9 is a midnight in California
    until = midnight if dialect in ("gemini", "google-search") else 23 * HOUR
    assert signal.retry_after == pytest.approx(until, abs=1)


@pytest.mark.parametrize("dialect", ["openai", "azure-openai", "anthropic", "mistral", "groq"])
def test_calls_and_tokens_are_told_side_by_side(dialect):
    calls, tokens = FixedWindow(Rate(600.0, 60.0)), FixedWindow(Rate(90_000.0, 60.0))
    for _ in range(9):
        calls.take(20.0)
        tokens.take(20.0, 1000.0)
    statuses = [("calls", calls.status(20.0)), ("tokens", tokens.status(20.0))]
    told = {limit.dimension: limit for limit in read(200, DIALECTS[dialect].announce(statuses, WALL), wall=WALL).limits}
    assert set(told) == {"requests", "tokens"}
    assert told["requests"].limit - told["requests"].remaining == 9
    assert (told["tokens"].limit, told["tokens"].remaining, told["tokens"].window) == (90_000, 81_000, 60)


def test_anthropic_tells_tokens_to_the_nearest_thousand():
    tokens = FixedWindow(Rate(9000.0, 60.0))
    tokens.take(20.0, 700.0)
    fields = DIALECTS["anthropic"].announce([("tokens", tokens.status(20.0))], WALL)
    assert fields["anthropic-ratelimit-tokens-remaining"] == "8000"


@pytest.mark.parametrize("dialect", ["openai", "gemini"])
def test_a_refusal_for_tokens_says_so(dialect):
    quota = FixedWindow(Rate(9000.0, 60.0))
    quota.take(20.0, 9000.0)
    limits = refusal(dialect, quota.status(20.0), "tokens").limits
    dimension = "input_tokens" if dialect == "gemini" else "tokens"
    assert {(limit.dimension, limit.limit, limit.remaining) for limit in limits} == {(dimension, 9000, 0)}


def test_azure_says_what_was_limited_and_the_wait_in_milliseconds_too():
    reply = DIALECTS["azure-openai"].refuse("tokens", all_used("bucket"), WALL)
    assert (reply.headers["x-ratelimit-type"], reply.headers["retry-after"]) == ("Tokens", "1")
    assert reply.headers["retry-after-ms"] == "97"


def test_stripe_tells_places_from_pace():
    quota = Concurrency(at_once=2)
    quota.take(0.0)
    quota.take(0.0)
    signal = refusal("stripe", quota.status(0.0))
    assert (signal.outcome, signal.reason, signal.scope) == (Outcome.RATE_LIMITED, "rate_limit", "global")
    assert [limit.name for limit in signal.limits] == ["global-concurrency"]
    assert not refusal("stripe", all_used("window")).limits


@pytest.mark.parametrize("dialect", DIALECTS)
def test_places_can_be_spoken_of_in_every_dialect(dialect):
    quota = Concurrency(at_once=2)
    quota.take(0.0)
    assert heard(dialect, quota.status(0.0)).outcome is Outcome.OK
    quota.take(0.0)
    assert refusal(dialect, quota.status(0.0)).outcome is Outcome.RATE_LIMITED
