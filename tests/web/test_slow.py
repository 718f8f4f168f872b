"""Clients that are slow, silent or too many: they are cut off, and whoever asks properly is answered meanwhile."""

import contextlib
import json
import socket
import threading
import time

import pytest

from headgate.web import app, event_stream, guard, server, view_cache

SHORT = 0.3
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    for where in (server, event_stream):
        monkeypatch.setattr(where, "WRITE_TIME", SHORT)
    monkeypatch.setattr(server, "HEAD_TIME", SHORT)
    monkeypatch.setattr(guard, "BODY_TIME", SHORT)


def cut_off_after(one, feed=None):
    """Seconds until the page ends the connection; ``feed`` is sent meanwhile, a byte at a time."""
    began = time.monotonic()
    one.settimeout(0.02)
    while time.monotonic() - began < PATIENCE:
        try:
            if feed:
                one.sendall(feed[:1])
                feed = feed[1:]
            if one.recv(65_536) == b"":
                return time.monotonic() - began
        except TimeoutError:
            pass
        except OSError:
            return time.monotonic() - began
    raise AssertionError("it is still open")


def is_well(page):
    """Whether it answers; who stood still for too long is cut off, and asks again."""
    began = time.monotonic()
    while (answer := page.ask("GET /api/snapshot", page.bearer)).status in (0, 408):
        assert time.monotonic() - began < PATIENCE / 2
    assert answer.status == 200
    return time.monotonic() - began < PATIENCE / 2


def test_one_that_says_nothing_is_cut_off(page):
    with page.connect() as one:
        assert SHORT * 0.5 < cut_off_after(one) < PATIENCE / 2


def test_a_head_that_comes_byte_by_byte_is_cut_off(page):
    with page.connect() as one:
        head = b"GET /api/snapshot HTTP/1.1\r\n" + b"X: " + b"a" * 10_000
        assert cut_off_after(one, head) < PATIENCE / 2
    assert is_well(page)


def test_a_second_head_that_comes_byte_by_byte_is_cut_off_too(page):
    with page.connect() as one:
        one.sendall(f"GET /healthz HTTP/1.1\r\nHost: {page.host}\r\n\r\n".encode())
        assert one.recv(65_536).startswith(b"HTTP/1.1 200")
        assert cut_off_after(one, b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000) < PATIENCE / 2


def test_a_body_that_comes_byte_by_byte_is_refused(page):
    head = f"POST /api/act HTTP/1.1\r\nHost: {page.host}\r\n{page.bearer}\r\nContent-Type: application/json\r\n"
    with page.connect() as one:
        one.sendall(head.encode() + b"Content-Length: 4000\r\n\r\n")
        assert cut_off_after(one, b" " * 3_000) < PATIENCE / 2
    assert page.run.acted == []


def test_a_body_that_never_comes_is_refused(page):
    head = f"POST /api/act HTTP/1.1\r\nHost: {page.host}\r\n{page.bearer}\r\nContent-Length: 10\r\n\r\n"
    assert page.send(head.encode()).status == 408


