"""Calls with resilience and their credentials: what once went wrong."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
import random
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from headgate import (
    CircuitOpenError,
    ConfigError,
    Credential,
    CredentialCoordinator,
    ErrorClassification,
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
from headgate.core.decision import CircuitState, Outcome
from headgate.core.signal import Signal
from headgate.credentials import Identities
from headgate.errors import NoCredentialError, Refused
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

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
    pool = CredentialCoordinator(["one"], at_once=1, identities=NAMES)
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

        await start(200)  # a; the next turn of the group comes at 2 s
        limited = start(429)  # b; at 2.5 s it is told to rest until 22.5 s
        await asyncio.sleep(0)
        await start(200)
        limited.cancel()
        return sent

    sent = run(main)
    assert sent[:2] == [(0.0, "a"), (2.0, "b")]
    assert min(at for at, _ in sent[2:]) >= 22.5


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
    with pytest.raises(StoreError, match="unexpected content"):
        FileStore(path).load()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, 0o644)


# ---------------------------------------------------------------------- decorated functions


def test_a_context_passed_by_position_is_the_one_that_is_used() -> None:
    @guarded("search", manager=manager(VirtualClock()))
    def fetch(url: str, ctx: Any = None) -> tuple[str, Any]:
        return url, ctx

    assert fetch("u", "mine") == ("u", "mine")
    assert fetch("u")[1].provider == "search"


# ---------------------------------------------------------------------- one limit, one pace


def test_members_of_a_group_share_one_pace() -> None:
    async def main(clock: LoopClock) -> tuple[list[float], set[str]]:
        pool = keys(clock, Credential("a", "one", "team"), Credential("b", "two", "team"))
        gate, sent = manager(clock), []

        async def call() -> None:
            sent.append(clock.now())

        for _ in range(4):
            await execute_with_resilience(call, "search", manager=gate, credentials=pool, resilience_config=slowly(1.0))
        return sent, {entry.key for entry in gate.limiter.snapshot().keys}

    sent, paced_by = run(main)
    assert sent == pytest.approx([0.0, 1.0, 2.0, 3.0])
    assert paced_by == {"search", "search/team"}


def test_a_key_whose_answers_say_nothing_does_not_take_all_calls() -> None:
    async def main(clock: LoopClock) -> list[str]:
        pool, gate, used = keys(clock, Credential("told", "one"), Credential("silent", "two")), manager(clock), []

        async def call(ctx: Any) -> Response:
            used.append(ctx.credential_label)
            told = {"x_ratelimit_remaining": "500", "x_ratelimit_reset": "3600"}
            return Response(200, **told) if ctx.credential_label == "told" else Response(200)

        for _ in range(10):
            await execute_with_resilience(call, "search", manager=gate, credentials=pool)
        return used

    used = run(main)
    assert (used.count("told"), used.count("silent")) == (5, 5)


# ---------------------------------------------------------------------- an open circuit is seen before any wait


async def sicken(gate: ProviderResilienceManager, **options: Any) -> None:
    async def fails() -> None:
        raise ConnectionError

    for _ in range(5):
        with pytest.raises(ConnectionError):
            await execute_with_resilience(fails, "search", manager=gate, max_attempts=1, **options)


def test_an_open_circuit_refuses_before_the_waits_for_credential_and_pace() -> None:
    async def main(clock: LoopClock) -> tuple[list[float], CircuitState]:
        pool, gate = keys(clock, "one"), manager(clock)
        await sicken(gate, credentials=pool, resilience_config=slowly(1.0))
        opened_at, refused_at = clock.now(), []
        held = pool.acquire()  # the only one: whoever waits for it waits long
        for _ in range(3):
            with pytest.raises(CircuitOpenError):
                await execute_with_resilience(fine, "search", manager=gate, credentials=pool)
            refused_at.append(clock.now() - opened_at)
        held.release()
        clock.advance(30.0)
        state = gate.get_breaker_state("search")
        assert await execute_with_resilience(fine, "search", manager=gate, credentials=pool) == "fine"
        return refused_at, state

    refused_at, state = run(main)
    assert refused_at == [0.0, 0.0, 0.0]
    assert state is CircuitState.HALF_OPEN


async def fine() -> str:
    return "fine"


def test_looking_at_a_half_open_circuit_takes_no_probe() -> None:
    async def main(clock: LoopClock) -> str:
        pool, gate = keys(clock, "one"), manager(clock)
        await sicken(gate, credentials=pool, resilience_config=slowly(1000.0))
        await asyncio.sleep(30.0)
        for _ in range(5):
            gate.limiter.check_circuit("search")
        return await execute_with_resilience(fine, "search", manager=gate, credentials=pool)

    assert run(main) == "fine"


# ---------------------------------------------------------------------- whom a failure rests


@pytest.mark.parametrize("by", ["header", "hook"])
def test_a_failure_that_asks_for_time_holds_up_its_own_call_alone(by: str) -> None:
    async def main(clock: LoopClock) -> tuple[list[float], list[float]]:
        gate, failing, others = manager(clock), [], []

        async def fails_once() -> Response:
            failing.append(clock.now())
            said = {"retry_after": "20"} if by == "header" else {}
            return Response(500, **said) if len(failing) == 1 else Response(200)

        async def other() -> None:
            others.append(clock.now())

        hook = lambda response, error: ErrorClassification(True, True, 20.0, "server_error")  # noqa: E731
        options = {"classify_error": hook} if by == "hook" else {}
        first = asyncio.create_task(execute_with_resilience(fails_once, "search", manager=gate, **options))
        await asyncio.sleep(1.0)
        await execute_with_resilience(other, "search", manager=gate)
        await first
        return failing, others

    failing, others = run(main)
    assert failing[1] >= 20.0
    assert others == [1.0]


# ---------------------------------------------------------------------- how often a call goes on


def test_dead_keys_do_not_use_up_the_patience_with_rate_limits() -> None:
    async def main(clock: LoopClock) -> tuple[str, int]:
        pool, gate, used = keys(clock, *(f"secret-{number}" for number in range(6))), manager(clock), []
        config = ProviderResilienceConfig(max_rate_limit_retries=1)

        async def call(ctx: Any) -> Any:
            used.append(ctx.credential)
            if len(used) == 6:
                return "fine"
            return Response(401) if len(used) != 3 else Response(429, retry_after="1")

        found = await execute_with_resilience(call, "search", manager=gate, credentials=pool, resilience_config=config)
        return found, len(set(used))

    assert run(main) == ("fine", 6)


def test_a_quota_that_rests_nothing_is_asked_no_more_often_than_there_are_keys() -> None:
    def spent(ctx: Any) -> Response:
        used.append(ctx.credential_label)
        return Response(432, retry_after="0")

    used: list[str] = []
    clock = VirtualClock()
    answer = execute_with_resilience_sync(
        spent, "search", manager=manager(clock), credentials=keys(clock, "one", "two")
    )
    assert answer.status_code == 432
    assert len(used) == 3


# ---------------------------------------------------------------------- with and without credentials


def test_the_first_call_with_a_credential_parts_the_pace_from_the_circuit() -> None:
    async def main(clock: LoopClock) -> tuple[list[float], list[float], CircuitState]:
        gate, pool, keyless, keyed = manager(clock), keys(clock, "one", "two"), [], []

        async def call(ctx: Any) -> None:
            (keyless if ctx.credential is None else keyed).append(clock.now())

        def start(**options: Any) -> asyncio.Task[Any]:
            return asyncio.create_task(
                execute_with_resilience(call, "search", manager=gate, resilience_config=slowly(1.0), **options)
            )

        waiting = [start() for _ in range(4)]
        await asyncio.sleep(0.5)
        await asyncio.gather(*(start(credentials=pool) for _ in range(4)))
        await asyncio.gather(*waiting, start())
        await sicken(gate)
        return keyless, keyed, gate.get_breaker_state("search")

    keyless, keyed, state = run(main)
    assert keyless == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])  # as if nothing had happened
    assert keyed == pytest.approx([0.5, 0.5, 1.5, 1.5])  # each credential at its own pace
    assert state is CircuitState.OPEN


def test_a_circuit_stays_open_when_credentials_come_in() -> None:
    async def main(clock: LoopClock) -> None:
        gate, pool = manager(clock), keys(clock, "one")
        await sicken(gate)
        with pytest.raises(CircuitOpenError):
            await execute_with_resilience(fine, "search", manager=gate, credentials=pool)
        await asyncio.sleep(30.0)
        assert await execute_with_resilience(fine, "search", manager=gate, credentials=pool) == "fine"
        assert gate.get_breaker_state("search") is CircuitState.CLOSED

    run(main)


def test_the_status_of_a_provider_sees_those_who_wait_for_the_pace_of_a_credential() -> None:
    async def main(clock: LoopClock) -> tuple[Any, Any]:
        gate, pool = manager(clock), keys(clock, Credential("mine", "one"), at_once=None)
        calls = [
            asyncio.create_task(
                execute_with_resilience(fine, "search", manager=gate, credentials=pool, resilience_config=slowly(0.1))
            )
            for _ in range(3)
        ]
        await asyncio.sleep(0.0)
        await asyncio.sleep(1.0)
        seen = gate.get_provider_status("search")
        await asyncio.gather(*calls)
        await asyncio.sleep(60.0)
        return seen, gate.get_provider_status("search")

    seen, later = run(main)
    assert (seen.waiting, seen.reason.startswith("mine: paced at 0.1 calls/s")) == (2, True)
    assert (later.waiting, later.reason) == (0, "")


# ---------------------------------------------------------------------- what is heard too late


@pytest.mark.parametrize("outcome", [Outcome.AUTH, Outcome.RATE_LIMITED])
def test_a_late_answer_does_not_take_back_an_operators_word(outcome: Outcome) -> None:
    clock = VirtualClock()
    pool = keys(clock, Credential("a", "one"), at_once=None)
    early, late = pool.acquire(), pool.acquire()
    signal = Signal(outcome=outcome, retry_after=60.0)
    early.report(signal=signal)
    pool.free("a")
    late.report(signal=signal)
    assert pool.states()[0].state == "free"
    pool.acquire().report(signal=signal)
    assert pool.states()[0].state == ("retired" if outcome is Outcome.AUTH else "resting")


# ---------------------------------------------------------------------- streams


@pytest.mark.parametrize("how", ["left", "cancelled", "failed", "finished", "alone"])
def test_a_stream_has_exactly_one_last_word(how: str) -> None:
    async def main(clock: LoopClock) -> list[tuple[str, str | None]]:
        events: list[Any] = []
        gate = manager(clock, on_event=events.append)

        async def pieces() -> Any:
            for number in range(5):
                yield f"data: {number}\n\n"
                await asyncio.sleep(1.0)

        async def read() -> None:
            stream = stream_with_resilience(pieces, "search", manager=gate)
            if how == "alone":
                async for _ in stream:
                    break
                await stream.aclose()
                return
            async with stream:
                async for _ in stream:
                    if how == "left":
                        break
                    if how == "failed":
                        raise ValueError("the reader's own")
            with pytest.raises(RuntimeError, match="already entered"):
                await stream.__aenter__()
            with pytest.raises(RuntimeError, match="has ended"):
                await anext(aiter(stream))

        task = asyncio.create_task(read())
        await asyncio.sleep(1.5)
        if how == "cancelled":
            task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(end, {"cancelled": asyncio.CancelledError, "failed": ValueError}.get(how, type(None)))
        assert gate.get_provider_status("search").in_flight == 0
        return [(event.event_type, event.error_type) for event in events]

    word = {"left": "left_early", "failed": "left_early", "alone": "left_early", "cancelled": "cancelled"}.get(how)
    assert run(main) == [("request_success", None) if how == "finished" else ("request_failure", word)]


# ---------------------------------------------------------------------- who listens changes nothing


@pytest.mark.parametrize("strategy", ["adaptive", "aimd"])
def test_a_run_is_the_same_whether_or_not_anybody_listens(strategy: str) -> None:
    def play(**settings: Any) -> list[float]:
        async def main(clock: LoopClock) -> list[float]:
            gate, sent, dice = manager(clock, **settings), [], random.Random(3)

            async def call() -> Response:
                sent.append(clock.now())
                return Response(dice.choice([200, 200, 500, 429]))

            limiter = RateLimiterConfig(requests_per_second=5.0, strategy=strategy, ceiling=False)
            for _ in range(30):
                config = ProviderResilienceConfig(rate_limiter=limiter)
                try:
                    await execute_with_resilience(call, "search", manager=gate, resilience_config=config)
                except Refused:
                    await asyncio.sleep(30.0)
            return sent

        return run(main)

    assert play() == play(on_event=lambda event: None)


# ---------------------------------------------------------------------- a call inside of a call


@pytest.mark.parametrize("sent", [True, False])
def test_an_inner_call_that_ran_out_of_time_gives_the_outer_permit_back_only_if_nothing_was_sent(sent: bool) -> None:
    clock = VirtualClock()
    gate = manager(clock)

    def fails() -> None:
        raise ConnectionError

    def outer() -> None:
        if sent:
            execute_with_resilience_sync(fails, "inner", manager=gate, time_budget=0.05)
        execute_with_resilience_sync(fails, "inner", manager=gate, resilience_config=slowly(0.01), max_wait_seconds=0.0)

    config = slowly(0.001)
    if not sent:
        execute_with_resilience_sync(lambda: None, "inner", manager=gate, resilience_config=slowly(0.01))
    with pytest.raises(TimeBudgetExceededError if sent else WaitTooLongError) as caught:
        execute_with_resilience_sync(outer, "outer", manager=gate, resilience_config=config)
    assert caught.value.sent is sent
    tokens = gate.limiter.key_status("outer")
    assert tokens is not None
    assert (tokens.tokens < 0.5) is sent


def test_a_refusal_after_an_answer_says_that_something_was_sent() -> None:
    async def main(clock: LoopClock) -> NoCredentialError:
        pool = keys(clock, "one")

        async def limited() -> Response:
            return Response(429, retry_after="3600")

        with pytest.raises(NoCredentialError) as caught:
            await execute_with_resilience(limited, "search", manager=manager(clock), credentials=pool)
        return caught.value

    assert run(main).sent


# ---------------------------------------------------------------------- what is passed


@pytest.mark.parametrize("wrong", [["sk-canary"], "sk-canary", Credential("a", "sk-canary"), 7])
def test_bare_keys_are_no_coordinator(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="must be a CredentialCoordinator") as caught:
        execute_with_resilience_sync(lambda: None, "search", manager=manager(VirtualClock()), credentials=wrong)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["5", True, -1.0, float("nan"), [1]])
def test_a_time_that_is_none_is_refused_by_name(wrong: Any) -> None:
    pool = keys(VirtualClock(), Credential("a", "one"))
    with pytest.raises(ConfigError, match="timeout="):
        pool.acquire(wrong)
    with pytest.raises(ConfigError, match="seconds="):
        pool.park("a", wrong)


def test_an_async_function_is_not_for_the_sync_executor() -> None:
    called = []

    async def call() -> None:
        called.append(1)

    for func in (call, lambda: call()):
        with pytest.raises(ConfigError, match="coroutine function"):
            execute_with_resilience_sync(func, "search", manager=manager(VirtualClock()))
    assert not called


def test_yes_is_no_number_of_attempts() -> None:
    with pytest.raises(ConfigError, match="max_attempts=True"):
        execute_with_resilience_sync(lambda: None, "search", manager=manager(VirtualClock()), max_attempts=True)


@pytest.mark.parametrize("given", [("sk-other", None), ("a", "sk-other")])
def test_a_name_that_is_the_secret_of_another_is_refused_and_not_repeated(given: tuple[str, str | None]) -> None:
    label, group = given
    with pytest.raises(ConfigError, match="is another credential's secret") as caught:
        CredentialCoordinator([Credential(label, "mine", group), Credential("b", "sk-other")])
    assert "sk-other" not in str(caught.value)


def test_a_credential_goes_nowhere_by_accident() -> None:
    one = Credential("a", "sk-canary", "team")
    with pytest.raises(TypeError, match="cannot be pickled") as caught:
        pickle.dumps(one)
    assert "canary" not in str(caught.value)
    with pytest.raises(TypeError):
        dataclasses.asdict(one)  # type: ignore[call-overload]
    with pytest.raises(AttributeError, match="cannot be changed"):
        one.secret = "other"
    assert "canary" not in f"{one} {one!r} {[one]} { ({one: 1}) }"
    assert copy.deepcopy(one) is copy.copy(one) is one
    assert (one == Credential("a", "sk-canary", "team"), one == Credential("a", "sk-canary")) == (True, False)
