"""Answers and claims on a real server."""

from __future__ import annotations

import logging

import pytest
import redis
from bench.redis_server import RedisServer

from headgate.errors import ConfigError
from headgate.fleet import redis_answers
from headgate.fleet.answers import KEPT_FOR, Taken
from headgate.fleet.redis_answers import RedisAnswers

MINE, HELD, REPEATED, FULL = Taken.MINE, Taken.HELD, Taken.REPEATED, Taken.FULL


def key(number):
    return number.to_bytes(16, "big")


KEYS = [key(number) for number in range(4)]


@pytest.fixture
def worker_on(redis_server):
    made = []

    def make(run="r", most_bytes=1 << 20, target="t"):
        made.append(RedisAnswers(redis_server.url, run, most_bytes=most_bytes))
        made[-1].open(target)
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def client(redis_server):
    with redis.Redis(port=redis_server.port) as made:
        yield made


def test_a_row_is_claimed_once_and_its_answer_is_for_all(worker_on):
    one, other = worker_on(), worker_on()
    assert one.take(KEYS) == [MINE] * 4
    assert other.take(KEYS) == [HELD] * 4
    assert one.take(KEYS) == [MINE] * 4
    one.put([(KEYS[0], b"a"), (KEYS[1], b"b")])
    assert other.take(KEYS) == [b"a", b"b", HELD, HELD]


def test_a_released_row_may_be_called_by_another(worker_on):
    one, other = worker_on(), worker_on()
    one.take(KEYS[:2])
    other.release(KEYS[:2])  # not its own: nothing changes
    assert other.take(KEYS[:2]) == [HELD, HELD]
    one.release(KEYS[:1])
    assert other.take(KEYS[:2]) == [MINE, HELD]


def test_claims_of_a_worker_end_with_its_lease_or_when_it_is_closed(worker_on, client):
    one, other = worker_on(), worker_on()
    one.take(KEYS)
    (lease, *_) = [name for name in client.keys("*:worker:*") if one._worker in name]
    assert 0 < client.pttl(lease) <= redis_answers.LEASE * 1000
    client.delete(lease)
    assert other.take(KEYS) == [REPEATED] * 4
    assert worker_on().take(KEYS) == [HELD] * 4
    other.close()
    assert worker_on().take(KEYS) == [REPEATED] * 4


def test_a_worker_that_was_thought_dead_may_still_put_its_answer(worker_on, client):
    one, other = worker_on(), worker_on()
    one.take(KEYS[:1])
    client.delete(*client.keys("*:worker:*"))
    other.renew()
    assert other.take(KEYS[:1]) == [REPEATED]
    one.put([(KEYS[0], b"late")])
    assert other.take(KEYS[:1]) == [b"late"]


def test_everything_expires(worker_on, client):
    one = worker_on()
    one.take(KEYS)
    one.put([(KEYS[0], b"a")])
    for name in client.keys("headgate:answers:*"):
        assert 0 < client.ttl(name) <= KEPT_FOR


def test_runs_do_not_see_each_other(worker_on):
    worker_on().put([(KEYS[0], b"a")])
    assert worker_on(run="s").take(KEYS[:1]) == [MINE]
    with pytest.raises(ConfigError, match="run 'r' was started with another target"):
        worker_on(target="elsewhere")


def test_a_full_memory_gives_answers_and_takes_no_row(worker_on, client):
    one = worker_on(most_bytes=500)
    one.take(KEYS)
    one.put([(KEYS[0], b"a" * 1_000)])
    assert one.take([KEYS[0], key(9)]) == [b"a" * 1_000, FULL]
    one.put([(KEYS[1], b"b")])  # what was in flight is remembered
    other = worker_on(most_bytes=500)
    other.take([key(8)])  # it has not heard of it before
    assert other.take([KEYS[1], key(9)]) == [b"b", FULL]


def test_many_and_large_answers_are_sent_in_portions(worker_on, monkeypatch):
    monkeypatch.setattr(redis_answers, "AT_ONCE", 3)
    monkeypatch.setattr(redis_answers, "BYTES_AT_ONCE", 1_000)
    one = worker_on()
    keys = [key(number) for number in range(10)]
    assert one.take(keys) == [MINE] * 10
    one.put([(name, name * 50) for name in keys])
    assert worker_on().take(keys) == [name * 50 for name in keys]


def test_a_server_that_evicts_is_warned_of(caplog):
    with RedisServer("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru") as server:
        answers = RedisAnswers(server.url, "r", most_bytes=100)
        caplog.set_level(logging.WARNING)
        answers.open("t")
        answers.close()
    assert "maxmemory-policy allkeys-lru" in caplog.text
