"""The manager: one for a process, what it can say about a provider, and threads that all meet at once."""

from __future__ import annotations

import threading

import pytest

from headgate.core.decision import CircuitState
from headgate.resilience import (
    ProviderResilienceConfig,
    ProviderResilienceManager,
    execute_with_resilience_sync,
    get_resilience_manager,
    reset_resilience_manager_for_testing,
)


def fail() -> None:
    raise ConnectionError


class TestLifecycle:
    def test_there_is_one_for_the_process_until_it_is_reset(self) -> None:
        first = get_resilience_manager()
        assert get_resilience_manager() is first
        reset_resilience_manager_for_testing()
        assert get_resilience_manager() is not first

    def test_calls_share_it(self) -> None:
        for _ in range(5):
            with pytest.raises(ConnectionError):
                execute_with_resilience_sync(fail, "api", max_attempts=1)
        assert get_resilience_manager().get_breaker_state("api") is CircuitState.OPEN

    def test_a_reset_manager_has_forgotten_everything(self) -> None:
        manager = ProviderResilienceManager()
        for _ in range(5):
            with pytest.raises(ConnectionError):
                execute_with_resilience_sync(fail, "api", max_attempts=1, manager=manager)
        manager.reset_for_testing()
        assert manager.get_breaker_state("api") is CircuitState.CLOSED
        assert manager.get_provider_status("api").consecutive_failures == 0

    def test_threads_that_meet_at_once_get_the_same_one(self) -> None:
        met: set[int] = set()
        gate = threading.Barrier(8)

        def meet() -> None:
            gate.wait()
            met.add(id(get_resilience_manager()))

        threads = [threading.Thread(target=meet) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(met) == 1


class TestStatus:
    def test_an_unknown_provider_is_available_and_idle(self) -> None:
        status = ProviderResilienceManager().get_provider_status("nobody")
        assert (status.breaker_state, status.available, status.rate) == (CircuitState.CLOSED, True, None)
        assert (status.in_flight, status.waiting, status.reason) == (0, 0, "")

    def test_a_provider_that_fails(self, play) -> None:
        async def scenario(lab):
            await lab.sicken(failures=3)
            status = lab.manager.get_provider_status("api")
            assert (status.provider, status.consecutive_failures, status.available) == ("api", 3, True)
            await lab.sicken(failures=2)
            status = lab.manager.get_provider_status("api")
            assert (status.breaker_state, status.available) == (CircuitState.OPEN, False)
            assert "circuit open" in status.reason

        play(scenario)

    def test_looking_uses_up_no_probe(self, play) -> None:
        async def scenario(lab):
            await lab.sicken(resilience_config=lab.config(recovery_timeout=1.0))
            lab.clock.advance(1.0)
            for _ in range(10):
                assert lab.manager.get_breaker_state("api") is CircuitState.HALF_OPEN
                assert lab.manager.is_provider_available("api")
            assert await lab.outcome(lab.script("fine")) == "fine"

        play(scenario)

    def test_with_credentials_the_paces_are_theirs_and_the_circuit_the_providers(self, play) -> None:
        async def scenario(lab):
            for label in ("a", "team/b ü"):
                await lab.execute(lab.script("fine"), credentials=lab.credentials(label))
            keys = {entry.key for entry in lab.manager.limiter.snapshot().keys}
            assert keys == {"api", "api/a", "api/team%2fb%20ü"}
            assert lab.manager.get_provider_status("api").rate is None

        play(scenario)

    def test_calls_with_and_without_credentials_share_the_circuit(self, play) -> None:
        async def scenario(lab):
            await lab.execute(lab.script("fine"), credentials=lab.credentials())
            await lab.sicken()
            assert lab.manager.get_breaker_state("api") is CircuitState.OPEN
            lab.manager.reset_for_testing()
            await lab.execute(lab.script("fine"))
            await lab.sicken(credentials=lab.credentials())
            assert lab.manager.get_breaker_state("api") is CircuitState.OPEN

        play(scenario)

    def test_a_host_is_one_provider_however_it_is_written(self, play) -> None:
        async def scenario(lab):
            await lab.sicken("https://API.example.com:443/v1")
            assert not lab.manager.is_provider_available("api.example.com")

        play(scenario)


def test_eight_threads_at_a_half_open_circuit_make_one_call() -> None:
    manager = ProviderResilienceManager()
    config = ProviderResilienceConfig(recovery_timeout=0.05, max_attempts=1)
    for _ in range(5):
        with pytest.raises(ConnectionError):
            execute_with_resilience_sync(fail, "api", manager=manager, resilience_config=config, max_attempts=1)
    while manager.get_breaker_state("api") is not CircuitState.HALF_OPEN:
        pass
    calls: list[int] = []
    gate, done = threading.Barrier(8), threading.Event()

    def probe() -> None:
        calls.append(1)
        done.wait(5.0)

    def caller() -> None:
        gate.wait()
        try:
            execute_with_resilience_sync(probe, "api", manager=manager, resilience_config=config)
        except Exception:
            refused.append(1)
            if len(refused) == 7:
                done.set()

    refused: list[int] = []
    threads = [threading.Thread(target=caller) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(calls), len(refused)) == (1, 7)
