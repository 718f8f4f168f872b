"""Providers against the mock that speaks them, over real loopback sockets, with the gate and with the kill switch.

The delays configured here are real, since sockets are; they are milliseconds.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.mock.api import MockPlan
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.providers import PROVIDERS
from headgate.resilience import ProviderResilienceConfig, ProviderResilienceManager, RateLimiterConfig
from headgate.units import Rate

HERE = Path(__file__).parent
SWITCH = "HEADGATE_ENHANCED_RESILIENCE"
KEY = "sesame-" + "k" * 25
QUERIES = {"tavily_extract": "https://example.org/gates/1"}


def quick(**settings):
    """Limits and delays that cost a test no time."""
    pace = RateLimiterConfig(requests_per_second=500.0, burst_limit=100, strategy="aimd", ceiling=False)
    usual = {"rate_limiter": pace, "base_delay": 0.005, "max_delay": 0.01, "recovery_timeout": 0.2, "time_budget": 10.0}
    return ProviderResilienceConfig(**(usual | settings))


class World:
    """A mock server, and providers that take it for the real thing."""

    def __init__(self, server):
        self.server = server
        self.events = []
        self.manager = ProviderResilienceManager(on_event=self.events.append)

    def provider(self, name, api_key=KEY, *, config=None, **settings):
        settings = {"base_url": self.server.base_url(name), "manager": self.manager, "timeout": 5.0} | settings
        if name == "google":
            settings["engine_id"] = "engine"
        if "credentials" not in settings:
            settings["api_key"] = api_key
        return PROVIDERS[name](resilience_config=config or quick(), **settings)

    def fault(self, name, times=1, **fault):
        self.server.services[name].faults.add(Fault(**fault), times)

    def asked(self, name):
        return list(self.server.services[name].asked)

    def calls(self, name):
        return len(self.server.services[name].asked)

    async def search(self, name, **settings):
        return await self.provider(name, **settings).search(QUERIES.get(name, "gates"), max_results=3)


def pytest_collection_modifyitems(items):
    """Of a matrix, ``make test`` runs the first case and those that differ from it in one parameter; the rest is
    ``make chaos``. The corners cover every provider, every row and both ways of calling."""
    first = {}
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or item.path.parent != HERE or len(callspec.params) < 2:
            continue
        base = first.setdefault(item.originalname, callspec.params)
        if sum(callspec.params[name] != value for name, value in base.items()) > 1:
            item.add_marker("chaos")


@pytest.fixture
def run():
    """``run(scenario)`` awaits ``scenario(world)``."""

    def run(scenario, plan=None, **settings):
        async def main():
            plan_of_all = plan or MockPlan(rate=Rate(10_000.0), latency=0.0)
            async with MockServer(plan_of_all, providers=tuple(PROVIDERS), **settings) as server:
                return await scenario(World(server))

        return asyncio.run(main())

    return run


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))


@pytest.fixture(params=["gate", "kill switch"])
def switch(request, monkeypatch):
    """Every test that takes this runs twice: through the gate, and with plain bounded retries."""
    monkeypatch.setenv(SWITCH, "true" if request.param == "gate" else "false")
    return request.param


@pytest.fixture
def settings():
    return SimpleNamespace(quick=quick, key=KEY, queries=QUERIES)
