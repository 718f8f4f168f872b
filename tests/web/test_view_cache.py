"""A run is looked at twice a second at most, whoever looks, and not at all when nobody does."""

import contextlib
import time
from dataclasses import replace

import pytest

from headgate.observe.snapshot import Timeline
from headgate.web import view_cache

PATIENCE = 20.0


def read_for(seconds, connections, *, until=lambda received: True):
    """Read what listeners are sent, so that none of them is slow; for longer if the machine has stood still."""
    began = time.monotonic()
    received = 0
    for one in connections:
        one.setblocking(False)
    while (now := time.monotonic()) - began < seconds or (now - began < PATIENCE and not until(received)):
        for one in connections:
            with contextlib.suppress(BlockingIOError):
                received += len(one.recv(1_000_000))
        time.sleep(0.01)
    return received


def test_nobody_looks(page):
    time.sleep(0.6)
    assert page.run.looks == 0


def test_twenty_look_and_the_run_is_looked_at_twice_a_second(page):
    with contextlib.ExitStack() as open_streams:
        streams = [open_streams.enter_context(contextlib.closing(page.listen("?keys=key-0"))) for _ in range(20)]
        read_for(1.5, streams, until=lambda _: page.run.looks >= 4)
        for _ in range(30):
            assert page.ask("GET /api/snapshot", page.bearer).status == 200
        read_for(0.5, streams)
    apart = [later - sooner for sooner, later in zip(page.run.looked_at, page.run.looked_at[1:], strict=False)]
    assert len(apart) >= 3
    assert min(apart) > view_cache.SHORTEST_INTERVAL * 0.9
    assert page.run.timelines_asked <= page.run.looks + 1, "once for all twenty"
    looks = page.run.looks
    time.sleep(0.6)
    assert page.run.looks <= looks + 1


def test_what_is_dear_to_look_at_is_looked_at_less_often(fake_run, fake_sources):
    run = fake_run()
    real = run.snapshot

    def dear():
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return real()

    run.snapshot = dear
    began = time.monotonic()
    view = view_cache.read_view(fake_sources(run), None)
    assert view.next_at - began > 1.9
    assert view.next_at - time.monotonic() < view_cache.LONGEST_INTERVAL + 0.1


def test_events_are_taken_once_and_the_newest_are_kept(fake_run, fake_sources):
    run = fake_run()
    run.newest = 1_000
    sources = fake_sources(run)
    view = view_cache.read_view(sources, None)
    assert [one.number for one in view.runs["run-1"].events] == list(range(801, 1_001))
    run.newest = 50_000
    view = view_cache.read_view(sources, view)
    numbers = [one.number for one in view.runs["run-1"].events]
    assert numbers == [*range(901, 1_001), *range(49_901, 50_001)]


def test_a_run_that_has_ended_is_shown_for_a_while(fake_run, fake_sources, monkeypatch):
    run, sources = fake_run(), fake_sources()
    sources.all = [run]
    view = view_cache.read_view(sources, None)
    sources.all = []
    last = replace(run.snapshot(), state="ended", ending="done")
    run.snapshot = lambda: last
    view = view_cache.read_view(sources, view_cache.read_view(sources, view))
    assert view.runs["run-1"].snapshot.ending == "done"
    monkeypatch.setattr(view_cache, "SHOWN_AFTER_END", 0.0)
    assert not view_cache.read_view(sources, view).runs


def test_of_a_timeline_only_what_came_after(fake_run):
    run = fake_run()
    three = (1.0, 2.0, 3.0)
    run.timelines = lambda keys, since: [Timeline(key="k", at=three, rate=three, state=("held", "open", "open"))]
    assert view_cache.read_timelines(run, ("k",), 3.0) == view_cache.Lines(b"", 3.0)
    assert view_cache.read_timelines(run, ("k",), 2.0).newest_at == 3.0
    assert b'"at":[3.0],"rate":[3.0]' in view_cache.read_timelines(run, ("k",), 2.0).json


@pytest.mark.chaos
@pytest.mark.alone
def test_twenty_who_look_at_a_thousand_keys_cost_little(open_page, fake_run):
    page = open_page(fake_run(keys=1_000))
    clock = time.pthread_getcpuclockid(page.served._thread.ident)
    with contextlib.ExitStack() as open_streams:
        streams = [open_streams.enter_context(contextlib.closing(page.listen("?keys=key-0"))) for _ in range(20)]
        read_for(0.5, streams)
        before, began = time.clock_gettime(clock), time.monotonic()
        received = read_for(2.0, streams, until=lambda received: received > 1_000_000)
        share = (time.clock_gettime(clock) - before) / (time.monotonic() - began)
    assert received > 1_000_000
    assert share < 0.25, f"the server took {share:.0%} of a core"
