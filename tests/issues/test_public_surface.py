"""What a newcomer types first: public names, configs by position, decorators, reports that can be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headgate
from headgate import (
    AdaptiveRateLimiter,
    BatchConfig,
    BatchRunner,
    CallContext,
    ConfigError,
    CrawlConfig,
    Crawler,
    ExponentialCooldown,
    FixedCooldown,
    ProviderResilienceManager,
    RateLimitConfig,
    RateLimiterConfig,
    VirtualClock,
    get_resilience_manager,
    guarded,
)
from headgate.crawl.fetch.response import FetchResponse
from headgate.lab.virtual_time import LoopClock, run


def test_cooldowns_and_the_virtual_clock_are_public() -> None:
    assert {"FixedCooldown", "ExponentialCooldown", "VirtualClock"} <= set(headgate.__all__)
    assert BatchConfig(cooldown=FixedCooldown(60)).cooldown != ExponentialCooldown(base=5)
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(RateLimitConfig(limits={"requests": "1/min"}, strategy="fixed"), clock=clock)
    for _ in range(3):
        limiter.acquire("api").report(status_code=200)
    assert 120 <= clock.now() <= 121


def test_dir_lists_every_public_name() -> None:
    clients = {"openai_client", "async_openai_client", "anthropic_client", "async_anthropic_client"}
    assert clients | set(headgate.__all__) <= set(dir(headgate))


def test_a_rate_limiter_config_by_position() -> None:
    config = RateLimiterConfig(1, 5, 30)
    assert (config.requests_per_second, config.burst_limit, config.max_wait_seconds) == (1, 5, 30)
    with pytest.raises(TypeError):
        RateLimiterConfig(1, 5, 30, "fixed")  # type: ignore[call-arg]


def test_the_manager_is_reset_on_the_class_and_on_an_instance() -> None:
    manager = get_resilience_manager()
    ProviderResilienceManager.reset_for_testing()
    assert get_resilience_manager() is not manager
    own = ProviderResilienceManager()
    limiter = own.limiter
    own.reset_for_testing()
    assert own.limiter is not limiter


def test_guarded_without_a_provider_says_so_when_decorating() -> None:
    with pytest.raises(ConfigError):

        @guarded  # type: ignore[arg-type]
        def search() -> None: ...


@pytest.mark.parametrize("option", ["tiem_budget", "max_attempt", "retries"])
def test_a_misspelt_option_fails_when_decorating(option: str) -> None:
    with pytest.raises(ConfigError):
        guarded("api", **{option: 3})  # type: ignore[misc]


def test_ctx_may_stand_anywhere() -> None:
    manager = ProviderResilienceManager()

    @guarded("api", manager=manager)
    def last(query: str, ctx: CallContext) -> tuple[str, str]:
        return query, ctx.provider

    @guarded("api", manager=manager)
    def first(ctx: CallContext, query: str) -> tuple[str, str]:
        return query, ctx.provider

    @guarded("api", manager=manager)
    async def named(query: str, *, ctx: CallContext | None = None) -> tuple[str, str]:
        assert ctx is not None
        return query, ctx.provider

    seen: list[Any] = [last("owls"), last(query="owls"), first("owls"), first(query="owls")]  # type: ignore[call-arg, arg-type]
    seen.append(asyncio.run(named("owls")))
    assert seen == [("owls", "api")] * 5


def crawl_attempts(limits: RateLimitConfig, config: CrawlConfig) -> int:
    """How often a page that always fails is fetched."""
    fetches = 0

    async def fetch(request: Any, headers: Any = None) -> FetchResponse:
        nonlocal fetches
        is_page = not request.url.endswith("robots.txt")
        fetches += is_page
        return FetchResponse(url=request.url, status=500 if is_page else 404, content_type="text/html")

    crawler = Crawler("http://site.example/", limiter=AdaptiveRateLimiter(limits), config=config, fetch=fetch)
    asyncio.run(crawler.run())
    return fetches


def test_the_limiters_retries_drive_a_crawl() -> None:
    quick = RateLimitConfig(initial_rps=1000, retry_max_attempts=4, retry_base_delay=0.001, retry_max_delay=0.001)
    assert crawl_attempts(quick, CrawlConfig()) == 4
    assert crawl_attempts(quick, CrawlConfig(max_attempts=2)) == 2
    assert crawl_attempts(RateLimitConfig(overrides={"site.example": quick}), CrawlConfig()) == 4


def test_a_report_can_be_printed() -> None:
    async def work(item: int, ctx: Any) -> int:
        if item == 3:
            raise ValueError
        return item

    async def scenario(clock: LoopClock) -> Any:
        return await BatchRunner(work, clock=clock).run(range(5))

    report = run(scenario)
    lines = str(report).splitlines()
    assert len(lines) <= 8
    assert max(map(len, lines)) <= 120
    assert "object at" not in str(report)
    for word in ("4", "1", "5", next(iter(report.reasons))):
        assert word in str(report)
