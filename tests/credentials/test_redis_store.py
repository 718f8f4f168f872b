"""Credentials shared through a real server: seen soon, right on hosts whose clocks are wrong, lost by no fault."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from bench.redis_server import RedisServer

from headgate import Outcome, Signal
from headgate.clock import SystemClock
from headgate.core import cooldown, credential_pool
from headgate.credentials import Credential, CredentialCoordinator, Identities, Record, record, redis_store
from headgate.credentials.redis_store import CREDENTIALS, RedisCredentialStore
from headgate.distributed.protocol import QuotaTerms, SyncRequest
from headgate.errors import ConfigError

pytestmark = pytest.mark.usefixtures("patient")

PATIENCE, TIMEOUT = 30.0, 5.0


def patiently(server):
    """Its address, for who waits for as long as a machine may stand still."""
    return f"{server.url}?timeout={TIMEOUT}"


def soon(holds):
    """In how many seconds it does."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.005)
    return time.monotonic() - began


class Wrong(SystemClock):
    """A host's clock that is so many seconds off."""

    def __init__(self, off):
        self.off = off

    def wall(self):
        return time.time() + self.off


def states(keys):
    return [one.state for one in keys.states()]


def limited(keys, label, seconds):
    lease = keys.acquire(prefer=label)
    assert lease.label == label
    lease.report(signal=Signal(outcome=Outcome.RATE_LIMITED, retry_after=seconds))


