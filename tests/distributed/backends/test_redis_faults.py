"""A server that is gone, stalled, restarted, wiped, read-only or full: ``StoreDown`` in time, and back with it."""

import socket
import time
from contextlib import suppress

import pytest
import redis

from headgate.distributed.store import StoreDown

pytestmark = pytest.mark.usefixtures("patient")

TIMEOUT = 0.05
LATE = 5.0
"""Seconds beyond the timeout that a machine which stands still may take to notice; what stalls would do so for ever."""


def refusal(member):
    """What it says, and after how many seconds."""
    begun = time.monotonic()
    with pytest.raises(StoreDown) as refused:
        member.sync()
    return str(refused.value), time.monotonic() - begun


def eventually(member, request=None, patience=20.0):
    """Its reply to one request, which is sent again until there is one."""
    request, until = request or member.says(), time.monotonic() + patience
    while True:
        try:
            (reply,) = member.store.sync([(member.key, request)])
            return reply
        except StoreDown:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


@pytest.fixture
def server(own_redis):
    return own_redis()


@pytest.fixture
def client(server):
    with redis.Redis(port=server.port, protocol=2) as client:
        yield client


@pytest.fixture
def one(server, open_redis, member):
    return member(open_redis(server.url))


def test_no_server_there(open_redis, member):
    with socket.socket() as taken:  # and nothing listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        said, _ = refusal(member(open_redis(f"redis://127.0.0.1:{port}")))
    assert said == f"redis at 127.0.0.1:{port}: connection refused"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+cluster://{}", "no cluster node answers at that address"),
        ("redis+sentinel://{}/main", "it answered with an error"),
    ],
)
def test_a_plain_server_where_another_kind_was_expected(redis_server, open_redis, member, url, said):
    url = url.format(f"127.0.0.1:{redis_server.port}")
    assert refusal(member(open_redis(url)))[0].endswith(said)


def test_an_unknown_host(open_redis, member):
    said, _ = refusal(member(open_redis("redis://no-such-host.invalid")))
    assert "no-such-host.invalid" in said


def test_stalled_before_the_first_request(server, open_redis, member):
    one = member(open_redis(server.url, timeout=TIMEOUT))
    server.stall()
    said, after = refusal(one)
    server.go_on()
    assert said.endswith(": no answer within 50 ms")
    assert TIMEOUT * 0.9 < after < TIMEOUT + LATE
    assert eventually(one).granted == 5


def test_stalled_between_requests(server, open_redis, member):
    one = member(open_redis(server.url, timeout=TIMEOUT))
    eventually(one)
    server.stall()
    delays = [refusal(one)[1] for _ in range(3)]
    server.go_on()
    assert max(delays) < TIMEOUT + LATE
    assert eventually(one).granted == 5


def test_what_arrives_too_late_is_not_taken_for_the_next_answer(server, open_redis, member):
    store = open_redis(server.url, timeout=TIMEOUT)
    one, other = member(store, key="one"), member(store, "other", key="other")
    eventually(one)
    eventually(other)
    server.stall()
    refusal(one)
    server.go_on()
    reply = eventually(other)
    assert reply.first == 5.0
    assert reply.members == 1


def test_a_request_that_was_lost_and_is_sent_again_counts_once(server, open_redis, member):
    one = member(open_redis(server.url, timeout=TIMEOUT))
    first = eventually(one)
    request = one.says()
    server.stall()
    with pytest.raises(StoreDown):
        one.store.sync([(one.key, request)])
    server.go_on()
    time.sleep(0.05)  # it may or may not get to what it was sent before
    again = eventually(one, request)
    assert (again.first, again.granted) == (first.first + first.granted, 5)


def test_restarted(server, one):
    era = one.sync().era
    server.stop()
    assert "connection" in refusal(one)[0]
    server.start()
    reply = eventually(one)
    assert (reply.granted, reply.members) == (5, 1)
    assert reply.era > era, "permits from before are void"


