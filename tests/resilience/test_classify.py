"""Every row of the table of outcomes: is it retried, does it use up an attempt, does it count, who rests?"""

from __future__ import annotations

import json

import pytest

from headgate.core.decision import CircuitState
from headgate.errors import AuthenticationError, ProviderError, RateLimitError
from headgate.resilience import ErrorClassification, ProviderResilienceConfig, classify_error

DAY_SPENT = json.dumps(
    {"error": {"code": 403, "message": "Daily Limit Exceeded", "errors": [{"reason": "dailyLimitExceeded"}]}}
)
DEAD = json.dumps({"error": {"message": "4290 tokens", "type": "insufficient_quota", "code": "insufficient_quota"}})

#        status  body       error_type      retried  attempt  breaker  credential
TABLE = [
    (429, "", "rate_limit", True, False, False, "rests"),
    (432, "", "quota", False, False, False, "rests"),
    (403, DAY_SPENT, "quota", False, False, False, "rests"),
    (503, "", "overloaded", True, True, True, "stays"),
    (529, "", "overloaded", True, True, True, "stays"),
    (500, "", "server_error", True, True, True, "stays"),
    (502, "", "server_error", True, True, True, "stays"),
    (408, "", "timeout", True, True, True, "stays"),
    (401, "", "auth", False, False, False, "retired"),
    (403, "", "auth", False, False, False, "retired"),
    (402, "", "key_dead", False, False, False, "retired"),
    (429, DEAD, "spend", False, False, False, "retired"),
    (413, "", "too_large", False, True, False, "stays"),
    (400, "", "validation", False, True, False, "stays"),
    (404, "", "validation", False, True, False, "stays"),
    (422, "", "validation", False, True, False, "stays"),
]
rows = pytest.mark.parametrize(("status", "body", "kind", "retried", "attempt", "breaker", "credential"), TABLE)
RAISED = [
    (TimeoutError(), "timeout", True, True),
    (ConnectionResetError(), "connection", True, True),
    (OSError("no route"), "connection", True, True),
    (ValueError("a slip in the function: HTTP 429 503"), "unknown", False, False),
]


@rows
def test_without_credentials(play, http_error, status, body, kind, retried, attempt, breaker, credential) -> None:
    async def scenario(lab):
        script = lab.script(http_error(status, body=body), "fine")
        end = await lab.outcome(script)
        assert (end == "fine") is retried
        assert script.calls == 1 + retried
        assert lab.events[-2 if retried else -1].error_type == kind
        if retried:
            assert script.contexts[1][0] == 1 + attempt
        for _ in range(5):
            await lab.outcome(lab.script(http_error(status, body=body)), max_attempts=1, time_budget=600)
        is_open = lab.manager.get_breaker_state("api") is CircuitState.OPEN
        assert is_open is breaker
        assert lab.nothing_is_held()

    play(scenario)


@pytest.mark.no_cover
@rows
def test_with_credentials(play, http_error, status, body, kind, retried, attempt, breaker, credential) -> None:
    async def scenario(lab):
        credentials = lab.credentials()
        script = lab.script(http_error(status, body=body), "fine")
        end = await lab.outcome(script, credentials=credentials)
        elsewhere = credential in ("rests", "retired")
        assert (end == "fine") is (retried or elsewhere)
        assert script.contexts[-1][0] == 1 + (attempt and retried)
        assert credentials.reports[0][0] == "key-1"
        assert (credentials.back_at.get("key-1", 0.0) > 0.0) is elsewhere
        if elsewhere:
            assert credentials.reports[1] == ("key-2", "ok")
            assert script.contexts == [(1, "key-1"), (1, "key-2")]
        assert not credentials.held
        for _ in range(5):
            await lab.outcome(
                lab.script(http_error(status, body=body)), max_attempts=1, credentials=lab.credentials("other")
            )
        assert (lab.manager.get_breaker_state("api") is CircuitState.OPEN) is breaker
        assert lab.nothing_is_held()

    play(scenario)


