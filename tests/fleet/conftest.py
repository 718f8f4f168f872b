"""Fleet runs in virtual time and on a real server, and members that say what a test wants."""

import time

import pytest

from headgate.fleet.member import FleetMember, MemberReport
from headgate.fleet.protocol import MemberRequest
from headgate.fleet.redis_state import RedisRunState
from headgate.fleet.run_state import LOST_AFTER
from headgate.fleet.settings import RowSettings
from headgate.fleet.state_store import MemoryRunState
from headgate.lab.virtual_time import VirtualClock

from .counting_api import KNOWN_LIMITS, TEMPLATE, CountingApi


class MemoryGround:
    """A store in virtual time."""

    def __init__(self):
        self.clock = VirtualClock()
        self.lost_after = LOST_AFTER
        self.store = MemoryRunState(self.clock)

    def passes(self, seconds):
        self.clock.advance(seconds)

    def forget(self):
        self.store = MemoryRunState(self.clock)


class RedisGround:
    """A store on a real server, where a member is lost sooner so that no test takes long."""

    def __init__(self, server):
        self.server = server
        self.lost_after = 0.2
        self.store = RedisRunState(server.url, timeout=5.0, lost_after=self.lost_after)

    def passes(self, seconds):
        time.sleep(seconds)

    def forget(self):
        assert self.server.ask(b"FLUSHALL") == b"+OK\r\n"


@pytest.fixture(params=["memory", "redis"])
def ground(request):
    made = MemoryGround() if request.param == "memory" else RedisGround(request.getfixturevalue("redis_server"))
    yield made
    made.store.close()


class Worker:
    """A member's requests, one after the other, by hand."""

    def __init__(self, ground, name, run="nightly", **always):
        self.ground, self.name, self.run, self.number = ground, name, run, 0
        self.always = always

    def says(self, **fields):
        self.number += 1
        request = MemberRequest(member=self.name, number=self.number, **(self.always | fields))
        return self.ground.store.exchange(self.run, request)


@pytest.fixture
def worker(ground):
    return lambda name="one-1@host", **always: Worker(ground, name, **always)


@pytest.fixture
def fleet():
    """Makes members on one store in virtual time; each has ``counts``, a dict that is its report."""
    ground = MemoryGround()
    members = []

    def join(run="nightly", caps=None, **more):
        counts = {}
        member = FleetMember(
            ground.store, run, caps=caps, report=lambda: MemberReport(**counts), clock=ground.clock, **more
        )
        member.counts = counts
        members.append(member)
        return member

    join.ground = ground
    return join


@pytest.fixture
def api():
    with CountingApi() as server:
        yield server


@pytest.fixture
def settings_for(api):
    """Under a known limit, unless a test says otherwise: learning the pace from 2 calls a second takes seconds."""

    def made(**options):
        usual = {"to": api.url, "template": TEMPLATE, "run": "nightly", "limits": KNOWN_LIMITS}
        return RowSettings(**(usual | options))

    return made
