"""What every test gets: a state folder of its own, never the one of whoever runs the tests. And a Redis, if it asks."""

import signal

import pytest
from bench.redis_server import RedisServer

from headgate.stores import patience

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell does to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start would ignore it too


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def patient(monkeypatch):
    """Stores wait for as long as their timeout says, however quick they have been: a machine that stands still for a
    moment is no fault of theirs."""
    monkeypatch.setattr(patience, "LEAST", 60.0)


@pytest.fixture(scope="session")
def shared_redis():
    """A real server, started for the first test that needs it."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_server(shared_redis):
    """The same, empty."""
    assert shared_redis.ask(b"FLUSHALL") == b"+OK\r\n"
    return shared_redis
