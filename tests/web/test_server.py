"""Serving the page beside a run: where it listens, what it asks for, and that it ends."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from bench.ports import free_port

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.errors import ConfigError, HeadgateError
from headgate.observe.monitor import RunMonitor
from headgate.observe.run_registry import announced
from headgate.web import NotServedError, create_app, new_token, serve


def test_it_listens_on_loopback_at_a_free_port_with_a_new_token(fake_sources):
    with serve(fake_sources()) as one, serve(fake_sources()) as two:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", one.url)
        assert one.port != two.port
        assert one.url.partition("=")[2] != two.url.partition("=")[2]
        assert one.url.startswith(one.address)


def test_the_token_is_shown_by_the_url_alone(fake_sources):
    with serve(fake_sources()) as served:
        assert "token" not in repr(served)
        assert served.url.partition("=")[2] not in repr(served) + served.address


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.test"])
def test_anywhere_else_needs_a_token_of_ones_own(fake_sources, host):
    with pytest.raises(ConfigError, match="set a token"):
        serve(fake_sources(), host=host)


def test_everywhere_with_a_token_answers_to_addresses_and_not_to_foreign_names(open_page):
    page = open_page(host="0.0.0.0", token=new_token())
    assert page.ask("GET /api/snapshot", page.bearer, host="192.0.2.7:80").status == 200
    assert page.ask("GET /api/snapshot", page.bearer, host=socket.gethostname()).status == 200
    assert page.ask("GET /api/snapshot", page.bearer, host="evil.example").status == 421


def test_further_names_can_be_allowed(open_page):
    page = open_page(allow_hosts=["ops.example", "10.0.0.0/8"])
    for host, status in (("ops.example", 200), ("OPS.example:8080", 200), ("10.1.2.3", 200), ("x.ops.example", 421)):
        assert page.ask("GET /api/snapshot", page.bearer, host=host).status == status


def test_ipv6_loopback(open_page, fake_sources):
    with contextlib.suppress(NotServedError), serve(fake_sources(), host="::1") as served:
        assert served.address.startswith("http://[::1]:")
        with socket.create_connection(("::1", served.port)) as one:
            one.sendall(f"GET /healthz HTTP/1.1\r\nHost: [::1]:{served.port}\r\n\r\n".encode())
            assert one.recv(20).startswith(b"HTTP/1.1 200")


POOR = ["", "short", "a" * 201, "with space in it here", "a" * 20 + "\n", "é" * 20, 5, b"a" * 20]


@pytest.mark.parametrize("token", POOR)
def test_a_poor_token_is_refused_and_not_repeated(fake_sources, token):
    with pytest.raises(ConfigError, match="token=") as refused:
        create_app(fake_sources(), token=token)
    assert not token or repr(token) not in str(refused.value) or isinstance(token, int)


@pytest.mark.parametrize("port", [-1, 65_536, "80", 1.5])
def test_a_port_out_of_range_is_refused(fake_sources, port):
    with pytest.raises(ConfigError, match="port="):
        serve(fake_sources(), port=port)


def test_a_port_that_is_taken_says_so_at_once(fake_sources):
    with serve(fake_sources()) as served, pytest.raises(NotServedError, match=str(served.port)) as refused:
        serve(fake_sources(), port=served.port)
    assert isinstance(refused.value, HeadgateError)


def test_closing_ends_everything_and_frees_the_port(fake_sources):
    before = threading.active_count()
    served = serve(fake_sources(), port=free_port())
    served.close()
    served.close()
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", served.port))
    serve(fake_sources(), port=served.port).close()


def test_a_page_waits_to_be_closed_and_does_not_poll(fake_sources, monkeypatch):
    ticks = []

    async def on_tick(self, counter):
        ticks.append(counter)
        return self.should_exit

    monkeypatch.setattr("uvicorn.Server.on_tick", on_tick)
    with serve(fake_sources()) as served:
        asked(served, "snapshot")
    assert not ticks


def a_program():
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6))
    return limiter, RunMonitor(limiter=limiter)


def asked(served, path):
    token = served.url.partition("token=")[2]
    request = urllib.request.Request(f"{served.address}api/{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_a_program_that_is_only_served_has_time_lines_and_events():
    limiter, watched = a_program()
    before = threading.active_count()
    with serve(watched) as served:
        limiter.acquire("api").report(status_code=200)
        limiter.pause("api", 5.0)
        give_up_at = time.monotonic() + 20.0
        while not (lines := asked(served, "timelines?keys=api")["timelines"]):
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        assert (lines[0]["key"], len(lines[0]["at"])) == ("api", 1)
        assert [event["kind"] for event in asked(served, "events")["events"]] == ["held"]
    assert watched.snapshot().state == "ended"
    assert limiter.on_event is None
    assert threading.active_count() == before


def test_what_was_started_before_outlives_its_page():
    _, watched = a_program()
    with watched:
        serve(watched).close()
        assert watched.snapshot().state == "running"


def test_a_port_that_is_taken_starts_nothing(fake_sources):
    _, watched = a_program()
    with serve(fake_sources()) as served, pytest.raises(NotServedError):
        serve(watched, port=served.port)
    assert not watched.is_started


def test_what_is_served_can_be_announced_too():
    _, watched = a_program()
    looked = threading.Event()
    with serve(watched), announced(watched, looked.set):
        assert looked.wait(20.0)


@pytest.mark.parametrize("hangs", [False, True])
def test_closing_waits_for_nobody_who_looks(open_page, hangs):
    page = open_page()
    streams = [page.listen() for _ in range(10)]
    silent = [page.connect() for _ in range(10)]
    while len(page.served._app._streams) < 10:
        time.sleep(0.02)
    if hangs:
        page.run.hangs.clear()
        time.sleep(0.4)
    began = time.monotonic()
    page.close()
    took = time.monotonic() - began
    page.run.hangs.set()
    for one in [*streams, *silent]:
        one.close()
    assert took < 30.0  # the streams would last longer; a busy machine takes its time


PROGRAM = """
import sys, time, threading
from headgate.web import serve
class Run:
    def snapshot(self): raise RuntimeError
class Runs:
    def runs(self): return [Run()]
served = serve(Runs())
print(served.url, flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    CLOSING
    sys.exit(7)
"""


@pytest.mark.parametrize("closing", ["served.close()", "pass"])
def test_ctrl_c_ends_a_program_at_once_even_with_open_streams(closing):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("CLOSING", closing)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        port, token = re.search(r":(\d+)/\?token=(.*)", program.stdout.readline()).groups()
        streams = []
        for _ in range(5):
            one = socket.create_connection(("127.0.0.1", int(port)))
            head = f"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
            one.sendall(head.encode())
            assert one.recv(15) == b"HTTP/1.1 200 OK"
            streams.append(one)
        program.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert program.wait(60) == 7
        took = time.monotonic() - began
        for one in streams:
            one.close()
        assert program.stderr.read() == ""
    assert took < 30.0  # the streams would last longer; a busy machine takes its time
