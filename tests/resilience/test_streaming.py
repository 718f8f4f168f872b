"""Streams: the permit is held to the last piece, and an error inside of a 200 is an outcome like any other."""

from __future__ import annotations

import asyncio
import json

import pytest

from headgate.core.decision import CircuitState
from headgate.errors import TimeBudgetExceededError
from headgate.resilience import stream_with_resilience

OVERLOADED = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
START = 'event: message_start\ndata: {"type": "message_start"}\n\n'
ERROR = f"event: error\ndata: {OVERLOADED}\n\n"


def streams(lab, *courses, gap: float = 1.0):
    """Opens one stream after another; each is a list of pieces, and an exception ends it."""
    opened: list[float] = []

    async def open_stream(ctx):
        opened.append(lab.clock.now())
        try:
            for piece in courses[min(len(opened), len(courses)) - 1]:
                await asyncio.sleep(gap)
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            open_stream.closed += 1

    open_stream.opened, open_stream.closed = opened, 0
    return open_stream


def stream(lab, func, **options):
    options.setdefault("resilience_config", lab.config())
    return stream_with_resilience(func, "api", manager=lab.manager, **options)


async def read(lab, func, **options) -> list:
    async with stream(lab, func, **options) as pieces:
        return [piece async for piece in pieces]


def test_the_permit_is_held_until_the_last_piece_and_the_latency_is_that_of_the_first(play) -> None:
    async def scenario(lab):
        async with stream(lab, streams(lab, ["a", "b", "c"], gap=2.0)) as pieces:
            assert [lab.manager.get_provider_status("api").in_flight async for _ in pieces] == [1, 1, 1]
        assert lab.nothing_is_held()
        assert lab.manager.limiter.key_status("api").average_latency == pytest.approx(2.0)
        assert [event.event_type for event in lab.events] == ["request_success"]

    play(scenario)


def test_a_stream_lasts_as_long_as_it_likes_once_it_has_begun(play) -> None:
    async def scenario(lab):
        assert len(await read(lab, streams(lab, ["piece"] * 100), time_budget=5.0, attempt_timeout=4.0)) == 100
        error = None
        try:
            await read(lab, streams(lab, ["late"], gap=9.0), time_budget=5.0)
        except TimeBudgetExceededError as spent:
            error = spent
        assert error is not None
        assert error.elapsed == 5.0
        assert lab.nothing_is_held()

    play(scenario)


def test_what_fails_before_the_first_piece_is_retried(play, http_error) -> None:
    async def scenario(lab):
        func = streams(lab, [http_error(503)], [ERROR], ["a", "b"])
        assert await read(lab, func) == ["a", "b"]
        assert (len(func.opened), func.closed) == (3, 3)
        assert [event.error_type for event in lab.told("retry_attempt")] == ["overloaded", "overloaded"]
        assert lab.manager.get_provider_status("api").consecutive_failures == 0

    play(scenario)


@pytest.mark.parametrize(
    "pieces",
    [
        [ERROR],
        [ERROR.encode()],
        ["event: error\n", f"data: {OVERLOADED}\n", "\n"],
        [b": keep-alive\n", b"\n", b"event: error\n", f"data: {OVERLOADED}\n".encode()],
        [json.loads(OVERLOADED)],
        ['data: {"error": {"code": 503, "message": "Provider returned error", "metadata": {}}}\n\n'],
        ['{"ok": false, "error": "ratelimited"}'],
    ],
    ids=["event", "bytes", "lines", "after comments", "parsed", "openrouter", "slack"],
)
def test_an_error_inside_a_200_before_anything_else_is_retried(play, pieces) -> None:
    async def scenario(lab):
        func = streams(lab, pieces, ["fine"], gap=0.0)
        assert await read(lab, func) == ["fine"]
        assert lab.nothing_is_held()

    play(scenario)