@pytest.fixture
def server():
    """One that a test may mistreat."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def share(redis_server):
    return lambda credentials, **more: CredentialCoordinator(credentials, **{"store": patiently(redis_server), **more})


class TestOthers:
    def test_see_a_rest_within_a_moment_whatever_they_call_the_key(self, share):
        one, other = share([Credential("mine", "sk-aaaa")]), share(["sk-bbbb", "sk-aaaa"])
        limited(one, "mine", 60.0)
        soon(lambda: states(other) == ["free", "resting"])
        assert 30.0 < other.states()[1].back_in <= 61.0  # the machine may stall meanwhile

    def test_see_a_retirement_and_an_operators_word(self, share):
        one, other = share(["sk-aaaa"]), share(["sk-aaaa"])
        one.retire("key-1")
        soon(lambda: states(other) == ["retired"])
        other.free("key-1")
        soon(lambda: states(one) == ["free"])

    def test_rest_with_a_group_of_which_they_hold_other_keys(self, share):
        one = share([Credential("alice", "sk-aaaa", "org"), Credential("solo", "sk-ssss")], provider="p")
        other = share([Credential("bob", "sk-bbbb", "org"), Credential("solo-2", "sk-tttt")], provider="p")
        apart = share([Credential("carol", "sk-cccc", "org")], provider="another")
        limited(one, "alice", 60.0)
        soon(lambda: states(other) == ["resting", "free"])
        assert states(apart) == ["free"]

    def test_do_not_rest_with_a_member_whose_own_quota_is_spent(self, share):
        one, other = share([Credential("a", "sk-aaaa", "org")]), share([Credential("b", "sk-bbbb", "org")])
        one.acquire().report(signal=Signal(outcome=Outcome.QUOTA_EXHAUSTED, retry_after=60.0))
        third = share([Credential("a", "sk-aaaa", "org")])
        soon(lambda: states(third) == ["resting"])
        assert states(other) == ["free"]

    def test_who_waits_is_served_when_another_process_frees_a_key(self, share):
        one, other = share(["sk-aaaa"]), share(["sk-aaaa"])
        one.park("key-1", 600)
        soon(lambda: states(other) == ["resting"])
        one.free("key-1")
        assert other.acquire(timeout=700.0).label == "key-1"

    def test_come_later_and_know_before_their_first_call(self, share):
        limited(share(["sk-aaaa"]), "key-1", 60.0)
        soon(lambda: share(["sk-aaaa"]).get_credential() is None)

    def test_a_host_whose_clock_is_wrong_rests_as_long_as_all(self, share):
        one, other = share(["sk-aaaa"], clock=Wrong(-30.0)), share(["sk-aaaa"], clock=Wrong(30.0))
        limited(one, "key-1", 60.0)
        soon(lambda: states(other) == ["resting"])
        assert 30.5 < other.states()[0].back_in <= 62.0  # a wrong clock would shift it by 30 or 60
        assert states(share(["sk-aaaa"], clock=Wrong(-3600.0))) == ["resting"]


class TestSpendingStops:
    def test_one_process_asks_for_all_and_tells_the_others(self, share, monkeypatch):
        for module in (cooldown, credential_pool):
            monkeypatch.setattr(module, "SPEND_REST", 1.0)
        monkeypatch.setattr(record, "SAME_STOP", 0.1)
        everyone = []
        for seconds in (0.1, 2.0, 4.0):
            monkeypatch.setattr(record, "YIELD", (seconds, seconds))
            everyone.append(share([f"sk-{id(monkeypatch)}"]))
        stopped_at = time.monotonic()
        for lease in [keys.acquire() for keys in everyone]:
            lease.report(signal=Signal(outcome=Outcome.SPEND))
        probes = []

        def asks():
            for keys in everyone:
                lease = keys.try_acquire()
                if lease is not None:
                    probes.append(time.monotonic())
                    lease.report(signal=Signal(outcome=Outcome.SPEND))
            return len(probes) >= 2

        soon(asks)
        assert all(at - stopped_at >= 0.99 * number for number, at in enumerate(probes, start=1))
        probe = next(lease for _ in iter(int, 1) for keys in everyone if (lease := keys.try_acquire()) is not None)
        probe.report(signal=Signal(outcome=Outcome.OK))
        soon(lambda: all(keys.try_acquire() is not None for keys in everyone))


class TestFaults:
    def kept(self, server):
        store = RedisCredentialStore(server.url, timeout=5.0)
        try:
            return {one.label: one for one in store.load()}
        finally:
            store.close()

    def test_a_server_that_is_gone_loses_nothing(self, server, caplog):
        events = []
        keys = CredentialCoordinator(["sk-aaaa", "sk-bbbb"], store=patiently(server), on_event=events.append)
        limited(keys, "key-1", 600.0)
        soon(lambda: self.kept(server)["key-1"].until)
        server.stop()
        keys.retire("key-2")
        soon(lambda: "cannot save key state" in caplog.text)  # told after it is counted
        assert keys.store_failures
        assert states(keys) == ["resting", "retired"]
        assert caplog.text.count("cannot save key state") == 1
        server.start()
        soon(lambda: states(keys) and (found := self.kept(server)) and len(found) == 2 and found["key-2"].retired)
        soon(lambda: [one.event_type for one in events][-1] == "store_back")
        assert [one.event_type for one in events].count("store_failed") == 1

    def test_one_that_is_down_at_the_start_is_told_of_everything_later(self, server):
        server.stop()
        keys = CredentialCoordinator(["sk-aaaa"], store=patiently(server))
        limited(keys, "key-1", 600.0)
        assert (states(keys), keys.store_failures > 0) == (["resting"], True)
        server.start()
        soon(lambda: states(keys) and (found := self.kept(server)) and found["key-1"].until)

    def test_one_that_was_wiped_is_told_again(self, server):
        one = CredentialCoordinator(["sk-aaaa", "sk-bbbb"], store=patiently(server))
        limited(one, "key-1", 600.0)
        one.retire("key-2")
        soon(lambda: len([kept for kept in self.kept(server).values() if kept.retired or kept.until]) == 2)
        server.ask(b"FLUSHALL")
        with redis.Redis(port=server.port, protocol=2) as client:
            client.set("headgate:salt", "another one, which somebody else was quicker to put there")
        soon(lambda: states(one) and len(self.kept(server)) == 2)
        assert states(CredentialCoordinator(["sk-aaaa", "sk-bbbb"], store=patiently(server))) == ["resting", "retired"]
        assert states(one) == ["resting", "retired"]

    def test_what_a_failover_has_lost_is_written_again(self, server):
        keys = CredentialCoordinator(["sk-aaaa"], store=patiently(server))
        soon(lambda: self.kept(server))
        with redis.Redis(port=server.port, protocol=2) as client:
            before = client.hgetall(CREDENTIALS)
            limited(keys, "key-1", 600.0)
            soon(lambda: self.kept(server)["key-1"].until)
            client.hset(CREDENTIALS, mapping=before)
        soon(lambda: states(keys) and self.kept(server)["key-1"].until)

    def test_one_that_hangs_keeps_nobody_waiting(self, server):
        keys = CredentialCoordinator(["sk-aaaa"], at_once=None, store=patiently(server))
        soon(lambda: self.kept(server))
        server.stall()
        try:
            longest, until = 0.0, time.monotonic() + 1.0
            while time.monotonic() < until:
                began = time.monotonic()
                keys.acquire().release()
                longest = max(longest, time.monotonic() - began)
                time.sleep(0.01)
            soon(lambda: keys.get_available_count() and keys.store_failures)
        finally:
            server.go_on()
        assert longest < TIMEOUT - 1.0, "whoever had to wait for the server would have waited for all of it"

    def test_one_that_takes_no_changes_counts_as_lost_once(self, server, caplog):
        keys = CredentialCoordinator(["sk-aaaa"], store=patiently(server))
        soon(lambda: self.kept(server))
        with redis.Redis(port=server.port, protocol=2) as client:
            client.config_set("maxmemory", "1")
            limited(keys, "key-1", 600.0)
            soon(lambda: states(keys) and keys.store_failures >= 2)
            assert caplog.text.count("cannot save key state") == 1
            client.config_set("maxmemory", "0")
        soon(lambda: states(keys) and self.kept(server)["key-1"].until)


class TestSecrets:
    def test_none_is_on_the_server_nor_a_hash_that_needs_no_salt(self, share, redis_server):
        keys = share(["sk-canary-1", "☂"], provider="p")
        keys.retire("key-1")
        keys.park("key-2", 60)
        with redis.Redis(port=redis_server.port, protocol=2) as client:
            soon(lambda: client.hlen(CREDENTIALS) == 3)
            everything = [client.dump(name) for name in client.scan_iter()] + [
                str(client.hgetall(CREDENTIALS)).encode()
            ]
            names = {name.decode() for name in client.hkeys(CREDENTIALS)} - {"version"}
        assert len(everything) == 3
        for content in everything:
            assert b"canary" not in content
            assert "☂".encode() not in content
        plain = {Identities(b"").of(secret) for secret in ("sk-canary-1", "☂")}
        plain |= {Identities.of_user().of(secret) for secret in ("sk-canary-1", "☂")}
        assert len(names) == 2
        assert not names & plain

    def test_an_address_that_is_wrong_is_not_repeated(self):
        with pytest.raises(ConfigError) as refused:
            CredentialCoordinator(["sk-aaaa"], store="redis://user:hunter2@host:port")
        assert "hunter2" not in str(refused.value)
        with pytest.raises(ConfigError) as refused:
            CredentialCoordinator(["sk-aaaa"], store="hunter2")
        assert "hunter2" not in str(refused.value)
        with pytest.raises(ConfigError, match="store=int"):
            CredentialCoordinator(["sk-aaaa"], store=7)

    def test_what_others_have_put_there_is_left_out(self, redis_server):
        store = RedisCredentialStore(redis_server.url, timeout=5.0)
        store.save([Record(identity="ab" * 16, label="a", written_at=1.0)])
        with redis.Redis(port=redis_server.port, protocol=2) as client:
            for name, text in {"x": "", "y" * 32: "{}", "cd" * 16: '{"era": 0}\n[]', "ef" * 16: "[]\n{}\n"}.items():
                client.hset(CREDENTIALS, name, text)
        assert [one.label for one in store.load()] == ["a"]
        store.save([Record(identity="cd" * 16, label="b", written_at=1.0)])
        assert sorted(one.label for one in store.load()) == ["a", "b"]
        store.close()

    def test_nor_does_it_stop_a_store_that_is_full(self, server, monkeypatch):
        monkeypatch.setattr(redis_store, "MOST_RECORDS", 3)
        store = RedisCredentialStore(server.url, timeout=5.0)
        with redis.Redis(port=server.port, protocol=2) as client:
            for name, text in {"x": "", "y" * 32: "{}", "cd" * 16: '{"era": 0}\n[]', "ef" * 16: "[]\n{}\n"}.items():
                client.hset(CREDENTIALS, name, text)
        store.save([Record(identity=f"{number:032x}", label=f"{number}", written_at=number) for number in range(1, 6)])
        assert sorted(one.label for one in store.load()) == ["3", "4", "5"]
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads, which is the point
def test_a_forked_child_has_a_thread_of_its_own(share):
    keys, other = share(["sk-aaaa"]), share(["sk-aaaa"])
    keys.get_available_count()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(writing)
            keys.retire("key-1")
            os.read(reading, 1)  # until it was seen
            code = 0
        finally:
            os._exit(code)
    os.close(reading)
    try:
        soon(lambda: states(other) == ["retired"])
    finally:
        os.close(writing)
        assert os.waitpid(child, 0)[1] == 0


def test_the_word_machine_is_the_users_file(state_folder):
    CredentialCoordinator(["sk-aaaa"], store="machine").retire("key-1")
    assert (state_folder / "credentials.db").exists()
    assert states(CredentialCoordinator(["sk-aaaa"], store="machine")) == ["retired"]


def test_what_is_not_written_when_a_program_ends_is_written_then(redis_server):
    program = """
