"""Research against the mock of all search APIs, over real loopback sockets.

Delays are real, and milliseconds; for what takes longer, the clock is put forward.
"""

import asyncio
import time

import pytest

from headgate.clock import SystemClock
from headgate.core.decision import CircuitState
from headgate.credentials import Credential, CredentialCoordinator
from headgate.errors import ProviderError
from headgate.mock.api import MockPlan
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.providers import PROVIDERS
from headgate.research import DeepResearch
from headgate.resilience import ProviderResilienceConfig, ProviderResilienceManager, RateLimiterConfig
from headgate.units import Rate

RECOVERY = 30.0
PACE = RateLimiterConfig(requests_per_second=500.0, burst_limit=100, strategy="aimd", ceiling=False)
QUICK = ProviderResilienceConfig(rate_limiter=PACE, base_delay=0.005, max_delay=0.01, recovery_timeout=RECOVERY)


class AdvancingClock(SystemClock):
    """The real one, which a test may put forward."""

    runs_loop_timers = runs_in_real_time = False
    ahead = 0.0

    def now(self):
        return time.monotonic() + self.ahead


class World:
    """A mock server, and research that takes it for the real thing."""

    def __init__(self, server):
        self.server = server
        self.events = []
        self.clock = AdvancingClock()
        self.manager = ProviderResilienceManager(clock=self.clock, on_event=self.events.append)

    def provider(self, name, *secrets, timeout=5.0):
        settings = {"base_url": self.server.base_url(name), "manager": self.manager, "timeout": timeout}
        if name == "google":
            settings["engine_id"] = "engine"
        keys = [Credential(f"{name}-{number}", secret) for number, secret in enumerate(secrets or ("a-key-of-mine",))]
        keys = CredentialCoordinator(keys, at_once=None, provider=name)
        return PROVIDERS[name](resilience_config=QUICK, credentials=keys, **settings)

    def research(self, *providers, **settings):
        made = [self.provider(each) if isinstance(each, str) else each for each in providers]
        return DeepResearch(made, manager=self.manager, **settings)

    def fault(self, name, times=1, **fault):
        self.server.services[name].faults.add(Fault(**fault), times)

    def calls(self, name):
        return len(self.server.services[name].asked)

    async def open_circuit(self, name):
        provider = self.provider(name)
        self.fault(name, times=5, trouble="server_error")
        while self.manager.is_provider_available(name):
            with pytest.raises(ProviderError):
                await provider.search("gates")
        self.server.services[name].faults.clear()
        self.server.services[name].asked.clear()

    async def half_open_circuit(self, name):
        await self.open_circuit(name)
        self.clock.ahead += RECOVERY
        assert self.manager.get_breaker_state(name) is CircuitState.HALF_OPEN


@pytest.fixture
def run():
    """``run(scenario)`` awaits ``scenario(world)``."""

    def run(scenario, **settings):
        async def main():
            plan = MockPlan(rate=Rate(10_000.0), latency=0.0)
            async with MockServer(plan, providers=tuple(PROVIDERS), **settings) as server:
                return await scenario(World(server))

        return asyncio.run(main())

    return run


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))
