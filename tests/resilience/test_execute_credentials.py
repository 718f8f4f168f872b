"""With the real coordinator: a refused key rests, another goes on, and each has a pace of its own."""

from __future__ import annotations

import asyncio
import json

import pytest

from headgate.credentials import Credential, CredentialCoordinator
from headgate.errors import NoCredentialError
from headgate.resilience import ProviderResilienceConfig, RateLimiterConfig


def coordinator(lab, *labels: str, **options) -> CredentialCoordinator:

    return CredentialCoordinator(
        [Credential(label, f"secret of {label}") for label in labels], clock=lab.clock, **options
    )


def test_a_rate_limited_key_rests_as_long_as_it_was_told_while_the_other_goes_on(play, http_error) -> None:
    async def scenario(lab):
        keys = coordinator(lab, "a", "b")
        used: list[tuple[float, str]] = []

        async def func(ctx):
            used.append((lab.clock.now(), ctx.credential_label))
            if ctx.credential_label == "a" and lab.clock.now() < 60.0:
                raise http_error(429, {"retry-after": "60"})
            return "fine"

        for _ in range(4):
            assert await lab.execute(func, credentials=keys) == "fine"
            await asyncio.sleep(5.0)
        assert [label for _, label in used].count("a") == 1
        await asyncio.sleep(60.0)
        for _ in range(2):
            await lab.execute(func, credentials=keys)
        assert "a" in [label for at, label in used if at >= 60.0]
        assert lab.nothing_is_held()

    play(scenario)


def test_the_only_key_is_waited_for_within_the_budget_and_refused_at_once_beyond_it(play, http_error) -> None:
    async def scenario(lab):
        keys = coordinator(lab, "only")
        script = lab.script(http_error(429, {"retry-after": "40"}), "fine")
        assert await lab.execute(script, credentials=keys) == "fine"
        assert 40.0 <= script.waits[0] <= 44.0
        before = lab.clock.now()
        cause = http_error(429, {"retry-after": "300"})
        error = await lab.outcome(lab.script(cause), credentials=keys)
        assert isinstance(error, NoCredentialError)
        assert error.__cause__ is cause
        assert error.earliest_reset == pytest.approx(300.0, abs=35.0)
        assert lab.clock.now() - before < 1.0

    play(scenario)


def test_a_daily_quota_parks_the_key_while_the_others_go_on(play, http_error) -> None:
    async def scenario(lab):
        keys = coordinator(lab, "a", "b")
        spent = json.dumps({"error": {"code": 403, "errors": [{"reason": "dailyLimitExceeded"}], "message": "Daily"}})
        script = lab.script(http_error(403, body=spent), "fine")
        assert await lab.execute(script, credentials=keys) == "fine"
        state = {one.label: one for one in keys.states()}
        assert state["a"].state == "resting"
        assert state["a"].back_in > 3600.0
        assert state["b"].state == "free"

    play(scenario)


def test_a_dead_key_is_retired_and_the_last_one_gives_its_own_error(play, http_error) -> None:
    async def scenario(lab):
        keys = coordinator(lab, "a", "b")
        assert await lab.execute(lab.script(http_error(401), "fine"), credentials=keys) == "fine"
        assert [one.state for one in keys.states()] == ["retired", "free"]
        last = http_error(401)
        assert await lab.outcome(lab.script(last), credentials=keys) is last
        assert isinstance(await lab.outcome(lab.script("never asked"), credentials=keys), NoCredentialError)

    play(scenario)


def test_fifty_calls_at_once_over_three_exclusive_keys_never_share_one(play) -> None:
    async def scenario(lab):
        keys = coordinator(lab, "a", "b", "c", at_once=1)
        busy: set[str] = set()

        async def func(ctx):
            assert ctx.credential not in busy
            busy.add(ctx.credential)
            await asyncio.sleep(0.1)
            busy.discard(ctx.credential)
            return "fine"

        assert await asyncio.gather(*(lab.execute(func, credentials=keys) for _ in range(50))) == ["fine"] * 50
        assert keys.get_available_count() == 3
        assert lab.nothing_is_held()

    play(scenario)


def test_a_slow_key_holds_up_no_other(play) -> None:
    async def scenario(lab):
        keys = coordinator(lab, "slow", "fast", at_once=None)
        config = ProviderResilienceConfig(
            rate_limiter=RateLimiterConfig(requests_per_second=100.0, burst_limit=1, strategy="fixed")
        )

        async def func(ctx):
            done.append(ctx.credential_label)

        done: list[str] = []
        manager = lab.manager
        await lab.execute(func, credentials=keys, resilience_config=config)
        manager.limiter.limit("api/slow", 0.1)
        calls = [asyncio.create_task(lab.outcome(func, credentials=keys, resilience_config=config)) for _ in range(40)]
        await asyncio.sleep(0.5)
        assert done.count("fast") == 20
        assert done.count("slow") <= 2
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert lab.nothing_is_held()

    play(scenario)


def test_an_account_that_could_not_spend_is_used_again_once_a_call_found_out(play, response) -> None:
    unpaid = response(402, body=json.dumps({"error": {"type": "billing_error", "message": "no credit"}}))

    async def scenario(lab):
        keys = coordinator(lab, "a")
        script = lab.script(unpaid, unpaid, response(200))
        await lab.outcome(script, credentials=keys)
        assert isinstance(await lab.outcome(script, credentials=keys), NoCredentialError)
        assert script.calls == 1
        for _ in range(2):
            await asyncio.sleep(901.0)
            await lab.outcome(script, credentials=keys)
        assert script.calls == 3
        for _ in range(5):
            assert (await lab.execute(script, credentials=keys)).status_code == 200
        assert (script.calls, lab.nothing_is_held()) == (8, True)

    play(scenario)


def test_a_call_that_is_cancelled_before_it_could_ask_leaves_that_to_the_next(play, response) -> None:
    unpaid = response(402, body=json.dumps({"error": {"type": "billing_error", "message": "no credit"}}))

    async def scenario(lab):
        keys = coordinator(lab, "a")
        script = lab.script(unpaid, response(200), takes=5.0)
        await lab.outcome(script, credentials=keys)
        await asyncio.sleep(901.0)
        asking = asyncio.create_task(lab.execute(script, credentials=keys))
        await asyncio.sleep(1.0)
        asking.cancel()
        await asyncio.wait([asking])
        assert (await lab.execute(script, credentials=keys)).status_code == 200
        assert lab.nothing_is_held()

    play(scenario)
