"""A model's flex tier spends of the model's limits, unless the vendor gives it its own; it rests alone in any case."""

import json

import pytest
from tests.sdks import openai

import headgate
from headgate.wire.dialects import BY_HOST, BY_NAME

MESSAGES = [{"role": "user", "content": "How high is the water?"}]
BODY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "High."}}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
}
FULL = (429, {"error": {"message": "Resource Unavailable", "type": "resource_unavailable", "code": None}})
BUDGETS = [("groq", 2), ("azure-openai", 1), ("gemini", 1), ("openai", 1), ("", 1)]


@pytest.fixture(params=BUDGETS, ids=lambda one: one[0])
def budgets(request, monkeypatch):
    """How many times a limit is there for a model and its tier, at a vendor whose address this is."""
    vendor, budgets = request.param
    if vendor:
        monkeypatch.setitem(BY_HOST, "127.0.0.1", BY_NAME[vendor])
    return budgets


@pytest.mark.parametrize("keys", [(), ("--keys", "env:ONE_KEY")], ids=["", "keys"])
def test_rows_of_both_spend_of_one_limit(batch, server, budgets, keys, monkeypatch):
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789abcdef")
    server.plan = lambda _: (200, BODY)
    tiers = ({}, {"service_tier": "flex"})
    bodies = [{"model": "m", "messages": MESSAGES, **tiers[at % 2]} for at in range(40)]
    rows = [json.dumps({"custom_id": f"row-{at}", "body": body}) + "\n" for at, body in enumerate(bodies)]
    batch.rows.write_text("".join(rows))
    ended = json.loads(batch.run("--json", "--limits", "requests=8/day", *keys).out.splitlines()[-1])
    assert (ended["exit_code"], ended["done"]) == (4, 8 * budgets)
    asked = [body.get("service_tier") for _, body in server.calls]
    assert budgets == 1 or asked.count("flex") == 8


@pytest.mark.parametrize("has_keys", [False, True], ids=["", "keys"])
def test_calls_of_a_client_do_so_too(server, budgets, has_keys):
    server.plan = lambda _: (200, BODY)
    keys = {"keys": headgate.CredentialCoordinator(["sk-one-0123456789"])} if has_keys else {"api_key": "any"}
    client = headgate.openai_client(base_url=server.url, limits={"requests": "4/day"}, max_wait=0.1, **keys)
    passed = 0
    for tier in ("default", "flex") * 5:
        try:
            client.chat.completions.create(model="m", messages=MESSAGES, service_tier=tier)
            passed += 1
        except openai.APITimeoutError:
            pass
    client.close()
    assert passed == len(server.calls) == 4 * budgets


def test_a_tier_that_is_full_rests_alone_all_the_same(server):
    server.plan = lambda n: FULL if server.calls[n - 1][1].get("service_tier") == "flex" else (200, BODY)
    client = headgate.openai_client(base_url=server.url, api_key="any", limits={"requests": "9/day"}, max_wait=0.1)
    with pytest.raises(openai.APITimeoutError):  # it is full, and the wait for it too long
        client.chat.completions.create(model="m", messages=MESSAGES, service_tier="flex")
    for _ in range(3):
        client.chat.completions.create(model="m", messages=MESSAGES)
    client.close()
    assert len(server.calls) == 4