def test_one_in_the_middle_is_handed_on_and_counts(play) -> None:
    async def scenario(lab):
        for _ in range(5):
            func = streams(lab, [START, ERROR])
            assert await read(lab, func) == [START, ERROR]
            assert len(func.opened) == 1
        assert lab.manager.get_breaker_state("api") is CircuitState.OPEN
        assert lab.events[-1].event_type == "request_failure"
        assert lab.events[-1].error_type == "overloaded"

    play(scenario)


def test_one_that_was_cut_in_two_counts_at_the_end(play) -> None:
    async def scenario(lab):
        pieces = [START, ERROR[:30], ERROR[30:]]
        assert await read(lab, streams(lab, pieces)) == pieces
        assert lab.manager.get_provider_status("api").consecutive_failures == 1

    play(scenario)


def test_one_that_keeps_coming_is_handed_on_after_the_last_attempt(play) -> None:
    async def scenario(lab):
        func = streams(lab, [ERROR])
        assert await read(lab, func) == [ERROR]
        assert len(func.opened) == 3
        assert lab.nothing_is_held()

    play(scenario)


def test_a_text_that_speaks_of_errors_is_a_text(play) -> None:
    async def scenario(lab):
        text = json.dumps(
            {"type": "content_block_delta", "delta": {"text": 'say "error": {"type": "overloaded_error"}'}}
        )
        await read(lab, streams(lab, [START, f"data: {text}\n\n"]))
        assert lab.manager.get_provider_status("api").consecutive_failures == 0

    play(scenario)


def test_a_connection_that_is_lost_in_the_middle_counts_and_is_raised(play) -> None:
    async def scenario(lab):
        func = streams(lab, ["a", ConnectionResetError()])
        got = []
        with pytest.raises(ConnectionResetError):
            async with stream(lab, func) as pieces:
                while True:
                    got.append(await anext(pieces))
        assert (got, len(func.opened)) == (["a"], 1)
        assert lab.manager.get_provider_status("api").consecutive_failures == 1
        assert lab.nothing_is_held()

    play(scenario)


def test_leaving_early_closes_the_stream_and_gives_everything_back(play) -> None:
    async def scenario(lab):
        credentials = lab.credentials()
        func = streams(lab, ["a", "b", "c"])
        async with stream(lab, func, credentials=credentials) as pieces:
            async for _ in pieces:
                assert credentials.held == {"key-1"}
                break
        assert func.closed == 1
        assert not credentials.held
        assert credentials.reports == [("key-1", "released")]
        assert lab.nothing_is_held()

    play(scenario)


def test_a_status_can_be_reported_before_the_first_piece(play, response) -> None:
    async def scenario(lab):
        async def func(ctx):
            calls.append(1)
            ctx.report(response(429 if len(calls) == 1 else 200))
            yield "the body of whatever it was"

        calls: list[int] = []
        await read(lab, func)
        assert len(calls) == 2

    play(scenario)


def test_a_function_may_return_an_iterator_instead(play) -> None:
    async def scenario(lab):
        async def open_it():
            return streams(lab, ["a", "b"])(None)

        assert await read(lab, open_it) == ["a", "b"]
        assert [piece async for piece in stream(lab, open_it)] == ["a", "b"]
        assert await read(lab, streams(lab, [])) == []
        assert lab.nothing_is_held()

    play(scenario)


def test_reading_before_entering_is_an_error(play) -> None:
    async def scenario(lab):
        with pytest.raises(RuntimeError, match="async with"):
            await anext(stream(lab, streams(lab, ["a"])))

    play(scenario)


def test_a_circuit_lets_one_stream_probe(play) -> None:
    async def scenario(lab):
        await lab.sicken()
        await asyncio.sleep(30.0)
        func = streams(lab, ["a", "b"])
        ends = await asyncio.gather(*(read(lab, func) for _ in range(6)), return_exceptions=True)
        assert ends.count(["a", "b"]) == len(func.opened) == 1
        assert lab.manager.get_breaker_state("api") is CircuitState.CLOSED

    play(scenario)
