"""How providers are used: sessions, settings, pages, cancelling, and a provider of one's own."""

import asyncio
import gc

import aiohttp
import pytest
from aiohttp import web

from headgate.errors import ConfigError, NoCredentialError, ProviderError, RateLimitError
from headgate.providers import PROVIDERS, Page, Request, SearchProvider, SearchResult, TavilyProvider

SECRET = "open-sesame-0000"


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_works_with_its_own_defaults(run, switch, settings, name):
    extra = {"engine_id": "engine"} if name == "google" else {}

    async def scenario(world):
        provider = PROVIDERS[name](settings.key, base_url=world.server.base_url(name), manager=world.manager, **extra)
        return await provider.search(settings.queries.get(name, "gates"), max_results=3)

    assert run(scenario)


def test_no_session_is_left_open(run, recwarn):
    async def scenario(world):
        await world.search("tavily")
        async with world.provider("tavily") as tavily:
            await tavily.search("gates")
            await tavily.search("gates")
        async for _ in world.provider("google").pages("gates", 30):
            pass

    run(scenario)
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_blocks_within_blocks_share_one_session(run, recwarn):
    async def scenario(world):
        tavily = world.provider("tavily")
        async with tavily:
            async with tavily:
                await tavily.search("gates")
            return len(await tavily.search("gates", max_results=3))

    assert run(scenario) == 3
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_a_session_of_the_callers_own_is_used_and_left_open(run):
    async def scenario(world):
        async with aiohttp.ClientSession(headers={"X-Mine": "1"}) as session:
            await world.search("tavily", session=session)
            return world.asked("tavily")[0].headers.get("X-Mine"), session.closed

    assert run(scenario) == ("1", False)


def test_cookies_are_not_kept(run):
    async def scenario(world):
        world.fault("tavily", headers={"Set-Cookie": "track=1"})
        async with world.provider("tavily") as tavily:
            await tavily.search("gates")
            await tavily.search("gates")
        return "Cookie" in world.asked("tavily")[1].headers

    assert run(scenario) is False


def test_pages_come_one_by_one_and_the_first_survive_a_later_failure(run, switch):
    async def scenario(world):
        kept = []
        google = world.provider("google")
        with pytest.raises(ProviderError):
            async for page in google.pages("gates", 30):
                kept += page.results
                world.fault("google", times=3, trouble="server_error")
        return len(kept)

    assert run(scenario) == 10


def test_cancelling_a_search_cancels_the_call(run, switch):
    async def scenario(world):
        world.fault("tavily", delay=30.0)
        search = asyncio.create_task(world.search("tavily"))
        while not world.server.services["tavily"].in_flight:
            await asyncio.sleep(0.005)
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        return len(await world.search("tavily"))

    assert run(scenario) == 3


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({}, "needs an api_key"),
        ({"api_key": "k", "credentials": object()}, "not both"),
        ({"api_key": "k", "timeout": 0}, "timeout"),
        ({"api_key": "k", "base_url": "ftp://example.org"}, "base_url"),
        ({"api_key": "k", "base_url": "https://example.org/?a=1"}, "base_url"),
        ({"api_key": "k", "base_url": f"https://user:{SECRET}@example.org"}, "base_url"),
    ],
)
def test_settings_out_of_range_are_refused(bad, word):
    with pytest.raises(ConfigError, match=word) as refusal:
        TavilyProvider(**bad)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("question", "word"),
    [(("",), "query"), (("  ",), "query"), ((5,), "query"), (("x", 0), "max_results"), (("x", 1.5), "max_results")],
)
def test_a_question_out_of_range_is_refused(run, question, word):
    async def scenario(world):
        with pytest.raises(ConfigError, match=word):
            await world.provider("tavily").search(*question)
        return world.calls("tavily")

    assert run(scenario) == 0


def test_a_provider_is_one_small_class(run, switch):
    """What a new provider takes: a name, an address, a question, a reading."""

    class Echo(SearchProvider):
        name = "echo"
        address = "https://echo.example"
        most_results = 5
        needs_key = False

        def ask(self, question):
            return Request(path="/echo", query={"q": question.query})

        def read(self, answer, question):
            return Page([SearchResult(title=answer["q"], url="https://example.org/", provider=self.name)])

    async def echo(request):
        return web.json_response({"q": request.query["q"]})

    async def scenario(world):
        app = web.Application()
        app.router.add_get("/echo", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            return await Echo(base_url=base_url, manager=world.manager).search("hello")
        finally:
            await runner.cleanup()

    assert [found.title for found in run(scenario)] == ["hello"]


def test_a_parked_key_is_not_asked_again_before_its_time(run, switch):
    async def scenario(world):
        tavily = world.provider("tavily")
        world.fault("tavily", trouble="rate_limited", headers={"retry-after": "600"})
        with pytest.raises(RateLimitError) as failure:
            await tavily.search("gates")
        with pytest.raises(NoCredentialError) as refusal:
            await tavily.search("gates")
        return failure.value.retry_after, refusal.value.earliest_reset, world.calls("tavily")

    told, left, calls = run(scenario)
    assert told == 600.0
    assert left == pytest.approx(600.0, rel=0.2)
    assert calls == 1


def test_an_attempt_may_be_given_less_time_than_the_request(run, switch, settings):
    async def scenario(world):
        world.fault("tavily", times=9, delay=30.0)
        with pytest.raises(ProviderError, match="within the timeout of an attempt"):
            await world.search("tavily", config=settings.quick(attempt_timeout=0.2))
        return world.calls("tavily")

    assert 1 <= run(scenario) <= 3  # on a busy machine the time may be over before the request is sent
