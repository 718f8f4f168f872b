"""The gate between: what waits, what is sent again, what is refused, and that everything is given back."""

import asyncio
import gc
import json

import aiohttp
import pytest
from bench.ports import free_port
from tests.quota_spent import quota_spent

from headgate import RateLimitConfig
from headgate.proxy import Bounds

TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}"
BROKEN = b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}"


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


async def hang_up(asked, reader, writer):
    return "end"


def error_of(tools, said):
    return json.loads(tools.body_of(said))["error"]


def test_garbage_is_looked_for_less_often_while_it_serves(tools):
    async def work():
        before = gc.get_threshold()
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            assert gc.get_threshold()[0] > before[0]
            await proxy.stop()
            return before, gc.get_threshold()

    before, after = run(work())
    assert after == before


@pytest.mark.parametrize("keys", [None, ["one-secret", "other-secret"]])
def test_refusals_are_absorbed(tools, keys):
    async def work():
        async with tools.upstream(TOO_MANY, tools.OK) as api, tools.proxied(api.url, keys=keys) as proxy:
            said = await tools.raw(proxy, tools.request("POST", "/x", body=b"again"))
            return tools.status_of(said), [one.body for one in api.asked], tools.in_flight(proxy)

    assert run(work()) == (200, [b"again", b"again"], 0)


@pytest.mark.parametrize(
    ("method", "extra", "step", "times"),
    [
        ("POST", [], BROKEN, 1),
        ("PATCH", [], BROKEN, 1),
        ("POST", [], hang_up, 1),
        ("POST", ["Idempotency-Key: 1"], BROKEN, 3),
        ("GET", [], BROKEN, 3),
        ("GET", [], hang_up, 3),
        ("PUT", [], BROKEN, 3),
        ("PUT", ["X-Stainless-Retry-Count: 1"], BROKEN, 1),
    ],
)
def test_only_what_is_safe_is_sent_again(tools, method, extra, step, times):
    async def work():
        async with tools.upstream(step) as api, tools.proxied(api.url) as proxy:
            body = b"" if method == "GET" else b"x"
            said = await tools.raw(proxy, tools.request(method, "/x", *extra, body=body))
            return tools.status_of(said), len(api.asked), tools.in_flight(proxy)

    assert run(work()) == (502 if step is hang_up else 500, times, 0)


@pytest.mark.parametrize("step", [TOO_MANY, BROKEN])
def test_what_cannot_be_kept_is_never_sent_twice(tools, step):
    async def work():
        bounds = Bounds(kept=1000)
        async with tools.upstream(step) as api, tools.proxied(api.url, bounds=bounds) as proxy:
            large = tools.request("PUT", "/x", body=b"x" * 1001)
            chunked = tools.request("PUT", "/x", "Transfer-Encoding: chunked", close=True)
            chunked += b"3e9\r\n" + b"y" * 1001 + b"\r\n0\r\n\r\n"
            codes = [tools.status_of(await tools.raw(proxy, one)) for one in (large, chunked)]
            return codes, [bytes(one.body) for one in api.asked]

    status = int(step.split()[1])
    assert run(work()) == ([status] * 2, [b"x" * 1001, b"y" * 1001])


def test_where_no_room_is_left_bodies_are_not_kept(tools):
    async def work():
        bounds = Bounds(kept_in_all=5)
        async with tools.upstream(TOO_MANY, tools.OK) as api, tools.proxied(api.url, bounds=bounds) as proxy:
            said = await tools.raw(proxy, tools.request("POST", "/x", body=b"six by"))
            small = await tools.raw(proxy, tools.request("POST", "/x", body=b"five!"))
            return tools.status_of(said), tools.status_of(small), proxy.memory.taken

    assert run(work()) == (429, 200, 0)


def test_too_long_a_wait_is_told_at_once(tools):
    async def work():
        config = RateLimitConfig(limits={"requests": "1/min"}, token_bucket_capacity=1)
        settings = {"config": config, "passing": {"max_wait": 20.0}}
        async with tools.upstream() as api, tools.proxied(api.url, **settings) as proxy:
            first = await tools.raw(proxy, tools.request("GET", "/x"))
            said = await tools.raw(proxy, tools.request("GET", "/x"))
            return first, said, len(api.asked)

    first, said, asked = run(work())
    assert (tools.status_of(first), tools.status_of(said), asked) == (200, 429, 1)
    error = error_of(tools, said)
    assert (error["type"], error["code"]) == ("headgate", "wait_too_long")
    assert 30 < error["retry_after"] <= 60
    retry_after = next(line for line in said.decode().split("\r\n") if line.startswith("Retry-After"))
    assert 30 < int(retry_after.split()[1]) <= 60


