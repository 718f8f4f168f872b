"""What the gate does for aiohttp, requests and urllib3 alike, with the real clients over loopback."""

from __future__ import annotations

import asyncio
import gzip
import io
import json

import pytest
from tests.quota_spent import quota_spent

from headgate import AdaptiveRateLimiter, CircuitOpenError, RateLimitConfig, TimeBudgetExceededError, WaitTooLongError
from headgate.errors import ConfigError
from headgate.integrations.client_gate import Passing
from headgate.integrations.response_reader import LARGEST_ERROR

OWN_ERRORS = {
    "aiohttp": ("ClientError", "ServerDisconnectedError"),
    "requests": ("RequestException", "ConnectionError"),
    "urllib3": ("HTTPError", "MaxRetryError"),
}


@pytest.fixture
def own_error(lab):
    return getattr(lab.library, OWN_ERRORS[lab.client][0])


def refusal(lab, seconds, status=429, **headers):
    return lab.Reply(status, {"Retry-After": str(seconds), **headers})


# ---------------------------------------------------------------------- what is sent again


def test_refused_post_goes_again_when_the_server_said(lab):
    lab.home.answers = [refusal(lab, 3), 200]
    assert lab.ask("POST", body=b"once more").status == 200
    assert [seen.body for seen in lab.sent] == [b"once more"] * 2
    assert lab.waits[0] >= 3


def test_refused_post_is_handed_over_where_that_is_switched_off(lab):
    lab.gate(repeat_refused=False)
    lab.home.answers = [refusal(lab, 3), 200]
    assert lab.ask("POST", body=b"x").status == 429
    assert len(lab.sent) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_failure_of_what_is_idempotent_is_tried_again(lab, method):
    lab.home.answers = [500, 503, 200]
    assert lab.ask(method).status == 200
    assert len(lab.sent) == 3


@pytest.mark.parametrize("failure", [500, 502, 503, None])
def test_failed_post_is_not_sent_twice(lab, failure, own_error):
    lab.home.answers = [failure, 200] if failure else [lambda seen: None]
    if failure:
        assert lab.ask("POST", body=b"x").status == failure
    else:
        with pytest.raises(own_error):
            lab.ask("POST", body=b"x")
    assert len(lab.sent) == 1


def test_failed_post_with_an_idempotency_key_is_tried_again(lab):
    lab.home.answers = [500, 200]
    assert lab.ask("POST", body=b"x", headers={"Idempotency-Key": "k1"}).status == 200
    assert [seen.headers["idempotency-key"] for seen in lab.sent] == ["k1", "k1"]


def test_get_whose_connection_breaks_is_tried_as_often_as_said_and_not_by_the_client_too(lab, own_error):
    lab.gate(retries=2)
    lab.home.answers = [lambda seen: None]
    with pytest.raises(own_error):
        lab.ask()
    assert len(lab.sent) == 3


def test_without_retries_nothing_goes_twice(lab, own_error):
    lab.gate(retries=0)
    lab.home.answers = [lambda seen: None]
    with pytest.raises(own_error):
        lab.ask()
    assert len(lab.sent) == 1


def test_post_that_was_never_sent_is_tried_again(lab, own_error):
    with pytest.raises(own_error):
        lab.ask("POST", lab.nobody_there(), body=b"x")
    assert lab.kinds.count("retry_attempt") == 2


def generator():
    yield b"on"
    yield b"ce"


async def generator_async():
    for piece in generator():
        yield piece


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["generator", "file", "bytes in a file"])
@pytest.mark.parametrize("first", [429, 500, None])
def test_upload_that_cannot_be_repeated_is_never_sent_twice(lab, own_error, kind, first, tmp_path):
    lab.home.answers = [first, 200] if first else [lambda seen: None]
    path = tmp_path / "upload"
    path.write_bytes(b"once")
    with path.open("rb") as file:
        bodies = {
            "generator": (generator_async if lab.client == "aiohttp" else generator)(),
            "file": file,
            "bytes in a file": io.BytesIO(b"once"),
        }
        if first:
            assert lab.ask("PUT", body=bodies[kind]).status == first
        else:
            with pytest.raises(own_error):
                lab.ask("PUT", body=bodies[kind])
    assert [seen.body for seen in lab.sent] == [b"once"]


def test_server_that_says_not_to_is_heeded(lab):
    lab.home.answers = [refusal(lab, 1, **{"x-should-retry": "false"}), 200]
    assert lab.ask().status == 429


def test_wait_that_is_longer_than_allowed_is_not_begun(lab):
    lab.gate(max_wait=10)
    lab.home.answers = [refusal(lab, 60), 200]
    assert lab.ask().status == 429
    assert lab.clock.now() == 0


# ---------------------------------------------------------------------- refusals, in the client's own words


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_too_long_a_line_is_the_clients_own_timeout_and_says_when(lab, own_error, method):
    lab.gate(max_wait=10)
    lab.home.answers = [refusal(lab, 60)]
    assert lab.ask().status == 429
    with pytest.raises(own_error) as caught:
        lab.ask(method)
    assert isinstance(caught.value, WaitTooLongError)
    assert isinstance(caught.value, lab.integration.GateTimeoutError)
    assert caught.value.retry_after > 50
    assert len(lab.sent) == 1


def test_open_circuit_sends_nothing(lab, own_error):
    lab.gate(
        config=RateLimitConfig(strategy="fixed", initial_rps=1e6, consecutive_fail_threshold=2),
        retries=0,
        when_open="refuse",
    )
    lab.home.answers = [500]
    lab.ask()
    lab.ask()
    with pytest.raises(own_error) as caught:
        lab.ask()
    assert isinstance(caught.value, CircuitOpenError)
    assert len(lab.sent) == 2


