"""``--header``, ``--query``, ``--dialect`` and ``--price auto`` of ``headgate run``, over real sockets."""

from __future__ import annotations

import json

import pytest

KEY = "sk-mock-do-not-show-0123456789"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("MOCK_KEY", KEY)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.jsonl"


def answers(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_a_file_for_anthropics_batches_goes_to_an_own_base_url(headgate, mock_api, tmp_path, out):
    api = mock_api(providers=("anthropic",))
    rows = tmp_path / "rows.jsonl"
    params = {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    rows.write_text(json.dumps({"custom_id": "a", "params": params}) + "\n")
    base = api.base_url("anthropic").removesuffix("/v1")
    done = headgate("run", rows, "-o", out, "--to", base, "--dialect", "anthropic", "--keys", "env:MOCK_KEY")
    assert done.code == 0, done.err
    assert answers(out)[0]["response"]["body"]["type"] == "message"


def test_a_header_may_hold_the_credential_of_an_environment_variable(headgate, mock_api, tmp_path, out):
    api = mock_api(providers=("anthropic",))
    rows = tmp_path / "rows.jsonl"
    params = {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    rows.write_text(json.dumps({"custom_id": "a", "params": params}) + "\n")
    sent = ("--header", "x-api-key: env:MOCK_KEY", "--header", "anthropic-version: 2023-06-01")
    path = ("--path", "/v1/messages", "--query", "beta=true", "--price", "auto")
    done = headgate("run", rows, "-o", out, "--to", api.base_url("anthropic"), "--json", *path, *sent)
    assert done.code == 0, done.err
    assert answers(out)[0]["response"]["status_code"] == 200
    truth, end = api.truth()["providers"]["anthropic"], json.loads(done.out.splitlines()[-1])
    assert end["cost"] == pytest.approx((truth["tokens_in"] + 5 * truth["tokens_out"]) / 1e6)
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--header", "Authorization: Bearer abc"), "name the environment variable that holds it"),
        (("--header", "x-api-key: env:NOT_SET"), "the environment variable NOT_SET for header x-api-key is not set"),
        (("--header", "nonsense"), "expected 'NAME: VALUE'"),
        (("--header", "Authorization: env:MOCK_KEY"), "name where it is with --keys"),
        (("--query", "api-version"), "expected NAME=VALUE"),
        (("--query", "api_key=abc"), "may be a credential"),
        (("--to", "openai", "--keys", "env:MOCK_KEY", "--dialect", "anthropic"), "is for a base URL"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(headgate, tmp_path, out, options, says):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    done = headgate("run", rows, "-o", out, "--to", "http://127.0.0.1:9", *options)
    assert done.code == 2
    assert says in " ".join(done.err.split())
    assert KEY not in done.err
    assert not out.exists()
