"""Cancelled at every single await, a call leaves nothing behind: no permit, no probe, no lease, no leave to retry."""

from __future__ import annotations

import asyncio
import json
import types

import pytest

from headgate.controllers.fixed import Fixed
from headgate.core.decision import CircuitState
from headgate.errors import ConfigError
from headgate.lab.virtual_time import run
from headgate.resilience import RateLimiterConfig, stream_with_resilience


class Steps:
    """Runs a coroutine and cancels its task at the given suspension; counts them either way."""

    def __init__(self, cancel_at: int | None = None) -> None:
        self.cancel_at = cancel_at
        self.count = 0

    async def through(self, coroutine):
        return await self._each(coroutine)

    @types.coroutine
    def _each(self, coroutine):
        steps = coroutine.__await__()
        try:
            waits_for = next(steps)
            while True:
                self.count += 1
                if self.count == self.cancel_at:
                    asyncio.current_task().cancel()
                try:
                    value = yield waits_for
                except BaseException as error:
                    waits_for = steps.throw(error)
                else:
                    waits_for = steps.send(value)
        except StopIteration as done:
            return done.value


async def hard_way(lab, credentials):
    """A call that has to wait for everything: credential, pace, two retries and a slow answer."""
    limiter = RateLimiterConfig(requests_per_second=2.0, burst_limit=1, strategy="fixed")
    config = lab.config(rate_limiter=limiter, failure_threshold=50)
    if credentials is None:
        await lab.execute(lab.script("before"), resilience_config=config)
    error = type("Reset", (ConnectionResetError,), {})()

    async def call():
        script = lab.script(error, error, "fine", takes=0.3)
        return await lab.execute(script, resilience_config=config, credentials=credentials, attempt_timeout=9.0)

    return call


async def half_open(lab, credentials):
    await lab.sicken(credentials=credentials)
    await asyncio.sleep(30.0)

    async def call():
        return await lab.execute(lab.script("fine", takes=0.3), credentials=credentials)

    return call


async def streaming(lab, credentials):
    overloaded = json.dumps({"type": "error", "error": {"type": "overloaded_error"}})

    async def pieces(ctx):
        calls.append(1)
        for piece in ["a", "b"] if len(calls) > 1 else [overloaded]:
            await asyncio.sleep(0.1)
            yield piece

    async def call():
        calls.clear()
        async with stream_with_resilience(
            pieces, "api", manager=lab.manager, resilience_config=lab.config(), credentials=credentials
        ) as stream:
            return [piece async for piece in stream]

    calls: list[int] = []
    return call


def real_credentials(lab):
    credentials = pytest.importorskip("headgate.credentials")
    return credentials.CredentialCoordinator(["secret-one", "secret-two"], clock=lab.clock)


def no_credentials(lab):
    return None


def fake_credentials(lab):
    return lab.credentials()


@pytest.mark.no_cover
@pytest.mark.parametrize("pool", [no_credentials, fake_credentials, real_credentials])
@pytest.mark.parametrize("prepare", [hard_way, half_open, streaming])
def test_cancelled_at_every_await(play, prepare, pool) -> None:
    def play_until(cancel_at: int | None) -> int:
        async def scenario(lab):
            credentials = pool(lab)
            steps = Steps(cancel_at)
            call = await prepare(lab, credentials)
            task = asyncio.create_task(steps.through(call()))
            ended = (await asyncio.gather(task, return_exceptions=True))[0]
            if cancel_at is not None:
                assert isinstance(ended, asyncio.CancelledError), f"cancelled at await {cancel_at}: {ended!r}"
            else:
                assert ended in ("fine", ["a", "b"])
            assert lab.nothing_is_held(), f"cancelled at await {cancel_at}"
            if pool is fake_credentials:
                assert not credentials.held
            if pool is real_credentials:
                assert credentials.get_available_count() == 2
            assert lab.manager.get_breaker_state("api") in (CircuitState.CLOSED, CircuitState.HALF_OPEN)
            if prepare is half_open:  # the next one may probe at once
                assert await lab.outcome(lab.script("fine"), credentials=credentials) == "fine"
            return steps.count

        return play(scenario)

    awaits = play_until(None)
    assert awaits >= {half_open: 1, streaming: 3, hard_way: 5}[prepare]
    for cancel_at in range(1, awaits + 1):
        play_until(cancel_at)


def test_the_stepping_itself_reaches_every_await() -> None:
    async def main(clock):
        async def three():
            for _ in range(3):
                await asyncio.sleep(1.0)

        steps = Steps()
        await steps.through(three())
        return steps.count

    assert run(main) == 3


@pytest.mark.parametrize("pool", [no_credentials, fake_credentials])
def test_a_strategy_that_raises_fails_its_call_and_nothing_stays_held(play, pool) -> None:
    class Broken(Fixed):
        def on_answer(self, *_):
            raise RuntimeError("a slip in the strategy")

    async def scenario(lab):
        limiter = RateLimiterConfig(requests_per_second=9.0, strategy=lambda _: Broken(9.0))
        config = lab.config(rate_limiter=limiter)
        credentials = pool(lab)
        end = await lab.outcome(lab.script("fine"), resilience_config=config, credentials=credentials)
        assert isinstance(end, RuntimeError)
        assert lab.nothing_is_held()
        assert credentials is None or not credentials.held

    play(scenario)


@pytest.mark.parametrize("cost", [-1.0, {}, "much"])
def test_a_cost_that_is_none_is_refused_where_it_is_reported(play, cost) -> None:
    async def scenario(lab):
        async def func(ctx):
            with pytest.raises(ConfigError, match="cost="):
                ctx.report(cost=cost)
            ctx.report(cost={"requests": 2})
            return "fine"

        assert await lab.execute(func, credentials=lab.credentials()) == "fine"
        assert lab.nothing_is_held()

    play(scenario)
