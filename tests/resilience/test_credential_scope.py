"""Processes share a pace if they use the same key of the same API, whatever they call that key."""

import pytest

from headgate import AdaptiveRateLimiter, Credential, CredentialCoordinator, RateLimitConfig
from headgate.credentials.redis_store import RedisCredentialStore
from headgate.distributed.backends.memory import MemoryStore
from headgate.distributed.protocol import QuotaTerms, SyncRequest
from headgate.distributed.store import StoreDown
from headgate.resilience.credential_scope import PairedStore
from headgate.wire.urls import pair_key

pytestmark = pytest.mark.usefixtures("patient")

TERMS = QuotaTerms(rate=100.0, burst=4.0, most=1e6)


def members(store, credentials, key, member):
    """How many are there once this one has come."""
    keys = None if credentials is None else CredentialCoordinator(credentials)
    paired = PairedStore(store, lambda _: keys)
    (reply,) = paired.sync([(key, SyncRequest(member=member, number=1, terms=TERMS))])
    return reply.members


def test_the_same_secret_is_the_same_pace_under_any_label():
    store = MemoryStore()
    assert members(store, ["sk-aaaa"], "api/key-1", "a") == 1
    assert members(store, [Credential("prod /1", "sk-aaaa")], pair_key("api", "prod /1"), "b") == 2


def test_the_same_label_of_another_secret_is_another_pace():
    store = MemoryStore()
    assert members(store, ["sk-aaaa"], "api/key-1", "a") == 1
    assert members(store, ["sk-bbbb"], "api/key-1", "b") == 1


def test_another_api_or_model_is_another_pace():
    store = MemoryStore()
    assert members(store, ["sk-aaaa"], "api/one/key-1", "a") == 1
    assert members(store, ["sk-aaaa"], "api/two/key-1", "b") == 1


def test_a_group_goes_by_its_name_whoever_is_in_it():
    store = MemoryStore()
    assert members(store, [Credential("a", "sk-aaaa", "org")], "api/org", "a") == 1
    assert members(store, [Credential("b", "sk-bbbb", "org")], "api/org", "b") == 2


def test_a_key_without_a_credential_stays_as_it_is():
    store = MemoryStore()
    assert members(store, None, "api/model", "a") == 1
    assert members(store, ["sk-aaaa"], "api/model", "b") == 2


def test_on_a_server_all_machines_agree(redis_server, monkeypatch, tmp_path):
    for number, label in enumerate(("one", "two"), 1):
        monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / label))  # users with secrets of their own
        store = RedisCredentialStore(redis_server.url, timeout=5.0)
        assert members(store, [Credential(label, "sk-aaaa")], f"api/{label}", label) == number
        store.close()


def test_permits_of_a_quota_that_no_other_process_finds_are_not_used(redis_server):
    store = RedisCredentialStore(redis_server.url, timeout=5.0)
    keys = CredentialCoordinator(["sk-aaaa"])
    paired = PairedStore(store, lambda _: keys)
    paired.sync([("api/key-1", SyncRequest(member="a", number=1, terms=TERMS))])
    redis_server.ask(b"FLUSHALL")
    redis_server.ask(b"SET headgate:salt another")
    with pytest.raises(StoreDown, match="lost its data"):
        paired.sync([("api/key-1", SyncRequest(member="a", number=2, terms=TERMS))])
    (reply,) = paired.sync([("api/key-1", SyncRequest(member="a", number=3, terms=TERMS))])
    assert reply.members == 1
    store.close()


def test_a_limiter_shares_through_it_and_says_with_how_many():
    store, keys = MemoryStore(), CredentialCoordinator(["sk-aaaa"])
    config = RateLimitConfig(initial_rps=1000.0)
    limiters = [AdaptiveRateLimiter(config, store=PairedStore(store, lambda _: keys)) for _ in range(2)]
    for limiter in (*limiters, *limiters):
        with limiter.permit("api/key-1") as permit:
            permit.report(status_code=200)
    seen = limiters[0].look_at_sharing()
    assert (seen.where, seen.members, seen.is_lost, seen.failures) == ("memory", 2, False, 0)
    assert limiters[0].snapshot().sharing == limiters[0].look_at_sharing()
    assert (len(store.snapshot()), AdaptiveRateLimiter().look_at_sharing()) == (1, None)
    assert "sk-aaaa" not in repr(store.snapshot())
    for limiter in limiters:
        limiter.close()
