"""Calls with resilience and their credentials: what once went wrong."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from headgate import (
    Credential,
    CredentialCoordinator,
    FileStore,
    ProviderResilienceConfig,
    ProviderResilienceManager,
    RateLimiterConfig,
    StoreError,
    TimeBudgetExceededError,
    WaitTooLongError,
    classify_error,
    execute_with_resilience,
    execute_with_resilience_sync,
    guarded,
    stream_with_resilience,
)
from headgate.credentials import Identities
from headgate.sim.virtual import LoopClock, VirtualClock, run

NAMES = Identities(b"a key for tests")


class Response:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class BadBodyError(Exception):
    """As clients raise it: an answer came, but what it holds is unfit."""

    response = Response(200)


class Oversleeps(VirtualClock):
    def sleep(self, seconds: float) -> None:
        self.advance(seconds + 10.0)


def manager(clock: Any, **settings: Any) -> ProviderResilienceManager:
    return ProviderResilienceManager(clock=clock, rng=random.Random(7), **settings)


def keys(clock: Any, *secrets: str | Credential, **settings: Any) -> CredentialCoordinator:
    return CredentialCoordinator(secrets, clock=clock, identities=NAMES, **settings)


def slowly(rate: float) -> ProviderResilienceConfig:
    return ProviderResilienceConfig(
        rate_limiter=RateLimiterConfig(requests_per_second=rate, burst_limit=1, strategy="fixed")
    )


# ---------------------------------------------------------------------- an error after a good answer


@pytest.mark.parametrize("error", [ValueError("no JSON"), BadBodyError()])
def test_an_error_after_a_good_answer_is_raised_as_it_is(error: Exception) -> None:
    def parse(ctx: Any) -> None:
        ctx.report(Response(200))
        raise error

    with pytest.raises(type(error)) as caught:
        execute_with_resilience_sync(parse, "search", manager=manager(VirtualClock()))
    assert caught.value is error


def test_a_connection_that_breaks_after_a_good_answer_is_tried_again() -> None:
    calls = []

    def fetch(ctx: Any) -> str:
        calls.append(ctx.attempt)
        ctx.report(Response(200))
        if len(calls) == 1:
            raise ConnectionResetError
        return "all of it"

    assert execute_with_resilience_sync(fetch, "search", manager=manager(VirtualClock())) == "all of it"
    assert calls == [1, 2]


def test_a_stream_cut_off_after_a_good_answer_raises_that_and_counts() -> None:
    async def main(clock: LoopClock) -> tuple[int, list[str]]:
        events: list[Any] = []
        gate = manager(clock, on_event=events.append)

        async def pieces(ctx: Any) -> Any:
            ctx.report(Response(200))
            yield "data: 1\n\n"
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            async with stream_with_resilience(pieces, "search", manager=gate) as stream:
                async for _ in stream:
                    pass
        return gate.get_provider_status("search").consecutive_failures, [event.event_type for event in events]

    assert run(main) == (1, ["request_failure"])


def test_what_is_no_error_is_classified_as_nothing_to_retry() -> None:
    said = classify_error(Response(200), None)
    assert (said.retryable, said.trips_breaker, said.error_type) == (False, False, "unknown")


# ---------------------------------------------------------------------- the end of the budget is told as such


def test_a_sleep_that_outlasts_the_budget_ends_in_the_budgets_own_error() -> None:
    def fails() -> None:
        raise ConnectionError("boom")

    with pytest.raises(TimeBudgetExceededError) as caught:
        execute_with_resilience_sync(fails, "search", manager=manager(Oversleeps()), time_budget=5.0)
    assert caught.value.attempts == 1
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_a_budget_that_ends_while_others_hold_all_credentials_ends_in_its_own_error() -> None:
    pool = CredentialCoordinator(["one"], identities=NAMES)
    held = pool.acquire()
    with pytest.raises(TimeBudgetExceededError):  # real time: a thread sleeps on a lock
        execute_with_resilience_sync(
            lambda: None, "search", manager=ProviderResilienceManager(), credentials=pool, time_budget=0.05
        )
    held.release()


# ---------------------------------------------------------------------- one max_wait for everything


def test_max_wait_is_for_credential_and_pace_together() -> None:
    async def main(clock: LoopClock) -> float:
        pool, gate = keys(clock, "one"), manager(clock)

        async def call(seconds: float) -> None:
            await asyncio.sleep(seconds)

        first = asyncio.create_task(
            execute_with_resilience(
                lambda: call(0.6), "search", manager=gate, credentials=pool, resilience_config=slowly(1.0)
            )
        )
        await asyncio.sleep(0)
        with pytest.raises(WaitTooLongError):  # 0.6 s for the credential, and then 0.4 s more for the pace
            await execute_with_resilience(
                lambda: call(0.0), "search", manager=gate, credentials=pool, max_wait_seconds=0.9
            )
        await first
        return clock.now()

    assert run(main) == pytest.approx(0.6)


# ---------------------------------------------------------------------- what is heard while a call waits for its pace


def test_nothing_starts_with_a_credential_whose_group_was_sent_to_rest_meanwhile() -> None:
    async def main(clock: LoopClock) -> list[tuple[float, str]]:
        pool, gate = keys(clock, Credential("a", "one", "team"), Credential("b", "two", "team")), manager(clock)
        sent: list[tuple[float, str]] = []

        async def call(ctx: Any, status: int = 200) -> Response:
            sent.append((clock.now(), ctx.credential_label))
            await asyncio.sleep(0.5 if status == 429 else 0.0)
            return Response(status, retry_after="20")

        def start(status: int) -> asyncio.Task[Any]:
            @guarded("search", manager=gate, credentials=pool, resilience_config=slowly(0.5))
            async def guarded_call(ctx: Any) -> Response:
                return await call(ctx, status)

            return asyncio.create_task(guarded_call())

        await start(200)  # a; its next turn comes at 2 s
        limited = start(429)  # b; at 0.5 s it is told to rest until 20.5 s
        await asyncio.sleep(0)
        await start(200)
        limited.cancel()
        return sent

    sent = run(main)
    assert sent[:2] == [(0.0, "a"), (0.0, "b")]
    assert min(at for at, _ in sent[2:]) >= 20.5


def test_callers_in_line_behind_a_credential_that_is_used_up_go_on_with_another() -> None:
    async def main(clock: LoopClock) -> list[str]:
        pool, gate = keys(clock, "one", "two", at_once=None), manager(clock)

        async def call(ctx: Any) -> Any:
            await asyncio.sleep(0.1)
            return Response(429, retry_after="3600") if ctx.credential == "one" else ctx.credential

        return await asyncio.gather(
            *(
                execute_with_resilience(call, "search", manager=gate, credentials=pool, resilience_config=slowly(1.0))
                for _ in range(8)
            )
        )

    assert run(main) == ["two"] * 8


def test_a_credential_that_is_not_accepted_is_used_once_however_many_wait_for_its_pace() -> None:
    async def main(clock: LoopClock) -> int:
        pool, gate = keys(clock, "dead", "two", at_once=None), manager(clock)
        sent: list[str] = []

        async def call(ctx: Any) -> Response:
            secret = ctx.credential
            sent.append(secret)
            await asyncio.sleep(0.1)
            return Response(401 if secret == "dead" else 200)

        await asyncio.gather(
            *(
                execute_with_resilience(call, "search", manager=gate, credentials=pool, resilience_config=slowly(1.0))
                for _ in range(8)
            )
        )
        return sent.count("dead")

    assert run(main) == 1


def test_a_server_that_asks_for_time_is_left_alone_by_all_credentials() -> None:
    async def main(clock: LoopClock) -> list[float]:
        pool, gate = keys(clock, "one", "two"), manager(clock)
        sent: list[float] = []

        async def call() -> Response:
            sent.append(clock.now())
            return Response(503, retry_after="20") if len(sent) == 1 else Response(200)

        first = asyncio.create_task(execute_with_resilience(call, "search", manager=gate, credentials=pool))
        await asyncio.sleep(1.0)
        await execute_with_resilience(call, "search", manager=gate, credentials=pool)
        await first
        return sent

    assert min(run(main)[1:]) >= 20.0


# ---------------------------------------------------------------------- a wall clock that is moved


@pytest.mark.parametrize("moved", [-3600.0, 3600.0])
@pytest.mark.parametrize("file", ["keys.json", "keys.db"])
def test_a_rest_that_is_over_does_not_begin_anew_when_the_wall_clock_is_moved(
    tmp_path: Any, file: str, moved: float
) -> None:
    class Moved(VirtualClock):
        by = 0.0

        def wall(self) -> float:
            return super().wall() + self.by

    clock = Moved()
    pool = keys(clock, "one", store=FileStore(tmp_path / file))
    secret = pool.get_credential()
    assert secret == "one"
    pool.release_credential(secret, rate_limited=True, backoff_seconds=60)
    clock.advance(10.0)
    clock.by = moved
    free = []
    while clock.now() < 90.0:
        clock.advance(1.0)
        if pool.get_available_count():
            free.append(clock.now())
    assert free == [float(second) for second in range(60, 91)]


# ---------------------------------------------------------------------- files of others


@pytest.mark.parametrize("file", ["notes.json", "notes.db"])
def test_a_file_that_is_no_store_is_neither_changed_nor_closed_to_others(tmp_path: Any, file: str) -> None:
    path = tmp_path / file
    if file.endswith(".json"):
        path.write_text('{"notes": []}')
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE notes (text)")
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="it holds something else"):
        FileStore(path).load()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, 0o644)


# ---------------------------------------------------------------------- decorated functions


def test_a_context_passed_by_position_is_the_one_that_is_used() -> None:
    @guarded("search", manager=manager(VirtualClock()))
    def fetch(url: str, ctx: Any = None) -> tuple[str, Any]:
        return url, ctx

    assert fetch("u", "mine") == ("u", "mine")
    assert fetch("u")[1].provider == "search"
