"""What is aiohttp's own: streams, timeouts, cancelling, its cookies and its retries, behind the gate."""

from __future__ import annotations

import asyncio
import gc
import threading

import aiohttp
import pytest
from aiohttp import ClientTimeout, CookieJar, web
from tests.quota_spent import quota_spent

from headgate.integrations.aiohttp import Middleware
from headgate.integrations.client_gate import Passing

SECRET = "s3cret-of-home-0001"


@pytest.fixture
def client():
    return "aiohttp"


def run(lab, work, **options):
    """``await work(session, url)``."""

    async def main():
        async with lab.session(**options) as session:
            return await work(session, f"{lab.home.origin}/v1/x")

    return asyncio.run(main())


# ---------------------------------------------------------------------- streams


def test_permit_lasts_until_the_body_has_ended(lab):
    goes_on = threading.Event()
    lab.home.answers = [lab.Reply(pieces=[b"a", goes_on, b"b"])]

    async def work(session, url):
        async with session.get(url) as response:
            assert await response.content.readany() == b"a"
            assert lab.look().in_flight == 1
            goes_on.set()
            assert await response.content.read() == b"b"
            assert lab.look().in_flight == 0

    run(lab, work)
    assert lab.kinds == ["request_success"]


@pytest.mark.parametrize("how", ["left", "closed", "released"])
def test_body_that_is_left_early_gives_the_permit_back(lab, how):
    never = threading.Event()
    lab.home.answers = [lab.Reply(pieces=[b"a", never])]

    async def work(session, url):
        async with session.get(url) as response:
            if how != "left":
                response.close() if how == "closed" else response.release()
        await asyncio.sleep(0)
        assert lab.look().in_flight == 0

    run(lab, work)
    never.set()


def test_answer_that_is_thrown_away_gives_the_permit_back_when_its_body_ends(lab):
    goes_on = threading.Event()
    lab.home.answers = [lab.Reply(pieces=[b"a", goes_on])]

    async def work(session, url):
        response = await session.get(url)
        ended = asyncio.Event()
        response.content.on_eof(ended.set)
        del response
        gc.collect()
        assert lab.look().in_flight == 1
        goes_on.set()
        await ended.wait()
        assert lab.look().in_flight == 0

    run(lab, work)


def test_body_that_breaks_counts_as_a_failure_and_is_not_repeated(lab):
    lab.home.answers = [lab.Reply(pieces=[b"a", None])]
    with pytest.raises(aiohttp.ClientPayloadError):
        lab.ask()
    assert len(lab.sent) == 1
    assert lab.look().consecutive_failures == 1


def test_stream_of_a_model_comes_as_it_is_sent(lab):
    goes_on = threading.Event()
    first, second = b'data: {"choices": []}\n', b'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}\n'
    lab.gate(config=None, limits={"tokens": "1000/min"})
    lab.home.answers = [lab.Reply(headers={"Content-Type": "text/event-stream"}, pieces=[first, goes_on, second])]

    async def work(session, url):
        async with session.post(f"{url}/chat/completions", json={"model": "m", "max_tokens": 5}) as response:
            assert await response.content.readline() == first
            goes_on.set()
            assert [line async for line in response.content] == [second]
        assert isinstance(response.content, aiohttp.StreamReader)

    run(lab, work)
    assert quota_spent(lab.passing.limiter, lab.host) == 7


