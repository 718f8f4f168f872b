"""``headgate limits`` against the mock API in every dialect, and against servers that are less kind."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from aiohttp import web
from bench.ports import free_port

from headgate.mock.api import MockPlan
from headgate.mock.dialects import DIALECTS
from headgate.mock.server import MockServer
from headgate.units import Rate

SECRET = "zq-41-very-secret-value"


@contextmanager
def on_a_thread(serve):
    """Run the async context manager ``serve()`` on another thread's loop; yields what it yields."""
    ready, value = threading.Event(), []

    async def main():
        stop = asyncio.Event()
        async with serve() as served:
            value.extend([served, stop, asyncio.get_running_loop()])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield value[0]
    finally:
        value[2].call_soon_threadsafe(value[1].set)
        thread.join(60)


class Site:
    """A small server with a handler of the test's own; remembers what it was sent."""

    def __init__(self, handler):
        self.seen = []

        async def remember(request):
            self.seen.append((request.method, request.path, dict(request.headers), await request.text()))
            return await handler(request)

        self.app = web.Application()
        self.app.router.add_route("*", "/{rest:.*}", remember)

    async def __aenter__(self):
        self.runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self.runner.cleanup()


async def fine(request):
    return web.json_response({"ok": True})


def redirect_to(where):
    async def handler(request):
        return web.Response(status=302, headers={"Location": where()})

    return handler


