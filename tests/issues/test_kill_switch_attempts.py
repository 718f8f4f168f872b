"""With the kill switch off a call is sent at most ``max_attempts`` times, whatever it ends in."""

from __future__ import annotations

import pytest

from headgate import CredentialCoordinator, ProviderResilienceManager, execute_with_resilience
from headgate.lab.virtual_time import LoopClock, run


class Answer:
    def __init__(self, status: int) -> None:
        self.status_code, self.headers, self.content = status, {}, b""


def sent(status: int, *, keys: int = 0, **options: int) -> int:
    calls = 0

    async def ask() -> Answer:
        nonlocal calls
        calls += 1
        return Answer(status)

    async def scenario(clock: LoopClock) -> None:
        credentials = CredentialCoordinator([f"secret-{n}" for n in range(keys)], clock=clock) if keys else None
        manager = ProviderResilienceManager(clock=clock)
        await execute_with_resilience(ask, "api", manager=manager, credentials=credentials, **options)

    run(scenario)
    return calls


@pytest.fixture(autouse=True, params=["HEADGATE_ENHANCED_RESILIENCE", "HEADGATE_ENHANCED_RESILIENCE_API"])
def _off(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(request.param, "false")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_plain_retries_are_bounded(status: int) -> None:
    assert sent(status) == 3
    assert sent(status, max_attempts=1) == 1
    assert sent(status, max_attempts=5) == 5


def test_other_credentials_are_bounded_too() -> None:
    assert sent(401, keys=5) == 3
    assert sent(401, keys=2) == 2
    assert sent(401) == 1
