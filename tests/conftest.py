"""What every test gets: a state folder of its own, never the user's. And a real Redis, if it asks.

Tests that pass the same lines a million times carry pytest-cov's marker ``no_cover``: counting the lines would take
three times as long as the tests, and other tests reach them too.
"""

import gc
import signal
import sys
import threading
from itertools import count

import pytest
from bench.redis_server import RedisServer
from hypothesis import HealthCheck, settings

from headgate.distributed import store as distributed_store

# An example of milliseconds takes two seconds on a machine that stands still for two, and is not to blame.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell does to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start would ignore it too


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item):
    """Heed ``no_cover`` in the workers of pytest-xdist too, where pytest-cov goes on tracing."""
    tracer, for_threads = sys.gettrace(), threading.gettrace()
    if tracer is None or item.get_closest_marker("no_cover") is None:
        return (yield)
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        threading.settrace(for_threads)
        sys.settrace(tracer)


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory):
    """Names of folders that nobody has used; making one for each test would cost more than most of the tests."""
    return map(tmp_path_factory.mktemp("states").joinpath, map(str, count()))


@pytest.fixture(autouse=True)
def state_folder(state_folders, monkeypatch):
    monkeypatch.setenv("HEADGATE_STATE", str(next(state_folders)))


@pytest.fixture
def quick_gc():
    """``gc.collect()`` looks only at what the test has made; all that was there before would take a second."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def patient(monkeypatch):
    """Stores wait for as long as their timeout says, however quick they have been: a machine that stands still for a
    moment is no fault of theirs."""
    monkeypatch.setattr(distributed_store, "SHORTEST_TIMEOUT", 60.0)


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
