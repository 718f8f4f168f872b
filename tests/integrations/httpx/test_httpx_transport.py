"""What the gate does for an httpx2 or httpx client, and what it leaves as it was."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
from contextlib import suppress

import pytest

from headgate import AdaptiveRateLimiter, CircuitOpenError, RateLimitConfig, TimeBudgetExceededError, WaitTooLongError
from headgate.errors import ConfigError
from headgate.integrations.client_gate import Passing
from headgate.integrations.response_reader import LARGEST_ERROR

URL = "https://api.example.com/v1/x"
HOST = "api.example.com"


def refusal(lab, seconds, status=429, **headers):
    return lab.library.Response(status, headers={"retry-after": str(seconds), **headers}, json={})


# ---------------------------------------------------------------------- what is sent again


def test_refused_post_goes_again_when_the_server_said(lab):
    lab.answers = [refusal(lab, 3), 200]
    assert lab.ask("POST", json={"a": 1}).status_code == 200
    assert lab.bodies == [lab.bodies[0]] * 2
    assert lab.waits[0] >= 3


def test_refused_post_is_handed_over_where_that_is_switched_off(lab):
    lab.gate(repeat_refused=False)
    lab.answers = [refusal(lab, 3), 200]
    assert lab.ask("POST", json={}).status_code == 429
    assert len(lab.sent) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_failure_of_what_is_idempotent_is_tried_again(lab, method):
    lab.answers = [500, 503, 200]
    assert lab.ask(method).status_code == 200
    assert len(lab.sent) == 3


@pytest.mark.parametrize("failure", [500, 502, 503, 529])
def test_failed_post_is_not_sent_twice(lab, failure):
    lab.answers = [failure, 200]
    assert lab.ask("POST", json={}).status_code == failure
    assert len(lab.sent) == 1


def test_refused_for_being_overloaded_is_no_reason_to_repeat_a_post(lab):
    lab.answers = [refusal(lab, 1, status=503), 200]
    assert lab.ask("POST", json={}).status_code == 503
    assert len(lab.sent) == 1


def test_failed_post_with_an_idempotency_key_is_tried_again(lab):
    lab.answers = [500, 200]
    assert lab.ask("POST", json={}, headers={"Idempotency-Key": "k1"}).status_code == 200
    assert [sent.headers["idempotency-key"] for sent in lab.sent] == ["k1", "k1"]


def test_the_last_failure_is_handed_over(lab):
    lab.gate(retries=1)
    lab.answers = [500, 502]
    assert lab.ask().status_code == 502
    assert len(lab.sent) == 2


@pytest.mark.parametrize("failure", ["ConnectError", "ConnectTimeout"])
def test_post_that_was_never_sent_is_tried_again(lab, failure):
    lab.answers = [getattr(lab.library, failure)("no"), 200]
    assert lab.ask("POST", json={}).status_code == 200


@pytest.mark.parametrize("failure", ["ReadError", "ReadTimeout", "WriteError", "RemoteProtocolError"])
def test_post_that_may_have_arrived_is_not_sent_twice(lab, failure):
    kind = getattr(lab.library, failure)
    lab.answers = [kind("gone"), 200]
    with pytest.raises(kind):
        lab.ask("POST", json={})
    assert len(lab.sent) == 1


def test_get_that_may_have_arrived_is_tried_again(lab):
    lab.answers = [lab.library.ReadTimeout("slow"), 200]
    assert lab.ask().status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("first", [429, 500, "ConnectError"])
def test_generator_is_never_sent_twice(lab, method, first):
    lab.answers = [getattr(lab.library, first)("no") if isinstance(first, str) else first, 200]

    def pieces():
        yield b"once"

    async def pieces_async():
        yield b"once"

    content = pieces_async() if lab.is_async else pieces()
    with suppress(lab.library.ConnectError):
        lab.ask(method, content=content)
    assert lab.bodies == [b"once"]


def test_upload_of_a_file_is_never_sent_twice(lab, tmp_path):
    path = tmp_path / "upload"
    path.write_bytes(b"contents")
    lab.answers = [429, 200]
    with path.open("rb") as file:
        assert lab.ask("PUT", files={"file": file}).status_code == 429
    assert len(lab.bodies) == 1


def test_server_that_says_not_to_is_heeded(lab):
    lab.answers = [refusal(lab, 1, **{"x-should-retry": "false"}), 200]
    assert lab.ask().status_code == 429


def test_what_the_vendors_client_repeats_by_itself_is_not_repeated_once_more(lab):
    lab.answers = [500, 200]
    assert lab.ask(headers={"x-stainless-retry-count": "1"}).status_code == 500
    assert len(lab.sent) == 1


def test_wait_that_is_longer_than_allowed_is_not_begun(lab):
    lab.gate(max_wait=10)
    lab.answers = [refusal(lab, 60), 200]
    assert lab.ask().status_code == 429
    assert lab.clock.now() == 0


# ---------------------------------------------------------------------- refusals, in the client's own words


def test_too_long_a_line_is_a_pool_timeout_and_says_when(lab):
    lab.gate(max_wait=10)
    lab.answers = [refusal(lab, 60)]
    assert lab.ask().status_code == 429
    with pytest.raises(lab.library.PoolTimeout) as caught:
        lab.ask()
    assert isinstance(caught.value, WaitTooLongError)
    assert caught.value.retry_after > 50
    assert str(caught.value.request.url) == URL
    assert len(lab.sent) == 1


def test_open_circuit_is_a_connect_error_and_sends_nothing(lab):
    lab.gate(
        config=RateLimitConfig(strategy="fixed", initial_rps=1e6, consecutive_fail_threshold=2),
        retries=0,
        when_open="refuse",
    )
    lab.answers = [500]
    lab.ask()
    lab.ask()
    with pytest.raises(lab.library.ConnectError) as caught:
        lab.ask()
    assert isinstance(caught.value, CircuitOpenError)
    assert len(lab.sent) == 2


def test_spent_time_budget_is_a_timeout(lab):
    lab.gate(time_budget=5)
    lab.answers = [refusal(lab, 60), 200]
    with pytest.raises(lab.library.TimeoutException) as caught:
        lab.ask()
    assert isinstance(caught.value, TimeBudgetExceededError)


def test_time_budget_bounds_the_clients_own_timeouts(lab):
    lab.gate(time_budget=2)
    lab.answers = [200]
    lab.ask(timeout=30)
    assert set(lab.sent[0].extensions["timeout"].values()) == {2}


def test_without_a_budget_the_clients_timeouts_are_its_own(lab):
    lab.answers = [200]
    lab.ask(timeout=30)
    assert set(lab.sent[0].extensions["timeout"].values()) == {30}


def test_no_free_connection_in_the_clients_pool_says_nothing_about_the_host(lab):
    lab.answers = [lab.library.PoolTimeout("busy")]
    with pytest.raises(lab.library.PoolTimeout):
        lab.ask()
    seen = lab.passing.limiter.key_status(HOST)
    assert (seen.consecutive_failures, seen.in_flight, len(lab.sent)) == (0, 0, 1)


# ---------------------------------------------------------------------- pace


def test_each_host_has_a_line_of_its_own(lab):
    lab.gate(config=None, limits={"requests": "1/min"})
    lab.answers = [200]
    lab.ask(url="https://a.example/")
    lab.ask(url="https://b.example/")
    assert lab.clock.now() == 0
    lab.ask(url="https://a.example/other")
    assert 59 < lab.clock.now() < 61


def test_known_limit_is_kept(lab):
    lab.gate(config=None, limits={"requests": "2/s"})
    lab.answers = [200]
    for _ in range(9):
        lab.ask()
    assert all(later - earlier >= 1.0 for earlier, later in zip(lab.sent_at, lab.sent_at[2:], strict=False))


def test_limiter_of_ones_own_is_used(lab):
    limiter = AdaptiveRateLimiter(RateLimitConfig(limits={"requests": "1/min"}), clock=lab.clock)
    lab.passing = Passing(limiter=limiter)
    lab.answers = [200]
    lab.ask()
    assert limiter.key_status(HOST) is not None
    lab.ask()
    assert lab.clock.now() > 59


def test_key_of_ones_own_decides_who_shares_a_line(lab):
    lab.gate(config=None, limits={"requests": "1/min"}, key=lambda request: request.path.rpartition("/")[2])
    lab.answers = [200]
    lab.ask(url="https://a.example/search")
    lab.ask(url="https://a.example/fetch")
    assert lab.clock.now() == 0


def test_kill_switch_leaves_plain_requests(lab, monkeypatch):
    monkeypatch.setenv("HEADGATE_ENHANCED_RESILIENCE", "off")
    lab.gate(config=None, limits={"requests": "1/min"})
    lab.answers = [200]
    lab.ask()
    lab.ask()
    assert lab.clock.now() == 0


# ---------------------------------------------------------------------- bodies


def test_permit_lasts_until_the_body_has_ended(lab):
    lab.answers = [lab.stream([b"a", b"b"])]
    in_flight = []

    def look():
        in_flight.append(lab.passing.limiter.key_status(HOST).in_flight)

    def read(client):
        with client.stream("GET", URL) as response:
            look()
            assert b"".join(response.iter_bytes()) == b"ab"
            look()

    async def read_async(client):
        async with client.stream("GET", URL) as response:
            look()
            assert b"".join([piece async for piece in response.aiter_bytes()]) == b"ab"
            look()

    lab.do(read_async if lab.is_async else read)
    assert in_flight == [1, 0]
    assert lab.kinds == ["request_success"]


def test_body_that_is_left_early_gives_the_permit_back(lab):
    answer = lab.answers = [lab.stream([b"a", b"b"])]

    def leave(client):
        with client.stream("GET", URL) as response:
            next(response.iter_bytes())

    async def leave_async(client):
        async with client.stream("GET", URL) as response:
            await anext(response.aiter_bytes())

    lab.do(leave_async if lab.is_async else leave)
    assert lab.passing.limiter.key_status(HOST).in_flight == 0
    assert answer[0].is_closed


def test_answer_that_is_thrown_away_gives_the_permit_back_with_the_next_request(lab):
    lab.answers = [lambda request: lab.stream([b"a", b"b"])]

    def throw_away(client):
        client.send(client.build_request("GET", URL), stream=True)
        gc.collect()
        client.get(URL)

    async def throw_away_async(client):
        await client.send(client.build_request("GET", URL), stream=True)
        gc.collect()
        await client.get(URL)

    lab.do(throw_away_async if lab.is_async else throw_away)
    assert lab.passing.limiter.key_status(HOST).in_flight == 0


def test_body_that_breaks_counts_as_a_failure_and_is_not_repeated(lab):
    lab.answers = [lab.stream([b"a", lab.library.ReadError("cut")])]
    with pytest.raises(lab.library.ReadError):
        lab.ask()
    assert len(lab.sent) == 1
    assert lab.passing.limiter.key_status(HOST).consecutive_failures == 1
    assert lab.kinds == ["request_failure"]


def test_error_body_is_whole_after_the_gate_has_read_it(lab):
    told = gzip.compress(json.dumps({"error": {"message": "x" * 1000}}).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip", "content-length": str(len(told))}
    lab.answers = [lab.stream([told[:10], told[10:]], 400, headers)]
    assert lab.ask().json()["error"]["message"] == "x" * 1000


def test_long_error_body_is_whole_and_only_its_start_is_waited_for(lab):
    pieces = [b" " * 10_000] * 20 + [b"{}"]
    assert sum(map(len, pieces)) > LARGEST_ERROR
    lab.answers = [lab.stream(pieces, 404, {"content-type": "application/json"})]
    assert lab.ask().content == b"".join(pieces)


def test_what_an_error_says_in_its_body_is_understood(lab):
    told = json.dumps({"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}).encode()
    lab.answers = [lab.stream([told], 429, {"content-type": "application/json"}), 200]
    assert lab.ask().status_code == 429
    assert len(lab.sent) == 1, "an account that nobody paid will not be there in a moment"


def test_answers_that_are_put_aside_are_closed(lab):
    first = lab.stream([b"no"], 503)
    lab.answers = [first, 200]
    lab.ask()
    assert first.is_closed


def test_http_version_and_the_rest_of_an_answer_stay(lab):
    answer = lab.library.Response(200, extensions={"http_version": b"HTTP/2"}, headers=[("a", "1"), ("a", "2")])
    lab.answers = [answer]
    got = lab.ask()
    assert (got.http_version, got.headers.get_list("a")) == ("HTTP/2", ["1", "2"])


# ---------------------------------------------------------------------- cancelling, wrapping, settings


@pytest.mark.parametrize("lab", ["async"], indirect=True)
def test_cancelled_in_line_leaves_nothing_behind(lab):
    lab.gate(config=None, limits={"requests": "1/min"})
    lab.answers = [200]

    async def two(client):
        await client.get(URL)
        waiting = asyncio.ensure_future(client.get(URL))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    lab.do(two)
    seen = lab.passing.limiter.key_status(HOST)
    assert (seen.waiters, seen.in_flight, len(lab.sent)) == (0, 0, 1)


def test_client_in_use_is_gated_as_it_is(lab):
    kind = lab.library.AsyncClient if lab.is_async else lab.library.Client
    inside, proxied = lab._transport(), lab._transport()
    client = kind(transport=inside, mounts={"https://proxied.example": proxied, "https://direct.example": None})
    assert lab.integration.gate(client, passing=lab.gate()) is client
    lab.answers = [429, 200, 429, 200]

    async def both():
        return [await client.get(url) for url in ("https://a.example", "https://proxied.example")]

    if lab.is_async:
        got = lab.do(lambda _: both())
    else:
        got = [client.get(url) for url in ("https://a.example", "https://proxied.example")]
    assert [answer.status_code for answer in got] == [200, 200]
    assert len(lab.sent) == 4


def test_client_is_gated_once(lab):
    with pytest.raises(ConfigError, match="already"):
        lab.integration.gate(lab.client())


@pytest.mark.parametrize(
    ("settings", "about"),
    [
        ({"passing": Passing(), "retries": 1}, "retries"),
        ({"limiter": AdaptiveRateLimiter(), "limits": {"requests": "1/s"}}, "limiter"),
        ({"retries": -1}, "retries=-1"),
        ({"max_wait": -1}, "max_wait=-1"),
        ({"time_budget": 0}, "time_budget=0"),
        ({"limits": {"requests": "many"}}, "requests"),
    ],
)
def test_settings_are_checked_when_made(lab, settings, about):
    with pytest.raises(ConfigError, match=about):
        lab.integration.GatedTransport(**settings)


def test_events_tell_of_waits_and_retries(lab):
    lab.answers = [refusal(lab, 2), 200]
    lab.ask()
    assert [kind for kind in lab.kinds if kind != "rate_limit_wait"] == ["retry_attempt", "request_success"]
    assert all(event.provider == HOST for event in lab.events)