def test_spent_time_budget_is_a_timeout(lab, own_error):
    lab.gate(time_budget=5)
    lab.home.answers = [refusal(lab, 60), 200]
    with pytest.raises(own_error) as caught:
        lab.ask()
    assert isinstance(caught.value, TimeBudgetExceededError)


def test_clients_own_error_is_as_it_would_be_without_the_gate(lab):
    """What is raised in the end is of the very type that the plain client raises."""
    url, plain = lab.nobody_there(), None

    async def try_fast_admit():
        async with lab.library.ClientSession() as session:
            await session.get(url)

    try:
        if lab.client == "aiohttp":
            asyncio.run(try_fast_admit())
        elif lab.client == "requests":
            lab.library.get(url)
        else:
            __import__("urllib3").PoolManager().request("GET", url, retries=0)
    except Exception as error:
        plain = error
    with pytest.raises(type(plain)) as caught:
        lab.ask(url=url)
    assert type(caught.value) is type(plain)


# ---------------------------------------------------------------------- pace


def test_known_limit_is_kept(lab):
    lab.gate(config=None, limits={"requests": "2/s"})
    for _ in range(7):
        lab.ask()
    at = [seen.at for seen in lab.sent]
    assert all(later - earlier >= 1.0 for earlier, later in zip(at, at[2:], strict=False))


def test_pace_is_learned_from_what_the_server_says(lab):
    """Without a word about limits beforehand: the answers' headers slow it down before anything is refused."""
    lab.gate(config=None)
    told = {"RateLimit": '"default";r=0;t=30', "RateLimit-Policy": '"default";q=10;w=60'}
    lab.home.answers = [lab.Reply(headers=told)]
    for _ in range(5):
        lab.ask()
    assert lab.waits[-1] > 20


def test_each_host_has_a_line_of_its_own(lab):
    lab.gate(config=None, limits={"requests": "1/min"})
    lab.ask()
    lab.ask(url=f"http://localhost:{lab.home.server_port}/")
    assert lab.clock.now() == 0
    lab.ask()
    assert 59 < lab.clock.now() < 61


def test_limiter_of_ones_own_is_used(lab):
    limiter = AdaptiveRateLimiter(RateLimitConfig(limits={"requests": "1/min"}), clock=lab.clock)
    lab.passing = Passing(limiter=limiter)
    lab.ask()
    assert limiter.key_status(lab.host) is not None


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize("length_known", [True, False])
def test_error_body_is_whole_after_the_gate_has_read_it(lab, length_known):
    told = gzip.compress(json.dumps({"error": {"message": "x" * 1000}}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    reply = lab.Reply(400, headers, told) if length_known else lab.Reply(400, headers, pieces=[told[:10], told[10:]])
    lab.home.answers = [reply]
    assert json.loads(lab.ask().body)["error"]["message"] == "x" * 1000


def test_long_error_body_is_whole(lab):
    pieces = [b" " * 10_000] * 20 + [b"{}"]
    assert sum(map(len, pieces)) > 2 * LARGEST_ERROR
    lab.home.answers = [lab.Reply(404, {"Content-Type": "application/json"}, pieces=pieces)]
    assert lab.ask().body == b"".join(pieces)


def test_what_an_error_says_in_its_body_is_understood(lab):
    told = json.dumps({"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}).encode()
    lab.home.answers = [lab.Reply(429, {"Content-Type": "application/json"}, told), 200]
    assert lab.ask().status == 429
    assert len(lab.sent) == 1, "an account that nobody paid will not be there in a moment"


@pytest.mark.parametrize("streams", [False, True])
def test_tokens_are_settled_from_usage(lab, streams):
    lab.gate(config=None, limits={"tokens": "100000/min"})
    usage = {"usage": {"prompt_tokens": 70, "completion_tokens": 7}}
    packed = gzip.compress(json.dumps(usage).encode())
    events = b"data: " + json.dumps({"choices": [], **usage}).encode() + b"\n\ndata: [DONE]\n\n"
    lab.home.answers = [
        lab.Reply(headers={"Content-Type": "text/event-stream"}, pieces=[events[:20], events[20:]])
        if streams
        else lab.Reply(headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}, body=packed)
    ]
    body = {"model": "m", "max_tokens": 400, "messages": [{"role": "user", "content": "How high?"}]}
    lab.ask("POST", "/v1/chat/completions", body=json.dumps(body).encode())
    assert quota_spent(lab.passing.limiter, lab.host) == 77


def test_all_goes_back_after_each_answer(lab):
    lab.home.answers = [200, 404, lab.Reply(204, body=b""), lab.Reply(pieces=[b"a", b"b"])]
    for _ in range(4):
        lab.ask()
    assert lab.look().in_flight == 0
    assert lab.kinds.count("request_success") == 3


# ---------------------------------------------------------------------- settings


def test_settings_are_checked_when_made(lab):
    make = lab.integration.Middleware if lab.client == "aiohttp" else getattr(lab.integration, "Adapter", None)
    if make is None:
        import urllib3

        def make(**settings):
            return lab.integration.gate(urllib3.PoolManager(), **settings)

    for settings, about in (
        ({"passing": Passing(), "retries": 1}, "retries"),
        ({"retries": -1}, "retries=-1"),
        ({"limits": {"requests": "many"}}, "requests"),
    ):
        with pytest.raises(ConfigError, match=about):
            make(**settings)


def test_events_tell_of_waits_and_retries(lab):
    lab.home.answers = [refusal(lab, 2), 200]
    lab.ask()
    assert [kind for kind in lab.kinds if kind != "rate_limit_wait"] == ["retry_attempt", "request_success"]