@pytest.mark.parametrize(("error", "kind", "retried", "breaker"), RAISED, ids=lambda value: str(value)[:20])
def test_what_is_raised_without_an_answer(play, error, kind, retried, breaker) -> None:
    async def scenario(lab):
        script = lab.script(error, "fine")
        assert (await lab.outcome(script) == "fine") is retried
        assert lab.events[0].error_type == kind
        await lab.sicken(failures=0)
        for _ in range(5):
            await lab.outcome(lab.script(error), max_attempts=1)
        assert (lab.manager.get_breaker_state("api") is CircuitState.OPEN) is breaker

    play(scenario)


def test_the_only_credential_that_is_not_accepted_ends_the_call_with_the_answer_itself(play, http_error) -> None:
    async def scenario(lab):
        error = http_error(401)
        assert await lab.outcome(lab.script(error), credentials=lab.credentials("only")) is error

    play(scenario)


def test_credentials_are_tried_one_after_another_without_a_pause(play, http_error) -> None:
    async def scenario(lab):
        script = lab.script(http_error(401), http_error(432), "fine")
        assert await lab.execute(script, credentials=lab.credentials()) == "fine"
        assert [label for _, label in script.contexts] == ["key-1", "key-2", "key-3"]
        assert lab.clock.now() == 0.0

    play(scenario)


def test_five_rate_limits_with_three_attempts_are_done_on_the_first(play, http_error) -> None:
    async def scenario(lab):
        script = lab.script(*[http_error(429)] * 5, "fine")
        assert await lab.execute(script, max_attempts=3) == "fine"
        assert [attempt for attempt, _ in script.contexts] == [1] * 6

    play(scenario)


def test_the_cap_on_rate_limits_of_two_fails_on_the_third(play, http_error) -> None:
    async def scenario(lab):
        script = lab.script(http_error(429))
        config = lab.config(max_rate_limit_retries=2)
        assert isinstance(await lab.outcome(script, resilience_config=config), http_error)
        assert script.calls == 3

    play(scenario)


class TestResponses:
    def test_an_error_that_is_returned_is_retried_like_one_that_is_raised(self, play, response) -> None:
        async def scenario(lab):
            script = lab.script(response(503), response(429), fine := response(200))
            assert await lab.execute(script) is fine
            assert [event.error_type for event in lab.told("retry_attempt")] == ["overloaded", "rate_limit"]

        play(scenario)

    def test_after_the_last_attempt_it_is_returned_as_it_is(self, play, response) -> None:
        async def scenario(lab):
            script = lab.script(answer := response(500))
            assert await lab.execute(script) is answer
            assert script.calls == 3
            assert lab.events[-1].event_type == "request_failure"
            assert lab.nothing_is_held()

        play(scenario)

    def test_a_circuit_that_opens_meanwhile_returns_the_last_answer(self, play, response) -> None:
        async def scenario(lab):
            await lab.sicken(failures=4)
            assert await lab.execute(lab.script(answer := response(500)), credentials=None) is answer
            assert lab.nothing_is_held()

        play(scenario)

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            ({"ok": False, "error": "ratelimited"}, "rate_limit"),
            ({"error": {"code": 429, "message": "Rate limit exceeded", "metadata": {}}}, "rate_limit"),
            ({"error": {"code": 502, "message": "Provider returned error", "metadata": {}}}, "server_error"),
            ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
        ],
        ids=["slack", "openrouter", "openrouter upstream", "anthropic"],
    )
    @pytest.mark.parametrize("shape", ["body", "response", "reported"])
    def test_an_error_inside_a_200_is_an_outcome_like_any_other(self, play, response, body, kind, shape) -> None:
        async def scenario(lab):
            async def func(ctx):
                calls.append(ctx.attempt)
                said = body if len(calls) == 1 else {"ok": True}
                if shape == "reported":
                    ctx.report(body=said)
                    return "parsed"
                return said if shape == "body" else response(200, body=json.dumps(said))

            calls: list[int] = []
            await lab.execute(func)
            assert len(calls) == 2
            assert lab.told("retry_attempt")[0].error_type == kind

        play(scenario)

    @pytest.mark.parametrize("result", [{"error": None}, {"errors": "none"}, [], None, "error", {"status": 500}])
    def test_data_that_only_mentions_errors_is_data(self, play, result) -> None:
        async def scenario(lab):
            script = lab.script(result)
            assert await lab.execute(script) == result
            assert script.calls == 1

        play(scenario)

    def test_headers_of_a_good_answer_teach_the_pace(self, play, response) -> None:
        async def scenario(lab):
            headers = {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "20"}
            config = ProviderResilienceConfig()
            await lab.execute(lab.script(response(200, headers)), resilience_config=config)
            assert lab.manager.get_provider_status("api").rate == pytest.approx(100 / 20)
            assert [(one.limit, one.remaining) for one in lab.manager.limiter.key_status("api").told] == [(100, 0)]

        play(scenario)