def deaf(page, request, room=4_096):
    """A connection whose owner reads nothing, with as little room on the way as can be had."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    one.connect(("127.0.0.1", page.port))
    one.sendall(request.encode())
    return one


def open_connections(page):
    return len(page.served._server.server_state.connections)


def paused(page):
    return [one for one in page.served._server.server_state.connections if one.flow.write_paused]


def wait_until(what):
    deadline = time.monotonic() + PATIENCE
    while not what() and time.monotonic() < deadline:
        time.sleep(0.02)
    found = what()
    assert found
    return found


def test_a_listener_that_does_not_read_is_dropped(open_page, fake_run, monkeypatch):
    monkeypatch.setattr(view_cache, "SHORTEST_INTERVAL", 0.02)  # there is room for a few views on the way
    monkeypatch.setattr(view_cache, "SHARE", 1.0)
    page = open_page(fake_run(keys=1_000))
    request = f"GET /api/stream HTTP/1.1\r\nHost: {page.host}\r\n{page.bearer}\r\n\r\n"
    with contextlib.closing(deaf(page, request)):
        wait_until(lambda: len(page.served._app._streams) == 1)
        assert is_well(page)
        wait_until(lambda: len(page.served._app._streams) == 0)
        wait_until(lambda: open_connections(page) == 0)


def test_one_that_asks_much_and_reads_nothing_is_dropped(open_page, fake_run):
    page = open_page(fake_run(keys=1_000))
    request = f"GET /api/snapshot HTTP/1.1\r\nHost: {page.host}\r\n{page.bearer}\r\n\r\n"
    with contextlib.closing(deaf(page, request * 50)):
        wait_until(lambda: open_connections(page) == 1)
        assert is_well(page)
        wait_until(lambda: open_connections(page) == 0)


def test_one_that_reads_late_gets_everything(open_page, fake_run, monkeypatch):
    monkeypatch.setattr(server, "WRITE_TIME", PATIENCE)
    page = open_page(fake_run(keys=1_000))
    request = f"GET /api/snapshot HTTP/1.1\r\nHost: {page.host}\r\n{page.bearer}\r\n\r\n"
    with contextlib.closing(deaf(page, request * 30, room=200_000)) as one:
        (held,) = wait_until(lambda: paused(page))
        one.settimeout(PATIENCE)
        received = bytearray()
        with contextlib.suppress(TimeoutError):
            while received.count(b"x-frame-options") < 30:
                received += one.recv(1_000_000)
    assert received.count(b"HTTP/1.1 200 OK") == 30
    assert held._write_timer is None


def test_closing_does_not_wait_for_one_that_reads_nothing(open_page, fake_run, monkeypatch):
    page = open_page(fake_run(keys=1_000))
    request = f"GET /api/snapshot HTTP/1.1\r\nHost: {page.host}\r\n{page.bearer}\r\n\r\n"
    monkeypatch.setattr(server, "WRITE_TIME", 60.0)
    with contextlib.closing(deaf(page, request * 30)):
        wait_until(lambda: paused(page))
        began = time.monotonic()
        page.close()
        assert time.monotonic() - began < PATIENCE / 2
        assert not page.served._thread.is_alive()


def test_idle_connections_give_way_to_whoever_comes(page, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(server, "HEAD_TIME", 60.0)
    with contextlib.ExitStack() as idle:
        for _ in range(60):
            idle.enter_context(page.connect())
        assert is_well(page)
        assert open_connections(page) <= 20


def test_busy_connections_do_not_give_way(page, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
    with contextlib.ExitStack() as busy:
        streams = [busy.enter_context(contextlib.closing(page.listen())) for _ in range(5)]
        wait_until(lambda: len(page.served._app._streams) == 5)
        assert page.ask("GET /healthz").status == 0
        assert all(one.recv(10).startswith(b"HTTP/1.1 2") for one in streams)


def test_a_flood_of_streams_is_bounded_and_the_run_is_not_looked_at_more(page, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 200)
    with contextlib.ExitStack() as flood:
        for _ in range(120):
            flood.enter_context(contextlib.closing(page.listen()))
        wait_until(lambda: len(page.served._app._streams) == app.MOST_STREAMS)
        before, began = page.run.looks, time.monotonic()
        time.sleep(1.0)
        assert page.run.looks - before <= 4 * (time.monotonic() - began) + 1
        assert is_well(page)


@pytest.mark.no_cover
def test_a_flood_of_requests_without_token_costs_the_run_no_look(page):
    before = page.run.looks
    statuses = []

    def ask():
        statuses.extend([page.ask("GET /api/snapshot").status for _ in range(50)])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert set(statuses) == {401}
    assert page.run.looks == before
    assert json.loads(page.ask("GET /api/snapshot", page.bearer).body)["runs"]


def test_connections_that_come_and_go_leave_nothing(page):
    for _ in range(200):
        page.connect().close()
    wait_until(lambda: open_connections(page) == 0)
    assert is_well(page)
