"""One page, asked for once: what is sent, what comes back, and the names of what goes wrong."""

import asyncio
import gzip
import pickle
import shutil
import socket
import ssl
import subprocess
import time
from dataclasses import replace

import aiohttp
import pytest

from headgate import RateLimitConfig
from headgate.core.decision import Outcome
from headgate.crawl.fetch.http import ANYTHING, PAGES, fetch, new_session
from headgate.crawl.fetch.response import OUTCOMES, FetchError, FetchLimits
from headgate.crawl.fetch.ssrf_guard import SsrfGuard
from headgate.crawl.url import canonical
from headgate.errors import ConfigError
from headgate.limiter import AdaptiveRateLimiter

GUARD = SsrfGuard(allow_private=True)
LIMITS = FetchLimits(total=20.0, connect=10.0, first_byte=10.0)
"""Nothing here waits but where it is said; seconds are what a machine that stands still may need."""


class Server:
    """Answers each request with the same bytes and hangs up, or stays; remembers requests."""

    def __init__(self, answer, stays=False):
        self.answer, self._stays, self.requests, self.connected = answer, stays, [], 0
        self._open = {}

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)

    async def _serve(self, reader, writer):
        self.connected += 1
        self._open[asyncio.current_task()] = writer
        try:
            while True:
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(self.answer)
                if not self._stays:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def answer(body=b"", status="200 OK", **headers):
    fields = {"Content-Length": len(body), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return (
        f"HTTP/1.1 {status}\r\n".encode()
        + b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in fields.items())
        + b"\r\n"
        + body
    )


def ask(raw, path="", limits=LIMITS, **more):
    """What comes of it, and the requests the server saw."""

    async def main():
        async with Server(raw) as server, new_session(GUARD, agent="headgate-test/1 (+http://x)") as session:
            try:
                return await fetch(session, server.url + path, limits=limits, **more), server.requests
            except FetchError as problem:
                return problem, server.requests

    return asyncio.run(main())


# ------------------------------------------------------------------ an answer


def test_an_answer_has_everything_a_crawl_needs():
    raw = answer(b"<p>hi", Content_Type='Text/HTML; Charset="UTF-8"', ETag='"7"')
    fetched, _ = ask(raw, "a?b=1")
    assert (fetched.status, fetched.body, fetched.content_type, fetched.charset) == (
        200,
        b"<p>hi",
        "text/html",
        "utf-8",
    )
    assert fetched.url.endswith("/a?b=1")
    assert fetched.headers["etag"] == '"7"'
    assert fetched.location is None
    assert fetched.retry_after is None
    assert 0 < fetched.latency <= fetched.took


def test_the_request_says_who_asks_and_for_what_and_nothing_more():
    _, (request,) = ask(answer(), "a?b=1")
    lines = request.rstrip().split("\r\n")
    assert lines[0] == "GET /a?b=1 HTTP/1.1"
    assert {line.partition(":")[0] for line in lines[1:]} == {"Host", "User-Agent", "Accept", "Accept-Encoding"}
    assert "User-Agent: headgate-test/1 (+http://x)" in lines
    assert f"Accept: {', '.join(PAGES)}" in lines
    assert "gzip, deflate" in request


@pytest.mark.parametrize("path", ["a%2Fb%3D%21", "x;y=1/(z)", "?q=%3D&r=a+b%20c", "?a=[1]"])
def test_the_address_is_sent_as_it_is_written(path):
    url = canonical("http://h/" + path)
    _, (request,) = ask(answer(), url.removeprefix("http://h/"))
    assert request.startswith(f"GET {url.removeprefix('http://h')} HTTP/1.1")


def test_cookies_are_not_kept():
    async def main():
        raw = answer(b"ok", Set_Cookie="a=b; Path=/")
        async with Server(raw) as server, new_session(GUARD, agent="t") as session:
            for _ in range(2):
                await fetch(session, server.url, limits=LIMITS)
                await asyncio.sleep(0.02)  # the server hangs up, and aiohttp has to notice
            return server.requests

    assert "Cookie" not in "".join(asyncio.run(main()))


