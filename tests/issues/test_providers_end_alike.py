"""Providers end in the same errors with a key and without; an only key has a way back; bills have a ceiling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from headgate import (
    PROVIDER_CONFIGS,
    AuthenticationError,
    CircuitOpenError,
    CredentialCoordinator,
    FixedCooldown,
    NoCredentialError,
    Outcome,
    ProviderError,
    ProviderResilienceConfig,
    ProviderResilienceManager,
    RateLimiterConfig,
    RateLimitError,
    Refused,
    ResilienceEvent,
    SemanticScholarProvider,
    execute_with_resilience,
)
from headgate.lab.virtual_time import LoopClock, run
from headgate.wire import signal_of

KEY = "sesame-key-of-this-test"
QUICK = RateLimiterConfig(requests_per_second=1000.0, burst_limit=100)
Answers = list[tuple[int, dict[str, str]]]


def search(answers: Answers, scenario: Callable[[Callable[..., SemanticScholarProvider]], Awaitable[Any]]) -> int:
    """Run a scenario against a server that gives these answers, the last one for ever; returns how many it gave."""
    given = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal given
        given += 1
        status, headers = answers[min(given, len(answers)) - 1]
        return web.json_response({"data": []}, status=status, headers=headers)

    async def main() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        manager = ProviderResilienceManager()

        def provider(key: str | CredentialCoordinator | None, **settings: Any) -> SemanticScholarProvider:
            config = ProviderResilienceConfig(**{"rate_limiter": QUICK, "time_budget": 20.0, **settings})
            given_as = "credentials" if isinstance(key, CredentialCoordinator) else "api_key"
            more: dict[str, Any] = {given_as: key, "manager": manager, "resilience_config": config}
            return SemanticScholarProvider(base_url=f"http://{host}:{port}", **more)

        try:
            await scenario(provider)
        finally:
            await runner.cleanup()

    asyncio.run(main())
    return given


async def error_of(provider: SemanticScholarProvider) -> Exception | None:
    try:
        await provider.search("gates")
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("key", [None, KEY])
def test_a_429_is_a_rate_limit_and_what_follows_says_until_when(key: str | None) -> None:
    async def scenario(new: Callable[..., SemanticScholarProvider]) -> None:
        provider = new(key)
        first, second = await error_of(provider), await error_of(provider)
        assert type(first) is RateLimitError
        assert first.status_code == 429
        assert 60 <= (first.retry_after or 0) < 70
        assert isinstance(second, Refused)
        assert 50 <= (second.retry_after or 0) < 70
        if isinstance(second, NoCredentialError):
            assert second.reasons == {"key-1": "rate_limited"}

    assert search([(429, {"Retry-After": "60"})], scenario) == 1


def test_a_429_that_leaves_no_key_says_when_the_first_is_back() -> None:
    async def scenario(new: Callable[..., SemanticScholarProvider]) -> None:
        error = await error_of(new(CredentialCoordinator([KEY], cooldown=FixedCooldown(600.0))))
        assert type(error) is RateLimitError
        assert 590 < (error.retry_after or 0) <= 600

    assert search([(429, {})], scenario) == 1


@pytest.mark.parametrize("key", [None, KEY])
def test_a_401_is_an_authentication_error(key: str | None) -> None:
    async def scenario(new: Callable[..., SemanticScholarProvider]) -> None:
        provider = new(key)
        assert type(await error_of(provider)) is AuthenticationError

    assert search([(401, {})], scenario) == 1


def test_a_retired_only_key_says_why_and_has_a_way_back() -> None:
    async def scenario(new: Callable[..., SemanticScholarProvider]) -> None:
        provider = new(KEY)
        assert type(await error_of(provider)) is AuthenticationError
        refusal = await error_of(provider)
        assert isinstance(refusal, NoCredentialError)
        assert (refusal.reasons, refusal.retry_after) == ({"key-1": "auth"}, None)
        assert provider.credentials is not None
        provider.credentials.free("key-1")
        assert await error_of(provider) is None

    assert search([(401, {}), (200, {})], scenario) == 2


def test_a_403_does_not_retire_an_only_key() -> None:
    async def scenario(new: Callable[..., SemanticScholarProvider]) -> None:
        provider = new(KEY)
        for _ in range(3):
            assert type(await error_of(provider)) is AuthenticationError
        assert await error_of(provider) is None

    assert search([(403, {})] * 3 + [(200, {})], scenario) == 4


def test_one_of_several_keys_still_gives_way_to_the_next() -> None:
    async def scenario(new: Callable[..., SemanticScholarProvider]) -> None:
        base = new(None)
        keys = CredentialCoordinator(["sesame-one", "sesame-two"])
        provider = SemanticScholarProvider(
            base_url=base.base_url, manager=base._manager, resilience_config=base.resilience_config, credentials=keys
        )
        assert await error_of(provider) is None
        assert [state.state for state in keys.states()].count("retired") == 1

    assert search([(403, {}), (200, {})], scenario) == 2


def test_an_attempt_that_cannot_happen_is_not_waited_for() -> None:
    async def scenario(clock: LoopClock) -> None:
        events: list[ResilienceEvent] = []
        manager = ProviderResilienceManager(clock=clock, on_event=events.append)
        sent = 0

        async def fails() -> None:
            nonlocal sent
            sent += 1
            raise ConnectionResetError

        config = ProviderResilienceConfig(failure_threshold=1, base_delay=5.0, max_delay=5.0)
        with pytest.raises(ConnectionResetError):
            await execute_with_resilience(fails, "api", manager=manager, resilience_config=config)
        assert (sent, clock.now()) == (1, 0.0)
        assert [event.event_type for event in events if event.event_type != "circuit_state_change"] == [
            "request_failure"
        ]
        assert {event.attempt for event in events} <= {None, 1}
        with pytest.raises(CircuitOpenError):
            await execute_with_resilience(fails, "api", manager=manager, resilience_config=config)

    run(scenario)


def test_a_short_open_time_is_still_waited_out() -> None:
    async def scenario(clock: LoopClock) -> None:
        manager = ProviderResilienceManager(clock=clock)
        answers = iter([ConnectionResetError(), None])

        async def fails_once() -> None:
            if error := next(answers):
                raise error

        config = ProviderResilienceConfig(failure_threshold=1, recovery_timeout=0.001, base_delay=5.0, max_delay=5.0)
        await execute_with_resilience(fails_once, "api", manager=manager, resilience_config=config)

    run(scenario)


DOCUMENTED = {"tavily": (100, 60), "tavily_extract": (100, 60), "google": (100, 100), "perplexity": (50, 60)}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_billed_provider_is_held_under_its_documented_rate(name: str) -> None:
    calls, window = DOCUMENTED[name]
    sent: list[float] = []

    async def scenario(clock: LoopClock) -> None:
        manager = ProviderResilienceManager(clock=clock)

        async def ask() -> None:
            sent.append(clock.now())

        for _ in range(3 * calls):
            await execute_with_resilience(ask, name, manager=manager)

    run(scenario)
    fullest = max(sum(start <= one < start + window for one in sent) for start in sent)
    assert 0.8 * calls <= fullest <= calls


def test_the_ceiling_can_be_lifted() -> None:
    async def scenario(clock: LoopClock) -> float:
        manager = ProviderResilienceManager(clock=clock)
        lifted = ProviderResilienceConfig(rate_limiter=RateLimiterConfig(requests_per_second=16.0))

        async def ask() -> None:
            pass

        for _ in range(160):
            await execute_with_resilience(ask, "tavily", manager=manager, resilience_config=lifted)
        return clock.now()

    assert run(scenario) < 30


def test_the_five_providers_carry_their_config() -> None:
    from headgate.providers import PROVIDERS

    for name in ("tavily", "tavily_extract", "google", "perplexity", "semantic_scholar"):
        more = {"engine_id": "cx"} if name == "google" else {}
        provider = PROVIDERS[name](KEY, **more)  # type: ignore[arg-type]
        assert provider.resilience_config == PROVIDER_CONFIGS[name]
        own = ProviderResilienceConfig(max_attempts=7)
        assert PROVIDERS[name](KEY, resilience_config=own, **more).resilience_config is own  # type: ignore[arg-type]


class Plain:
    def __init__(self, content: object) -> None:
        self.status_code, self.headers, self.content = 429, {}, content


class Slotted:
    __slots__ = ("content", "headers", "status_code")

    def __init__(self, content: bytes) -> None:
        self.status_code, self.headers, self.content = 429, {}, content


class Lazy:
    status_code, headers = 429, {}

    @property
    def content(self) -> bytes:
        raise AssertionError("a download")


@pytest.mark.parametrize("kind", [Plain, Slotted])
def test_a_response_with_content_is_read(kind: Any) -> None:
    dead = b'{"error": {"message": "no money", "type": "insufficient_quota", "code": "insufficient_quota"}}'
    assert signal_of(kind(dead), None, None, None, None, 0.0).outcome is Outcome.SPEND
    assert signal_of(kind(dead.decode()), None, None, None, None, 0.0).outcome is Outcome.SPEND


def test_a_property_that_may_download_is_left_alone() -> None:
    assert signal_of(Lazy(), None, None, None, None, 0.0).outcome is Outcome.RATE_LIMITED


def test_a_failing_server_is_still_a_provider_error() -> None:
    async def scenario(new: Callable[..., SemanticScholarProvider]) -> None:
        assert type(await error_of(new(None, max_attempts=2, base_delay=0.01, max_delay=0.01))) is ProviderError

    assert search([(500, {})], scenario) == 2
