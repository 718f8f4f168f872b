"""Errors by what they mean: accounts that may not spend, tiers that are full, models that are gone, plans used up."""

import asyncio
import json
from itertools import pairwise

import pytest
from tests.sdks import anthropic, openai

import headgate
from headgate import AdaptiveRateLimiter, BatchConfig, BatchRunner, CredentialCoordinator, RateLimitConfig
from headgate.core.decision import Outcome
from headgate.core.signal import Signal
from headgate.lab.virtual_time import run
from headgate.mock.api import MockPlan
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.units import Rate

BILLING = "Your organization has reached its spend limit"
SPEND = (429, {"error": {"message": BILLING, "type": "insufficient_quota", "code": "project_spend_limit_exceeded"}})
GONE = (404, {"error": {"message": "The model `gone` has been deprecated", "type": "x", "code": "model_not_found"}})
FULL = (429, {"error": {"message": "Resource Unavailable", "type": "resource_unavailable", "code": None}})
LARGE = "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 45000."
UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)
MESSAGES = [{"role": "user", "content": "How high is the water?"}]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789abcdef")


def end(said):
    return json.loads(said.out.splitlines()[-1])


def write(batch, bodies):
    lines = [json.dumps({"custom_id": f"row-{at}", "body": body}) + "\n" for at, body in enumerate(bodies)]
    batch.rows.write_text("".join(lines))


# ---------------------------------------------------------------------- spend


@pytest.mark.parametrize("keys", [(), ("--keys", "env:ONE_KEY")])
def test_rows_stay_open_when_the_account_may_not_spend(batch, server, keys):
    server.plan = lambda n: SPEND if n > 3 else (200, {"ok": True})
    batch.write(200)
    ended = end(batch.run("--json", "--workers", "2", *keys))
    assert (ended["exit_code"], ended["done"], ended["dead"], ended["open"]) == (4, 3, 0, 197)
    assert (ended["held_by"], ended["reasons"]) == ("spend", {})
    assert BILLING in ended["next"], "in the server's words"
    assert len(server.calls) <= 3 + 2 * 2, "nothing is sent once it is known"


def openai_error(status, code, kind="insufficient_quota", message=BILLING):
    return status, {"error": {"message": message, "type": kind, "code": code}}


def anthropic_error(status, kind, message=BILLING, **more):
    return status, {"type": "error", "error": {"type": kind, "message": message, **more}}


