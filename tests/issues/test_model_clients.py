"""openai_client and anthropic_client: their gate has all settings, and repeats what the vendor's own client would."""

from __future__ import annotations

import httpx
import httpx2
import pytest

import headgate
from headgate.errors import ConfigError, WaitTooLongError
from headgate.integrations.client_gate import Passing
from headgate.integrations.request import by_host
from headgate.lab.virtual_time import VirtualClock

MESSAGES = [{"role": "user", "content": "How high is the water?"}]


@pytest.fixture(params=["anthropic", "openai"])
def vendor(request):
    return request.param


class Api:
    """Answers by a script, of which the last goes on for ever, and counts what is sent."""

    def __init__(self, *answers):
        self.answers, self.sent = answers, 0

    def __call__(self, request):
        answer = self.answers[min(self.sent, len(self.answers) - 1)]
        self.sent += 1
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        return httpx2.Response(status, headers=headers, json={})

    @property
    def client(self):
        return httpx2.Client(transport=httpx2.MockTransport(self))


def make(vendor, api, **options):
    options.setdefault("clock", VirtualClock())
    if "passing" in options:
        del options["clock"]
    return getattr(headgate, f"{vendor}_client")(
        api_key="k", base_url="https://home.example", http_client=api.client, **options
    )


def create(vendor, client, model="m"):
    body = {"model": model, "messages": MESSAGES, "max_tokens": 40}
    return (client.chat.completions if vendor == "openai" else client.messages).create(**body)


def passing_of(client):
    return client._client._transport.passing


def test_a_gate_of_ones_own_keeps_retries_and_a_line_for_each_model(vendor):
    api = Api(500, 200)
    client = make(vendor, api, passing=Passing(max_wait=5, clock=VirtualClock()))
    create(vendor, client, "small")
    create(vendor, client, "large")
    assert api.sent == 3
    assert set(passing_of(client).limiter._registry.entries) == {"home.example/small", "home.example/large"}


def test_what_a_gate_says_itself_about_lines_and_repeats_stays(vendor):
    api = Api(500, 200)
    passing = Passing(key=by_host, repeatable=lambda _: False, clock=VirtualClock())
    client = make(vendor, api, passing=passing)
    with pytest.raises(Exception, match="500"):
        create(vendor, client)
    assert api.sent == 1
    assert set(passing.limiter._registry.entries) == {"home.example"}


def test_settings_of_the_gate_stand_among_the_options(vendor):
    api = Api((429, {"retry-after": "60"}))
    client = make(vendor, api, max_wait=5, retries=1, time_budget=60, config=headgate.RateLimitConfig(initial_rps=50))
    for _ in range(2):
        with pytest.raises(Exception) as caught:
            create(vendor, client)
    assert isinstance(caught.value.__cause__, WaitTooLongError)
    assert (passing_of(client).max_wait, passing_of(client).retries) == (5, 1)
    assert passing_of(client).limiter.config.initial_rps == 50


@pytest.mark.parametrize("answer", [409, (400, {"x-should-retry": "true"}), (500, {"x-should-retry": "true"}), 408])
def test_what_the_vendors_client_repeats_is_repeated(vendor, answer):
    api = Api(answer, 200)
    create(vendor, make(vendor, api))
    assert api.sent == 2


@pytest.mark.parametrize("answer", [400, (409, {"x-should-retry": "false"}), (500, {"x-should-retry": "false"})])
def test_what_it_does_not_repeat_is_not(vendor, answer):
    api = Api(answer, 200)
    with pytest.raises(Exception, match=str(answer if isinstance(answer, int) else answer[0])):
        create(vendor, make(vendor, api))
    assert api.sent == 1


def test_a_conflict_is_the_callers_where_no_model_is_asked():
    api = Api(409, 200)
    with headgate.integrations.httpx2.gate(api.client) as client:
        assert client.get("https://home.example").status_code == 409


@pytest.mark.parametrize("wrong", [httpx.Client, httpx2.AsyncClient])
def test_a_client_of_another_kind_is_refused_and_the_right_kind_named(vendor, wrong):
    with pytest.raises(ConfigError, match=r"http_client.*httpx2\.Client"):
        getattr(headgate, f"{vendor}_client")(api_key="k", http_client=wrong())
