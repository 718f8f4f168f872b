"""The connections to an API: which are used again, when they are closed, and how long silence may last."""

import asyncio

import pytest

from headgate.proxy import upstream as module

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def run(work):
    return asyncio.run(asyncio.wait_for(work, 30))


def counted(answer, made):
    """Answers each request, and remembers its connection."""

    async def step(asked, reader, writer):
        made.append(writer)
        writer.write(answer)
        await writer.drain()

    return step


async def until(is_true):
    for _ in range(1000):
        if is_true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 10 s")


@pytest.mark.parametrize(
    "stray",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong", b"HTTP/1.1 200 OK\r\nX-Wrong: ", b"\r\n"],
    ids=["a response", "half of one", "a line"],
)
def test_what_belongs_to_no_request_ends_the_connection(tools, stray):
    async def work():
        made = []
        async with tools.upstream(counted(tools.OK, made)) as api, tools.proxied(api.url) as proxy:
            first = await tools.raw(proxy, tools.request("GET", "/x"))
            made[0].write(stray)
            await until(lambda: api.lost)
            second = await tools.raw(proxy, tools.request("GET", "/x"))
            return first, second, made[0] is made[1]

    first, second, is_same = run(work())
    assert (tools.body_of(first), tools.body_of(second), is_same) == (b"{}", b"{}", False)


def test_a_second_response_after_the_first_ends_the_connection(tools):
    async def work():
        made, twice = [], tools.OK + tools.OK.replace(b"{}", b"[]")
        async with tools.upstream(counted(twice, made)) as api, tools.proxied(api.url) as proxy:
            said = [await tools.raw(proxy, tools.request("GET", "/x")) for _ in range(3)]
            return [tools.body_of(one) for one in said], len(set(map(id, made)))

    assert run(work()) == ([b"{}"] * 3, 3)


def test_requests_with_and_without_a_body_share_a_connection(tools):
    async def work():
        made = []
        head = tools.OK.partition(b"{}")[0]
        script = [counted(one, made) for one in (tools.OK, head, tools.OK, EMPTY, head, tools.OK)]
        async with tools.upstream(*script) as api, tools.proxied(api.url) as proxy:
            methods = ("GET", "HEAD", "GET", "GET", "HEAD", "GET")
            said = [await tools.raw(proxy, tools.request(method, "/x")) for method in methods]
            return [tools.body_of(one) for one in said], [tools.status_of(one) for one in said], len(set(map(id, made)))

    assert run(work()) == ([b"{}", b"", b"{}", b"", b"", b"{}"], [200] * 6, 1)


def test_silence_is_counted_from_the_last_byte_of_the_response_that_is_due(tools):
    """The timer of the first call fires during the third, which is not late, and again during the last, which is."""

    async def late(asked, reader, writer):
        await asyncio.sleep(0.3)
        writer.write(tools.OK)
        await writer.drain()

    async def silent(asked, reader, writer):
        await asyncio.sleep(5)

    async def work():
        script = (late, late, late, silent)
        async with tools.upstream(*script) as api, tools.proxied(api.url, timeout=0.7) as proxy:
            said = [await tools.raw(proxy, tools.request("POST", "/x", body=b"x")) for _ in script]
            return [tools.status_of(one) for one in said]

    assert run(work()) == [200, 200, 200, 504]


def test_idle_connections_are_closed(tools, monkeypatch):
    monkeypatch.setattr(module, "IDLE", 0.1)

    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            await tools.raw(proxy, tools.request("GET", "/x"))
            await until(lambda: api.lost == 1)
            return tools.status_of(await tools.raw(proxy, tools.request("GET", "/x")))

    assert run(work()) == 200
