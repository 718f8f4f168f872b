"""Where redirects may lead: the cases of redirect_cases.json, hop by hop, on real sockets.

Three addresses of the loopback network play the world: 127.0.0.2 sends on, 127.0.0.3 is another good host, and
127.0.0.1 is what must never be asked: it counts everybody who so much as connects.
"""

import asyncio
import itertools
import json
import socket
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver
from bench.ports import free_port

from headgate.crawl import CrawlConfig
from headgate.crawl.fetch.http import HttpFetcher
from headgate.crawl.fetch.memory_budget import MemoryBudget
from headgate.crawl.fetch.response import FetchError
from headgate.crawl.frontier import Visit
from headgate.crawl.url import canonical, host_of, unfit

WORLD = json.loads((Path(__file__).parents[1] / "redirect_cases.json").read_text(encoding="utf-8"))
CASES = {case["name"]: case for case in WORLD["cases"]}
MOST_HOPS = 10
SECRET = "Bearer for-127.0.0.2-alone"


class Names(AbstractResolver):
    """Answers differently the second time, where the case says so."""

    def __init__(self, names):
        self._names, self.asked = names, {}

    async def resolve(self, host, port=0, family=socket.AF_UNSPEC):
        answers = self._names[host]
        time = self.asked[host] = self.asked.get(host, 0) + 1
        addresses = answers[min(time, len(answers)) - 1]
        return [
            {"hostname": host, "host": address, "port": port, "family": family, "proto": 0, "flags": 0}
            for address in addresses
        ]

    async def close(self):
        pass


class World:
    """The three hosts on one port."""

    def __init__(self, case):
        self._hops = itertools.cycle(case["locations"]) if case.get("repeat") else iter(case["locations"])
        self.asked, self.connected_inside = [], 0

    async def __aenter__(self):
        self.port = free_port("127.0.0.2", "127.0.0.3")
        self._good = await asyncio.start_server(self._serve, "127.0.0.2", self.port)
        self._friend = await asyncio.start_server(self._serve, "127.0.0.3", self.port)
        self._inside = await asyncio.start_server(self._serve_inside, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        for server in (self._good, self._friend, self._inside):
            server.close()

    async def _serve(self, reader, writer):
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append((writer.get_extra_info("sockname")[0], request))
        hop = next(self._hops, None)
        if hop is None:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        else:
            location = hop.replace("{port}", str(self.port)).replace("{n}", str(len(self.asked)))
            writer.write(f"HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: {location}\r\n\r\n".encode())
        writer.close()

    async def _serve_inside(self, reader, writer):
        self.connected_inside += 1
        writer.close()


async def follow(world, fetch):
    """As a crawl does: every hop is an address of its own. What came of it, and a sentence or where it arrived."""
    url = f"http://127.0.0.2:{world.port}/case"
    for _ in range(MOST_HOPS):
        try:
            fetched = await fetch(Visit(1, url, host_of(url), 0))
        except FetchError as problem:
            return problem.kind, problem.sentence
        if fetched.location is None:
            return "arrives", fetched.url
        target = canonical(fetched.location, url)
        if target is None:
            return "unfit", unfit(fetched.location, url)
        url = target
    return "too_many_redirects", ""


async def run(case):
    async with World(case) as world:
        secrets = {f"http://127.0.0.2:{world.port}": {"Authorization": SECRET}}
        async with fetcher(secrets, Names(WORLD["names"]), allowed_hosts=("127.0.0.2", "127.0.0.3")) as fetch:
            came, says = await follow(world, fetch)
        return came, says, world


def fetcher(secrets, resolver=None, **settings):
    config = CrawlConfig(timeout=20.0, first_byte=10.0, **settings)
    return HttpFetcher(config, secrets, resolver, MemoryBudget(1 << 20), lambda: 1)


def test_there_are_the_cases_we_speak_of():
    assert len(CASES) == len(WORLD["cases"]) >= 50


@pytest.mark.no_cover
@pytest.mark.parametrize("name", CASES)
def test_a_redirect_ends_as_it_should_and_nobody_inside_is_asked(name):
    case = CASES[name]
    came, says, world = asyncio.run(run(case))
    assert came == case["expect"], says
    wanted = case["says"].replace("{port}", str(world.port))
    assert says == wanted if came == "arrives" else wanted in says
    assert world.connected_inside == 0
    assert len(world.asked) <= MOST_HOPS


@pytest.mark.no_cover
@pytest.mark.parametrize("name", CASES)
def test_what_one_origin_may_see_no_other_gets(name):
    _, _, world = asyncio.run(run(CASES[name]))
    for host, request in world.asked:
        assert (SECRET in request) == (host == "127.0.0.2"), request
        assert "referer" not in request.lower()
        assert "cookie" not in request.lower()


def test_the_same_host_without_encryption_is_another_origin():
    """Whoever strips the TLS off a redirect gets no credential."""
    seen = []

    async def main():
        async def serve(reader, writer):
            seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        secrets = {f"https://127.0.0.1:{port}": {"Authorization": SECRET}}
        async with server, fetcher(secrets, allow_private=True) as fetch:
            url = f"http://127.0.0.1:{port}/"
            await fetch(Visit(1, url, host_of(url), 0))

    asyncio.run(main())
    assert len(seen) == 1
    assert SECRET not in seen[0]