def test_a_connection_is_used_again():
    async def main():
        async with Server(answer(b"ok"), stays=True) as server, new_session(GUARD, agent="t") as session:
            for _ in range(3):
                await fetch(session, server.url, limits=LIMITS)
            return server.connected, len(server.requests)

    assert asyncio.run(main()) == (1, 3)


@pytest.mark.parametrize("status", ["301 x", "302 x", "303 x", "307 x", "308 x"])
def test_a_redirect_is_told_and_not_followed(status):
    fetched, requests = ask(answer(b"moved", status, Location="/éx"))
    assert (fetched.status, len(requests)) == (int(status[:3]), 1)
    assert canonical(fetched.location, "http://h/") in ("http://h/%C3%A9x", "http://h/%E9x")


def test_a_location_counts_only_where_it_redirects():
    assert ask(answer(b"", Location="/x"))[0].location is None


def test_not_modified_has_no_body():
    fetched, _ = ask(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")
    assert (fetched.status, fetched.body) == (304, b"")


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("Wed, 21 Oct 2015 07:28:30 GMT", 30.0), ("soon", None)])
def test_retry_after_is_read_in_all_its_forms(text, seconds):
    raw = answer(b"", "429 x", Retry_After=text, Date="Wed, 21 Oct 2015 07:28:00 GMT")
    fetched, _ = ask(raw)
    assert (fetched.status, fetched.retry_after) == (429, seconds)


def test_headers_can_be_written_down_whatever_bytes_they_hold():
    fetched, _ = ask(b"HTTP/1.1 200 OK\r\nX-A: \xff\xc3\xa9\r\nX-A: b\r\nContent-Length: 0\r\n\r\n")
    assert [value for name, value in fetched.headers.items() if name == "X-A"] == ["\ufffdé", "b"]


# ------------------------------------------------------------------ what is wanted


@pytest.mark.parametrize(
    ("content_type", "accept", "wanted"),
    [
        ("text/html", PAGES, True),
        ("TEXT/HTML;charset=x", PAGES, True),
        ("application/rss+xml", PAGES, True),
        ("image/svg+xml", PAGES, False),
        ("image/png", PAGES, False),
        ("application/json", PAGES, False),
        ("application/json", (*PAGES, "application/json"), True),
        ("application/octet-stream", ANYTHING, True),
        ("text/csv", ("text/*",), True),
        ("", PAGES, True),
    ],
)
def test_only_wanted_types_of_content_are_read(content_type, accept, wanted):
    came, _ = ask(answer(b"x" * 10, Content_Type=content_type), accept=accept)
    if wanted:
        assert came.body == b"x" * 10
    else:
        assert (came.kind, came.outcome) == ("not_wanted", Outcome.OK)


def test_an_error_page_may_be_of_any_type():
    assert ask(answer(b"x", "404 x", Content_Type="image/png"))[0].status == 404


# ------------------------------------------------------------------ problems


def problem_at(url, limits=LIMITS):
    async def main():
        async with new_session(GUARD, agent="t") as session:
            with pytest.raises(FetchError) as caught:
                await fetch(session, url, limits=limits)
            return caught.value

    return asyncio.run(main())


