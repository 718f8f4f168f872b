"""A client behind the gate loses no call in an outage: it waits for the circuit's next probe, and goes again then."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import asynccontextmanager

import httpx2
import pytest
from tests.integrations.outages import CLIENTS, Server, lost_in

from headgate import (
    AdaptiveRateLimiter,
    CircuitOpenError,
    ConfigError,
    CredentialCoordinator,
    ProviderResilienceManager,
    RateLimitConfig,
    execute_with_resilience,
    guarded,
)
from headgate.integrations.client_gate import Passing
from headgate.integrations.httpx2 import gate
from headgate.lab.virtual_time import run
from headgate.proxy import Proxy, lines_of, mounts_of

URL = "https://api.example.com/v1/x"
MODEL_URL = "https://api.example.com/v1/chat/completions"


class Api:
    """Answers after 30 ms, but not at all (or with this status) from second 5 on, for so long."""

    def __init__(self, clock, outage, status=None):
        self.clock, self.outage, self.status = clock, outage, status
        self.sent = 0

    async def __call__(self, request):
        self.sent += 1
        for rest in (0.03, 0.0):
            if 5.0 <= self.clock.now() < 5.0 + self.outage:
                if self.status is not None:
                    return httpx2.Response(self.status)
                raise httpx2.ConnectError("refused", request=request)
            await asyncio.sleep(rest)
        return httpx2.Response(200, json={})

    def client(self):
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self))


async def lost_of(ask, calls=300, rate=20.0):
    """What became of the calls, made at this rate, that brought no answer."""
    lost = []

    async def one():
        try:
            answer = await ask()
            if answer.status_code != 200:
                lost.append(answer.status_code)
        except Exception as error:
            lost.append(repr(error))

    tasks = []
    for _ in range(calls):
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(1 / rate)
    await asyncio.gather(*tasks)
    return lost


@asynccontextmanager
async def asking(client, clock, api, **settings):
    settings = {"clock": clock, "rng": random.Random(1), **settings}
    if client == "guarded":
        bare = api.client()
        manager = ProviderResilienceManager(clock=clock, rng=random.Random(1))
        yield _guarded(bare, manager)
    elif client == "models":
        async with gate(api.client(), passing=Passing(**settings).for_models()) as one:
            yield lambda: one.post(MODEL_URL, json={"model": "m"})
    else:
        async with gate(api.client(), **settings) as one:
            yield lambda: one.get(URL)


def _guarded(client, manager):
    @guarded("api", manager=manager)
    async def ask():
        return await client.get(URL)

    return ask


# ---------------------------------------------------------------------- the promise


@pytest.mark.parametrize("outage", [3.0, 30.0])
@pytest.mark.parametrize("client", ["httpx2", "models", "guarded", "keys"])
def test_no_call_is_lost_with_default_settings(client, outage):
    async def main(clock):
        settings = (
            {"credentials": {URL: CredentialCoordinator(["k-1", "k-2"], clock=clock)}} if client == "keys" else {}
        )
        api = Api(clock, outage)
        async with asking(client, clock, api, **settings) as ask:
            return await lost_of(ask), api.sent

    lost, sent = run(main)
    assert lost == []
    assert sent <= 300 + 5 + 3, "five failures trip the circuit, and after that only probes find out"


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_host_whose_front_says_that_it_is_away_is_in_an_outage_too(status):
    async def main(clock):
        async with asking("httpx2", clock, Api(clock, 30.0, status)) as ask:
            return await lost_of(ask, calls=150)

    assert run(main) == []


def test_a_lone_caller_loses_nothing_either():
    async def main(clock):
        async with asking("httpx2", clock, Api(clock, 30.0)) as ask:
            return [(await ask()).status_code for _ in range(250)]

    assert set(run(main)) == {200}


def test_every_client_over_real_sockets():
    """Short, and with a circuit that is open for 0.4 s; with the defaults and for longer it is in ``make chaos``."""
    config = RateLimitConfig(initial_rps=200, open_state_duration=0.4)
    with Server() as server:
        lost = lost_in(server, 0.6, 60, 50.0, after=0.4, config=config)
    assert lost == {client: [] for client in CLIENTS}


def test_the_proxy_waits_too():
    async def main():
        config = RateLimitConfig(initial_rps=200, open_state_duration=0.4)
        mounts = mounts_of([server.url])
        passing = Passing(config=config, key=lines_of(mounts))
        async with Proxy(mounts, passing, port=0) as proxy, httpx2.AsyncClient(timeout=None) as client:
            url = f"http://127.0.0.1:{proxy.port}/x"
            assert (await client.get(url)).status_code == 200
            for seconds, act in ((0.3, server.away), (0.9, server.back)):
                threading.Timer(seconds, act).start()
            return await lost_of(lambda: client.get(url), calls=60, rate=50)

    with Server() as server:
        assert asyncio.run(main()) == []


# ---------------------------------------------------------------------- where it ends


def test_who_wants_to_fail_fast_does():
    async def main(clock):
        api = Api(clock, 30.0)
        async with asking("httpx2", clock, api, when_open="refuse") as ask:
            return await lost_of(ask, calls=150), api.sent

    lost, sent = run(main)
    assert len(lost) == 50
    assert sent <= 110


def test_single_calls_fail_fast_unless_they_are_told_to_wait():
    async def main(clock):
        api, manager = Api(clock, 30.0), ProviderResilienceManager(clock=clock, rng=random.Random(1))
        client = api.client()
        lost = {"refuse": 0, "wait": 0}

        async def one(when_open):
            try:
                await execute_with_resilience(lambda: client.get(URL), "api", when_open=when_open, manager=manager)
            except (CircuitOpenError, httpx2.ConnectError):
                lost[when_open] += 1

        tasks = []
        for _ in range(150):
            tasks += [asyncio.create_task(one("refuse")), asyncio.create_task(one("wait"))]
            await asyncio.sleep(0.05)
        await asyncio.gather(*tasks)
        return lost

    lost = run(main)
    assert lost["wait"] == 0
    assert 45 <= lost["refuse"] <= 50


def test_a_wait_for_the_probe_that_would_be_too_long_is_refused_at_once():
    async def main(clock):
        async with asking("httpx2", clock, Api(clock, 30.0), max_wait=10.0) as ask:
            await lost_of(ask, calls=120)
            asked_at = clock.now()
            with pytest.raises(CircuitOpenError) as caught:
                await ask()
            return clock.now() - asked_at, caught.value.retry_after

    waited, retry_after = run(main)
    assert waited == 0
    assert 10.0 < retry_after <= 15.0


def test_a_host_that_never_answered_gets_no_more_attempts_than_said():
    async def main(clock):
        api = Api(clock, 1000.0)
        await asyncio.sleep(10.0)
        async with asking("httpx2", clock, api) as ask:
            with pytest.raises(httpx2.ConnectError):
                await ask()
            return api.sent

    assert run(main) == 3


def test_a_failure_of_the_request_itself_uses_up_its_attempts():
    async def main(clock):
        api = Api(clock, 1000.0, status=500)
        async with asking("httpx2", clock, api) as ask:
            assert (await ask()).status_code == 200
            await asyncio.sleep(10.0)
            return (await ask()).status_code, api.sent

    assert run(main) == (500, 1 + 3)


def test_an_outage_without_end_ends_the_call():
    async def main(clock):
        api = Api(clock, 1e6)
        async with asking("httpx2", clock, api) as ask:
            assert (await ask()).status_code == 200
            await asyncio.sleep(10.0)
            with pytest.raises(httpx2.ConnectError):
                await ask()
            return api.sent - 1, clock.now()

    sent, ended_at = run(main)
    assert sent == 20 + 3
    assert ended_at > 10.0 + 250.0


@pytest.mark.parametrize(("settings", "method"), [({"retries": 0}, "GET"), ({}, "POST")])
def test_what_may_not_be_repeated_is_not(settings, method):
    async def main(clock):
        api = Api(clock, 30.0, status=503)
        async with gate(api.client(), clock=clock, **settings) as client:
            await client.get(URL)
            await asyncio.sleep(6.0)
            sent = api.sent
            return (await client.request(method, URL)).status_code, api.sent - sent

    assert run(main) == (503, 1)


def test_another_word_is_refused():
    with pytest.raises(ConfigError, match="when_open"):
        Passing(when_open="never")
    with pytest.raises(ConfigError, match="when_open"):
        AdaptiveRateLimiter().acquire("a", when_open="never")


# ---------------------------------------------------------------------- in the limiter


CONFIG = RateLimitConfig(strategy="fixed", initial_rps=1000, token_bucket_capacity=100, consecutive_fail_threshold=2)


async def opened(clock):
    limiter = AdaptiveRateLimiter(CONFIG, clock=clock)
    for _ in range(2):
        limiter.acquire("a").report(status_code=503)
    return limiter


def test_those_who_wait_are_probes_one_after_the_other_in_order():
    async def main(clock):
        limiter, log = await opened(clock), []

        async def one(number, status):
            permit = await limiter.acquire_async("a", when_open="wait")
            log.append((number, round(clock.now(), 1)))
            await asyncio.sleep(0.5)
            permit.report(status_code=status)

        await asyncio.gather(*(one(number, 503 if number < 2 else 200) for number in range(6)))
        return log

    log = run(main)
    assert log[:3] == [(0, 15.0), (1, 30.5), (2, 46.0)]
    assert [number for number, _ in log[3:]] == [3, 4, 5]
    assert all(46.5 <= at < 47.0 for _, at in log[3:])


def test_a_circuit_that_opens_refuses_those_in_line_who_do_not_wait():
    async def main(clock):
        limiter = AdaptiveRateLimiter(
            RateLimitConfig(strategy="fixed", initial_rps=1.0, token_bucket_capacity=2, consecutive_fail_threshold=2),
            clock=clock,
        )
        permits = [limiter.acquire("a") for _ in range(2)]
        ended = {}

        async def one(name, when_open):
            try:
                (await limiter.acquire_async("a", when_open=when_open)).report(status_code=200)
            except CircuitOpenError as refusal:
                ended[name] = clock.now(), round(refusal.retry_after)
            else:
                ended[name] = clock.now(), None

        tasks = [
            asyncio.create_task(one(f"{when_open}-{n}", when_open))
            for n in range(2)
            for when_open in ("wait", "refuse")
        ]
        await asyncio.sleep(0.5)
        for permit in permits:
            permit.report(status_code=503)
        await asyncio.gather(*tasks)
        return ended

    ended = run(main)
    assert ended["refuse-0"] == ended["refuse-1"] == (0.5, 15)
    assert ended["wait-0"] == (15.5, None)
    assert 15.5 <= ended["wait-1"][0] < 20.0


def test_a_probe_that_is_never_heard_of_again_holds_nobody_for_longer_than_the_circuit():
    async def main(clock):
        limiter = await opened(clock)
        await limiter.acquire_async("a", when_open="wait")
        await limiter.acquire_async("a", when_open="wait")
        return clock.now()

    assert run(main) == 30.0


def test_a_wait_that_ends_before_the_probe_does_says_that_the_circuit_is_open():
    async def main(clock):
        limiter = await opened(clock)
        await limiter.acquire_async("a", when_open="wait")
        with pytest.raises(CircuitOpenError):
            await limiter.acquire_async("a", max_wait=5.0, when_open="wait")
        return clock.now()

    assert run(main) == 20.0


def test_a_wait_that_is_cancelled_leaves_the_probe_to_the_next():
    async def main(clock):
        limiter = await opened(clock)
        first = asyncio.create_task(limiter.acquire_async("a", when_open="wait"))
        second = asyncio.create_task(limiter.acquire_async("a", when_open="wait"))
        await asyncio.sleep(10.0)
        first.cancel()
        (await second).report(status_code=200)
        return clock.now()

    assert run(main) == 15.0


def test_a_call_under_several_keys_waits_for_the_one_whose_circuit_is_open():
    async def main(clock):
        limiter = await opened(clock)
        permit = await limiter.acquire_async("b", also=["a"], when_open="wait")
        permit.report(status_code=200)
        return clock.now()

    assert run(main) == 15.0


def test_a_thread_waits_as_a_task_does():
    config = RateLimitConfig(strategy="fixed", initial_rps=1000, consecutive_fail_threshold=2, open_state_duration=0.2)
    limiter = AdaptiveRateLimiter(config)
    for _ in range(2):
        limiter.acquire("a").report(status_code=503)
    with limiter.permit("a", when_open="wait") as permit:
        permit.report(status_code=200)
    assert permit.waited > 0.1