def test_web_socket_holds_no_permit(lab):
    lab.gate()

    async def echo(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(await socket.receive_str())
        await socket.close()
        return socket

    async def main():
        app = web.Application()
        app.router.add_get("/", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host = f"127.0.0.1:{runner.addresses[0][1]}"
        async with lab.session() as session, session.ws_connect(f"http://{host}/") as socket:
            assert lab.passing.limiter.key_status(host).in_flight == 0
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"
        await runner.cleanup()

    asyncio.run(main())


# ---------------------------------------------------------------------- timeouts and cancelling


def test_time_between_reads_is_bounded_as_ever(lab):
    never = threading.Event()
    lab.gate(retries=0)
    lab.home.answers = [lab.Reply(pieces=[b"a", never])]
    with pytest.raises(aiohttp.SocketTimeoutError):
        lab.ask(timeout=ClientTimeout(sock_read=0.03))
    never.set()
    assert lab.look().consecutive_failures == 1


def test_time_for_all_ends_the_attempt_and_nothing_goes_again(lab):
    never = threading.Event()
    lab.home.answers = [lambda seen: never.wait(60) and None]
    with pytest.raises(TimeoutError):
        lab.ask(timeout=ClientTimeout(total=1.0))
    never.set()
    assert (len(lab.sent), lab.kinds) == (1, ["request_failure"])
    assert (lab.look().in_flight, lab.look().waiters) == (0, 0)


@pytest.fixture
def one_a_minute(lab):
    """In real time, so that whoever comes second waits."""
    lab.passing = Passing(limits={"requests": "1/min"})
    return lab


def test_time_for_all_includes_the_waiting(one_a_minute):
    lab = one_a_minute
    lab.ask()
    with pytest.raises(TimeoutError):
        lab.ask(timeout=ClientTimeout(total=0.05))
    assert (lab.look().in_flight, lab.look().waiters, len(lab.sent)) == (0, 0, 1)


def test_cancelled_in_line_leaves_nothing_behind(one_a_minute):
    lab = one_a_minute

    async def work(session, url):
        async with session.get(url):
            pass
        waiting = asyncio.ensure_future(session.get(url))
        while not lab.look().waiters:
            await asyncio.sleep(0.005)
        assert lab.look().waiters == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(lab, work)
    assert (lab.look().in_flight, lab.look().waiters, len(lab.sent)) == (0, 0, 1)


def test_cancelled_under_way_gives_the_permit_back(lab):
    never = threading.Event()
    lab.home.answers = [lambda seen: never.wait(60) and None]

    async def work(session, url):
        asking = asyncio.ensure_future(session.get(url))
        while not lab.sent:
            await asyncio.sleep(0.005)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    run(lab, work)
    never.set()
    assert lab.look().in_flight == 0


# ---------------------------------------------------------------------- redirects, cookies, other middlewares


@pytest.mark.parametrize("total", [None, 30])
def test_hops_are_known_with_and_without_a_timeout(lab, total):
    elsewhere = lab.origins["elsewhere"]
    lab.home.answers = [lab.Reply(302, {"Location": elsewhere.origin})]
    lab.ask(headers={"x-api-key": SECRET}, timeout=ClientTimeout(total=total))
    assert SECRET not in str(elsewhere.seen[0])


def test_hops_of_requests_at_once_are_told_apart_and_then_forgotten(lab):
    elsewhere = lab.origins["elsewhere"]
    lab.home.answers = [lambda seen: lab.Reply(302, {"Location": f"{elsewhere.origin}{seen.path}"})]
    middleware = Middleware(passing=lab.gate())

    async def main():
        async def ask(session, number):
            headers = {"x-api-key": SECRET, "x-number": str(number)}
            async with session.get(f"{lab.home.origin}/{number}", headers=headers) as response:
                return response.status

        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            own = session.get(f"{elsewhere.origin}/own", headers={"x-api-key": SECRET})
            statuses = await asyncio.gather(*(ask(session, number) for number in range(20)))
            async with own as response:
                return [*statuses, response.status]

    assert set(asyncio.run(main())) == {200}
    assert [seen.path for seen in elsewhere.seen if SECRET in str(seen)] == ["/own"]
    assert len(elsewhere.seen) == 21
    gc.collect()
    assert middleware._redirected == {}


def test_cookies_of_a_session_do_not_follow_to_another_site(lab):
    elsewhere = lab.origins["elsewhere"]
    lab.home.answers = [lab.Reply(302, {"Location": f"http://localhost:{elsewhere.server_port}/"})]

    async def main():
        jar = CookieJar(unsafe=True)
        async with (
            lab.session(cookies={"session": SECRET}, cookie_jar=jar) as session,
            session.get(lab.home.origin) as response,
        ):
            await response.read()

    asyncio.run(main())
    assert SECRET in str(lab.sent[0])
    assert SECRET not in str(elsewhere.seen[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_password_of_a_session_does_not_follow(lab):
    elsewhere = lab.origins["elsewhere"]
    lab.home.answers = [lab.Reply(302, {"Location": elsewhere.origin})]

    async def main():
        auth = aiohttp.BasicAuth("me", SECRET)
        async with lab.session(auth=auth) as session, session.get(lab.home.origin) as response:
            await response.read()

    asyncio.run(main())
    assert "authorization" in lab.sent[0].headers
    assert "authorization" not in elsewhere.seen[0].headers


def test_middleware_around_the_gate_may_repeat_as_it_likes(lab):
    lab.gate(retries=0)
    lab.home.answers = [lambda seen: None]

    async def twice(request, handler):
        try:
            return await handler(request)
        except aiohttp.ServerDisconnectedError:
            return await handler(request)

    async def main():
        async with aiohttp.ClientSession(middlewares=[twice, Middleware(passing=lab.passing)]) as session:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.post(lab.home.origin, data=b"x")

    asyncio.run(main())
    assert len(lab.sent) == 2
