"""What is turned away, and that nothing of it reaches the API."""

import asyncio
import json

import pytest

from headgate.errors import ConfigError
from headgate.proxy import Bounds, mounts_of

TOKEN = "a-token-of-24-characters"


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def get(target, *fields, host="127.0.0.1", method="GET"):
    lines = [f"{method} {target} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *fields]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


BAD = {
    # paths
    "another host by two slashes": (get("//evil.example/x"), 400),
    "three slashes": (get("///evil.example/x"), 400),
    "a whole URL": (get("http://evil.example/x"), 400),
    "a whole URL of the API's": (get("https://api.openai.com/v1"), 400),
    "no path": (get("@evil.example/x"), 400),
    "a star": (get("*", method="OPTIONS"), 400),
    "a backslash": (get("/\\evil.example"), 400),
    "up": (get("/v1/../admin"), 400),
    "up at the end": (get("/v1/.."), 400),
    "here": (get("/v1/./x"), 400),
    "up, encoded": (get("/v1/%2e%2e/admin"), 400),
    "up, half encoded": (get("/v1/.%2E/admin"), 400),
    "up, encoded twice": (get("/v1/%252e%252e/admin"), 400),
    "up, encoded slash": (get("/v1/..%2fadmin"), 400),
    "up, encoded backslash": (get("/v1/..%5cadmin"), 400),
    "up, with a parameter": (get("/v1/..;x=1/admin"), 400),
    "encoded again and again": (get("/v1/%2525252541"), 400),
    "a line end in the path": (get("/v1/%0d%0aX-Evil:%201"), 400),
    "a zero byte": (get("/v1/%00"), 400),
    "a fragment": (get("/v1/x#y"), 400),
    "too long": (get("/" + "x" * 20_000), 431),
    # hosts
    "no host": (get("/x", host=None), 400),
    "two hosts": (get("/x", "Host: localhost"), 400),
    "a foreign name": (get("/x", host="evil.example"), 421),
    "a name that begins like ours": (get("/x", host="localhost.evil.example"), 421),
    "a user before ours": (get("/x", host="localhost@evil.example"), 421),
    "another address": (get("/x", host="10.1.2.3"), 421),
    "the API's own name": (get("/x", host="api.openai.com"), 421),
    "an empty host": (get("/x", host=""), 421),
    # web pages
    "another site": (get("/x", "Origin: https://evil.example"), 403),
    "a page without an origin": (get("/x", "Origin: null"), 403),
    "another port": (get("/x", "Origin: http://127.0.0.1:1"), 403),
    "two origins": (get("/x", "Origin: http://127.0.0.1", "Origin: https://evil.example"), 403),
    "a picture on a page": (get("/x", "Sec-Fetch-Site: cross-site"), 403),
    "another host of the site": (get("/x", "Sec-Fetch-Site: same-site"), 403),
    "what a page asks before it asks": (get("/x", "Origin: https://e.x", method="OPTIONS"), 403),
    # other protocols
    "a tunnel": (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    "a mirror": (get("/x", method="TRACE"), 405),
    "a websocket": (get("/x", "Upgrade: websocket", "Sec-WebSocket-Key: eA==", "Sec-WebSocket-Version: 13"), 501),
    "no HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    # one request inside of another
    "two kinds of length": (
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two lengths": (b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "a length that is none": (b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1\r\n\r\na", 400),
    "a coding nobody knows": (
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a space before the colon": (b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-A : 1\r\n\r\n", 400),
    "a folded line": (b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-A: 1\r\n 2\r\n\r\n", 400),
    "a bare line feed in a header": (b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-A: 1\nX-B: 2\r\n\r\n", 400),
    "a zero in a header": (b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-A: 1\x00\r\n\r\n", 400),
    "a header that is too long": (get("/x", "X-A: " + "y" * 20_000), 431),
    "too many headers": (get("/x", *(f"X-{number}: 1" for number in range(200))), 400),
    "a header that cannot be written": (get("/x", "X-A: \xff"), 400),
}


def test_whatever_is_no_plain_request_is_refused_in_json(tools):
    """All against one proxy, one after the other: none may reach the API, and none may disturb the next."""

    async def work():
        wrong = {}
        async with tools.upstream() as api, tools.proxied(api.url, keys=[tools.CANARY]) as proxy:
            for name, (data, status) in BAD.items():
                said = await tools.raw(proxy, data)
                try:
                    assert tools.status_of(said) == status
                    assert b"HTTP/1." not in said[8:], "one answer, whatever else was in it"
                    if b" TRACE " not in data:
                        error = json.loads(tools.body_of(said))["error"]
                        assert error["type"] == "headgate"
                    assert b"evil" not in said
                    assert tools.CANARY.encode() not in said
                except (AssertionError, ValueError) as problem:
                    wrong[name] = (said[:300], str(problem)[:100])
            fine = await tools.raw(proxy, get("/v1/x"))
            return wrong, [one.line for one in api.asked], tools.status_of(fine), proxy.counts

    wrong, asked, status, counts = run(work())
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())
    assert asked == ["GET /v1/x HTTP/1.1"]
    assert status == 200
    assert counts.answered == 1


FINE = [
    "/@evil.example/x",
    "/v1/@scope%2Fname",
    "/v1/a..b/...",
    "/v1/x//y",
    "/v1/x?u=http://evil.example/../..&v=//e",
    "/:80@evil.example",
    "/v1/%E4%BD%A0",
    "/.well-known/x",
]


@pytest.mark.parametrize("path", FINE)
def test_odd_paths_that_stay_go_to_the_api_as_they_are(tools, path):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            said = await tools.raw(proxy, get(path))
            return tools.status_of(said), [(one.line, one.get("Host")) for one in api.asked], api.port

    status, asked, port = run(work())
    assert status == 200
    assert asked == [(f"GET {path} HTTP/1.1", f"127.0.0.1:{port}")]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8747", "[::1]:8747", "also.example"])
def test_own_names_are_answered(tools, host):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url, allow_hosts=["also.example"]) as proxy:
            fields = [f"Origin: http://{host}", "Sec-Fetch-Site: same-origin"]
            return tools.status_of(await tools.raw(proxy, get("/x", *fields, host=host))), api.asked[0].get("Origin")

    assert run(work()) == (200, None)


@pytest.mark.parametrize(("host", "status"), [("10.1.2.3:8747", 200), ("11.1.2.3", 421), ("ten.example", 421)])
def test_addresses_of_an_allowed_network_are_answered_and_names_are_not(tools, host, status):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url, allow_hosts=["10.0.0.0/8"]) as proxy:
            return tools.status_of(await tools.raw(proxy, get("/x", host=host)))

    assert run(work()) == status


def test_any_host_is_answered_only_with_a_token(tools):
    async def work(token):
        async with tools.upstream() as api, tools.proxied(api.url, allow_hosts=["*"], token=token) as proxy:
            fields = [[], [f"X-Headgate-Token: {token}"]]
            return [tools.status_of(await tools.raw(proxy, get("/x", *one, host="rebound.example"))) for one in fields]

    assert run(work(TOKEN)) == [401, 200]
    with pytest.raises(ConfigError, match="set a token"):
        run(work(None))


@pytest.mark.parametrize(
    ("fields", "status", "keyed"),
    [
        ([], 401, True),
        ([f"X-Headgate-Token: {TOKEN}"], 200, True),
        ([f"Authorization: Bearer {TOKEN}"], 200, True),
        ([f"Authorization: Bearer {TOKEN}x"], 401, True),
        (["Authorization: Bearer own"], 401, False),
        ([f"Authorization: Bearer {TOKEN}"], 401, False),
        (["Authorization: Bearer own", f"X-Headgate-Token: {TOKEN}"], 200, False),
    ],
)
def test_a_token_is_wanted_where_one_is_set_and_goes_no_further(tools, fields, status, keyed):
    async def work():
        keys = [tools.CANARY] if keyed else None
        async with tools.upstream() as api, tools.proxied(api.url, keys=keys, token=TOKEN) as proxy:
            said = await tools.raw(proxy, get("/x", *fields))
            health = await tools.raw(proxy, get("/-/healthz"))
            return tools.status_of(said), str(api.asked), tools.status_of(health)

    code, asked, health = run(work())
    assert (code, health) == (status, 200)
    assert TOKEN not in asked
    assert ("own" in asked) == (status == 200 and not keyed)


def test_other_addresses_need_a_token(tools):
    async def work(**settings):
        async with tools.proxied("http://127.0.0.1:1", host="0.0.0.0", **settings) as proxy:
            return tools.status_of(await tools.raw(proxy, get("/-/healthz", host="10.1.2.3:80")))

    with pytest.raises(ConfigError, match="token"):
        run(work())
    with pytest.raises(ConfigError, match="token") as short:
        run(work(token="short"))
    assert "'short'" not in str(short.value)
    assert run(work(token=TOKEN)) == 200


def test_own_paths(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            said = [await tools.raw(proxy, get(path)) for path in ("/-/healthz", "/-/healthz?x", "/-/other")]
            return [tools.status_of(one) for one in said], tools.body_of(said[0]), len(api.asked)

    assert run(work()) == ([200, 200, 404], b"ok\n", 0)


def test_heads_that_never_end_and_too_many_callers_are_bounded(tools):
    async def work():
        bounds = Bounds(idle=3.0, connections=3)
        async with tools.upstream() as api, tools.proxied(api.url, bounds=bounds) as proxy:
            slow = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(3)]
            for _, writer in slow:
                writer.write(b"GET /x HTTP/1.1\r\nX-Slow: ")
            await asyncio.sleep(0.05)
            one_more = await tools.raw(proxy, get("/x"))
            ends = [await asyncio.wait_for(reader.read(), 20) for reader, _ in slow]
            for _, writer in slow:
                writer.close()
            after = await tools.raw(proxy, get("/x"))
            return tools.status_of(one_more), ends, tools.status_of(after)

    assert run(work()) == (503, [b"", b"", b""], 200)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([], "1 to"),
        (["nobody"], "unknown"),
        (["https://user:pw@host"], "without user"),
        (["https://a.example", "https://b.example"], "needs a name"),
        (["openai", "openai"], "same"),
        (["a=https://x.example/1", "b=https://x.example/2"], "same"),
        (["a/b=https://x.example"], "NAME=URL"),
        (["-=https://x.example"], "NAME=URL"),
    ],
)
def test_targets_that_cannot_be(given, match):
    with pytest.raises(ConfigError, match=match) as told:
        mounts_of(given)
    assert "pw" not in str(told.value)


def test_where_each_is_found():
    openai, anthropic, own = mounts_of(["openai", "anthropic", "own=http://localhost:8000/v1"])
    assert (openai.base_path, anthropic.base_path, own.base_path) == ("/openai/v1", "/anthropic", "/own/v1")
    assert (mounts_of(["openai"])[0].base_path, mounts_of(["anthropic"])[0].base_path) == ("/v1", "")
    assert (openai.variable, own.variable) == ("OPENAI_BASE_URL", "")
    assert (openai.below, own.below) == ("", "/v1")
