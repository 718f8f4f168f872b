"""Blocks of rows in a worker: what is called, what is remembered, and what a row ends as."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import redis
from bench.redis_server import RedisServer

from headgate.errors import ConfigError
from headgate.fleet import answers as answers_module
from headgate.fleet import redis_answers, row_caller
from headgate.fleet.row_caller import RowCaller
from headgate.fleet.row_result import RowEnd

from .counting_api import CountingApi, rows_of

DONE, FAILED, STOPPED = RowEnd.DONE, RowEnd.FAILED, RowEnd.STOPPED


@pytest.fixture(params=["redis", "folder"])
def memory(request, tmp_path):
    """Settings of each memory that answers are kept in."""
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        return {"store": server.url, "answers": "redis"}
    return {"answers": str(tmp_path / "answers")}


@pytest.fixture
def caller_for(settings_for):
    made = []

    def make(**options):
        made.append(RowCaller(settings_for(**options)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def states(results):
    return [one.state for one in results]


def test_results_come_in_the_order_of_the_rows_with_what_each_took(api, caller_for):
    results = caller_for(price={"m": "1/2"}, limits={}).call(rows_of(40))
    assert [json.loads(one.response)["choices"][0]["message"]["content"] for one in results] == [
        f"text {number}" for number in range(40)
    ]
    first = results[0]
    assert (first.error, first.attempts, first.tokens_in, first.tokens_out) == (None, 1, 7, 3)
    assert first.cost == pytest.approx((7 * 1 + 3 * 2) / 1e6)
    assert set(states(results)) == {DONE}


def test_a_row_that_its_target_cannot_take_goes_to_a_fallback_and_says_so(api, caller_for, memory, monkeypatch):
    """As Ray and Spark have it: the third row is too long for the first target, and is answered by the second."""
    monkeypatch.setenv("OTHER_KEY", "sk-other-0123456789")
    with CountingApi() as other:
        api.plan = lambda text, nth: 413 if text == "text 2" else 200
        settings = {"fallback": [f"to={other.url},model=large,keys=env:OTHER_KEY"], **memory}
        for _ in range(2):  # the second time from memory
            caller = caller_for(**settings)
            results = caller.call(rows_of(4))
            assert states(results) == [DONE] * 4
            labels = [one.target for one in results]
            assert labels[0] == labels[1] == labels[3] != labels[2]
            assert labels[2].endswith("/large")
        assert (other.calls, set(api.calls.values())) == ({"text 2": 1}, {1})


def test_without_fallbacks_no_result_names_a_target(caller_for, settings_for):
    assert [one.target for one in caller_for().call(rows_of(2))] == [None, None]
    assert "headgate_target" not in settings_for().columns
    assert settings_for(fallback=["gpt-large"], prefix="a_").columns[-1] == "a_headgate_target"


def test_an_empty_block_has_no_results(caller_for):
    assert caller_for().call([]) == []


def test_a_row_that_fails_is_a_row_with_an_error(api, caller_for):
    api.plan = lambda text, nth: 400 if text == "text 1" else 200
    good, bad, missing, binary = caller_for().call(
        [*rows_of(2), {"id": "x", "other": "column"}, {"id": "y", "text": b"\xff"}]
    )
    assert good.state is DONE
    assert bad.state is FAILED
    assert bad.error.startswith("invalid: ")
    assert json.loads(bad.response)["error"]["message"] == "no: text 1"
    assert (missing.state, missing.attempts) == (FAILED, 0)
    assert missing.error.startswith("invalid: no field for the template's {text}; ")
    assert binary.error == "invalid: column 'text' holds bytes; encode them as text first, such as base64"


def test_unicode_and_large_answers_come_back_unharmed_from_memory(api, caller_for, memory):
    texts = ["snow ☃ and \U0001f600 and \x00", "a" * 900_000]
    rows = [{"id": "1", "text": texts[0]}, {"id": "2", "text": texts[1]}]
    for _ in range(2):
        results = caller_for(**memory).call(rows)
        assert [json.loads(one.response)["choices"][0]["message"]["content"] for one in results] == texts
    assert set(api.calls.values()) == {1}


def test_a_repeated_block_is_not_called_again(api, caller_for, memory):
    first = caller_for(id_column="id", **memory).call(rows_of(120))
    later = caller_for(id_column="id", **memory)
    assert later.call(rows_of(120)) == first
    assert later.recalled == 120
    assert sum(api.calls.values()) == 120


def test_another_job_of_the_run_goes_on_whatever_its_blocks_are(api, caller_for, memory):
    caller_for(id_column="id", job="first", **memory).call(rows_of(50))
    later = caller_for(id_column="id", job="second", **memory)
    later.call(rows_of(60)[30:])
    later.call(rows_of(60)[:30])
    assert set(api.calls.values()) == {1}
    assert len(api.calls) == 60


def test_another_run_is_called_again(api, caller_for, memory):
    caller_for(run="a", **memory).call(rows_of(2))
    caller_for(run="b", **memory).call(rows_of(2))
    assert set(api.calls.values()) == {2}


def test_without_names_identical_requests_share_one_answer_and_with_names_they_do_not(api, caller_for, memory):
    same = [{"id": str(number), "text": "same"} for number in range(5)]
    assert states(caller_for(**memory).call(same)) == [DONE] * 5
    assert api.calls["same"] == 1
    assert states(caller_for(id_column="id", **memory).call(same)) == [DONE] * 5
    assert api.calls["same"] == 6


def test_a_row_keeps_its_idempotency_key_in_every_worker_of_its_run(api, caller_for):
    for _ in range(2):
        caller_for(id_column="id").call(rows_of(3))
    assert {len(keys) for keys in api.idempotency.values()} == {1}
    assert len(set.union(*api.idempotency.values())) == 3


def test_rejections_are_remembered_and_passing_failures_are_not(api, caller_for, memory):
    api.plan = lambda text, nth: 400 if text == "text 0" else 503 if nth == 1 else 200
    options = {"max_attempts": 1, "keep_going": True, **memory}
    rows = rows_of(2)
    assert states(caller_for(**options).call(rows)) == [FAILED, FAILED]
    assert states(caller_for(**options).call(rows)) == [FAILED, DONE]
    assert api.calls["text 0"] == 1


def test_the_same_run_with_another_target_is_refused(api, caller_for, memory):
    caller_for(**memory).call(rows_of(1))
    with pytest.raises(ConfigError, match="run 'nightly' was started with another target"):
        caller_for(to=f"{api.url}/elsewhere", **memory)


def test_several_blocks_at_once_share_the_worker_and_their_rows(api, caller_for, memory):
    caller = caller_for(id_column="id", **memory)
    results = []
    threads = [threading.Thread(target=lambda: results.append(caller.call(rows_of(60)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 4
    assert all(states(one) == [DONE] * 60 for one in results)
    assert set(api.calls.values()) == {1}


def test_a_block_that_another_worker_has_waits_for_its_answers(api, caller_for, redis_server):
    api.hold = lambda text: text == "text 7"
    options = {"store": redis_server.url, "id_column": "id"}
    results = {}
    workers = [caller_for(**options) for _ in range(2)]
    threads = [
        threading.Thread(target=lambda n=n, worker=worker: results.setdefault(n, worker.call(rows_of(20))))
        for n, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 20
    while len(api.calls) < 20 and time.monotonic() < until:
        time.sleep(0.01)
    api.hold = None
    for thread in threads:
        thread.join(30)
    assert results[0] == results[1]
    assert set(api.calls.values()) == {1}


WORKER = """
import sys
from headgate.fleet.row_caller import RowCaller
from headgate.fleet.settings import RowSettings
url, store, template, limits = sys.argv[1:]
caller = RowCaller(RowSettings(to=url, store=store, template=template, limits=limits, run="nightly", id_column="id"))
print("begun", flush=True)
caller.call([{"id": f"r{n}", "text": f"text {n}"} for n in range(30)])
"""


def test_a_killed_worker_costs_what_was_in_flight_and_one_flush(api, caller_for, redis_server, settings_for):
    """Its claims end with its lease, and the worker that has the block then calls what is not remembered."""
    api.hold = lambda text: int(text.split()[1]) >= 20
    settings = settings_for()
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, api.url, redis_server.url, settings.template, "requests=1000/s"],
        stdout=subprocess.PIPE,
    )
    with worker:
        assert worker.stdout.readline() == b"begun\n"
        until = time.monotonic() + 30
        while len(api.calls) < 30 and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(3 * answers_module.FLUSH_EVERY)
        os.kill(worker.pid, signal.SIGKILL)
    _end_leases(redis_server)  # rather than waiting for it
    api.hold = None
    later = caller_for(store=redis_server.url, id_column="id")
    assert states(later.call(rows_of(30))) == [DONE] * 30
    assert later.recalled == 20
    assert later.repeated == 10
    assert sum(api.calls.values()) == 40


def _end_leases(server):
    client = redis.Redis(port=server.port)
    (lease,) = client.keys("headgate:answers:*:worker:*")
    client.delete(lease)
    client.close()


def test_answers_are_bounded_and_a_full_memory_refuses(api, caller_for, redis_server):
    caller = caller_for(store=redis_server.url, answers_bytes=4_000, id_column="id")
    ends = []
    for first in range(0, 60, 5):
        ends += caller.call(rows_of(60)[first : first + 5])
    assert states(ends[:5]) == [DONE] * 5
    assert ends[-1].state is STOPPED
    assert ends[-1].error.startswith("memory_full: ")
    called = sum(api.calls.values())
    assert 5 <= called < 60
    again = caller_for(store=redis_server.url, answers_bytes=1 << 20, id_column="id").call(rows_of(60))
    assert states(again) == [DONE] * 60
    assert sum(api.calls.values()) == 60  # nothing was evicted


def test_a_memory_that_is_down_is_waited_for_and_then_leaves_rows_undone(api, caller_for, monkeypatch):
    monkeypatch.setattr(row_caller, "LONGEST_LOOK", 0.05)
    with RedisServer() as server:
        caller = caller_for(store=server.url)
        assert states(caller.call(rows_of(3))) == [DONE] * 3
        server.stop()
        threading.Timer(0.3, server.start).start()
        assert states(caller.call(rows_of(6))) == [DONE] * 6
        server.stop()
        monkeypatch.setattr(row_caller, "STORE_PATIENCE", 0.3)
        (result,) = caller.call(rows_of(7)[6:])
    assert result.state is STOPPED
    assert result.error.startswith("cannot save answers: redis at 127.0.0.1:")
    assert api.calls["text 6"] == 0


def test_a_memory_that_cannot_be_reached_is_said_at_once(settings_for, monkeypatch):
    monkeypatch.setattr(answers_module, "OPEN_PATIENCE", 0.1)
    with pytest.raises(ConfigError, match="cannot save answers: redis at 127"):
        RowCaller(settings_for(store="redis://127.0.0.1:1"))


def test_a_stop_leaves_rows_undone_and_the_next_job_does_them(api, caller_for, memory):
    api.hold = lambda text: True
    caller = caller_for(workers=4, id_column="id", **memory)
    results = []
    thread = threading.Thread(target=lambda: results.extend(caller.call(rows_of(50))))
    thread.start()
    until = time.monotonic() + 20
    while len(api.calls) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    caller.stop()
    time.sleep(0.1)
    api.hold = None
    thread.join(30)
    ends = states(results)
    assert ends.count(DONE) == 4
    assert ends.count(STOPPED) == 46
    assert caller.call([{"id": "new", "text": "new"}])[0].state is STOPPED
    assert states(caller_for(id_column="id", **memory).call(rows_of(50))) == [DONE] * 50
    assert sum(api.calls.values()) == 50


def test_a_block_that_is_cancelled_frees_rows_that_were_not_sent(api, caller_for, redis_server):
    options = {"store": redis_server.url, "id_column": "id"}
    holder, caller = caller_for(**options), caller_for(**options)
    api.hold = lambda text: True
    first = holder.submit(rows_of(3))
    _until(lambda: len(api.calls) == 3)

    async def cancelled():
        async with asyncio.timeout(0.3):
            await caller.call_async(rows_of(3))

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    _until(lambda: caller.is_idle)
    api.hold = None
    assert caller.call(rows_of(3)) == first.result(30)
    assert set(api.calls.values()) == {1}


def _until(is_so):
    give_up_at = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_a_rejected_key_stops_the_worker(api, caller_for, monkeypatch, caplog):
    monkeypatch.setenv("A_KEY", "sk-wrong-0123456789abcdef")
    api.plan = lambda text, nth: 401
    with caplog.at_level(logging.WARNING):
        results = caller_for(keys="env:A_KEY").call(rows_of(30))
    assert set(states(results)) <= {FAILED, STOPPED}
    assert STOPPED in states(results)
    assert "sk-wrong" not in repr(results) + caplog.text
    assert sum(api.calls.values()) <= 30


def test_keys_are_read_where_the_worker_is(api, caller_for, monkeypatch, settings_for):
    monkeypatch.setenv("A_KEY", "sk-right-0123456789abcdef")
    assert states(caller_for(keys="env:A_KEY").call(rows_of(1))) == [DONE]
    assert api.keys == ["Bearer sk-right-0123456789abcdef"]
    with pytest.raises(ConfigError, match="Each worker reads its keys on its own machine"):
        RowCaller(settings_for(keys="env:NOT_SET_HERE"))


def test_first_rows_that_all_fail_alike_stop_the_worker(api, caller_for):
    caller = caller_for()
    first = caller.call([{"wrong": number} for number in range(200)])
    assert FAILED in states(first)
    (later,) = caller.call(rows_of(1))
    assert later.state is STOPPED
    assert later.error.startswith("hopeless: invalid: ")
    assert not api.calls


def test_a_closed_worker_says_so(caller_for):
    caller = caller_for()
    caller.close()
    with pytest.raises(RuntimeError, match="closed"):
        caller.call(rows_of(1))


def test_lease_and_renewal_leave_room_for_a_stall():
    assert answers_module.RENEW_EVERY * 3 <= redis_answers.LEASE
