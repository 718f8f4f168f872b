"""``max_tokens`` of 4,000, answers of some 60 tokens, Anthropic's mock in real time: the limit on output is used."""

import json
import time
from dataclasses import replace

import pytest

from headgate.mock.dialects import DIALECTS
from headgate.units import Rate

LIMIT = 60_000.0
"""Output tokens a minute: about 17 answers a second."""
WARM, JUDGED = 75.0, 90.0
"""Seconds from the first answer on until what the bucket held at first is used up, and those that are judged."""


def used(headgate_process, tmp_path, api, *options):
    """The share of the limit, and calls refused."""
    rows = tmp_path / "rows.jsonl"
    with rows.open("w") as file:
        for number in range(5_000):
            body = {"model": "m", "max_tokens": 4000, "messages": [{"role": "user", "content": f"Say {number}"}]}
            file.write(json.dumps({"custom_id": str(number), "url": "/v1/messages", "body": body}) + "\n")
    to = ("--to", api.base_url("anthropic"), "--dialect", "anthropic", "--keys", "env:GOOD_KEY", "--store", "none")
    process = headgate_process("run", rows, "-o", tmp_path / "out.jsonl", "-q", *to, *options)
    counts, give_up_at = api.services["anthropic"].counts, time.monotonic() + 60.0
    while not counts["answered"] and time.monotonic() < give_up_at:
        time.sleep(0.05)
    time.sleep(WARM)
    before, since = counts["tokens_out"], time.monotonic()
    time.sleep(JUDGED)
    share = (counts["tokens_out"] - before) / (LIMIT * (time.monotonic() - since) / 60.0)
    process.terminate()
    process.wait(60)
    print(f"{share:.1%} of the limit, {counts['rate_limited']} of {counts['asked']} refused")
    return share, counts["rate_limited"]


@pytest.fixture
def anthropic(mock_api, monkeypatch):
    monkeypatch.setenv("GOOD_KEY", "sk-good-0123456789")
    tokens = {"input_tokens": Rate(1_000_000, 60.0), "output_tokens": Rate(LIMIT, 60.0)}
    return lambda latency: mock_api(providers=("anthropic",), rate="3000/min", latency=latency, **tokens)


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_by_the_headers(headgate_process, tmp_path, anthropic):
    share, refused = used(headgate_process, tmp_path, anthropic(1.0))
    assert (share >= 0.97, refused) == (True, 0)


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_where_only_the_limit_was_told_and_answers_take_3_s(headgate_process, tmp_path, anthropic):
    api = anthropic(3.0)
    service = api.services["anthropic"]
    service.api = replace(service.api, dialect=DIALECTS["none"])
    share, refused = used(headgate_process, tmp_path, api, "--limits", f"output_tokens={LIMIT:.0f}/min")
    assert (share >= 0.95, refused) == (True, 0)
