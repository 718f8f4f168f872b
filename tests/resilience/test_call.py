"""The state machine of a call alone: a test does what its steps say, and no driver waits."""

from __future__ import annotations

import random

import pytest

from headgate import CircuitOpenError, Outcome, ProviderResilienceManager, Signal, TimeBudgetExceededError, VirtualClock
from headgate.credentials import Credential, CredentialCoordinator
from headgate.errors import WaitTooLongError
from headgate.resilience.call import Call
from headgate.resilience.call_holdings import CIRCUIT, CREDENTIAL, ENDED, OPEN, PERMIT, SEND, SENT, SLEEP, WAITING
from headgate.resilience.config import CallOptions

REFUSED = Signal(outcome=Outcome.RATE_LIMITED, retry_after=10.0)


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def manager(clock):
    return ProviderResilienceManager(clock=clock, rng=random.Random(3))


def begun(manager, *, holds_answer=False, **options):
    """A call whose attempt is under way."""
    call = Call("api", CallOptions(manager=manager, **options), holds_answer=holds_answer)
    return sent(call)


def sent(call):
    assert call.next_step() is PERMIT
    call.held.permit = call.limiter.acquire(*call.request)
    assert call.next_step() is SEND
    return call


def in_flight(manager):
    return sum(key.in_flight for key in manager.limiter.snapshot().keys)


def test_a_call_takes_a_permit_and_gives_it_back(manager):
    call = begun(manager)
    assert (call.state, in_flight(manager)) == (SENT, 1)
    call.answered("fine")
    assert (call.state, call.held.is_empty, in_flight(manager)) == (ENDED, True, 0)


class Response:
    def __init__(self, status_code):
        self.status_code, self.headers = status_code, {}


def test_an_error_is_waited_out_and_sent_again(manager, clock):
    call = begun(manager)
    call.answered(Response(503))
    assert (call.state, call.attempt, in_flight(manager)) == (WAITING, 2, 0)
    assert call.next_step() is SLEEP
    clock.advance(call.wait)
    sent(call).answered(Response(200))
    assert call.state is ENDED


def test_the_last_error_is_the_answer(manager):
    call = begun(manager, max_attempts=1)
    answer = Response(503)
    call.answered(answer)
    assert (call.state, call.response) == (ENDED, answer)


def test_a_retry_after_is_waited_for_as_long_as_the_gate_has_drawn(manager, clock):
    call = begun(manager)
    call.reported = REFUSED
    drawn_before = manager.rng.getstate()
    call.answered(None)
    assert call.next_step() is SLEEP
    assert 10.0 <= call.wait <= 11.0
    assert call.wait == pytest.approx(manager.limiter.held_for("api"))
    manager.rng.setstate(drawn_before)
    assert call.wait == pytest.approx(10.0 + manager.rng.random() * 1.0), "one draw, and it is the gate's"
    clock.advance(call.wait)
    assert call.next_step() is PERMIT
    assert manager.limiter.held_for("api") == 0.0


def test_one_for_a_whole_provider_is_drawn_once_for_the_circuit_and_for_the_pace_of_the_key(manager, clock):
    keys = CredentialCoordinator([Credential("a", "secret")], clock=clock)
    call = Call("api", CallOptions(manager=manager, credentials=keys))
    assert call.next_step() is CREDENTIAL
    call.held.lease = keys.acquire()
    assert call.next_step() is PERMIT
    call.held.permit = call.limiter.acquire(*call.request)
    assert call.next_step() is CIRCUIT
    call.held.circuit = call.limiter.acquire(*call.request)
    assert call.next_step() is SEND
    call.reported = Signal(outcome=Outcome.OVERLOADED, retry_after=10.0)
    drawn_before = manager.rng.getstate()
    call.answered(None)
    assert call.next_step() is SLEEP
    assert call.wait == pytest.approx(manager.limiter.held_for("api"))
    assert call.wait == pytest.approx(manager.limiter.held_for("api/a"))
    drawn_after = manager.rng.getstate()
    manager.rng.setstate(drawn_before)
    assert call.wait == pytest.approx(10.0 + manager.rng.random() * 1.0)
    assert manager.rng.getstate() == drawn_after, "one draw"


