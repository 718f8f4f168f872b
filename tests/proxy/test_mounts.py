"""Redirects are handed to the caller and not followed: no credential travels, whatever an API answers."""

import asyncio
import json
from contextlib import suppress

import aiohttp
import httpx2
import pytest


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def redirect(location, status=302):
    return f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


# Where an API may point ({evil}: another server that listens; {own}: the API itself; {port}: the API's port)
ELSEWHERE = [
    "{evil}/take",
    "//127.0.0.1:{evil_port}/take",
    "///127.0.0.1:{evil_port}/take",
    "/\\127.0.0.1:{evil_port}/take",
    "\\\\127.0.0.1:{evil_port}/take",
    "http://user:pw@127.0.0.1:{evil_port}/take",
    "http://127.0.0.1:{port}@127.0.0.1:{evil_port}/take",
    "http://localhost:{evil_port}/take",
    "http://localhost:{port}/take",
    "http://127.0.0.1.evil.example/take",
    "http://evil.example/127.0.0.1:{port}",
    "https://127.0.0.1:{port}/take",
    "HTTP://127.0.0.1:{evil_port}/take",
    "http://127.0.0.1:{evil_port}?x={own}",
    "http://127.0.0.1:{evil_port}#{own}",
    "http:127.0.0.1:{evil_port}/take",
    "ftp://127.0.0.1:{port}/take",
    "javascript:alert(1)",
    "data:text/html,x",
    "http://127.0.0.1:99999/x",
    "http://[::1]:{port}/take",
    "http://[bad/x",
    "http://2130706433:{evil_port}/take",
    "http://0x7f.1:{evil_port}/take",
]
WITHIN = {
    "{own}/v1/there?q=%20#f": "{here}{prefix}/v1/there?q=%20#f",
    "HTTP://127.0.0.1:{port}/v1/there": "{here}{prefix}/v1/there",
    "{own}": "{here}{prefix}/",
    "/v1/there": "{prefix}/v1/there",
    "there": "there",
    "?page=2": "?page=2",
    "http://user:pw@127.0.0.1:{port}/v1": "http://user:pw@127.0.0.1:{port}/v1",
}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_none_is_followed(tools, status):
    async def work():
        async with (
            tools.upstream() as evil,
            tools.upstream(redirect(f"{evil.url}/take", status)) as api,
            tools.proxied(api.url, keys=[tools.CANARY]) as proxy,
        ):
            said = await tools.raw(proxy, tools.request("POST", "/v1/x", body=b"{}"))
            return tools.status_of(said), len(api.asked), evil.asked, said

    code, asked, evil, said = run(work())
    assert (code, asked, evil) == (status, 1, [])
    assert tools.CANARY.encode() not in said


@pytest.mark.no_cover
def test_callers_who_follow_take_no_credential_along(tools):
    """Every case over one proxy, by real clients that follow redirects, and with a secret of their own to lose."""

    async def work():
        seen = {}
        async with (
            tools.upstream() as evil,
            tools.upstream() as api,
            tools.proxied(api.url, keys=[tools.CANARY]) as proxy,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2)) as session,
            httpx2.AsyncClient(follow_redirects=True, timeout=20, trust_env=False) as other,
        ):
            for form in ELSEWHERE:
                location = form.format(evil=evil.url, evil_port=evil.port, own=api.url, port=api.port)
                api.script[:] = [redirect(location), redirect(location), tools.OK]
                said = await tools.raw(proxy, tools.request("GET", "/v1/x"))
                lines = said.decode("latin-1").split("\r\n")
                seen[form] = location in [line.removeprefix("Location: ") for line in lines]
                if "evil}" not in form and "evil_port}" not in form:
                    continue  # no names are looked up in a test
                with suppress(aiohttp.ClientError, ValueError, OSError):
                    async with session.get(f"{proxy.url}/v1/x", max_redirects=3) as answer:
                        await answer.read()
                api.script[:] = [redirect(location), tools.OK]
                with suppress(httpx2.HTTPError, httpx2.InvalidURL, ValueError):
                    await other.get(f"{proxy.url}/v1/x")
            return seen, json.dumps([vars(one) for one in evil.asked], default=str), len(evil.asked), len(api.asked)

    seen, taken, evil, asked = run(work())
    assert all(seen.values()), f"changed on the way: {[form for form, same in seen.items() if not same]}"
    assert evil > 5, "some clients did follow"
    assert asked >= len(ELSEWHERE)
    assert tools.CANARY not in taken


@pytest.mark.parametrize("name", ["", "api"])
def test_redirects_within_the_api_lead_back_through_the_proxy(tools, name):
    async def work():
        wrong = []
        async with (
            tools.upstream() as api,
            tools.proxied(f"{name}={api.url}" if name else api.url, keys=[tools.CANARY]) as proxy,
        ):
            prefix = f"/{name}" if name else ""
            names = {"own": api.url, "port": api.port, "here": proxy.url, "prefix": prefix}
            for given, expected in WITHIN.items():
                api.script[:] = [redirect(given.format(**names))]
                host = f"127.0.0.1:{proxy.port}"
                said = await tools.raw(proxy, tools.request("GET", f"{prefix}/v1/x", host=host))
                if f"\r\nLocation: {expected.format(**names)}\r\n".encode() not in said:
                    wrong.append((given, said))
            api.script[:] = [redirect(f"{api.url}/v1/there"), tools.OK]
            api.asked.clear()
            async with aiohttp.ClientSession() as session, session.get(f"{proxy.url}{prefix}/v1/x") as answer:
                return wrong, answer.status, [(one.line, one.get("Authorization")) for one in api.asked]

    wrong, status, asked = run(work())
    assert wrong == []
    assert status == 200
    key = f"Bearer {tools.CANARY}"
    assert asked == [("GET /v1/x HTTP/1.1", key), ("GET /v1/there HTTP/1.1", key)]


def test_a_long_chain_is_walked_by_the_caller_alone(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url, keys=[tools.CANARY]) as proxy:
            api.script[:] = [redirect(f"/{number}") for number in range(30)]
            async with aiohttp.ClientSession() as session:
                with pytest.raises(aiohttp.TooManyRedirects):
                    await session.get(f"{proxy.url}/x", max_redirects=10)
            return len(api.asked)

    assert run(work()) == 10
