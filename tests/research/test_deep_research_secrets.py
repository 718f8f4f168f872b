"""A canary key that servers send back, in every way they know: research tells it nowhere."""

import json
import logging
import traceback

import pytest

from headgate.cli.commands.research_display import FORMS, render
from headgate.cli.ui.terminal import SecretFilter
from headgate.errors import CircuitOpenError
from headgate.providers import PROVIDERS

CANARY = "canary-7f3a9c55e1d04b"
NAMES = tuple(PROVIDERS)
ECHOES = {
    "401 that quotes it": {"status": 401, "body": {"error": {"message": f"Incorrect API key: {CANARY}."}}},
    "400 that quotes it": {"status": 400, "body": {"detail": {"error": f"bad key {CANARY}"}}},
    "500 as text": {"status": 500, "body": f"<pre>Authorization: Bearer {CANARY}</pre>"},
    "429 in a header": {"status": 429, "body": {}, "headers": {"X-Key": CANARY, "Retry-After": "600"}},
    "a redirect": {"status": 302, "headers": {"Location": f"https://example.org/?key={CANARY}"}},
    "hangs up": {"drop": "before"},
    "nonsense": {"status": 200, "body": CANARY},
    "in what it found": {
        "status": 200,
        "body": {
            "results": [{"title": f"T {CANARY}", "url": f"https://x.example/{CANARY}", "content": CANARY}],
            "items": [{"title": CANARY, "link": f"https://x.example/?k={CANARY}", "snippet": CANARY}],
            "data": [{"title": CANARY, "url": f"https://x.example/{CANARY}", "abstract": CANARY}],
            "message": {"items": [{"title": [CANARY], "URL": f"https://x.example/{CANARY}", "abstract": CANARY}]},
        },
    },
}


@pytest.mark.parametrize("echo", ECHOES)
def test_a_canary_key_is_in_no_page_report_event_or_log(run, caplog, echo):
    caplog.set_level(logging.DEBUG)

    async def scenario(world):
        for name in NAMES:
            world.fault(name, times=9, **ECHOES[echo])
        research = world.research(*(world.provider(name, CANARY) for name in NAMES))
        result = await research.gather("gates")
        pages = [render(result, form, SecretFilter(())) for form in FORMS]
        calls = sum(world.calls(name) for name in NAMES)
        return [repr(result), json.dumps(result.metadata), repr(world.events), repr(research), *pages], calls

    said, calls = run(scenario)
    assert calls >= len(NAMES) - 1
    assert CANARY not in "".join(said) + caplog.text + repr(caplog.records)


def test_nor_is_it_in_the_error_when_every_circuit_is_open(run, caplog):
    caplog.set_level(logging.DEBUG)

    async def scenario(world):
        await world.open_circuit("tavily")
        with pytest.raises(CircuitOpenError) as refusal:
            await world.research(world.provider("tavily", CANARY)).gather("gates")
        return "".join(traceback.format_exception(refusal.value)) + repr(world.events)

    assert CANARY not in run(scenario) + caplog.text


def test_a_key_that_came_by_another_way_is_taken_out_of_every_form(run):
    """One provider's key in what another one found: only code that knows all keys can see it."""

    async def scenario(world):
        body = {"results": [{"title": CANARY, "url": f"https://x.example/{CANARY}", "content": f"see {CANARY}"}]}
        world.fault("tavily", status=200, body=body)
        return await world.research("tavily").gather(f"who is {CANARY}?")

    result = run(scenario)
    assert CANARY in repr(result)
    for form in FORMS:
        page = render(result, form, SecretFilter([CANARY]))
        assert CANARY not in page
        assert "***" in page
