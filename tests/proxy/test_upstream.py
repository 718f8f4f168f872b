"""The connections to an API: which are used again, when they are closed, and how long silence may last."""

import asyncio
import shutil
import ssl
import subprocess

import pytest

from headgate.proxy import Bounds
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


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


def says(*parts):
    """Writes one part after the other, each in a segment of its own, and then waits for the end of the connection."""

    async def step(asked, reader, writer):
        for number, part in enumerate(parts):
            await asyncio.sleep(0.05 if number else 0.0)
            writer.write(part)
            await writer.drain()
        while await reader.read(1 << 16):
            pass
        return "end"

    return step


async def never_reads(asked, reader, writer):
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(20)
    return "end"


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (says(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"), 413),
        (says(b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nDate: x\r\nContent-Length: 2\r\n\r\nno"), 200),
        (says(b"what?\r\n\r\n"), 502),
    ],
)
def test_a_client_gets_the_answer_that_comes_before_its_upload_ends(tools, step, status):
    async def work():
        async with tools.upstream(step) as api, tools.proxied(api.url) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            head = b"PUT /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 2000000\r\n\r\n"
            writer.write(head + b"x" * 1_000_000)
            await until(lambda: api.asked and not proxy.requests)
            writer.write(b"x" * 1_000_000)
            said = await reader.read()
            writer.close()
            return tools.status_of(said)

    assert run(work()) == status


def test_a_response_of_many_small_chunks_leaves_nothing_to_the_next(tools):
    chunks = 1025

    async def work():
        many = CHUNKED + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n"
        few = CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"
        made = []
        script = [counted(one, made) for one in (many, few, many, few)]
        async with tools.upstream(*script) as api, tools.proxied(api.url, timeout=2.0) as proxy:
            said = [await tools.raw(proxy, tools.request("GET", "/x")) for _ in script]
            return [one.count(b"x") for one in said[::2]], [b"hello" in one for one in said[1::2]], len(set(made))

    xs, hellos, connections = run(work())
    assert (min(xs) >= chunks, hellos, connections) == (True, [True, True], 1)


def test_a_request_of_many_small_chunks_leaves_nothing_to_the_next(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            for body in (b"1\r\nx\r\n" * 1025, b"5\r\nhello\r\n"):
                head = b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                writer.write(head + body + b"0\r\n\r\n")
                await reader.readuntil(b"{}")
            writer.close()
            return [len(one.body) for one in api.asked]

    assert run(work()) == [1025, 5]


def test_part_of_a_response_behind_the_first_is_not_read_into_the_next(tools):
    async def work():
        made, stray = [], b"HTTP/1.1 200 OK\r\nX-Stray: "
        denied = b"HTTP/1.1 418 No\r\nContent-Length: 2\r\n\r\nno"
        script = [counted(tools.OK + stray, made), counted(denied, made)]
        async with tools.upstream(*script) as api, tools.proxied(api.url) as proxy:
            said = [await tools.raw(proxy, tools.request("GET", "/x")) for _ in script]
            return [tools.status_of(one) for one in said], b"Stray" in said[1], made[0] is made[1]

    assert run(work()) == ([200, 418], False, False)


def test_a_malformed_chunk_ends_a_response_at_once(tools):
    async def work():
        step = says(CHUNKED + b"5\r\nbegun\r\n", b"zz\r\nwhat\r\n")
        async with tools.upstream(step) as api, tools.proxied(api.url, timeout=600.0) as proxy:
            said = await tools.raw(proxy, tools.request("GET", "/x"))
            return tools.body_of(said), proxy.counts.failed, tools.in_flight(proxy)

    assert run(work()) == (b"5\r\nbegun\r\n", 1, 0)


@pytest.mark.parametrize("early", [b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_silence_is_noticed_after_an_interim_response(tools, early):
    async def work():
        async with tools.upstream(says(early)) as api, tools.proxied(api.url, timeout=0.2) as proxy:
            said = await tools.raw(proxy, tools.request("POST", "/x", body=b"x"))
            return tools.status_of(said), tools.in_flight(proxy)

    assert run(work()) == (504, 0)


def test_silence_is_noticed_in_the_middle_of_a_response(tools):
    async def work():
        step = says(CHUNKED + b"5\r\nbegun\r\n")
        async with tools.upstream(step) as api, tools.proxied(api.url, timeout=0.2) as proxy:
            said = await tools.raw(proxy, tools.request("GET", "/x"))
            return tools.body_of(said), proxy.counts.failed, tools.in_flight(proxy)

    assert run(work()) == (b"5\r\nbegun\r\n", 1, 0)


def test_a_client_that_stops_sending_is_cut_off_though_the_response_has_begun(tools):
    async def work():
        bounds = Bounds(stalled=0.2, kept=1000)
        step = says(CHUNKED + b"5\r\nbegun\r\n")
        async with tools.upstream(step) as api, tools.proxied(api.url, timeout=600.0, bounds=bounds) as proxy:
            said = await tools.raw(
                proxy, b"PUT /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n\r\n" + b"x" * 5000
            )
            await until(lambda: api.lost or not proxy.requests)
            failed = proxy.gate.limiter.key_statuses(proxy.gate.limiter.recent_keys(10))
            return tools.body_of(said), tools.in_flight(proxy), sum(one.failed for one in failed)

    assert run(work()) == (b"5\r\nbegun\r\n", 0, 0), "and the API is not to blame"


def test_an_api_that_does_not_read_the_body_is_silent(tools):
    async def work():
        bounds = Bounds(kept_in_all=16 << 20)
        async with tools.upstream(never_reads) as api, tools.proxied(api.url, timeout=0.3, bounds=bounds) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(tools.request("PUT", "/x", body=b"x" * 8_000_000))
            said = await reader.readexactly(12)
            writer.transport.abort()
            await until(lambda: not proxy.requests)
            return said, tools.in_flight(proxy)

    assert run(work()) == (b"HTTP/1.1 504", 0)


def test_a_slow_client_does_not_make_the_api_silent(tools):
    async def work():
        async with (
            tools.upstream() as api,
            tools.proxied(api.url, timeout=0.2, bounds=Bounds(kept=10)) as proxy,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"PUT /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n")
            await asyncio.sleep(0.7)
            writer.write(b"x" * 100)
            said = await reader.readexactly(12)
            writer.close()
            return said, len(api.asked[0].body)

    assert run(work()) == (b"HTTP/1.1 200", 100)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_a_certificate_that_is_not_trusted_is_told(tools, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=127.0.0.1"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def work():
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        async with server, tools.proxied(f"https://127.0.0.1:{port}") as proxy:
            said = await tools.raw(proxy, tools.request("GET", "/x"))
            return tools.status_of(said), b"TLS certificate not trusted" in said, proxy.counts.failed

    assert run(work()) == (502, True, 1)
