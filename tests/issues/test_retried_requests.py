"""A request that was sent again holds its permit and is reported like any other.

The client closes the response of the failed attempt when the next has begun. That ended the call that was under way:
its permit went back at once, and its success was never reported.
"""

from __future__ import annotations

import json
import random

import httpx2
import pytest

from headgate import Passing, RateLimitConfig
from headgate.integrations.httpx2 import GatedTransport

ERROR = json.dumps({"error": {"message": "busy"}}).encode()


class Stream(httpx2.SyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self):
        yield self._body


class Server(httpx2.BaseTransport):
    """Fails once, then answers; with bodies that are read from the network."""

    def __init__(self) -> None:
        self.answers = [(503, ERROR), (200, b"fine")]

    def handle_request(self, request):
        status, body = self.answers.pop(0)
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        return httpx2.Response(status, headers=headers, stream=Stream(body))


@pytest.mark.parametrize("is_read", [False, True])
def test_the_permit_is_held_to_the_end_of_the_body_and_success_is_reported(is_read):
    events = []
    config = RateLimitConfig(initial_rps=1000, retry_base_delay=0.001, retry_max_delay=0.002)
    passing = Passing(config=config, on_event=events.append, rng=random.Random(1))
    client = httpx2.Client(transport=GatedTransport(Server(), passing=passing))
    with client, client.stream("GET", "https://api.example.com/") as response:
        (key,) = passing.limiter.snapshot().keys
        assert (response.status_code, key.in_flight) == (200, 1)
        if is_read:
            response.read()
    (key,) = passing.limiter.snapshot().keys
    assert (key.in_flight, key.answers, key.failed) == (0, 2, 1)
    kinds = [(event.event_type, event.error_type) for event in events if event.event_type != "rate_limit_wait"]
    end = ("request_success", None) if is_read else ("request_failure", "left_early")
    assert kinds == [("retry_attempt", "overloaded"), end]
