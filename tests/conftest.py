"""What every test gets: folders for state and configuration of its own, never the user's. And a real Redis, if it asks.

Tests that pass the same lines a million times carry pytest-cov's marker ``no_cover``: counting the lines would take
three times as long as the tests, and other tests reach them too. So it is with every test of hypothesis.
"""

import gc
import signal
import socketserver
import sys
import threading
from contextlib import contextmanager
from importlib.machinery import PathFinder
from itertools import count

import pytest
from bench.redis_server import RedisServer
from hypothesis import HealthCheck, is_hypothesis_test, settings

from headgate.distributed import store as distributed_store

# An example of milliseconds takes two seconds on a machine that stands still for two, and is not to blame.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell does to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start would ignore it too

# The standard library's servers let 5 connections wait to be accepted. Those of a burst beyond that are dropped, and
# their clients try again after a second, in which a test does nothing.
socketserver.TCPServer.request_queue_size = 128

OFF = None, None
"""No tracer in this thread, none in those that it starts."""


def _installed():
    return sys.gettrace(), threading.gettrace()


def _install(tracers):
    threading.settrace(tracers[1])
    sys.settrace(tracers[0])


class CountedLines:
    """Has coverage count the lines of headgate's imports, of fixtures and of tests only.

    Counting slows all code down, not only what is measured: pytest's own work and the import of other packages would
    take twice as long, in every worker.
    """

    def __init__(self):
        self._counter = OFF

    def take_over(self):
        """Switch off what coverage has installed, to switch it on where it is wanted. A debugger is left alone.

        Without workers pytest-cov stops at a test marked ``no_cover`` and installs another tracer after it.
        """
        installed = _installed()
        if installed[0] is not self._counter[0] and type(installed[0]).__module__.startswith("coverage"):
            self._counter = installed
            _install(OFF)

    @contextmanager
    def counting(self, wanted=True):
        self.take_over()
        if self._counter is OFF:
            yield
            return
        before = _installed()
        _install(self._counter if wanted else OFF)
        try:
            yield
        finally:
            _install(before)

    def find_spec(self, name, path=None, target=None):
        """A finder for ``sys.meta_path``: headgate's modules are found as ever, and their lines are counted."""
        if name.partition(".")[0] != "headgate" or (spec := PathFinder.find_spec(name, path, target)) is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            with self.counting():
                execute(module)

        spec.loader.exec_module = exec_module
        return spec


counted_lines = CountedLines()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without counting lines of other packages, and leave all that is made to no garbage collector: going
    through it again and again would take a third of the time here, and a second for each ``gc.collect()`` of a test."""
    counted_lines.take_over()
    sys.meta_path.insert(0, counted_lines)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        sys.meta_path.remove(counted_lines)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_fixture_setup():
    with counted_lines.counting():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item):
    repeats = is_hypothesis_test(getattr(item, "obj", None)) or item.get_closest_marker("no_cover") is not None
    with counted_lines.counting(not repeats):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown():
    with counted_lines.counting():
        return (yield)


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory):
    """Names of folders that nobody has used; making one for each test would cost more than most of the tests."""
    return map(tmp_path_factory.mktemp("states").joinpath, map(str, count()))


@pytest.fixture(autouse=True)
def state_folder(state_folders, monkeypatch):
    folder = str(next(state_folders))
    monkeypatch.setenv("HEADGATE_STATE", folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", folder)
    monkeypatch.delenv("HEADGATE_CONFIG", raising=False)


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
def redis_server(shared_redis, patient):
    """The same, empty; its clients allow for stalls of the machine."""
    assert shared_redis.ask(b"FLUSHALL") == b"+OK\r\n"
    return shared_redis