def test_wiped_everyone_meets_again(server, client, open_redis, member):
    old = [member(open_redis(server.url), f"old {n}") for n in range(3)]
    for one in old:
        one.sync()
    client.flushall()
    new = member(open_redis(server.url), "new")
    new.sync()  # makes a salt of its own
    assert [one.sync().members for one in old] == [2, 3, 4]
    assert new.sync().members == 4
    assert len(client.keys("headgate:1:*")) <= 2, "at most one more is left, under the old name"


def test_wiped_the_salt_that_members_know_is_put_back(server, client, one):
    one.sync()
    salt = client.get("headgate:salt")
    client.flushall()
    one.sync()
    assert client.get("headgate:salt") == salt


def test_nothing_is_taken_from_a_quota_under_an_old_name(server, client, open_redis, member):
    one = member(open_redis(server.url), "one")
    one.sync()
    client.flushall()
    other = member(open_redis(server.url), "other")
    numbers = [(reply.first, reply.granted) for reply in (other.sync(), one.sync(), other.sync())]
    assert numbers == [(0.0, 5), (5.0, 5), (10.0, 5)]


def test_a_replica(server, client, own_redis, open_redis, member):
    client.config_set("repl-diskless-sync-delay", "0")  # it waits 5 s for more replicas to sync with
    replica = own_redis("--replicaof", "127.0.0.1", str(server.port))
    until = time.monotonic() + 20.0
    while b"master_link_status:up" not in replica.ask(b"INFO replication"):
        assert time.monotonic() < until
        time.sleep(0.05)
    said, _ = refusal(member(open_redis(replica.url)))
    assert said.endswith("it is a read-only replica")


def test_a_primary_that_becomes_a_replica(server, client, own_redis, one):
    one.sync()
    other = own_redis()
    client.replicaof("127.0.0.1", other.port)
    assert "replica" in refusal(one)[0]
    client.replicaof("NO", "ONE")
    assert eventually(one).granted == 5


def test_out_of_memory_nothing_is_half_done(server, client, one):
    before = one.sync(note="seen")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")
    assert refusal(one)[0].endswith("it is out of memory and rejects writes")
    client.config_set("maxmemory", "0")
    reply = one.sync(note="seen")
    assert reply.first == before.first + before.granted
    assert sorted(client.hkeys(client.keys("headgate:1:*")[0])) == [b"1", b"2", b"desk"]


def test_a_server_that_cannot_save(server, client, one):
    one.sync()
    client.config_set("save", "1 1")
    (server.folder / "dump.rdb").mkdir()  # nothing can be renamed to it
    with pytest.raises(redis.ResponseError):
        client.save()
    with suppress(redis.ResponseError):  # the server may have begun one itself
        client.bgsave()
    until = time.monotonic() + 10.0
    while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
        assert time.monotonic() < until
        time.sleep(0.02)
    assert refusal(one)[0].endswith("it cannot save to disk and rejects writes")


def test_a_server_that_is_busy_with_a_script(server, client, open_redis, member):
    one = member(open_redis(server.url))
    one.sync()
    client.config_set("busy-reply-threshold", "1")
    pipeline = client.connection_pool.get_connection()
    pipeline.send_command("EVAL", "while true do end", 0)
    until = time.monotonic() + 20.0
    while not server.ask(b"PING").startswith(b"-BUSY"):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert refusal(one)[0].endswith("it is busy with a script")
    with redis.Redis(port=server.port, protocol=2) as killer:
        killer.script_kill()
    pipeline.disconnect()
    client.connection_pool.release(pipeline)
    assert eventually(one).granted == 5


def test_a_key_of_another_kind_in_our_place(client, one):
    one.sync()
    (coordinator,) = client.keys("headgate:1:*")
    client.delete(coordinator)
    client.lpush(coordinator, "somebody else's")
    said, _ = refusal(one)
    assert "somebody" not in said
