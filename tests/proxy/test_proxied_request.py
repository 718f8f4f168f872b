"""Requests and answers go through as they are: headers, bodies, streams, both ways."""

import asyncio
import gzip
import json
from dataclasses import replace

import aiohttp
import pytest

from headgate.batch.endpoints import KNOWN_ENDPOINTS


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def test_what_belongs_to_a_connection_stays_on_it(tools):
    async def work():
        answer = (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
            b'Alt-Svc: h3=":443"\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Kept: yes\r\n\r\n{}'
        )
        async with tools.upstream(answer) as api, tools.proxied(api.url) as proxy:
            fields = ["Connection: X-Mine, keep-alive", "X-Mine: 1", "TE: trailers", "Proxy-Authorization: Basic eA=="]
            fields += ["X-Forwarded-For: 10.0.0.7", "Forwarded: for=10.0.0.7", "Via: 1.1 me", "X-Real-IP: 10.0.0.7"]
            fields += ["X-Kept: a", "X-Kept: b", "Authorization: Bearer own", "Cookie: c=1"]
            said = await tools.raw(proxy, tools.request("GET", "/v1/a?b=%20c&d", *fields, close=True))
            return api, api.asked[0], said

    api, asked, said = run(work())
    assert asked.line == "GET /v1/a?b=%20c&d HTTP/1.1"
    assert asked.all("Host") == [f"127.0.0.1:{api.port}"]
    assert asked.all("X-Kept") == ["a", "b"]
    assert asked.get("Authorization") == "Bearer own", "without keys of the proxy's, a program's own passes"
    assert asked.get("Cookie") == "c=1"
    gone = ("X-Mine", "TE", "Proxy-Authorization", "X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "User-Agent")
    assert not any(asked.get(name) for name in (*gone, "Accept", "Accept-Encoding", "Content-Type"))
    head = said.partition(b"\r\n\r\n")[0].lower()
    assert b"x-kept: yes" in head
    assert head.count(b"set-cookie") == 2
    assert not any(name in head for name in (b"x-hop", b"keep-alive", b"alt-svc"))


def test_the_proxy_adds_its_key_and_drops_the_programs_own(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url, keys=[tools.CANARY]) as proxy:
            own = [
                "Authorization: Bearer own",
                "x-api-key: own",
                "X-Goog-Api-Key: own",
                "api-key: own",
                "Cookie: o=own",
            ]
            await tools.raw(proxy, tools.request("GET", "/v1/a", *own, "Idempotency-Key: kept", "OpenAI-Project: p"))
            return api.asked[0]

    asked = run(work())
    assert asked.all("Authorization") == [f"Bearer {tools.CANARY}"]
    assert "own" not in str(asked.headers)
    assert asked.get("Idempotency-Key") == "kept"
    assert asked.get("OpenAI-Project") == "p"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_every_method_passes(tools, method):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            body = b"" if method in ("GET", "OPTIONS") else b'{"a": 1}'
            said = await tools.raw(proxy, tools.request(method, "/x", body=body))
            return api.asked[0], body, said

    asked, body, said = run(work())
    assert asked.line.startswith(method)
    assert asked.body == body
    assert tools.body_of(said) == b"{}"


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'),
    ],
)
def test_answers_without_a_body(tools, method, answer):
    async def work():
        async with tools.upstream(answer) as api, tools.proxied(api.url) as proxy:
            return await tools.raw(proxy, tools.request(method, "/x"))

    said = run(work())
    assert tools.status_of(said) == int(answer.split()[1])
    assert tools.body_of(said) == b""
    if method == "HEAD":
        assert b"content-length: 1234" in said.lower()


def test_packed_answers_and_requests_stay_packed(tools):
    packed = gzip.compress(b'{"a": 1}' * 100)

    async def work():
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        async with tools.upstream(head + packed) as api, tools.proxied(api.url) as proxy:
            said = await tools.raw(proxy, tools.request("POST", "/x", "Content-Encoding: gzip", body=packed))
            return api.asked[0], said

    asked, said = run(work())
    assert asked.body == packed
    assert asked.get("Content-Encoding") == "gzip"
    assert tools.body_of(said) == packed
    assert b"content-encoding: gzip" in said.lower()