USED = "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."
SPEND_STOPS = {
    "insufficient_quota": openai_error(429, "insufficient_quota"),
    "credit_balance": openai_error(429, "credit_balance_exhausted"),
    "organization_spend": openai_error(429, "organization_spend_limit_exceeded"),
    "project_spend": openai_error(429, "project_spend_limit_exceeded"),
    "organization_usage": openai_error(429, "organization_usage_limit_exceeded"),
    "anthropic-402": anthropic_error(402, "billing_error"),
    "anthropic-429": anthropic_error(429, "rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
    "anthropic-400": anthropic_error(400, "invalid_request_error", USED),
    "gemini-402": (402, {"error": {"code": 402, "message": BILLING, "status": "RESOURCE_EXHAUSTED"}}),
    "groq-400": openai_error(400, "blocked_api_access", "invalid_request_error"),
}


@pytest.mark.parametrize("stop", SPEND_STOPS.values(), ids=SPEND_STOPS)
def test_every_vendors_spend_stop_leaves_rows_open_and_is_told_in_its_words(batch, server, stop):
    server.plan = lambda _: stop
    batch.write(6)
    ended = end(batch.run("--json", "--workers", "2"))
    assert (ended["exit_code"], ended["done"], ended["dead"], ended["open"]) == (4, 0, 0, 6)
    assert ended["held_by"] == "spend"
    assert stop[1]["error"]["message"].rstrip(".") in ended["next"]
    assert len(server.calls) <= 2


def test_money_is_known_by_a_code_and_never_by_a_missing_retry_after(batch, server):
    slow_down = openai_error(429, "rate_limit_exceeded", "requests", "Slow down")
    server.plan = lambda n: slow_down if n == 1 else (200, {"ok": True})
    batch.write(2)
    assert end(batch.run("--json", "--workers", "1"))["exit_code"] == 0


def test_a_run_goes_on_once_the_account_is_paid(batch, server):
    server.plan = lambda n: SPEND if n == 1 else (200, {"ok": True})
    batch.write(5)
    assert end(batch.run("--json", "--workers", "1"))["exit_code"] == 4
    assert end(batch.run("--json"))["exit_code"] == 0


@pytest.mark.parametrize("has_keys", [True, False])
def test_one_row_goes_every_15_minutes_to_find_out(has_keys):
    async def scenario(clock):
        sent = []

        async def ask(item, ctx):
            sent.append(clock.now())
            await asyncio.sleep(1.0)
            ctx.report(Signal(outcome=Outcome.SPEND if clock.now() < 2000.0 else Outcome.OK))
            return item

        credentials = (
            CredentialCoordinator(["sk-one-0123456789", "sk-two-0123456789"], clock=clock) if has_keys else None
        )
        runner = BatchRunner(
            ask, workers=8, clock=clock, limiter=AdaptiveRateLimiter(UNPACED, clock=clock), credentials=credentials
        )
        report = await runner.run(range(50))
        return report, sent, clock.now()

    report, sent, ended_at = run(scenario)
    assert (report.done, report.dead) == (50, 0)
    first = min(sent)
    burst = [at for at in sent if at < first + 2.0]
    probes = [at for at in sent if first + 2.0 <= at < first + 2600.0]
    accounts = 2 if has_keys else 1
    assert len(burst) <= 8 * accounts
    assert len(probes) <= 2 * accounts + 1
    assert ended_at < first + 4000.0, "one success is enough"


@pytest.mark.parametrize(
    ("name", "trouble", "status"),
    [
        ("openai", "spend", 429),
        ("openai", "quota", 429),
        ("anthropic", "spend", 429),
        ("anthropic", "usage_limit", 400),
    ],
)
def test_a_client_is_told_and_nothing_is_repeated(name, trouble, status):
    async def main():
        async with MockServer(MockPlan(rate=Rate(1000), latency=0.0), providers=(name,), seed=1) as server:
            service = server.services[name]
            service.faults.add(Fault(trouble=trouble), 5)
            make = headgate.async_openai_client if name == "openai" else headgate.async_anthropic_client
            client = make(api_key="any", base_url=server.base_url(name))
            endpoint = client.chat.completions if name == "openai" else client.messages
            with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
                await endpoint.create(model="m", messages=MESSAGES, max_tokens=5)
            await client.close()
            return caught.value.status_code, service.counts["asked"]

    assert asyncio.run(main()) == (status, 1)


# ---------------------------------------------------------------------- capacity


def test_a_full_tier_rests_and_the_usual_one_goes_on(batch, server):
    seen = []

    def plan(n):
        is_flex = server.calls[n - 1][1].get("service_tier") == "flex"
        seen.append(is_flex)
        return FULL if is_flex and seen.count(True) <= 2 else (200, {"ok": True})

    server.plan = plan
    write(batch, [{"model": "m", **({"service_tier": "flex"} if at % 2 else {})} for at in range(20)])
    ended = end(batch.run("--json", "--workers", "1", "--max-attempts", "1"))
    assert (ended["exit_code"], ended["done"]) == (0, 20), "no attempt is used up"
    assert seen[-1], "the rows of the flex tier had to wait"


def test_capacity_counts_as_a_rate_limit_and_against_nothing_else():
    async def scenario(clock):
        calls = []

        async def ask(item, ctx):
            calls.append(clock.now())
            ctx.report(Signal(outcome=Outcome.CAPACITY))

        limiter = AdaptiveRateLimiter(RateLimitConfig(), clock=clock)
        runner = BatchRunner(
            ask, clock=clock, limiter=limiter, key=lambda _: "api", config=BatchConfig(max_rate_limit_retries=4)
        )
        report = await runner.run([1])
        return report, calls, limiter.circuit_state("api").value

    report, calls, circuit = run(scenario)
    assert report.reasons == {"capacity": 1}
    assert circuit == "closed"
    assert len(calls) >= 5
    waits = [later - earlier for earlier, later in pairwise(calls)]
    assert waits == sorted(waits), "it rests longer each time"


def test_a_client_repeats_what_a_full_tier_has_refused():
    async def main():
        async with MockServer(MockPlan(rate=Rate(1000), latency=0.0), providers=("openai",), seed=1) as server:
            server.services["openai"].faults.add(Fault(trouble="capacity"))
            client = headgate.async_openai_client(api_key="any", base_url=server.base_url("openai"))
            answer = await client.chat.completions.create(model="m", messages=MESSAGES, service_tier="flex")
            keys = [one for one in passing_of(client).limiter.snapshot().keys if one.key.endswith("/m/flex")]
            await client.close()
            return answer.choices[0].finish_reason, len(keys)

    assert asyncio.run(main()) == ("stop", 1)


def passing_of(client):
    return client._client._transport.passing


# ---------------------------------------------------------------------- models, sizes, plans


def test_a_model_that_is_gone_stops_after_a_few_rows_and_the_others_go_on(batch, server):
    server.plan = lambda n: GONE if server.calls[n - 1][1]["model"] == "gone" else (200, {"ok": True})
    write(batch, [{"model": "gone" if at % 2 else "here"} for at in range(200)])
    ended = end(batch.run("--json"))
    assert (ended["exit_code"], ended["done"], ended["dead"], ended["open"]) == (4, 100, 3, 97)
    assert ended["stopped"].startswith("no_model: ")
    assert "The model `gone` has been deprecated" in ended["next"]


NO_MODEL = {
    "openai": openai_error(404, "model_not_found", "invalid_request_error", "The model `gone` does not exist"),
    "anthropic": anthropic_error(404, "not_found_error", "model: gone"),
    "azure": openai_error(404, "DeploymentNotFound", None, "The API deployment for this resource does not exist."),
    "mistral": (400, {"object": "error", "message": "Invalid model: gone", "type": "invalid_model", "code": "1500"}),
}


@pytest.mark.parametrize("gone", NO_MODEL.values(), ids=NO_MODEL)
def test_so_it_does_at_every_vendor(batch, server, gone):
    server.plan = lambda _: gone
    write(batch, [{"model": "gone"} for _ in range(20)])
    ended = end(batch.run("--json", "--workers", "1"))
    assert (ended["exit_code"], ended["dead"], ended["open"], len(server.calls)) == (4, 3, 17, 3)


@pytest.mark.parametrize("status", [429, 413], ids=["openai", "groq"])
def test_a_row_larger_than_the_whole_bucket_fails_at_once_with_the_number(batch, server, status):
    body = {"error": {"message": LARGE, "type": "tokens", "code": "rate_limit_exceeded"}}
    server.plan = lambda n: (status, body) if n == 1 else (200, {"ok": True})
    batch.write(2)
    ended = end(batch.run("--json", "--workers", "1"))
    assert (ended["dead"], ended["done"], len(server.calls)) == (1, 1, 2)
    assert "Limit 30000, Requested 45000" in ended["failures"][0]["said"]


UNIFIED = {
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
}
PLAN_USED = {"type": "error", "error": {"type": "rate_limit_error", "message": "Usage limit reached."}}


def resets_in(seconds):
    import math
    import time

    return {**UNIFIED, "anthropic-ratelimit-unified-reset": str(math.ceil(time.time() + seconds))}


def test_a_run_stops_until_a_plan_resets(batch, server):
    server.plan = lambda _: (429, PLAN_USED, resets_in(7200))
    batch.write(5)
    ended = end(batch.run("--json"))
    assert (ended["exit_code"], len(server.calls) <= 5) == (4, True)
    assert 7000 < ended["come_back_in"] < 8200


def test_a_run_can_wait_for_that(batch, server):
    server.plan = lambda n: (429, PLAN_USED, resets_in(0.5)) if n == 1 else (200, {"ok": True})
    batch.write(5)
    assert end(batch.run("--json", "--wait", "--workers", "1"))["exit_code"] == 0


def test_a_client_can_wait_for_that(server):
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": "end_turn",
    }
    fine = {**message, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    server.plan = lambda n: (429, PLAN_USED, resets_in(0.5)) if n == 1 else (200, fine)
    client = headgate.anthropic_client(api_key="any", base_url=server.url.removesuffix("/v1"), max_wait=None)
    assert client.messages.create(model="m", messages=MESSAGES, max_tokens=5).id == "m"
    assert len(server.calls) == 2
    client.close()
