"""Workers as members of a run: caps over all of them, orders from outside, and what is wrong with all."""

from __future__ import annotations

import threading
import time

import pytest

from headgate.fleet import member
from headgate.fleet.row_caller import RowCaller
from headgate.fleet.row_result import RowEnd
from headgate.fleet.state_store import open_run_state

from .counting_api import rows_of

PATIENCE = 30.0


@pytest.fixture
def workers_of(settings_for, redis_server, monkeypatch):
    """Makes workers that report ten times a second, so that orders arrive as soon."""
    monkeypatch.setattr(member, "REPORT_EVERY", 0.1)
    made = []

    def make(count, **options):
        options = {"store": redis_server.url, "id_column": "id", "job": "one", **options}
        some = [RowCaller(settings_for(**options)) for _ in range(count)]
        made.extend(some)
        return some

    yield make
    for one in made:
        one.close()


@pytest.fixture
def state(redis_server):
    opened = open_run_state(redis_server.url)
    yield opened
    opened.close()


def until(is_so):
    give_up_at = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def calls_at_once(workers, blocks):
    results = {}
    threads = [
        threading.Thread(target=lambda n=n, worker=worker: results.setdefault(n, worker.call(blocks[n])))
        for n, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    return threads, results


def test_a_cap_holds_over_all_workers(api, workers_of):
    workers = workers_of(2, max_tokens=400, template={"model": "m", "max_tokens": 3, "messages": [
        {"role": "user", "content": "{text}"}]})  # fmt: skip
    rows = rows_of(200)
    threads, results = calls_at_once(workers, [rows[:100], rows[100:]])
    for thread in threads:
        thread.join(PATIENCE)
    ends = [one.state for block in results.values() for one in block]
    spent = 10 * sum(api.calls.values())
    assert ends.count(RowEnd.STOPPED) > 100
    assert 0 < spent <= 400 + 10 * 16  # a row may cost more than was expected of it


def test_an_order_stops_and_pauses_all_workers_and_the_next_job_goes_on(api, workers_of, state):
    api.hold = lambda text: True
    workers = workers_of(2, workers=2)
    rows = rows_of(40)
    threads, results = calls_at_once(workers, [rows[:20], rows[20:]])
    until(lambda: sum(api.calls.values()) >= 4)
    assert state.order("nightly", "pause")
    until(lambda: all(worker.runner.is_paused for worker in workers))
    assert state.order("nightly", "resume")
    until(lambda: not any(worker.runner.is_paused for worker in workers))
    assert state.order("nightly", "stop")
    until(lambda: all(worker.member.orders.stop is not None for worker in workers))
    api.hold = None
    for thread in threads:
        thread.join(PATIENCE)
    stopped = [one for block in results.values() for one in block if one.state is RowEnd.STOPPED]
    assert len(stopped) >= 20
    assert stopped[0].error == "stopped: by an operator or another worker"
    (later,) = workers_of(1, job="two")
    assert {one.state for one in later.call(rows)} == {RowEnd.DONE}
    assert set(api.calls.values()) == {1}


def test_a_key_that_is_rejected_stops_the_whole_run(api, workers_of, monkeypatch):
    monkeypatch.setenv("A_KEY", "sk-wrong-0123456789abcdef")
    api.plan = lambda text, nth: 401
    first, other = workers_of(2, keys="env:A_KEY")
    first.call(rows_of(10))
    until(lambda: other.member.orders.stop is not None)


def test_the_store_shows_what_workers_did(api, workers_of, state):
    (first,) = workers_of(1)
    first.call(rows_of(10))
    (later,) = workers_of(1)
    later.call(rows_of(12))
    until(lambda: (view := state.view("nightly")) is not None and view.counts.done == 22)
    counts = state.view("nightly").counts
    assert (counts.recalled, counts.calls, counts.tokens) == (10, 12, 120)
