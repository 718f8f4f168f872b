"""What every test gets: a state folder of its own, never the one of whoever runs the tests. And a Redis, if it asks."""

import signal
from pathlib import Path

import pytest
from bench.redis_server import RedisServer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell does to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start would ignore it too


LONG_RUNS = (
    "bench/",
    "chaos/",
    "core/control/",
    "core/sharing/test_desk_town.py",
    "credentials/test_far_store.py",
    "credentials/test_schedules.py",
    "issues/",
    "limiter/test_shared_",
    "sim/",
    "stores/test_redis_equivalence.py",
    "wire/test_hostile.py",
)
"""Thousands of calls each: to note every line they pass takes four times as long as to run them. Shorter tests pass the
same lines, so these count for no coverage."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.relative_to(Path(__file__).parent).as_posix().startswith(LONG_RUNS):
            item.add_marker("no_cover")


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path_factory.mktemp("state")))


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
