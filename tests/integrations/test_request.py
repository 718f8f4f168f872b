"""A request as the gate sees it: its key, its cost, and whether it may be sent twice."""

from __future__ import annotations

import json

from headgate.integrations.request import OutgoingRequest, by_host, by_model, is_idempotent_or_generates, with_tokens


def asked(body, path="/v1/chat/completions", method="POST"):
    return OutgoingRequest(method, f"https://api.example.com{path}?a=b", body=json.dumps(body).encode())


def test_cost_is_guessed_where_a_model_answers():
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x" * 400}]}
    assert with_tokens(asked(body))["tokens"] >= 200
    assert with_tokens(asked(body, "/v1/files")) == 1
    assert with_tokens(OutgoingRequest("POST", "https://a.example/v1/messages", body=b"no json")) == 1
    assert with_tokens(OutgoingRequest("POST", "https://a.example/v1/messages")) == 1


def test_each_model_may_have_a_line_of_its_own():
    body = {"model": "large", "messages": []}
    assert by_host(asked(body)) == "api.example.com"
    assert by_model(asked(body)) == "api.example.com/large"
    assert by_model(asked(body, "/v1/files")) == "api.example.com"
    assert by_model(asked({"model": 7})) == "api.example.com"


def test_vendors_clients_repeat_what_models_are_asked():
    assert is_idempotent_or_generates(asked({}))
    assert not is_idempotent_or_generates(asked({}, "/v1/files"))