class TestOwnErrors:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (RateLimitError("api", "slow down"), "rate_limit"),
            (RateLimitError("api", "slow down", status_code=429, retry_after=3.0), "rate_limit"),
            (RateLimitError("api", "used up", status_code=432, retry_after=3.0), "quota"),
            (AuthenticationError("api", "no"), "auth"),
            (ProviderError("api", "broken", status_code=500), "server_error"),
            (ProviderError("api", "strange"), "unknown"),
        ],
        ids=repr,
    )
    def test_they_are_known_by_class_and_status(self, error, kind) -> None:
        found = classify_error(None, error)
        assert (found.error_type, found.backoff_seconds) == (kind, error.retry_after)

    def test_their_retry_after_is_a_floor(self, play) -> None:
        async def scenario(lab):
            script = lab.script(RateLimitError("api", "slow down", retry_after=9.0), "fine")
            assert await lab.execute(script) == "fine"
            assert 9.0 <= script.waits[0] <= 9.9

        play(scenario)


class TestHooks:
    @pytest.mark.parametrize(
        ("said", "retried", "breaker"),
        [
            (ErrorClassification(True, False, error_type="hiccup"), True, False),
            (ErrorClassification(False, True, error_type="broken"), False, True),
            (ErrorClassification(True, True, error_type="rate_limit"), True, False),
            (ErrorClassification(False, False, error_type="server_error"), False, False),
            (None, True, True),
        ],
        ids=str,
    )
    def test_the_providers_word_goes_before_the_table(self, play, http_error, said, retried, breaker) -> None:
        async def scenario(lab):
            heard = []

            def classify(response, exception):
                heard.append((response.status_code, type(exception)))
                return said

            script = lab.script(http_error(500), "fine")
            end = await lab.outcome(script, classify_error=classify)
            assert (end == "fine") is retried
            assert heard[0] == (500, http_error)
            for _ in range(5):
                await lab.outcome(lab.script(http_error(500)), max_attempts=1, classify_error=classify, time_budget=600)
            assert (lab.manager.get_breaker_state("api") is CircuitState.OPEN) is breaker

        play(scenario)

    def test_its_backoff_is_a_floor_and_a_longer_one_of_the_servers_stands(self, play, http_error) -> None:
        async def scenario(lab):
            def classify(response, exception):
                return ErrorClassification(True, False, backoff_seconds=4.0, error_type="rate_limit")

            script = lab.script(http_error(429), http_error(429, {"retry-after": "11"}), "fine")
            await lab.execute(script, classify_error=classify)
            assert 4.0 <= script.waits[0] <= 4.5
            assert 11.0 <= script.waits[1] <= 12.2

        play(scenario)

    @pytest.mark.parametrize("slip", [KeyError("sk-canary"), "retry", {"retryable": True}, 7])
    def test_one_that_raises_or_says_nonsense_leaves_it_to_the_table(self, play, http_error, caplog, slip) -> None:
        async def scenario(lab):
            def classify(response, exception):
                if isinstance(slip, Exception):
                    raise slip
                return slip

            script = lab.script(http_error(500), http_error(400))
            error = await lab.outcome(script, classify_error=classify)
            assert (script.calls, error.response.status_code) == (2, 400)
            assert lab.nothing_is_held()

        play(scenario)
        assert "Ignoring hook" in caplog.text
        assert "sk-canary" not in caplog.text

    @pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), "3"])
    def test_a_backoff_that_is_no_time_is_refused_by_name(self, seconds) -> None:
        with pytest.raises(ValueError, match="backoff_seconds="):
            ErrorClassification(True, False, backoff_seconds=seconds)