def test_an_open_circuit_is_503_and_asks_nobody(tools):
    async def work():
        config = RateLimitConfig(
            strategy="fixed", initial_rps=1e4, token_bucket_capacity=100, consecutive_fail_threshold=2
        )
        async with (
            tools.upstream(BROKEN) as api,
            tools.proxied(api.url, config=config, passing={"retries": 0, "when_open": "refuse"}) as proxy,
        ):
            said = [await tools.raw(proxy, tools.request("GET", "/x")) for _ in range(3)]
            return said, len(api.asked)

    said, asked = run(work())
    assert [tools.status_of(one) for one in said] == [500, 500, 503]
    assert asked == 2
    assert error_of(tools, said[2])["code"] == "circuit_open"
    assert b"Retry-After: 1" in said[2]


def test_keys_that_are_all_refused_leave_503(tools):
    dead = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"

    async def work():
        async with tools.upstream(dead) as api, tools.proxied(api.url, keys=["one-dead-key"]) as proxy:
            said = [await tools.raw(proxy, tools.request("GET", "/x")) for _ in range(2)]
            return [tools.status_of(one) for one in said], error_of(tools, said[1])["code"], len(api.asked)

    assert run(work()) == ([401, 503], "no_credential", 1)


def test_nobody_there_is_502_and_silence_504(tools):
    async def work():
        async def silent(asked, reader, writer):
            await reader.read()

        async with tools.proxied(f"http://127.0.0.1:{free_port()}") as proxy:
            nobody = await tools.raw(proxy, tools.request("POST", "/x", body=b"1"))
        async with tools.upstream(silent) as api, tools.proxied(api.url, timeout=1.0) as proxy:
            late = await tools.raw(proxy, tools.request("POST", "/x", body=b"1"))
            return nobody, late, len(api.asked), tools.in_flight(proxy)

    nobody, late, asked, held = run(work())
    assert (tools.status_of(nobody), error_of(tools, nobody)["code"]) == (502, "no_answer")
    assert "connection refused" in error_of(tools, nobody)["message"]
    assert (tools.status_of(late), error_of(tools, late)["code"]) == (504, "no_answer_in_time")
    assert (asked, held) == (1, 0)


def test_a_spent_budget_is_504(tools):
    async def work():
        async def silent(asked, reader, writer):
            await reader.read()

        async with tools.upstream(silent) as api, tools.proxied(api.url, passing={"time_budget": 0.1}) as proxy:
            said = await tools.raw(proxy, tools.request("POST", "/x", body=b"1"))
            return tools.status_of(said), error_of(tools, said)["code"], tools.in_flight(proxy)

    assert run(work()) == (504, "time_budget", 0)


