"""What every test gets: a state folder of its own, never the one of whoever runs the tests. And a Redis, if it asks."""

import signal
import sys
from itertools import count
from pathlib import Path

import pytest
from bench.redis_server import RedisServer
from hypothesis import HealthCheck, settings

from headgate.stores import patience

HERE = Path(__file__).parent

# An example of milliseconds takes two seconds on a machine that stands still for two, and is not to blame.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell does to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start would ignore it too


OVER_AND_OVER = (
    "batch/test_runner_scale.py",
    "core/control/test_adaptive*.py",
    "core/sharing/test_desk_town.py",
    "core/test_gate_machine.py",
    "crawl/test_extract_broken.py",
    "credentials/test_schedules.py",
    "integrations/test_nothing_is_lost.py",
    "integrations/test_sdks.py",
    "issues/test_idle.py",
    "limiter/test_runs.py",
    "limiter/test_shared_*.py",
    "observe/test_trace_replay.py",
    "providers/test_reading.py",
    "sim/baselines/test_table.py",
    "sim/test_following.py",
    "sim/test_plug_shared.py",
    "sim/test_whatif.py",
    "stores/test_redis_equivalence.py",
    "wire/test_hostile.py",
)
"""Tests that pass the same lines a million times: to count them would take three times as long as the tests."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    tracer = sys.gettrace()
    if type(tracer).__module__ != "coverage" or not any(map(item.path.relative_to(HERE).match, OVER_AND_OVER)):
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory):
    """Names of folders that nobody has used; making one for each test would cost more than most of the tests."""
    return map(tmp_path_factory.mktemp("states").joinpath, map(str, count()))


@pytest.fixture(autouse=True)
def state_folder(state_folders, monkeypatch):
    monkeypatch.setenv("HEADGATE_STATE", str(next(state_folders)))


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