def test_nobody_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        problem = problem_at(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    assert (problem.kind, problem.sentence, problem.outcome) == ("connect", "refused the connection", Outcome.TRANSIENT)


def test_nobody_who_takes_the_call():
    """A full backlog on loopback lets connections hang; it takes the 0.3 s that a connection may."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(listening.getsockname())
            limits = replace(LIMITS, connect=0.3)
            problem = problem_at(f"http://127.0.0.1:{listening.getsockname()[1]}/", limits)
        finally:
            for one in waiting:
                one.close()
    assert (problem.kind, problem.sentence) == ("connect", "did not accept a connection in time")


def test_no_such_name():
    problem = problem_at("http://no-such-name.invalid/", FetchLimits(first_byte=20.0, total=20.0))
    assert (problem.kind, problem.outcome) == ("dns", Outcome.TRANSIENT)


def tls_problem(serve, ssl=None):
    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ssl)
        async with server, new_session(GUARD, agent="t") as session:
            with pytest.raises(FetchError) as caught:
                url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
                await fetch(session, url, limits=LIMITS)
            await asyncio.sleep(0)  # the server's end is closed in the next round
            return caught.value

    return asyncio.run(main())


def test_no_common_language_for_tls():
    async def serve(reader, writer):
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    problem = tls_problem(serve)
    assert (problem.kind, problem.sentence) == ("tls", "failed the TLS handshake")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_a_certificate_nobody_vouches_for(tmp_path):
    asked = []

    async def serve(reader, writer):
        asked.append(await reader.read(100))
        writer.close()

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=127.0.0.1 "
    command += "-addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    problem = tls_problem(serve, context)
    assert (problem.kind, problem.sentence) == ("tls", "has an untrusted certificate")
    assert b"".join(asked) == b""


@pytest.mark.parametrize(
    "url", ["http://a b/", "http://h/a b", "http://h/é", "http://h/\r\nX: y", "ftp://h/", "http://u@h/"]
)
def test_what_is_no_address_is_not_asked_for(url):
    problem = problem_at(url)
    assert (problem.kind, problem.outcome) == ("bad_address", Outcome.ABANDONED)


def test_a_request_is_sent_once_though_the_server_hangs_up():
    problem, requests = ask(b"")
    assert (problem.kind, len(requests)) == ("hung_up", 1)
    assert problem.__cause__ is None
    assert problem.__context__ is None


@pytest.mark.parametrize("extra", [0, 1])
def test_the_largest_answer_is_as_large_as_it_says(extra):
    came, _ = ask(answer(b"x" * (1000 + extra)), limits=FetchLimits(largest=1000))
    assert getattr(came, "kind", "fine") == ("too_large" if extra else "fine")


def test_well_packed_pages_are_no_bombs():
    page = b"<tr><td>0</td></tr>\n" * 200_000
    packed = gzip.compress(b"".join(b"%d" % n for n in range(9000)) + page)
    fetched, _ = ask(answer(packed, Content_Encoding="gzip"))
    assert fetched.body.endswith(page)


def test_a_small_page_may_be_packed_as_well_as_it_likes():
    blanks = b" " * 900_000
    assert ask(answer(gzip.compress(blanks), Content_Encoding="gzip"))[0].body == blanks


def test_a_packed_answer_of_nothing_is_nothing():
    assert ask(answer(b"", Content_Encoding="gzip"))[0].body == b""


def test_every_problem_has_an_outcome_and_can_travel():
    for kind, outcome in OUTCOMES.items():
        problem = pickle.loads(pickle.dumps(FetchError(kind, "is odd", host="h")))
        assert (problem.kind, problem.sentence, problem.outcome, str(problem)) == (kind, "is odd", outcome, "h is odd")


@pytest.mark.parametrize("kind", [kind for kind, outcome in OUTCOMES.items() if outcome is not Outcome.ABANDONED])
def test_a_gate_understands_a_problem(kind):
    limiter = AdaptiveRateLimiter(RateLimitConfig())
    assert limiter.acquire("h").report(FetchError(kind, "is odd")) is OUTCOMES[kind]


def test_a_session_nobody_looks_after_is_not_used():
    async def main():
        async with aiohttp.ClientSession() as session:
            await fetch(session, "http://127.0.0.1/", limits=LIMITS)

    with pytest.raises(ConfigError, match="new_session"):
        asyncio.run(main())


def test_a_cancelled_fetch_ends_at_once_and_lets_go():
    async def main():
        unfinished = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"
        async with Server(unfinished, stays=True) as server, new_session(GUARD, agent="t") as session:
            task = asyncio.create_task(fetch(session, server.url, limits=LIMITS))
            while not server.requests:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.02)  # until the beginning of the answer is read
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return time.monotonic() - began

    assert asyncio.run(main()) < 9.0, "the limits would take longer"


@pytest.mark.parametrize(
    "wrong",
    [
        {"total": 0.0},
        {"connect": float("inf")},
        {"first_byte": -1.0},
        {"silence": float("nan")},
        {"slowest": -1.0},
        {"largest": 0},
        {"largest_ratio": 0.5},
        {"most_headers": 0},
        {"longest_header": 1.5},
    ],
)
def test_limits_are_checked(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FetchLimits(**wrong)