def mock(dialect, rate):
    return on_a_thread(lambda: MockServer(MockPlan(rate=rate, latency=0.0), dialect=dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_explains_a_good_answer_and_a_refusal_in_every_dialect(headgate, dialect):
    with mock(dialect, Rate(1.0, 60.0)) as server:
        first = headgate("limits", f"{server.url}/v1/x")
        second = headgate("limits", f"{server.url}/v1/x")
    assert (first.code, second.code) == (0, 0)
    assert "200" in first.out
    assert ("403" if dialect == "github-secondary" else "429") in second.out
    assert second.err == ""


@pytest.mark.parametrize(
    "dialect", ["ratelimit", "ietf", "openai", "azure-openai", "anthropic", "mistral", "github", "gitlab", "discord"]
)
def test_json_is_the_normalised_signal(headgate, dialect):
    with mock(dialect, Rate(60.0, 60.0)) as server:
        fields = json.loads(headgate("limits", f"{server.url}/v1/x", "--json").out)
    assert (fields["status"], fields["outcome"]) == (200, "ok")
    limit = fields["limits"][0]
    told = 3600 if dialect == "github" else 60
    assert (limit["dimension"], limit["limit"], limit["remaining"]) == ("requests", told, 59)


def test_json_of_a_refusal_has_its_pause(headgate):
    with mock("retry-after", Rate(1.0, 30.0)) as server:
        headgate("limits", f"{server.url}/v1/x")
        fields = json.loads(headgate("limits", f"{server.url}/v1/x", "--json").out)
    assert (fields["outcome"], fields["retry_after"]) == ("rate_limited", 30.0)


def test_it_shows_the_headers_it_read_from(headgate):
    with mock("openai", Rate(60.0, 60.0)) as server:
        result = headgate("limits", f"{server.url}/v1/x")
    assert "x-ratelimit-limit-requests: 60" in result.out
    assert "Date:" not in result.out


def test_keys_come_from_the_environment_and_are_never_printed(headgate, monkeypatch):
    async def echo(request):
        told = {"error": {"message": f"bad key {request.headers['Authorization']}", "type": SECRET}}
        return web.json_response(told, status=401, headers={"x-ratelimit-limit": SECRET})

    monkeypatch.setenv("SOME_KEY", SECRET)
    with on_a_thread(lambda: Site(echo)) as site:
        for extra in ([], ["--json"]):
            result = headgate("limits", f"{site.url}/v1?key={SECRET}", "--bearer-env", "SOME_KEY", *extra)
            assert result.code == 0
            assert SECRET not in result.out + result.err
            header = headgate("limits", site.url, "-H", "Authorization: $SOME_KEY", "-H", "x-b: ${SOME_KEY}!", *extra)
            assert SECRET not in header.out + header.err
    assert site.seen[0][2]["Authorization"] == f"Bearer {SECRET}"
    assert site.seen[1][2]["Authorization"] == SECRET
    assert site.seen[1][2]["x-b"] == f"{SECRET}!"


def test_a_key_typed_on_the_command_line_is_used_with_a_warning(headgate):
    with on_a_thread(lambda: Site(fine)) as site:
        result = headgate("limits", site.url, "-H", f"Authorization: Bearer {SECRET}", "-H", "accept: text/plain")
    assert result.code == 0
    assert result.err.count("\n") == 1
    assert "--bearer-env" in result.err
    assert SECRET not in result.out + result.err
    assert site.seen[0][2]["Authorization"] == f"Bearer {SECRET}"


def test_credentials_are_not_carried_to_another_site(headgate, monkeypatch):
    monkeypatch.setenv("SOME_KEY", SECRET)
    with on_a_thread(lambda: Site(fine)) as other, on_a_thread(lambda: Site(redirect_to(lambda: other.url))) as site:
        result = headgate("limits", site.url, "--bearer-env", "SOME_KEY")
        with_user = headgate("limits", site.url.replace("//", f"//me:{SECRET}@"))
    assert result.code == 0
    assert "another site" in result.out
    assert "another site" in with_user.out
    assert SECRET not in with_user.out + with_user.err
    assert other.seen == []


def test_with_nothing_to_give_away_a_redirect_is_followed(headgate):
    with on_a_thread(lambda: Site(fine)) as other, on_a_thread(lambda: Site(redirect_to(lambda: other.url))) as site:
        result = headgate("limits", site.url)
    assert result.code == 0
    assert other.url in result.out


def test_a_redirect_that_leads_nowhere_blames_the_site_it_leads_to(headgate):
    with on_a_thread(lambda: Site(redirect_to(lambda: "http://nowhere.invalid/"))) as site:
        result = headgate("limits", site.url)
    assert result.code == 3
    host = site.url.removeprefix("http://")
    blamed = "nowhere.invalid:80, which cannot be resolved (DNS); "
    assert f"{host} redirects to {blamed}" in result.err


def test_on_the_same_site_a_redirect_keeps_the_headers(headgate):
    async def handler(request):
        return web.Response(status=307, headers={"Location": "/there"}) if request.path == "/" else await fine(request)

    with on_a_thread(lambda: Site(handler)) as site:
        headgate("limits", site.url, "-H", "x-mine: 1")
    assert [(path, headers["x-mine"]) for _, path, headers, _ in site.seen] == [("/", "1"), ("/there", "1")]


def test_redirects_without_end_are_given_up(headgate):
    with on_a_thread(lambda: Site(redirect_to(lambda: "/again"))) as site:
        result = headgate("limits", site.url)
    assert result.code == 3
    assert "redirects more than 5 times" in result.err
    assert len(site.seen) == 6


def test_a_body_makes_it_a_post(headgate):
    with on_a_thread(lambda: Site(fine)) as site:
        headgate("limits", site.url, "-d", '{"q": 1}')
        headgate("limits", site.url, "-X", "put", "-d", "x", "-H", "Content-Type: text/plain")
    first, second = site.seen
    assert (first[0], first[2]["Content-Type"], first[3]) == ("POST", "application/json", '{"q": 1}')
    assert (second[0], second[2]["Content-Type"], second[3]) == ("PUT", "text/plain", "x")


def test_of_an_endless_body_only_the_beginning_is_read(headgate):
    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65_536)
        except ConnectionError:
            return response

    with on_a_thread(lambda: Site(endless)) as site:
        began = time.monotonic()
        assert headgate("limits", site.url, "--timeout", "60s").code == 0
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("answer", "word"), [(b"", "closed the connection"), (b"not http at all\r\n\r\n", "valid HTTP")]
)
def test_a_server_that_speaks_no_http_is_one_sentence(headgate, answer, word):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                for _ in range(2):  # a client may try once more when a connection breaks off
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65_536)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        result = headgate("limits", f"http://127.0.0.1:{listener.getsockname()[1]}/", "--timeout", "60s")
        listener.shutdown(socket.SHUT_RDWR)  # wakes a server that still waits for the second try
        thread.join()
    assert result.code == 3
    assert word in result.err
    assert result.err.count("\n") == 1


def test_nobody_listening_is_exit_code_3(headgate):
    result = headgate("limits", f"http://127.0.0.1:{free_port()}/")
    assert result.code == 3
    assert "connection refused" in result.err
    assert result.err.count("\n") == 1


def test_a_server_that_never_answers_is_given_up(headgate):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = headgate("limits", f"http://127.0.0.1:{silent.getsockname()[1]}/", "--timeout", "200ms")
    assert result.code == 3
    assert "within 0.2 s" in result.err


def test_plain_http_where_tls_was_asked_is_exit_code_3(headgate):
    with on_a_thread(lambda: Site(fine)) as site:
        result = headgate("limits", site.url.replace("http:", "https:"))
    assert result.code == 3
    assert result.err.count("\n") == 1


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
