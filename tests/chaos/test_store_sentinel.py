"""A store behind Sentinels on loopback: the primary dies or stalls, a replica takes over, all are back in step."""

import time
from contextlib import ExitStack

import pytest
import redis
from bench.redis_server import RedisServer
from tests.chaos.store_grounds import PATIENCE, wait_for

from headgate.distributed.backends.redis import RedisStore
from headgate.distributed.protocol import Publication, QuotaTerms, SyncRequest
from headgate.distributed.store import StoreDown

pytestmark = [pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(180)]

TERMS = QuotaTerms(rate=1000.0, burst=10.0, most=1e6)
TIMEOUT = 0.05
LATE = 0.3
"""Seconds beyond the timeout that a busy machine, and asking a few Sentinels, may take."""
LEASE = 5


class Sentinels:
    """A primary, a replica, and three who watch them and need two to agree."""

    def __init__(self, stack):
        self.primary = stack.enter_context(RedisServer())
        replica = ("--replicaof", "127.0.0.1", str(self.primary.port), "--repl-diskless-sync-delay", "0")
        self.replica = stack.enter_context(RedisServer(*replica))
        self.watchers = [stack.enter_context(RedisServer("--sentinel")) for _ in range(3)]
        for watcher in self.watchers:
            with redis.Redis(port=watcher.port, protocol=2) as client:
                client.execute_command("SENTINEL", "MONITOR", "main", "127.0.0.1", self.primary.port, 2)
                for name, value in (("down-after-milliseconds", 1000), ("failover-timeout", 4000)):
                    client.execute_command("SENTINEL", "SET", "main", name, value)
        wait_for("the replica follows", lambda: b"master_link_status:up" in self.replica.ask(b"INFO replication"))
        wait_for("they know each other and the replica", lambda: all(map(self.is_ready, self.watchers)))

    def is_ready(self, watcher):
        with redis.Redis(port=watcher.port, protocol=2) as client:
            state = client.sentinel_master("main")
        return state["num-other-sentinels"] == 2 and state["num-slaves"] == 1

    def are_in_step(self):
        """Mostly the old primary follows the new one; on a busy machine it may have been put back by now."""
        both = [server.ask(b"INFO replication") or b"" for server in (self.primary, self.replica)]
        return sum(b"master_link_status:up" in one for one in both) == 1

    @property
    def url(self):
        return f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in self.watchers)}/main"


@pytest.fixture
def sentinels():
    with ExitStack() as stack:
        yield Sentinels(stack)


class Member:
    def __init__(self, url, name):
        self.store, self.name, self.number = RedisStore(url, timeout=TIMEOUT), name, 0

    def sync(self, **fields):
        self.number += 1
        usual = {"terms": TERMS, "asks": ((LEASE, {}),), "elapsed": 60.0}
        (reply,) = self.store.sync([("api|key", SyncRequest(member=self.name, number=self.number, **(usual | fields)))])
        return reply

    def until_back(self, **fields):
        """Its next reply, and how long each refusal took."""
        begun, refusals = time.monotonic(), []
        while True:
            asked = time.monotonic()
            try:
                return self.sync(**fields), refusals
            except StoreDown:
                refusals.append(time.monotonic() - asked)
            assert time.monotonic() - begun < PATIENCE
            time.sleep(0.02)


@pytest.mark.parametrize("fault", ["dies", "stalls"])
def test_a_replica_takes_over(sentinels, fault):
    members = [Member(sentinels.url, name) for name in ("leader", "other")]
    leader, other = members
    first, _ = leader.until_back()
    learned = Publication(fence=first.fence, rate=700.0, learned="much", word=3)
    leader.until_back(publication=learned)
    last, _ = other.until_back()
    wait_for("the replica has it all", lambda: b"lag=0" in sentinels.primary.ask(b"INFO replication"))
    time.sleep(0.1)

    sentinels.primary.stop() if fault == "dies" else sentinels.primary.stall()
    reply, refusals = leader.until_back(publication=Publication(fence=first.fence, rate=700.0, word=4))
    assert refusals, "it was noticed"
    assert sorted(refusals)[len(refusals) // 2] < TIMEOUT + LATE
    assert reply.rate == 700.0, "what was learned is not lost"
    assert reply.first >= last.first, "nothing but what the replica had not got is handed out twice"
    assert reply.era == last.era
    after, _ = other.until_back()
    assert (after.members, after.first >= reply.first) == (2, True)

    sentinels.primary.start() if fault == "dies" else sentinels.primary.go_on()
    wait_for("one of the two follows the other", sentinels.are_in_step)
    for member in members:
        member.until_back()
    again = [member.until_back()[0] for member in members]
    assert [one.members for one in again] == [2, 2], (
        "members that still had a connection to the old primary is back too"
    )
    for member in members:
        member.store.close()
