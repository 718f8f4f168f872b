"""What a provider must never do: follow a redirect with a key, read without end, believe nonsense."""

import asyncio
import gzip

import pytest

from headgate.errors import ProviderError
from headgate.mock.server import MockServer
from headgate.providers import PROVIDERS
from headgate.providers.base import LARGEST_ANSWER

NAMES = tuple(PROVIDERS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_origin_never_carries_the_key(run, switch, name, status):
    async def scenario(world):
        async with MockServer(world.server.api.plan, providers=NAMES) as elsewhere:
            target = elsewhere.base_url(name) + elsewhere.services[name].api.path
            world.fault(name, status=status, headers={"Location": target})
            with pytest.raises(ProviderError, match="a redirect, which is not followed"):
                await world.search(name)
            return world.calls(name), len(elsewhere.services[name].asked)

    assert run(scenario) == (1, 0)


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_without_end_is_not_read_to_its_end(run, switch, name):
    async def scenario(world):
        world.fault(name, status=200, body=b" " * (LARGEST_ANSWER + 1))
        with pytest.raises(ProviderError, match="more than 8,388,608 bytes"):
            await world.search(name)
        return world.calls(name)

    assert run(scenario) == 1


def test_a_small_answer_that_unpacks_to_a_large_one_is_not_read_to_its_end(run):
    packed = gzip.compress(b" " * (LARGEST_ANSWER + 1))

    async def scenario(world):
        world.fault("tavily", status=200, body=packed, headers={"Content-Encoding": "gzip"})
        with pytest.raises(ProviderError, match="more than 8,388,608 bytes"):
            await world.search("tavily")

    run(scenario)


NONSENSE = ["<html>ok</html>", b"\xff\xfe", [], [1, 2], None, "{", '{"results": ' * 50_000]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", NONSENSE, ids=["html", "bytes", "list", "numbers", "nothing", "cut", "deep"])
def test_a_good_status_with_nonsense_is_a_provider_error(run, switch, name, body):
    async def scenario(world):
        world.fault(name, status=200, body=b"null" if body is None else body)
        with pytest.raises(ProviderError, match="without a JSON object"):
            await world.search(name)
        return world.calls(name)

    assert run(scenario) == 1


WRONG = [None, 7, "x", [], [None, 7, "x", [], {}], {"a": 1}, [{"url": 5, "link": 5, "title": {}, "score": "high"}]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_fields_of_the_wrong_kind_are_left_out(run, name, wrong):
    body = {"results": wrong, "items": wrong, "data": wrong, "queries": wrong, "next": "5", "failed_results": wrong}

    async def scenario(world):
        world.fault(name, status=200, body=body)
        return await world.search(name)

    assert run(scenario) == []


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "//example.org", ""])
def test_only_addresses_of_the_web_are_results(run, url):
    body = {"results": [{"url": url, "title": "t"}, {"url": "https://example.org/", "title": "t"}]}

    async def scenario(world):
        world.fault("tavily", status=200, body=body)
        return [found.url for found in await world.search("tavily")]

    assert run(scenario) == ["https://example.org/"]


MORE = {
    "the same page": ([{"data": [{"url": "", "title": "t"}], "next": 1}] * 9, 2),
    "empty pages": ([{"data": [], "next": start} for start in range(1, 9)], 1),
    "pages without an address": ([{"data": [{"title": "t"}], "next": start} for start in range(1, 70)], 50),
}


@pytest.mark.parametrize("case", MORE)
def test_a_server_that_always_has_one_more_page_does_not_keep_us(run, case):
    bodies, calls = MORE[case]

    async def scenario(world):
        for body in bodies:
            world.fault("semantic_scholar", status=200, body=body)
        await world.search("semantic_scholar")
        return world.calls("semantic_scholar")

    assert run(scenario) == calls


def test_what_could_speak_to_a_terminal_is_taken_out(run):
    body = {
        "results": [{"url": "https://example.org/\x1b[2J", "title": "a\x1b[31mred\x07\x9b", "content": "two\nlines"}]
    }

    async def scenario(world):
        world.fault("tavily", status=200, body=body)
        return (await world.search("tavily"))[0]

    result = run(scenario)
    assert (result.url, result.title, result.snippet) == ("https://example.org/[2J", "a[31mred", "two\nlines")


def test_an_error_inside_a_200_is_an_error(run, switch):
    body = {"error": {"message": "slow down", "type": "rate_limit_error", "code": 429}}

    async def scenario(world):
        world.fault("perplexity", status=200, body=body)
        return len(await world.search("perplexity")), world.calls("perplexity")

    assert run(scenario) == (3, 2)


def test_a_server_that_is_no_http_server_is_a_provider_error(run, switch):
    async def babble(reader, writer):
        writer.write(b"220 mail.example.org ESMTP\r\n")
        await writer.drain()
        writer.close()

    async def scenario(world):
        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ProviderError, match="did not answer with valid HTTP"):
                await world.search("tavily", base_url=f"http://127.0.0.1:{port}")

    run(scenario)