def test_one_that_does_not_fit_into_the_budget_is_refused_at_once(manager, clock):
    call = begun(manager, time_budget=5.0)
    call.reported = REFUSED
    with pytest.raises(TimeBudgetExceededError) as refusal:
        call.answered(None)
    assert (clock.now(), refusal.value.attempts) == (0.0, 1)
    assert refusal.value.retry_after == pytest.approx(manager.limiter.held_for("api"))


def test_with_credentials_the_pace_and_the_circuit_are_asked_apart(manager):
    class Credentials:
        labels = ("key-1",)

        def acquire(self, timeout=None): ...
        async def acquire_async(self, timeout=None): ...

    class Lease:
        label, secret = "key-1", "secret"

        def report(self, answer=None, *, signal=None): ...
        def release(self): ...

    call = Call("api", CallOptions(manager=manager, credentials=Credentials()))
    steps = []
    while (step := call.next_step()) is not SEND:
        steps.append(step)
        if step is CREDENTIAL:
            call.held.lease = Lease()
        elif step is PERMIT:
            call.held.permit = manager.limiter.acquire(*call.request)
        else:
            call.held.circuit = manager.limiter.acquire(*call.request)
    assert steps == [CREDENTIAL, PERMIT, CIRCUIT]
    assert (call.held.permit.key, call.held.circuit.key) == ("api/key-1", "api")
    call.close()
    assert call.held.is_empty
    assert in_flight(manager) == 0


def test_a_refusal_after_an_answer_gives_that_answer(manager, clock):
    call = begun(manager)
    call.answered(Response(503))
    assert call.next_step() is SLEEP
    assert not call.failed(CircuitOpenError("api", "open"))
    assert call.state is ENDED


def test_a_refusal_before_any_attempt_is_raised(manager):
    call = Call("api", CallOptions(manager=manager))
    assert call.failed(WaitTooLongError("api", "long", 40.0))


def test_an_open_answer_holds_its_permit_until_it_is_complete(manager, clock):
    call = begun(manager, holds_answer=True)
    call.answered(None)
    clock.advance(600.0)
    assert (call.state, in_flight(manager)) == (OPEN, 1)
    call.complete()
    call.complete()
    call.fail(ConnectionError())
    call.abandon()
    assert (call.state, in_flight(manager)) == (ENDED, 0)
    (key,) = manager.limiter.snapshot().keys
    assert (key.answers, key.failed, key.average_latency) == (1, 0, 0.0)


def test_one_that_breaks_off_counts_as_a_failure(manager):
    call = begun(manager, holds_answer=True)
    call.answered(None)
    call.fail(ConnectionError())
    (key,) = manager.limiter.snapshot().keys
    assert (call.state, key.failed, key.in_flight) == (ENDED, 1, 0)


def test_one_that_is_abandoned_teaches_nothing(manager):
    call = begun(manager, holds_answer=True)
    call.answered(None)
    call.abandon()
    (key,) = manager.limiter.snapshot().keys
    assert (call.state, key.answers, key.in_flight) == (ENDED, 0, 0)


def test_an_answer_before_the_one_under_way_ends_nothing(manager, clock):
    """The client closes the response of the last attempt when the next has begun."""
    call = begun(manager, holds_answer=True)
    call.reported = Signal(outcome=Outcome.TRANSIENT)
    call.answered(None)
    assert call.next_step() is SLEEP
    clock.advance(call.wait)
    sent(call).abandon()
    assert (call.state, in_flight(manager)) == (SENT, 1)


def test_a_call_that_is_cancelled_leaves_nothing(manager):
    begun(manager).close(KeyboardInterrupt())
    assert in_flight(manager) == 0
