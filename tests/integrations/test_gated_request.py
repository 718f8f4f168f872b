"""The seam of all clients, with the smallest client there is: one that takes its responses from a list."""

from __future__ import annotations

import gc
import json
import random
import weakref
from contextlib import suppress
from functools import partial

import pytest
from tests.quota_spent import quota_spent

from headgate import CircuitOpenError, Outcome, Passing, RateLimitConfig, VirtualClock, WaitTooLongError
from headgate.errors import Refused
from headgate.integrations.client_gate import as_client_error, refusal_kinds
from headgate.integrations.request import OutgoingRequest

HOST = "api.example.com"
URL = f"https://{HOST}/v1/chat/completions"


class Response:
    def __init__(self, status, body=b"", headers=()):
        self.status, self.body, self.headers, self.is_closed = status, body, dict(headers), False

    def close(self):
        self.is_closed = True


class Client:
    """Sends what it is given responses, or errors, for."""

    def __init__(self, *responses, **settings):
        self.responses, self.sent = list(responses), []
        self.clock = VirtualClock()
        config = settings.pop("config", RateLimitConfig(initial_rps=100, token_bucket_capacity=100))
        self.gate = Passing(config=config, clock=self.clock, rng=random.Random(5), **settings)

    def request(self, method="GET", **errors):
        self.gated = self.gate.begin(OutgoingRequest(method, URL, {}, b"{}"), **errors)
        return self.gated.send_sync(self._send, self._receive, Response.close)

    def _send(self):
        response = self.responses[len(self.sent)]
        self.sent.append(response)
        if isinstance(response, Exception):
            raise response
        return response

    def _receive(self, response):
        self.gated.on_response(response.status, response.headers, response.body)
        return response

    @property
    def seen(self):
        (key,) = self.gate.limiter.snapshot().keys
        return key


def test_a_good_answer_holds_its_permit_until_it_is_complete():
    client = Client(Response(200))
    client.request()
    assert client.seen.in_flight == 1
    client.gated.complete()
    client.gated.abandon()
    assert (client.seen.in_flight, client.seen.answers, client.seen.failed) == (0, 1, 0)


@pytest.mark.parametrize("status", [200, 400, 503])
def test_a_request_that_has_ended_is_freed_without_the_garbage_collector(status):
    client = Client(*[Response(status)] * 9)
    gc.disable()
    try:
        with suppress(Refused):
            client.request()
        client.gated.complete()
        ended = weakref.ref(client.gated)
        del client.gated
        assert ended() is None
    finally:
        gc.enable()


def test_a_response_is_closed_before_the_request_is_sent_again():
    client = Client(Response(503), Response(200))
    last = client.request()
    assert [response.is_closed for response in client.sent] == [True, False]
    assert last is client.sent[1]
    assert client.clock.now() > 0.0, "after one wait"


def test_what_may_not_be_sent_twice_is_handed_to_the_client():
    client = Client(Response(503))
    assert client.request("POST").status == 503
    assert (client.seen.in_flight, client.seen.failed, client.sent[0].is_closed) == (0, 1, False)


def test_one_that_was_turned_away_goes_again_when_the_server_says():
    client = Client(Response(429, headers={"retry-after": "20"}), Response(200))
    assert client.request("POST").status == 200
    assert 20.0 <= client.clock.now() <= 22.0


def test_a_longer_wait_than_allowed_is_not_begun():
    client = Client(Response(429, headers={"retry-after": "20"}), max_wait=10)
    assert client.request().status == 429
    assert client.clock.now() == 0.0


class NoConnection(ConnectionError): ...


class NoRoomInPool(Exception): ...


def test_what_was_not_sent_goes_again_and_the_clients_own_errors_do_not():
    client = Client(NoConnection(), Response(200))
    assert client.request("POST", unsent=(NoConnection,)).status == 200
    client = Client(NoRoomInPool())
    with pytest.raises(NoRoomInPool):
        client.request(client_errors=(NoRoomInPool,))
    assert (client.seen.in_flight, client.seen.answers, client.seen.sent) == (0, 0, 1)


def test_the_tokens_of_an_answer_are_settled():
    client = Client(
        Response(200, headers={"content-type": "application/json"}), config=None, limits={"tokens": "100000/min"}
    )
    client.request("POST")
    client.gated.on_chunk(json.dumps({"usage": {"prompt_tokens": 70, "completion_tokens": 7}}).encode())
    client.gated.complete()
    assert quota_spent(client.gate.limiter, HOST) == 77


def test_an_error_inside_a_good_answer_counts():
    client = Client(Response(200, headers={"content-type": "text/event-stream"}))
    client.request("POST")
    client.gated.on_chunk(b'data: {"type": "error", "error": {"type": "overloaded_error"}}\n\n')
    client.gated.complete()
    assert (client.seen.answers, client.seen.failed) == (1, 1)


def test_one_that_breaks_off_counts_and_one_that_is_left_does_not():
    client = Client(Response(200))
    client.request()
    client.gated.fail(ConnectionError())
    assert (client.seen.in_flight, client.seen.failed) == (0, 1)
    client = Client(Response(200))
    client.request()
    client.gated.abandon(KeyboardInterrupt())
    assert (client.seen.in_flight, client.seen.answers) == (0, 0)


def test_the_outcome_of_a_response_is_told_at_once():
    client = Client(Response(200))
    client.request()
    assert client.gated.on_response(429, None) is Outcome.RATE_LIMITED


class TimedOut(WaitTooLongError): ...


class Closed(CircuitOpenError): ...


def test_a_refusal_is_raised_as_the_clients_own_error():
    client = Client(when_open="refuse", config=RateLimitConfig(consecutive_fail_threshold=1, retry_max_delay=0.2))
    client.responses = [Response(503)]
    client.request("POST")
    kinds = refusal_kinds(TimedOut, Refused, Closed, Refused)
    gated = client.gate.begin(OutgoingRequest("GET", URL))
    with pytest.raises(Closed) as refusal:
        gated.send_sync(client._send, client._receive, Response.close, partial(as_client_error, kinds=kinds))
    assert (refusal.value.key, refusal.value.code, refusal.value.sent) == (HOST, "circuit_open", False)
    assert len(client.sent) == 1
