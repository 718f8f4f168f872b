"""Keys come and go: one spelling, packed when idle, forgotten when old, never while they hold something back."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc

import pytest

from headgate import AdaptiveRateLimiter, ConfigError, Event, Feedback, RateLimitConfig, TooManyKeysError
from headgate.lab.virtual_time import LoopClock, VirtualClock, run


def limiter_with(clock: VirtualClock | None = None, **settings: object) -> tuple[AdaptiveRateLimiter, VirtualClock]:
    clock = clock or VirtualClock(1000.0)
    config = RateLimitConfig(**settings)  # type: ignore[arg-type]
    return AdaptiveRateLimiter(config, clock=clock, rng=random.Random(5)), clock


def call(limiter: AdaptiveRateLimiter, key: str, status: int = 200, **answer: object) -> None:
    limiter.acquire(key).report(status_code=status, latency=0.05, **answer)  # type: ignore[arg-type]


def known(limiter: AdaptiveRateLimiter) -> list[str]:
    return [entry.key for entry in limiter.snapshot().keys]


@pytest.mark.parametrize(
    "spelling",
    ["api.example.com", "API.Example.COM", "https://api.example.com/v1?key=1", "http://u:p@api.example.com:80/x"],
)
def test_a_host_has_one_key_however_it_is_spelled(spelling: str) -> None:
    limiter, _ = limiter_with()
    call(limiter, spelling)
    assert known(limiter) == ["api.example.com"]


def test_a_key_that_is_open_is_not_spelled_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    limiter, _ = limiter_with()
    call(limiter, "api.example.com")
    monkeypatch.setattr("headgate.limiter.registry.host_key", None)
    assert limiter.try_acquire("api.example.com") is not None


def test_names_that_are_no_hosts_stay_as_they_are() -> None:
    limiter, _ = limiter_with()
    for key in ("OpenAI/gpt-4o", "tenant A"):
        call(limiter, key)
    assert known(limiter) == ["tenant A", "OpenAI/gpt-4o"]


def test_subdomains_share_a_key_if_they_are_grouped() -> None:
    limiter, _ = limiter_with(group_subdomains=True)
    for key in ("a.example.com", "b.example.com", "https://c.example.co.uk/"):
        call(limiter, key)
    assert known(limiter) == ["example.co.uk", "example.com"]


@pytest.mark.parametrize("key", ["", "x" * 1025, 7, None])
def test_a_key_that_cannot_be_one_is_refused_by_name(key: object) -> None:
    limiter, _ = limiter_with()
    with pytest.raises(ConfigError, match=r"key=.* must be a string of 1 to 1024 characters"):
        limiter.acquire(key)  # type: ignore[arg-type]


def test_overrides_set_keys_apart() -> None:
    slow, patient = RateLimitConfig(initial_rps=0.5), RateLimitConfig(initial_rps=9.0)
    limiter, _ = limiter_with(initial_rps=3.0, overrides={"slow.example.com": slow, "*.internal.example.com": patient})
    for key in ("slow.example.com", "a.internal.example.com", "b.example.com"):
        limiter.acquire(key)
    assert {entry.key: entry.rate for entry in limiter.snapshot().keys} == {
        "slow.example.com": 0.5,
        "a.internal.example.com": 9.0,
        "b.example.com": 3.0,
    }


def test_switched_off_it_lets_everything_through_and_learns_nothing() -> None:
    limiter, _ = limiter_with(enabled=False)
    for _ in range(100):
        call(limiter, "api", 503)
    entry = limiter.snapshot().keys[0]
    assert (entry.state, entry.rate, limiter.snapshot().total) == ("closed", 2.0, 100)


def test_what_was_learned_survives_being_packed() -> None:
    limiter, clock = limiter_with(strategy="aimd")
    for _ in range(9):
        clock.advance(1)
        call(limiter, "api")
    before = limiter.snapshot().keys[0]
    clock.advance(20)
    limiter.snapshot()
    assert "api" in limiter._registry.packed
    after = limiter.snapshot().keys[0]
    assert (after.rate, after.p95_latency) == (before.rate, before.p95_latency)
    assert limiter.snapshot().total == 9
    call(limiter, "api")
    assert limiter.snapshot().keys[0].rate == before.rate + 0.25
    assert limiter.snapshot().total == 10


def test_an_idle_key_is_forgotten_after_its_time() -> None:
    limiter, clock = limiter_with()
    call(limiter, "old")
    clock.advance(119)
    limiter.snapshot()
    assert known(limiter) == ["old"]
    clock.advance(2)
    limiter.snapshot()
    assert known(limiter) == []
    assert limiter.snapshot().total == 1


def test_reporting_answers_tidies_up_behind_it() -> None:
    limiter, clock = limiter_with()
    for number in range(50):
        call(limiter, f"key {number}")
    for _ in range(200):
        clock.advance(1)
        call(limiter, "busy")
    assert known(limiter) == ["busy"]


def test_the_key_that_was_not_used_for_longest_makes_room() -> None:
    limiter, clock = limiter_with(max_keys=3)
    for key in ("a", "b", "c", "a"):
        call(limiter, key)
        clock.advance(3)
    call(limiter, "d")
    assert sorted(known(limiter)) == ["a", "c", "d"]


def test_a_full_house_refuses_a_new_key_until_one_can_go() -> None:
    limiter, _clock = limiter_with(max_keys=2)
    held = limiter.acquire("permit out")
    call(limiter, "just used")
    with pytest.raises(TooManyKeysError, match="max_keys=2"):
        limiter.acquire("new")
    held.abandon()
    limiter.acquire("new")
    assert sorted(known(limiter)) == ["just used", "new"]


def test_no_key_goes_that_holds_something_back() -> None:
    async def main(clock: LoopClock) -> None:
        limiter, _ = limiter_with(clock, strategy="fixed", initial_rps=0.02, max_keys=4, open_state_duration=500)
        call(limiter, "told to wait", 429, retry_after=900)
        for _ in range(4):
            call(limiter, "sick", 500)
        limiter.feedback("sick", Feedback(status_code=500))
        limiter.acquire("permit out")
        for _ in range(4):
            call(limiter, "in line")
        waiter = asyncio.create_task(limiter.acquire_async("in line"))
        with pytest.raises(TooManyKeysError):
            await limiter.acquire_async("new")
        await asyncio.sleep(0)
        clock.advance(400)  # buckets are full again; the rest still holds
        for _ in range(5):
            limiter.snapshot()
        assert limiter.snapshot().open_circuits == 1
        assert sorted(known(limiter)) == ["in line", "permit out", "sick", "told to wait"]
        await waiter

    run(main)


def test_an_open_circuit_is_not_forgotten() -> None:
    limiter, clock = limiter_with()
    for _ in range(5):
        clock.advance(1)
        call(limiter, "sick", 500)
    clock.advance(3600)
    limiter.snapshot()
    assert limiter.snapshot().half_open_circuits == 1


def test_forgetting_is_told() -> None:
    told: list[Event] = []
    clock = VirtualClock(1000.0)
    limiter = AdaptiveRateLimiter(clock=clock, on_event=told.append)
    call(limiter, "old")
    clock.advance(200)
    limiter.snapshot()
    limiter.acquire("new")
    assert [(event.kind, event.key) for event in told if event.kind == "key_evicted"] == [("key_evicted", "old")]


@pytest.mark.no_cover
@pytest.mark.no_cover
@pytest.mark.parametrize(("strategy", "most"), [("aimd", 4096), ("adaptive", 16384)])
def test_the_memory_of_a_key_is_bounded(strategy: str, most: int) -> None:
    """Full statistics: refusals, latencies and windows of a busy minute; then packed after ten idle seconds."""
    limiter, clock = limiter_with(strategy=strategy)
    keys = [f"host{number}.example.com" for number in range(20)]

    def busy_minute(keys: list[str]) -> None:
        for turn in range(120):
            clock.advance(0.5)
            for key in keys:
                permit = limiter.try_acquire(key)  # a wait would let the others grow idle
                if permit is not None:
                    permit.report(status_code=429 if turn % 9 == 8 else 200, latency=0.05)

    busy_minute(["what is loaded and worked out only once"])
    tracemalloc.start()
    try:
        busy_minute(keys)
        gc.collect()  # also the tuples that the interpreter keeps for later
        active = tracemalloc.get_traced_memory()[0] / len(keys)
        assert len(limiter._registry.entries) >= len(keys)
        clock.advance(11)
        for _ in range(10):
            limiter.snapshot(top=0)
            clock.advance(0.01)
        gc.collect()
        packed = tracemalloc.get_traced_memory()[0] / len(keys)
    finally:
        tracemalloc.stop()
    assert not limiter._registry.entries
    assert active <= most
    assert sum(len(state) for state in limiter._registry.packed.values()) / len(keys) <= 1024
    assert packed <= 1400  # with the maps around it and the key's own name