import sys
from headgate import CredentialCoordinator
keys = CredentialCoordinator(["sk-aaaa"], store=sys.argv[1])
keys.retire("key-1")
"""
    subprocess.run([sys.executable, "-c", program, patiently(redis_server)], check=True, timeout=60)
    assert states(CredentialCoordinator(["sk-aaaa"], store=patiently(redis_server))) == ["retired"]


def test_the_rights_that_the_documentation_asks_for_are_enough(server):
    page = (Path(__file__).parents[2] / "docs" / "machines.md").read_text(encoding="utf-8")
    (words,) = [line.split() for line in page.splitlines() if line.startswith("ACL SETUSER")]
    with redis.Redis(port=server.port, protocol=2) as client:
        client.execute_command(*words)
    url = f"redis://headgate:password@127.0.0.1:{server.port}?timeout={TIMEOUT}"
    one = CredentialCoordinator(["sk-aaaa"], store=url)
    one.retire("key-1")
    soon(lambda: states(CredentialCoordinator(["sk-aaaa"], store=url)) == ["retired"])
    store = RedisCredentialStore(url, timeout=5.0)
    reply = store.sync([("api", SyncRequest(member="a", number=1, terms=QuotaTerms(rate=1.0, burst=1.0, most=1e6)))])
    assert (len(reply), len(store.snapshot()), one.store_failures) == (1, 1, 0)
    store.close()


def test_fields_named_by_the_identity_alone_still_count(server):
    """As they were before what is known belonged to an origin."""
    client = redis.Redis.from_url(server.url)
    writer = CredentialCoordinator(["sk-aaaa"], provider="search", store=patiently(server))
    writer.retire("key-1")
    soon(lambda: client.hlen(CREDENTIALS) == 2)
    (name,) = (name for name in client.hkeys(CREDENTIALS) if b"@" in name)
    client.hset(CREDENTIALS, name.partition(b"@")[0], client.hget(CREDENTIALS, name))
    client.hdel(CREDENTIALS, name)
    keys = CredentialCoordinator(["sk-aaaa"], provider="search", store=patiently(server))
    soon(lambda: states(keys) == ["retired"])
    keys.free("key-1")
    store = RedisCredentialStore(patiently(server))
    soon(lambda: [record.retired for record in store.load()] == [False])
