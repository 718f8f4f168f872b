"""Addresses of a Redis: what may be written, and that none of it is shown that should not be."""

import subprocess
import sys

import pytest

from headgate.distributed.backends.redis import RedisStore
from headgate.distributed.backends.redis_connection import read_address
from headgate.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "database", "tls"),
    [
        ("redis://localhost", "server", (("localhost", 6379),), 0, False),
        ("redis://10.0.0.1:7000/3", "server", (("10.0.0.1", 7000),), 3, False),
        ("rediss://[::1]:7000", "server", (("::1", 7000),), 0, True),
        ("redis+cluster://a:1,b", "cluster", (("a", 1), ("b", 6379)), 0, False),
        ("rediss+cluster://a", "cluster", (("a", 6379),), 0, True),
        ("redis+sentinel://a,b:5/main", "sentinel", (("a", 26379), ("b", 5)), 0, False),
        ("redis+sentinel://a/main/2", "sentinel", (("a", 26379),), 2, False),
    ],
)
def test_addresses(url, kind, hosts, database, tls):
    address = read_address(url)
    assert (address.kind, address.hosts, address.database, address.tls) == (kind, hosts, database, tls)


def test_user_and_password_are_unquoted():
    address = read_address("redis://ann%40home:p%2Fw%3A1@host")
    assert (address.username, address.password) == ("ann@home", "p/w:1")


def test_a_password_needs_no_user():
    assert read_address("redis://:word@host").password == "word"


def test_options_are_read():
    address = read_address("rediss+sentinel://h/main?ssl_ca_certs=/ca.pem&sentinel_password=s3cret")
    assert address.options == {"ssl_ca_certs": "/ca.pem", "sentinel_password": "s3cret"}


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis:///0",
        "redis://user:hunter2@",
        "redis://:hunter2",
        "redis://:hun/ter2@host:6379",
        "redis://host:hunter2",
        "redis://host:0",
        "redis://host:65536",
        "redis://host:-1",
        "redis://host:٣",
        "redis://host/hunter2",
        "redis://host/1/2",
        "redis://host/10000",
        "redis://a,b",
        "redis://[::1",
        "redis://[::1]hunter2",
        "redis://host?password=hunter2",
        "redis://host?hunter2",
        "redis://host?ssl_ca_certs=/x",
        "redis+sentinel://host",
        "redis+cluster://host/1",
        "redis+cluster://" + ",".join(["h"] * 33),
        "redis+other://hunter2",
        "http://hunter2",
        "hunter2",
    ],
)
def test_a_wrong_address_is_refused_without_being_quoted(url):
    with pytest.raises(ConfigError) as refusal:
        RedisStore(url)
    shown = f"{refusal.value} {refusal.value!r} {refusal.value.__cause__}"
    assert "hunter2" not in shown
    assert "ter2" not in shown


@pytest.mark.parametrize("kind", ["redis://%s/3", "rediss://%s", "redis+cluster://%s", "redis+sentinel://%s/main"])
def test_neither_user_nor_password_is_shown(kind):
    url = kind % "somebody:hunter2@host:1234"
    store = RedisStore(url)
    shown = f"{store} {store!r} {store.where} {read_address(url)} {read_address(url)!r}"
    assert "host" in store.where
    assert "1234" in store.where
    assert "hunter2" not in shown
    assert "somebody" not in shown


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), 61.0])
def test_a_timeout_that_makes_no_sense_is_refused(timeout):
    with pytest.raises(ConfigError, match=r"timeout=.*60 seconds"):
        RedisStore("redis://host", timeout=timeout)


@pytest.mark.parametrize(
    ("missing", "error"),
    [
        ("redis", 'ConfigError: a redis store needs the client library: pip install "headgate[redis]"'),
        ("redis.client", "ModuleNotFoundError: import of redis.client halted"),
    ],
)
def test_a_missing_client_library_is_named_with_its_extra_and_a_broken_one_is_not(missing, error):
    """In a process of its own, in which it was never imported."""
    script = f"import sys; sys.modules[{missing!r}] = None; from headgate.stores import open_store; "
    ended = subprocess.run(
        [sys.executable, "-c", script + 'open_store("redis://host")'], capture_output=True, text=True
    )
    assert error in ended.stderr


def test_a_server_that_is_far_away_may_take_longer():
    assert read_address("redis://h?timeout=0.2").timeout == 0.2
    assert read_address("redis://h").timeout is None


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "61", "soon", ""])
def test_a_timeout_has_bounds(timeout):
    with pytest.raises(ConfigError, match="the timeout must be above 0 and at most 60 seconds"):
        read_address(f"redis://h?timeout={timeout}")
