"""A key that the server sends back, that breaks the request or for which there is no listener: it is told nowhere."""

import logging
import pickle
import traceback

import pytest
from bench.ports import free_port

from headgate.credentials import Credential, CredentialCoordinator
from headgate.errors import HeadgateError, ProviderError
from headgate.exchange import Answer
from headgate.providers import PROVIDERS, TavilyProvider
from headgate.providers.base import Request

NAMES = tuple(PROVIDERS)
CANARY = "canary-7f3a9c55e1d04b"

ECHOES = {
    "401 that quotes the key": {"status": 401, "body": {"error": {"message": f"Incorrect API key: {CANARY}."}}},
    "400 that quotes it": {"status": 400, "body": {"detail": {"error": f"bad key {CANARY}"}}},
    "500 as text": {"status": 500, "body": f"<pre>Authorization: Bearer {CANARY}</pre>"},
    "429 in a header": {"status": 429, "body": {}, "headers": {"X-Key": CANARY, "Retry-After": "0.01"}},
    "a redirect": {"status": 302, "headers": {"Location": f"https://example.org/?key={CANARY}"}},
    "hangs up": {"drop": "before"},
    "hangs up midway": {"drop": "midway"},
    "late": {"delay": 3.0},
    "nonsense": {"status": 200, "body": CANARY},
}


def everything_said(error):
    """All that an exception and those behind it show, by any common way of looking."""
    said, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        said += [str(error), repr(error), repr(vars(error)), repr(error.args)]
        said.append("".join(traceback.format_exception(error)))
        if isinstance(error, HeadgateError):
            said.append(repr(pickle.dumps(error)))
        error = error.__cause__ or error.__context__
    return "\n".join(said)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("echo", ECHOES)
def test_a_canary_key_is_in_no_exception_event_log_or_repr(run, switch, settings, caplog, name, echo):
    caplog.set_level(logging.DEBUG)

    async def scenario(world):
        keys = CredentialCoordinator([Credential("main", CANARY)], at_once=None, provider=name)
        provider = world.provider(name, credentials=keys, timeout=0.05, config=settings.quick(max_rate_limit_retries=2))
        world.fault(name, times=9, **ECHOES[echo])
        with pytest.raises(HeadgateError) as failure:
            await provider.search(settings.queries.get(name, "gates"))
        said = [everything_said(failure.value), repr(provider), repr(vars(provider)), repr(world.events)]
        said += [repr(keys.states()), repr(world.manager.get_provider_status(name)), caplog.text]
        return "\n".join(said), world.calls(name)

    said, calls = run(scenario)
    assert calls >= 1
    assert CANARY not in said
    assert CANARY not in repr(caplog.records)


def test_an_unreachable_server_is_told_without_the_key(run, switch):
    async def scenario(world):
        google = world.provider("google", api_key=CANARY, base_url=f"http://127.0.0.1:{free_port()}")
        with pytest.raises(ProviderError, match=r"cannot be reached \(connection refused\)") as failure:
            await google.search("gates")
        return everything_said(failure.value)

    assert CANARY not in run(scenario)


@pytest.mark.parametrize("key", [f"{CANARY}\n", f"{CANARY}\r\nX-Other: 1", f"{CANARY}\0", f"{CANARY}\N{KEY}"])
@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_cannot_be_sent_is_told_without_the_key(run, switch, name, key):
    async def scenario(world):
        try:
            await world.search(name, api_key=key)
        except HeadgateError as error:
            return everything_said(error), [asked.headers.get("X-Other") for asked in world.asked(name)]
        return "", [asked.headers.get("X-Other") for asked in world.asked(name)]

    said, others = run(scenario)
    assert CANARY not in said
    assert not any(others)


def test_what_holds_a_key_does_not_show_it():
    request = Request(path="/x").with_header("Authorization", CANARY).with_query("key", CANARY)
    answer = Answer(200, {"X": CANARY}, CANARY.encode())
    assert CANARY not in repr(request) + repr(answer) + repr(TavilyProvider(CANARY))


@pytest.mark.parametrize("name", ["tavily", "google", "semantic_scholar"])
def test_a_key_of_one_character_is_not_repeated_either(run, switch, caplog, name):
    caplog.set_level(logging.DEBUG)

    async def scenario(world):
        world.fault(name, status=400, body={"detail": {"error": "the key § is bad"}})
        with pytest.raises(ProviderError, match="is bad") as failure:
            await world.search(name, api_key="§")
        return str(failure.value), repr(world.events), caplog.text

    assert not any("§" in said for said in run(scenario))