def test_events_are_flushed_at_once(tools):
    async def work():
        go_on = asyncio.Event()

        async def stream(asked, reader, writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            await writer.drain()
            for piece in (b"data: 1\n\n", b"data: 2\n\n"):
                await asyncio.wait_for(go_on.wait(), 20)
                go_on.clear()
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.wait_for(go_on.wait(), 20)
            writer.write(b"0\r\n\r\n")

        async with (
            tools.upstream(stream) as api,
            tools.proxied(api.url) as proxy,
            aiohttp.ClientSession() as session,
            session.get(f"{proxy.url}/v1/stream") as answer,
        ):
            assert answer.status == 200, "the head is there before anything of the body"
            seen = []
            for _ in range(2):
                go_on.set()
                seen.append(await asyncio.wait_for(answer.content.readany(), 20))
            assert len(proxy.requests) == 1, "the permit is held while it streams"
            go_on.set()
            assert await answer.content.read() == b""
            while proxy.requests:
                await asyncio.sleep(0.01)
            return seen, len(proxy.requests)

    assert run(work()) == ([b"data: 1\n\n", b"data: 2\n\n"], 0)


@pytest.mark.no_cover
@pytest.mark.parametrize("chunked", [False, True])
def test_large_uploads_stream_and_are_not_kept(tools, chunked):
    size, piece = 32 << 20, b"u" * (1 << 18)

    async def work():
        seen = []

        async def slow(asked, reader, writer):
            assert not chunked or asked.get("Transfer-Encoding") == "chunked"
            assert chunked or asked.get("Content-Length") == str(size)
            await asyncio.sleep(0.3)
            seen.append(sent)
            await tools.read_body(asked, reader)
            writer.write(tools.OK)

        sent = 0

        async def pieces():
            nonlocal sent
            for _ in range(size // len(piece)):
                yield piece
                sent += len(piece)

        async with (
            tools.upstream(slow) as api,
            tools.proxied(api.url) as proxy,
            aiohttp.ClientSession() as session,
        ):
            headers = {} if chunked else {"Content-Length": str(size)}
            async with session.put(f"{proxy.url}/x", data=pieces(), headers=headers) as answer:
                await answer.read()
            return answer.status, len(api.asked[0].body), seen[0], proxy.memory.taken

    status, got, sent_before, kept = run(work())
    assert (status, got, kept) == (200, size, 0)
    assert sent_before < size, "nobody holds what the server has not taken"


def test_a_caller_who_waits_to_be_told_may_go_on(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(
                b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n"
                b"Connection: close\r\n\r\n"
            )
            told = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"body")
            answer = await reader.read()
            writer.close()
            refused = await tools.raw(proxy, tools.request("POST", "/x", "Expect: the-unexpected", body=b"x"))
            return told, answer, api.asked[0], refused

    told, answer, asked, refused = run(work())
    assert told.startswith(b"HTTP/1.1 100")
    assert answer.startswith(b"HTTP/1.1 200")
    assert asked.body == b"body"
    assert asked.get("Expect") is None
    assert tools.status_of(refused) == 417


def test_many_requests_over_one_connection_use_one_there(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            one = tools.request("POST", "/x", body=b"a", close=False)
            said = await tools.raw(proxy, one + one + tools.request("POST", "/x", body=b"a"))
            return said.count(b"HTTP/1.1 200"), len(api.asked)

    assert run(work()) == (3, 3)


FULL = b"HTTP/1.1 203 Fine\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: x/y\r\n"
FULL += b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"


def test_a_complete_head_passes_as_it_is(tools):
    async def work():
        async with tools.upstream(FULL + b"Content-Length: 2\r\n\r\n{}") as api, tools.proxied(api.url) as proxy:
            first = tools.request("GET", "/x", close=False)
            return await tools.raw(proxy, first + tools.request("GET", "/x"))

    said = run(work())
    first, second = (b"HTTP/1.1" + part for part in said.split(b"HTTP/1.1")[1:])
    assert first == FULL + b"Content-Length: 2\r\nServer: headgate\r\n\r\n{}"
    assert second == FULL + b"Content-Length: 2\r\nServer: headgate\r\nConnection: close\r\n\r\n{}"


@pytest.mark.parametrize(
    ("method", "answer", "body"),
    [
        ("HEAD", FULL + b"Content-Length: 9\r\n\r\n", b""),
        ("GET", FULL.replace(b"203", b"204") + b"\r\n", b""),
        ("GET", FULL.replace(b"203", b"304") + b"Content-Length: 9\r\n\r\n", b""),
        ("GET", FULL + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"{}"),
        ("GET", FULL + b"Content-Length: 0\r\n\r\n", b""),
    ],
)
def test_a_body_that_is_none_does_not_hold_up_the_next(tools, method, answer, body):
    async def work():
        async with tools.upstream(answer) as api, tools.proxied(api.url) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            for _ in range(2):
                writer.write(tools.request(method, "/x", close=False))
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                left = await reader.readexactly(len(body))
            writer.close()
            return tools.status_of(head), left

    assert run(work()) == (int(answer.split()[1]), body)


def test_several_apis_are_found_below_their_names(tools):
    async def work():
        async with (
            tools.upstream() as first,
            tools.upstream() as second,
            tools.proxied(f"a={first.url}", f"b={second.url}/tenant", keys=[tools.CANARY]) as proxy,
        ):
            said = [
                await tools.raw(proxy, tools.request("GET", path))
                for path in ("/a/v1/x?y", "/b/tenant/z", "/b/other", "/b/tenantry", "/c/x", "/", "/a")
            ]
            return first.asked, second.asked, [tools.status_of(one) for one in said]

    first, second, codes = run(work())
    assert [one.line for one in first] == ["GET /v1/x?y HTTP/1.1", "GET / HTTP/1.1"]
    assert [one.line for one in second] == ["GET /tenant/z HTTP/1.1"]
    assert codes == [200, 200, 404, 404, 404, 404, 200]
    assert tools.CANARY in str(first[0].headers)
    assert tools.CANARY not in str(second[0].headers), "each key goes to its own API"


def test_what_an_api_wants_to_have_is_added(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            mount = proxy.mounts[0]
            address = replace(mount.address, headers=KNOWN_ENDPOINTS["anthropic"].headers)
            object.__setattr__(mount, "address", address)  # the real one is elsewhere
            await tools.raw(proxy, tools.request("GET", "/x"))
            await tools.raw(proxy, tools.request("GET", "/x", "anthropic-version: mine"))
            return [one.all("anthropic-version") for one in api.asked]

    assert run(work()) == [["2023-06-01"], ["mine"]]


def test_a_key_that_an_api_repeats_is_not_shown(tools):
    body = json.dumps({"you sent": tools.CANARY}).encode()

    async def work():
        head = f"HTTP/1.1 200 {tools.CANARY}\r\nX-Echo: {tools.CANARY}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        async with tools.upstream(head + body) as api, tools.proxied(api.url, keys=[tools.CANARY]) as proxy:
            return await tools.raw(proxy, tools.request("GET", "/x"))

    said = run(work())
    assert tools.CANARY.encode() not in said
    assert len(tools.body_of(said)) == len(body)


def test_old_clients_are_answered_too(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            return await tools.raw(proxy, b"GET /x HTTP/1.0\r\nHost: localhost\r\n\r\n")

    said = run(work())
    assert said.startswith(b"HTTP/1.0 200")
    assert said.endswith(b"{}")


@pytest.mark.parametrize(
    "body", [b"Content-Length: 2\r\n\r\n{}", b"Content-Length: 3\r\n\r\n{}"], ids=["whole", "begun"]
)
@pytest.mark.parametrize("date", [b"", b"Date: x\r\n"])
def test_a_header_that_cannot_be_passed_on_is_the_apis_failure(tools, body, date):
    async def work():
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nX-A: a\x01b\r\n" + date + body
        async with tools.upstream(answer) as api, tools.proxied(api.url) as proxy:
            said = await tools.raw(proxy, tools.request("GET", "/x", close=False) + tools.request("GET", "/x"))
            return said.count(b"HTTP/1.1 502"), b"valid HTTP" in said, proxy.counts.failed, proxy.counts.answered

    assert run(work()) == (2, True, 2, 0)


def test_the_permit_is_returned_if_reading_an_answer_fails(tools, monkeypatch, caplog):
    def fault(*_):
        raise KeyError(tools.CANARY)

    monkeypatch.setattr("headgate.integrations.gated_request.GatedRequest.on_chunk", fault)

    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            said = await tools.raw(proxy, tools.request("GET", "/x"))
            return tools.status_of(said), tools.in_flight(proxy)

    assert run(work()) == (200, 0)
    assert "KeyError in fault" in caplog.text
    assert tools.CANARY not in caplog.text
