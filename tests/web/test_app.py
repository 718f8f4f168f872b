"""The page inside a service of one's own: at a prefix, with its own asking who comes."""

import asyncio
import json

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount

from headgate import AdaptiveRateLimiter
from headgate.observe.monitor import RunMonitor
from headgate.web import create_app

TOKEN = "t" * 32


def ask(app, path, *, method="GET", headers=(), host="localhost", root_path="", scheme="http", **more):
    """One request straight to an ASGI app: (status, headers, body)."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": path,
        "raw_path": path.encode(),
        "root_path": root_path,
        "query_string": query.encode(),
        "headers": [(b"host", host.encode()), *((name.encode(), value.encode()) for name, value in headers)],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        **more,
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    fields = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], fields, b"".join(one.get("body", b"") for one in sent[1:])


BEARER = ("authorization", f"Bearer {TOKEN}")


def test_the_token_must_be_said_even_if_there_is_none(fake_sources):
    with pytest.raises(TypeError, match="token"):
        create_app(fake_sources())


def test_under_a_prefix_everything_is_below_it(fake_sources):
    service = Starlette(routes=[Mount("/ops/gate", create_app(fake_sources(), token=TOKEN))])
    status, fields, body = ask(service, f"/ops/gate/?token={TOKEN}")
    assert status == 200
    assert fields["refresh"] == "0; url=/ops/gate/"
    assert "Path=/ops/gate/" in fields["set-cookie"]
    assert b'href="/ops/gate/"' in body
    cookie = ("cookie", fields["set-cookie"].partition(";")[0])
    for path in ("/", "/static/index.html", "/api/snapshot", "/healthz"):
        assert ask(service, f"/ops/gate{path}", headers=[cookie])[0] == 200, path
    assert ask(service, "/ops/gate/nothing", headers=[cookie])[0] == 404
    assert ask(service, "/ops/gate/api/snapshot")[0] == 401
    assert ask(service, "/ops/gatehealthz")[0] == 404


def test_behind_a_proxy_that_names_the_prefix(fake_sources):
    app = create_app(fake_sources(), token=TOKEN)
    assert ask(app, "/ops/api/snapshot", root_path="/ops", headers=[BEARER])[0] == 200
    assert ask(app, "/api/snapshot", root_path="/ops", headers=[BEARER])[0] == 200
    assert ask(app, "/ops/healthz", root_path="/ops")[0] == 200
    status, fields, _ = ask(app, "/ops", root_path="/ops", headers=[BEARER])
    assert (status, fields["location"]) == (307, "/ops/")


def test_by_https_the_cookie_is_for_https_alone(fake_sources):
    app = create_app(fake_sources(), token=TOKEN)
    assert "Secure" in ask(app, f"/?token={TOKEN}", scheme="https")[1]["set-cookie"]
    assert "Secure" not in ask(app, f"/?token={TOKEN}")[1]["set-cookie"]


def test_with_asking_of_ones_own_no_token_is_needed(fake_sources):
    page = create_app(fake_sources(), token=None, allow_hosts=["ops.example"])

    async def own(scope, receive, send):
        known = (b"x-user", b"alice") in scope["headers"]
        await (page if known else PlainTextResponse("who?", 403))(scope, receive, send)

    alice = ("x-user", "alice")
    assert ask(own, "/api/snapshot", host="ops.example")[0] == 403
    status, _, body = ask(own, "/api/snapshot", host="ops.example", headers=[alice])
    assert (status, json.loads(body)["runs"][0]["run"]) == (200, "run-1")


def test_without_a_token_other_sites_and_other_names_are_still_refused(fake_sources):
    page = create_app(fake_sources(), token=None, allow_hosts=["ops.example"])
    assert ask(page, "/api/snapshot", host="evil.example")[0] == 421
    assert ask(page, "/api/snapshot", host="ops.example", headers=[("origin", "https://evil.example")])[0] == 403
    assert ask(page, "/api/snapshot", host="ops.example", headers=[("sec-fetch-site", "cross-site")])[0] == 403


def test_any_name_if_one_says_so(fake_sources):
    page = create_app(fake_sources(), token=TOKEN, allow_hosts=["*"])
    assert ask(page, "/api/snapshot", host="pod-7.cluster", headers=[BEARER])[0] == 200
    assert ask(page, "/api/snapshot", host="not a name", headers=[BEARER])[0] == 421


@pytest.mark.parametrize("hosts", ["localhost", []])
def test_names_must_be_a_list(fake_sources, hosts):
    with pytest.raises(ValueError, match="allow_hosts"):
        create_app(fake_sources(), token=TOKEN, allow_hosts=hosts)


def test_a_head_beyond_the_bound_is_refused_under_any_server(fake_sources):
    page = create_app(fake_sources(), token=TOKEN)
    assert ask(page, "/api/snapshot", headers=[BEARER, ("x", "y" * 20_000)])[0] == 431


def test_a_websocket_is_closed(fake_sources):
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(create_app(fake_sources(), token=TOKEN)({"type": "websocket"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def stream_of(app, stop):
    """Open a stream, call ``stop`` when it has begun, and give all that was sent."""

    async def main():
        sent = []
        begun = asyncio.Event()

        async def receive():
            await asyncio.Event().wait()

        async def send(message):
            sent.append(message)
            if message["type"] == "http.response.body":
                begun.set()

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/stream",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())],
        }
        streaming = asyncio.create_task(app(scope, receive, send))
        await begun.wait()
        await stop()
        async with asyncio.timeout(5):
            await streaming
        return sent

    return asyncio.run(main())


def test_close_ends_the_streams_of_a_mounted_page(fake_sources):
    app = create_app(fake_sources(), token=TOKEN)

    async def stop():
        await asyncio.to_thread(app.close)

    last = stream_of(app, stop)[-1]
    assert b"event: closing" in last["body"]
    assert not last["more_body"]


def test_a_program_is_watched_from_when_its_page_is_made_until_that_is_closed():
    limiter = AdaptiveRateLimiter()
    app = create_app(RunMonitor(limiter=limiter), token=TOKEN)
    limiter.pause("api", 5.0)
    assert [event["kind"] for event in json.loads(ask(app, "/api/events", headers=[BEARER])[2])["events"]] == ["held"]
    app.close()
    assert limiter.on_event is None


def test_the_end_of_the_service_closes_it_too(fake_sources):
    app = create_app(fake_sources(), token=TOKEN)

    async def stop():
        told = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        said = []

        async def receive():
            return next(told)

        async def send(message):
            said.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    assert b"event: closing" in stream_of(app, stop)[-1]["body"]


def test_a_listener_whose_server_takes_nothing_is_let_go(fake_sources, monkeypatch):
    from headgate.web import event_stream

    monkeypatch.setattr(event_stream, "WRITE_TIME", 0.1)
    app = create_app(fake_sources(), token=TOKEN)

    async def main():
        async def receive():
            await asyncio.Event().wait()

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/stream",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())],
        }
        async with asyncio.timeout(5):
            await app(scope, receive, send)
        assert not app._streams

    asyncio.run(main())
