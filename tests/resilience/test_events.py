"""What listeners are told: six kinds of events, with their fields, and one last word for each call."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime

import pytest

from headgate.resilience import ProviderResilienceManager, RateLimiterConfig, execute_with_resilience

WALL = datetime.fromtimestamp(1_800_000_000, UTC)


def test_a_success_after_a_retry(play, http_error) -> None:
    async def scenario(lab):
        await lab.execute(lab.script(http_error(503, {"retry-after": "2"}), "fine"), correlation_id="abc")
        retry, *_, success = lab.events
        assert (retry.event_type, retry.provider, retry.timestamp) == ("retry_attempt", "api", WALL)
        assert (retry.attempt, retry.max_attempts) == (2, 3)
        assert 2000 <= retry.wait_ms <= 2200
        assert (retry.error_type, retry.error_classification) == ("overloaded", "overloaded")
        assert (retry.budget_remaining_ms, retry.correlation_id) == (60_000, "abc")
        assert (success.event_type, success.attempt, success.breaker_state) == ("request_success", 2, "closed")
        assert 57_700 <= success.budget_remaining_ms <= 58_000
        assert success.correlation_id == "abc"
        assert success.error_type is None

    play(scenario)


def test_waiting_for_the_limiter(play) -> None:
    async def scenario(lab):
        config = lab.config(rate_limiter=RateLimiterConfig(requests_per_second=4.0, burst_limit=1, strategy="fixed"))
        await asyncio.gather(*(lab.execute(lab.script("fine"), resilience_config=config) for _ in range(3)))
        waits = lab.told("rate_limit_wait")
        assert [event.wait_ms for event in waits] == [250, 500]
        assert [event.attempt for event in waits] == [1, 1]

    play(scenario)


def test_changes_of_the_circuit(play) -> None:
    async def scenario(lab):
        await lab.sicken()
        await asyncio.sleep(30.0)
        await lab.execute(lab.script("fine"))
        changes = lab.told("circuit_state_change")
        assert [event.breaker_state for event in changes] == ["open", "half_open", "closed"]
        assert {event.provider for event in changes} == {"api"}

    play(scenario)


def test_a_final_failure(play, http_error) -> None:
    async def scenario(lab):
        await lab.outcome(lab.script(http_error(500)))
        *retries, failure = lab.events
        assert [event.event_type for event in retries] == ["retry_attempt"] * 2
        assert (failure.event_type, failure.attempt, failure.max_attempts) == ("request_failure", 3, 3)
        assert (failure.error_type, failure.error_classification) == ("server_error", "transient")
        assert failure.breaker_state == "closed"

    play(scenario)


def test_a_budget_that_is_exceeded(play) -> None:
    async def scenario(lab):
        await lab.outcome(lab.script("late", takes=9.0), time_budget=2.0)
        (event,) = lab.events
        assert (event.event_type, event.attempt, event.budget_remaining_ms) == ("budget_exceeded", 1, 0)

    play(scenario)


def test_a_refusal_says_which(play) -> None:
    async def scenario(lab):
        await lab.sicken()
        lab.events.clear()
        await lab.outcome(lab.script("never asked"))
        (event,) = lab.events
        assert (event.event_type, event.error_type, event.error_classification) == (
            "request_failure",
            "circuit_open",
            "refused",
        )
        assert event.breaker_state == "open"

    play(scenario)


def test_a_cancelled_call_has_its_last_word_too(play) -> None:
    async def scenario(lab):
        task = asyncio.create_task(lab.execute(lab.script("late", takes=9.0)))
        await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        (event,) = lab.events
        assert (event.event_type, event.error_type) == ("request_failure", "cancelled")
        assert event.error_classification == "abandoned"

    play(scenario)


def test_a_credential_is_named_by_its_label(play, http_error) -> None:
    async def scenario(lab):
        await lab.execute(lab.script(http_error(401), "fine"), credentials=lab.credentials())
        assert [(event.event_type, event.credential) for event in lab.events] == [
            ("retry_attempt", "key-1"),
            ("request_success", "key-2"),
        ]

    play(scenario)


def test_every_call_has_exactly_one_last_word(play, http_error) -> None:
    async def scenario(lab):
        rng = random.Random(3)
        answers = ["fine", http_error(500), http_error(429), http_error(404), ValueError()]
        for _ in range(200):
            script = lab.script(*rng.choices(answers, k=4), takes=rng.choice([0.0, 0.5]))
            await lab.outcome(script, time_budget=rng.choice([0.3, 5.0, 60.0]))
            await asyncio.sleep(rng.choice([0.0, 31.0]))
        last_words = ("request_success", "request_failure", "budget_exceeded")
        ids = [event.correlation_id for event in lab.events if event.event_type in last_words]
        assert len(ids) == len(set(ids)) == 200

    play(scenario)


def test_a_correlation_id_is_made_up_once_and_the_same_with_the_same_seed(play) -> None:
    async def scenario(lab):
        async def func(ctx):
            seen.append(ctx.correlation_id)
            raise ConnectionError

        seen: list[str] = []
        await lab.outcome(func)
        assert len(set(seen)) == 1
        assert {event.correlation_id for event in lab.events} == set(seen)
        return seen[0]

    assert play(scenario) == play(scenario)


def test_a_listener_that_raises_costs_nobody_a_call(caplog) -> None:
    def listener(event):
        raise RuntimeError("a slip")

    async def main() -> str:
        async def func() -> str:
            return "fine"

        manager = ProviderResilienceManager(on_event=listener)
        return await execute_with_resilience(func, "api", manager=manager)

    with caplog.at_level(logging.ERROR, "headgate"):
        assert asyncio.run(main()) == "fine"
    assert "failed on request_success of api" in caplog.text


@pytest.mark.parametrize("listens", [True, False])
def test_the_same_seed_gives_the_same_run(play, http_error, listens) -> None:
    async def scenario(lab):
        if not listens:
            lab.manager.on_event = None
        script = lab.script(http_error(500), http_error(429), "fine")
        await lab.execute(script)
        return script.called_at

    assert play(scenario) == play(scenario)