@pytest.mark.parametrize("head", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_an_answer_that_breaks_off_breaks_off_here_too(tools, head, version):
    async def work():
        async def break_off(asked, reader, writer):
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
            writer.write(b"4\r\npart\r\n" if b"chunked" in head else b"part")
            await writer.drain()
            await asyncio.sleep(0.05)
            return "end"

        async with tools.upstream(break_off) as api, tools.proxied(api.url) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(f"GET /x HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
            said, reset = b"", False
            try:
                while piece := await reader.read(1000):
                    said += piece
            except ConnectionResetError:
                reset = True
            writer.close()
            failed = sum(one.failed for one in proxy.gate.limiter.key_statuses(proxy.gate.limiter.recent_keys(10)))
            return said, reset, tools.in_flight(proxy), failed, len(api.asked)

    said, reset, held, failed, asked = run(work())
    assert b"part" in said
    assert not said.endswith(b"0\r\n\r\n")
    if version == "1.0" and b"chunked" in head:
        assert reset, "a plain end would look like the end of the body"
    assert (held, failed, asked) == (0, 1, 1), "it counts, and a part of it was seen: it is not sent again"


def test_a_caller_who_hangs_up_takes_his_call_along(tools):
    async def work():
        arrived = asyncio.Event()

        async def silent(asked, reader, writer):
            arrived.set()
            await reader.readuntil(b"never")

        async with tools.upstream(silent) as api, tools.proxied(api.url) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(tools.request("POST", "/x", body=b"1", close=False))
            await arrived.wait()
            held = tools.in_flight(proxy)
            writer.close()
            while proxy.requests or not api.lost:
                await asyncio.sleep(0.01)
            return held, tools.in_flight(proxy), len(proxy.requests), api.lost, proxy.counts.left

    assert run(work()) == (1, 0, 0, 1, 1)


def test_a_caller_who_hangs_up_in_line_leaves_it(tools):
    async def work():
        config = RateLimitConfig(limits={"requests": "1/min"}, token_bucket_capacity=1)
        async with tools.upstream() as api, tools.proxied(api.url, config=config) as proxy:
            await tools.raw(proxy, tools.request("GET", "/x"))
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(tools.request("GET", "/x"))
            while not any(one.waiters for one in proxy.gate.limiter.snapshot().keys):
                await asyncio.sleep(0.01)
            writer.close()
            while proxy.requests:
                await asyncio.sleep(0.01)
            return sum(one.waiters for one in proxy.gate.limiter.snapshot().keys), len(api.asked)

    assert run(work()) == (0, 1)


def test_a_caller_who_stops_reading_is_cut_off(tools):
    async def work():
        async def endless(asked, reader, writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            while True:
                writer.write(b"x" * (1 << 18))
                await writer.drain()

        bounds = Bounds(stalled=0.2)
        async with tools.upstream(endless) as api, tools.proxied(api.url, bounds=bounds) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=1024)
            writer.write(tools.request("GET", "/x"))
            while proxy.requests or not api.lost:
                await asyncio.sleep(0.01)
            writer.transport.abort()
            return proxy.counts.failed, tools.in_flight(proxy), api.lost

    assert run(work()) == (1, 0, 1)


@pytest.mark.parametrize("size", [100, 5000])
def test_a_body_that_stops_coming_is_not_waited_for(tools, size):
    """Small ones are read before anything is sent, larger ones are on their way already."""

    async def work():
        async with (
            tools.upstream() as api,
            tools.proxied(api.url, bounds=Bounds(kept=1000, stalled=0.2)) as proxy,
        ):
            data = f"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\nsome".encode()
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            writer.close()
            while proxy.requests:
                await asyncio.sleep(0.01)
            failed = sum(one.failed for one in proxy.gate.limiter.key_statuses(proxy.gate.limiter.recent_keys(10)))
            return tools.status_of(head), failed, tools.in_flight(proxy)

    assert run(work()) == (408, 0, 0), "and the API is not to blame"


def test_tokens_are_settled_from_what_passes_by(tools):
    async def work():
        answer = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
        config = RateLimitConfig(limits={"tokens": "100000/min"}, strategy="fixed", initial_rps=100)
        async with tools.upstream(head + answer) as api, tools.proxied(api.url, config=config) as proxy:
            body = json.dumps({"model": "small", "max_tokens": 500, "messages": []}).encode()
            await tools.raw(proxy, tools.request("POST", "/v1/chat/completions", body=body))
            limiter = proxy.gate.limiter
            (key,) = (seen.key for seen in limiter.snapshot().keys)
            return key, quota_spent(limiter, key), api.port

    key, spent, port = run(work())
    assert key == f"127.0.0.1:{port}/small", "as headgate run names it"
    assert spent == 7


@pytest.mark.parametrize("refusal", [b"HTTP/1.1 429 No\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", b""])
def test_what_fails_while_draining_is_not_tried_again(tools, refusal):
    async def main():
        out, go_on = asyncio.Event(), asyncio.Event()

        async def late(asked, reader, writer):
            out.set()
            await go_on.wait()
            writer.write(refusal)
            return "end"

        async with tools.upstream(late) as api, tools.proxied(api.url) as proxy:
            asking = asyncio.create_task(tools.raw(proxy, tools.request("GET", "/x")))
            await asyncio.wait_for(out.wait(), 20)
            draining = asyncio.create_task(proxy.drain())
            await asyncio.sleep(0)
            go_on.set()
            assert tools.status_of(await asking) == (429 if refusal else 502)
            await asyncio.wait_for(draining, 20)
            assert len(api.asked) == 1

    asyncio.run(main())


def test_draining_finishes_what_is_out_and_turns_away_the_rest(tools):
    async def work():
        go_on = asyncio.Event()

        async def slow(asked, reader, writer):
            await go_on.wait()
            writer.write(tools.OK)

        config = RateLimitConfig(limits={"requests": "1/min"}, token_bucket_capacity=1)
        async with (
            tools.upstream(slow) as api,
            tools.proxied(api.url, config=config) as proxy,
            aiohttp.ClientSession() as session,
        ):
            idle = await asyncio.open_connection("127.0.0.1", proxy.port)
            out = asyncio.create_task(session.get(f"{proxy.url}/out"))
            while not api.asked:
                await asyncio.sleep(0.01)
            in_line = asyncio.create_task(session.get(f"{proxy.url}/in-line"))
            while len(proxy.requests) < 2:
                await asyncio.sleep(0.01)
            draining = asyncio.create_task(proxy.drain())
            refused = await in_line
            told = await refused.json()
            assert await asyncio.wait_for(idle[0].read(), 20) == b"", "idle connections end"
            idle[1].close()
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", proxy.port)
            assert not draining.done()
            go_on.set()
            answer = await out
            await asyncio.wait_for(draining, 20)
            return refused.status, told["error"]["code"], answer.status, await answer.text(), len(api.asked)

    assert run(work()) == (503, "stopping", 200, "{}", 1)


def test_a_cancelled_stop_leaves_nothing_behind(tools):
    before = gc.get_threshold()

    async def work():
        made, is_stopping = [], asyncio.Event()

        async def never(_):
            is_stopping.set()
            await asyncio.sleep(20)

        async def serve():
            async with tools.upstream() as api, tools.proxied(api.url) as proxy:
                await tools.raw(proxy, tools.request("GET", "/x"))
                made.append(proxy)
                proxy._listener.shutdown = never

        task = asyncio.create_task(serve())
        await is_stopping.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        made[0]._listener._monitor.close()
        return made[0]._connector.closed

    assert run(work()) is True
    assert gc.get_threshold() == before
