"""Leases: the answer itself decides what becomes of the credential, and each goes back exactly once."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace

import aiohttp
import httpx2
import pytest
import requests

from headgate import Outcome, Signal
from headgate.core.signal import Limit
from headgate.credentials import Credential, CredentialCoordinator
from headgate.errors import (
    AuthenticationError,
    ConfigError,
    NoCredentialError,
    ProviderError,
    RateLimitError,
    WaitTooLongError,
)
from headgate.lab.virtual_time import VirtualClock


def coordinator(*keys: str | Credential, **more: object) -> tuple[CredentialCoordinator, VirtualClock]:
    clock = VirtualClock()
    return CredentialCoordinator(keys or ["a"], clock=clock, **more), clock  # type: ignore[arg-type]


def state(keys: CredentialCoordinator, label: str = "key-1") -> str:
    return next(one.state for one in keys.states() if one.label == label)


def answer(status: int, **headers: str) -> SimpleNamespace:
    return SimpleNamespace(status_code=status, headers={name.replace("_", "-"): text for name, text in headers.items()})


def test_a_lease_has_the_secret_and_the_label() -> None:
    keys, _ = coordinator(Credential("alice", "sk-1"))
    with keys.lease() as lease:
        assert (lease.secret, lease.label) == ("sk-1", "alice")
        assert state(keys, "alice") == "held"
    assert state(keys, "alice") == "free"


@pytest.mark.parametrize(
    ("given", "outcome", "becomes", "seconds"),
    [
        (answer(200), Outcome.OK, "free", None),
        (answer(429, retry_after="60"), Outcome.RATE_LIMITED, "resting", 60.0),
        (answer(432), Outcome.QUOTA_EXHAUSTED, "resting", 3600.0),
        (answer(401), Outcome.AUTH, "retired", None),
        (answer(402), Outcome.KEY_DEAD, "retired", None),
        (answer(503, retry_after="60"), Outcome.OVERLOADED, "free", None),
        (answer(500), Outcome.TRANSIENT, "free", None),
        (answer(400), Outcome.INVALID, "free", None),
        (TimeoutError(), Outcome.TRANSIENT, "free", None),
        (RateLimitError("api", "slow down", retry_after=20), Outcome.RATE_LIMITED, "resting", 20.0),
        (RateLimitError("api", "slow down", status_code=429, retry_after=9), Outcome.RATE_LIMITED, "resting", 9.0),
        (AuthenticationError("api", "no"), Outcome.AUTH, "retired", None),
        (ProviderError("api", "broken", status_code=502), Outcome.TRANSIENT, "free", None),
    ],
)
def test_the_answer_decides(given: object, outcome: Outcome, becomes: str, seconds: float | None) -> None:
    keys, _ = coordinator()
    with keys.lease() as lease:
        assert lease.report(given) is outcome
        assert lease.ended
    (seen,) = keys.states()
    assert (seen.state, seen.back_in) == (becomes, seconds)


def test_a_signal_decides_too() -> None:
    keys, _ = coordinator()
    assert keys.acquire().report(signal=Signal(outcome=Outcome.RATE_LIMITED, retry_after=5.0)) is Outcome.RATE_LIMITED
    assert keys.states()[0].back_in == 5.0


def test_an_exception_that_leaves_the_block_is_heard_and_goes_on() -> None:
    keys, _ = coordinator()
    with pytest.raises(RateLimitError), keys.lease():
        raise RateLimitError("api", "slow down", retry_after=20)
    assert state(keys) == "resting"


@pytest.mark.parametrize("error", [WaitTooLongError("api", "busy"), KeyboardInterrupt(), ValueError("mine")])
def test_an_exception_that_says_nothing_of_the_credential_frees_it(error: BaseException) -> None:
    keys, _ = coordinator()
    with pytest.raises(type(error)), keys.lease():
        raise error
    assert state(keys) == "free"


def test_an_error_that_cannot_be_looked_at_does_not_take_the_place_of_itself() -> None:
    class Hostile(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError("look away")

    keys, _ = coordinator()
    with pytest.raises(Hostile), keys.lease():
        raise Hostile
    assert state(keys) == "free"


def test_a_report_of_nothing_is_an_error_and_the_lease_still_goes_back() -> None:
    keys, _ = coordinator()
    with pytest.raises(TypeError), keys.lease() as lease:
        lease.report()
    assert state(keys) == "free"


def test_ending_twice_is_harmless() -> None:
    keys, _ = coordinator(at_once=1)
    first = keys.acquire()
    first.release()
    second = keys.acquire()
    first.release()
    first.report(answer(429, retry_after="60"))
    assert state(keys) == "held"
    assert keys.try_acquire() is None
    second.release()


def test_a_lease_is_for_one_block() -> None:
    keys, _ = coordinator()
    lease = keys.lease()
    with pytest.raises(RuntimeError, match="not started"):
        _ = lease.secret
    with lease:
        pass
    with pytest.raises(RuntimeError, match="has ended"), lease:
        pass


def test_one_that_was_acquired_can_be_used_as_a_block() -> None:
    keys, _ = coordinator()
    with keys.acquire() as lease:
        assert lease.label == "key-1"
    assert state(keys) == "free"


def test_a_forgotten_lease_goes_back() -> None:
    keys, _ = coordinator()
    keys.acquire()
    gc.collect()
    assert state(keys) == "free"


def test_a_forgotten_lease_that_comes_back_to_life_is_not_given_back_twice() -> None:
    keys, _ = coordinator()
    kept = []

    class Holder:
        def __init__(self) -> None:
            self.itself, self.lease = self, keys.acquire()

        def __del__(self) -> None:
            kept.append(self.lease)

    Holder()
    gc.collect()
    kept.pop().release()
    assert state(keys) == "free"


def test_the_preferred_one_is_given_if_it_is_free() -> None:
    keys, _ = coordinator("a", "b")
    assert keys.acquire(prefer="key-2").label == "key-2"


def test_budgets_are_learned_from_answers() -> None:
    keys, _ = coordinator("a", "b")
    first, second = keys.acquire(), keys.acquire()
    limits = [(Limit(remaining=number, reset=60.0),) for number in (3.0, 800.0)]
    first.report(signal=Signal(outcome=Outcome.OK, limits=limits[0]))
    second.report(signal=Signal(outcome=Outcome.OK, limits=limits[1]))
    assert [one.budget for one in keys.states()] == [3, 800]
    with keys.lease() as lease:
        assert lease.label == "key-2"


def test_an_operator_parks_frees_and_retires() -> None:
    keys, clock = coordinator("sa", "sb")
    keys.park("key-1", 600)
    keys.retire("sb")
    assert [(one.state, one.reason) for one in keys.states()] == [
        ("resting", "parked by hand"),
        ("retired", "retired by hand"),
    ]
    with pytest.raises(NoCredentialError) as refusal:
        keys.acquire(timeout=1)
    assert refusal.value.earliest_reset == 600
    clock.advance(1)
    keys.free("key-1")
    keys.free("key-2")
    assert [one.state for one in keys.states()] == ["free", "free"]


def test_a_credential_may_be_retired_as_itself() -> None:
    one = Credential("a", "sa")
    keys, _ = coordinator(one, "sb")
    keys.retire(one)
    assert state(keys, "a") == "retired"


def test_an_unknown_label_is_not_repeated() -> None:
    keys, _ = coordinator()
    with pytest.raises(ConfigError, match="known are key-1") as error:
        keys.park("sk-secret", 5)
    assert "sk-secret" not in str(error.value)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_must_be_one(timeout: float) -> None:
    keys, _ = coordinator()
    with pytest.raises(ConfigError, match="timeout"):
        keys.acquire(timeout)
    with pytest.raises(ConfigError, match="seconds"):
        keys.park("key-1", timeout)


class TestRealAnswers:
    """From a server on loopback, through real clients."""

    @pytest.mark.parametrize("client", ["requests", "httpx2", "aiohttp"])
    def test_a_429_quarantines_without_any_flag(self, server, client: str) -> None:
        server.script[:] = [(429, {"Retry-After": "60"}, b"{}")]
        keys = CredentialCoordinator(["sk-1", "sk-2"])
        for _ in range(3):
            if client == "requests":
                with keys.lease() as lease:
                    lease.report(requests.get(server.url, headers={"Authorization": lease.secret}, timeout=5))
            elif client == "httpx2":
                with keys.lease() as lease:
                    lease.report(httpx2.get(server.url, headers={"Authorization": lease.secret}))
            else:

                async def call() -> None:
                    async with (
                        keys.lease() as lease,
                        aiohttp.ClientSession(headers={"Authorization": lease.secret}) as session,
                        session.get(server.url) as response,
                    ):
                        lease.report(response)

                asyncio.run(call())
        assert server.used == ["sk-1", "sk-2", "sk-2"]
        assert [one.state for one in keys.states()] == ["resting", "free"]
        assert 0 < (keys.states()[0].back_in or 0) <= 60

    def test_so_does_one_raised_by_the_client(self, server) -> None:
        server.script[:] = [(429, {"Retry-After": "60"}, b"{}")]
        keys = CredentialCoordinator(["sk-1", "sk-2"])
        with pytest.raises(requests.HTTPError), keys.lease():
            requests.get(server.url, timeout=5).raise_for_status()
        assert state(keys) == "resting"

    def test_a_daily_quota_parks_one_key_while_the_others_go_on(self, server) -> None:
        body = (
            b'{"error": {"code": 403, "message": "Daily Limit Exceeded", "errors": '
            b'[{"domain": "usageLimits", "reason": "dailyLimitExceeded", "message": "Daily Limit Exceeded"}]}}'
        )
        server.script[:] = [(403, {}, body)]
        keys = CredentialCoordinator([Credential("a", "sk-1", "org"), Credential("b", "sk-2", "org")])
        for _ in range(3):
            with keys.lease() as lease:
                lease.report(requests.get(server.url, headers={"Authorization": lease.secret}, timeout=5))
        assert server.used == ["sk-1", "sk-2", "sk-2"]
        assert [(one.state, one.reason) for one in keys.states()] == [("resting", "quota_exhausted"), ("free", "")]
        assert 60 < (keys.states()[0].back_in or 0) < 25 * 3600
