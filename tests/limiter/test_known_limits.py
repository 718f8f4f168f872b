"""Limits that are known: requests and tokens together, held in every window, settled by what was really used."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing

import pytest

from headgate import AdaptiveRateLimiter, ConfigError, CostTooLargeError, RateLimitConfig
from headgate.distributed.backends.memory import MemoryStore
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

BOTH = RateLimitConfig(limits={"requests": "500/min", "tokens": "200000/min"})


def test_two_keys_may_spend_of_one_limit_and_keep_all_else_apart() -> None:
    clock = VirtualClock()
    config = RateLimitConfig(limits={"requests": "4/day"}, max_keys=2, domain_state_ttl=1.0, min_rps=1.0)
    limiter = AdaptiveRateLimiter(config, clock=clock)
    limiter.share_limits("model/flex", "model")
    limiter.pause("model/flex", 60.0)
    assert [limiter.try_acquire(key) is not None for key in ("model", "model/flex")] == [True, False]
    clock.advance(7200.0)
    for key in ("model/flex", "model", "model/flex"):
        clock.advance(10.0)
        permit = limiter.try_acquire(key)
        assert permit is not None
        permit.report(status_code=200)
    clock.advance(7200.0)
    assert [limiter.try_acquire(key) for key in ("model", "model/flex")] == [None, None]


TOKENS = RateLimitConfig(limits={"tokens": "60000/min"}, strategy="fixed", initial_rps=1000.0)


@pytest.mark.parametrize("tier", ["model", "model/flex"])
def test_keys_that_spend_of_one_limit_are_served_in_the_order_in_which_calls_came(tier: str) -> None:
    async def main(clock: LoopClock) -> tuple[int, int]:
        limiter = AdaptiveRateLimiter(TOKENS, clock=clock)
        limiter.share_limits("model/flex", "model")
        started: dict[int, int] = {300: 0, 5000: 0}

        async def call(key: str, tokens: int) -> None:
            while True:
                permit = await limiter.acquire_async(key, cost={"tokens": tokens})
                started[tokens] += 1
                permit.report(status_code=200)

        callers = [asyncio.create_task(call("model", 300)) for _ in range(8)]
        callers.append(asyncio.create_task(call(tier, 5000)))
        await clock.sleep_async(120.0)
        for caller in callers:
            caller.cancel()
        return started[300], started[5000]

    small, large = run(main)
    assert large >= 14  # a round takes 8.2 s
    assert small == pytest.approx(8 * large, abs=30)


@pytest.mark.parametrize("ends", ["cancelled", "paused"])
def test_a_waiter_that_no_longer_waits_for_a_shared_limit_holds_up_no_other_key(ends: str) -> None:
    async def main(clock: LoopClock) -> float:
        limiter = AdaptiveRateLimiter(TOKENS, clock=clock)
        limiter.share_limits("model/flex", "model")
        (await limiter.acquire_async("model", cost={"tokens": 5900})).report(status_code=200)
        large = asyncio.create_task(limiter.acquire_async("model/flex", cost={"tokens": 50_000}))
        await clock.sleep_async(0.1)
        assert limiter.try_acquire("model", cost={"tokens": 100}) is None
        small = asyncio.create_task(limiter.acquire_async("model", cost={"tokens": 100}))
        await clock.sleep_async(0.1)
        if ends == "cancelled":
            large.cancel()
        else:
            limiter.pause("model/flex", 3600.0)
        ended_at = clock.now()
        await small
        large.cancel()
        return clock.now() - ended_at

    assert run(main) < (1.1 if ends == "cancelled" else 10.0)


def pass_through(limiter: AdaptiveRateLimiter, key: str) -> bool:
    permit = limiter.try_acquire(key)
    if permit is not None:
        permit.report(status_code=200)
    return permit is not None


def test_keys_that_share_a_limit_are_evicted_when_idle_and_share_it_again() -> None:
    clock = VirtualClock()
    config = RateLimitConfig(limits={"requests": "4/min"}, max_keys=4, domain_state_ttl=60.0, min_rps=1.0)
    limiter = AdaptiveRateLimiter(config, clock=clock)
    for model in ("a", "b"):
        limiter.share_limits(f"{model}/flex", model)
    clock.advance(86400.0)
    assert [pass_through(limiter, key) for key in ("c", "d", "e")] == [True] * 3
    clock.advance(86400.0)
    for first, second in (("a/flex", "a"), ("b", "b/flex")):
        passed = 0
        for key in (first, second) * 8:
            clock.advance(1.0)
            passed += pass_through(limiter, key)
        assert passed == 4


def test_limits_that_a_store_keeps_are_each_keys_own_and_that_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with closing(AdaptiveRateLimiter(BOTH, store=MemoryStore())) as limiter:
        for _ in range(2):
            limiter.share_limits("model/flex", "model")
    assert [record.getMessage() for record in caplog.records if "--store none" in record.getMessage()] == [
        "model/flex: has the known limits for itself, as a store keeps them; "
        "without a store (--store none) it shares those of model"
    ]
    with closing(AdaptiveRateLimiter(store=MemoryStore())) as limiter:
        limiter.share_limits("other/flex", "other")
    assert "other" not in caplog.text


def test_the_limit_is_told_as_the_reason_to_wait_with_a_store_too() -> None:
    config = RateLimitConfig(limits={"requests": "120/min"}, initial_rps=50.0)

    async def main() -> str:
        with closing(AdaptiveRateLimiter(config, store=MemoryStore())) as limiter:
            callers = [asyncio.create_task(limiter.acquire_async("api")) for _ in range(20)]
            reason = ""
            while "known limit" not in reason:
                await asyncio.sleep(0.01)
                reason = "".join(key.reason for key in limiter.snapshot().keys)
            for caller in callers:
                caller.cancel()
            return reason

    told = asyncio.run(asyncio.wait_for(main(), 20.0))
    assert told.startswith("waiting for the known limit of 120 requests per 60 s")


def test_a_pace_below_the_limit_is_told_with_a_store_too() -> None:
    config = RateLimitConfig(limits={"requests": "50/s"}, max_rps=3.0)

    async def main() -> str:
        with closing(AdaptiveRateLimiter(config, store=MemoryStore())) as limiter:
            callers = [asyncio.create_task(limiter.acquire_async("api")) for _ in range(20)]
            reason = ""
            while "paced at" not in reason:
                await asyncio.sleep(0.01)
                reason = "".join(key.reason for key in limiter.snapshot().keys)
                assert "known limit" not in reason
            for caller in callers:
                caller.cancel()
            return reason

    assert asyncio.run(asyncio.wait_for(main(), 20.0)).startswith("paced at 3 calls/s")


def test_a_key_with_other_limits_keeps_them() -> None:
    config = RateLimitConfig(
        limits={"requests": "1/day"}, overrides={"own": RateLimitConfig(limits={"requests": "9/day"})}
    )
    limiter = AdaptiveRateLimiter(config, clock=VirtualClock())
    limiter.share_limits("own", "model")
    limiter.share_limits("own", "own")
    assert [limiter.try_acquire(key) is not None for key in ("model", "model", "own")] == [True, False, True]


def test_no_window_ever_holds_more_than_the_limits() -> None:
    async def main(clock: LoopClock) -> list[tuple[float, int]]:
        limiter = AdaptiveRateLimiter(BOTH, clock=clock, rng=random.Random(2))
        draw = random.Random(11)
        sent: list[tuple[float, int]] = []

        async def caller() -> None:
            while clock.now() < 400:
                tokens = draw.choice((50, 400, 900, 4000, 30_000))
                permit = await limiter.acquire_async("api", cost={"requests": 1, "tokens": tokens})
                sent.append((clock.now(), tokens))
                await asyncio.sleep(draw.uniform(0.01, 0.5))
                permit.report(status_code=200)

        await asyncio.gather(*(caller() for _ in range(20)))
        return sent

    sent = run(main)
    for start, _ in sent:
        window = [tokens for at, tokens in sent if start <= at < start + 60]
        assert len(window) <= 500
        assert sum(window) <= 200_000
    assert sum(tokens for at, tokens in sent if at < 400) > 0.85 * 200_000 * 400 / 60


@pytest.mark.parametrize(
    ("limit", "amount", "window"), [("1/s", 1, 1), ("2/min", 2, 60), ("5/s", 5, 1), ("30/min", 30, 60)]
)
def test_a_small_limit_is_used_to_the_full_and_never_exceeded(limit: str, amount: int, window: float) -> None:
    async def main(clock: LoopClock) -> list[float]:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", limits={"requests": limit}), clock=clock)
        sent = []
        while clock.now() < 20 * window:
            await limiter.acquire_async("api")
            sent.append(clock.now())
        return sent

    sent = run(main)
    assert max(sum(start <= at < start + window for at in sent) for start in sent) <= amount
    assert len(sent) >= 0.95 * 20 * amount


def test_a_known_limit_on_requests_is_where_the_pace_starts() -> None:
    limiter = AdaptiveRateLimiter(
        RateLimitConfig(strategy="fixed", limits={"requests": "600/min"}), clock=VirtualClock()
    )
    limiter.acquire("api")
    assert limiter.snapshot().keys[0].rate == 10.0


def test_what_was_reserved_is_settled_by_what_was_used() -> None:
    async def main(clock: LoopClock) -> list[float]:
        settings = RateLimitConfig(strategy="fixed", initial_rps=1e6, limits={"tokens": "6000/min"})
        limiter = AdaptiveRateLimiter(settings, clock=clock)
        waits = []
        for _ in range(3):
            permit = await limiter.acquire_async("api", cost={"tokens": 600})
            waits.append(permit.waited)
            permit.report(status_code=200, cost={"tokens": 60})
        return waits

    assert run(main) == pytest.approx([0.0, 60 / 90, 60 / 90], rel=0.01)


def test_a_cost_above_the_burst_waits_for_a_full_bucket_and_leaves_a_debt() -> None:
    async def main(clock: LoopClock) -> tuple[float, float]:
        settings = RateLimitConfig(strategy="fixed", initial_rps=1e6, limits={"tokens": "6000/min"})
        limiter = AdaptiveRateLimiter(settings, clock=clock)
        await limiter.acquire_async("api", cost={"tokens": 60})
        big = await limiter.acquire_async("api", cost={"tokens": 1500})
        small = await limiter.acquire_async("api", cost={"tokens": 600})
        return big.waited, small.waited

    big, small = run(main)
    assert big == pytest.approx(60 / 90, rel=0.01)
    assert small == pytest.approx(1500 / 90, rel=0.01)


def test_a_cost_that_can_never_fit_is_refused_with_the_numbers() -> None:
    limiter = AdaptiveRateLimiter(BOTH, clock=VirtualClock())
    with pytest.raises(CostTooLargeError, match=r"cost\['tokens'\]=300,000 is above the limit of 200,000"):
        limiter.acquire("api", cost={"tokens": 300_000})


@pytest.mark.parametrize("cost", [0, -1, float("nan"), float("inf"), {}, {"tokens": -5}, {"tokens": float("nan")}])
def test_a_senseless_cost_is_refused_by_name(cost: object) -> None:
    limiter = AdaptiveRateLimiter(BOTH, clock=VirtualClock())
    with pytest.raises(ConfigError, match="cost="):
        limiter.acquire("api", cost=cost)  # type: ignore[arg-type]


def test_why_it_waits_names_the_limit() -> None:
    limiter = AdaptiveRateLimiter(
        RateLimitConfig(strategy="fixed", limits={"tokens": "6000/min"}, initial_rps=1e6), clock=VirtualClock()
    )
    limiter.acquire("api", cost={"tokens": 600})
    with pytest.raises(Exception, match=r"waiting for the known limit of 6,000 tokens per 60 s") as refusal:
        limiter.acquire("api", cost={"tokens": 600}, max_wait=0)
    assert refusal.value.retry_after == pytest.approx(600 / 90, rel=0.01)  # type: ignore[attr-defined]


def test_it_can_be_asked_whether_limits_are_known() -> None:
    assert AdaptiveRateLimiter(BOTH).has_limits("api") is True
    assert AdaptiveRateLimiter().has_limits("api") is False
