"""``execute_with_resilience(..., fallback=[...])``, in virtual time."""

from __future__ import annotations

from typing import ClassVar

import pytest

from headgate import CredentialCoordinator, Fallback, execute_with_resilience, execute_with_resilience_sync, guarded
from headgate.core.fallback import AWAY_FOR
from headgate.errors import ConfigError, TimeBudgetExceededError
from headgate.exchange import Answer
from headgate.lab.virtual_time import run
from headgate.resilience import ProviderResilienceManager

UNPAID = Answer(429, {}, b'{"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}')
TOO_LONG = Answer(400, {}, b'{"error": {"type": "invalid_request_error", "code": "context_length_exceeded"}}')
GONE = Answer(404, {}, b'{"error": {"type": "invalid_request_error", "code": "model_not_found"}}')
DOWN = Answer(503, {}, b"")
BAD = Answer(400, {}, b'{"error": {"type": "invalid_request_error", "code": null}}')
FULL_DAY = Answer(429, {"Retry-After": "3600"}, b'{"error": {"code": "rate_limit_exceeded"}}')
OTHER = Fallback(to="other", model="small")


class Api:
    """Answers by target, and remembers who was asked."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def __call__(self, ctx):
        self.asked.append((ctx.provider, ctx.model, ctx.credential))
        return self.answers.get(ctx.provider, "fine")

    async def call(self, ctx):
        return self(ctx)

    @property
    def order(self):
        return [provider for provider, _, _ in self.asked]


@pytest.fixture
def world():
    """``world(main)`` runs a coroutine on a loop whose clock jumps; ``main(manager, clock)``."""

    def in_virtual_time(main):
        return run(lambda clock: main(ProviderResilienceManager(clock=clock), clock))

    return in_virtual_time


@pytest.mark.parametrize(
    "answer", [UNPAID, TOO_LONG, GONE, DOWN, FULL_DAY], ids=["spend", "long", "gone", "down", "day"]
)
def test_another_target_takes_what_the_first_cannot(world, answer):
    api = Api(api=answer)

    async def main(manager, clock):
        return await execute_with_resilience(api.call, "api", fallback=[OTHER], manager=manager)

    assert world(main) == "fine"
    assert api.asked[-1] == ("other", "small", None)
    assert set(api.order[:-1]) == {"api"}


@pytest.mark.parametrize(("answer", "on"), [(BAD, None), (UNPAID, "too_long")])
def test_what_is_no_reason_stays(world, answer, on):
    api = Api(api=answer)
    other = OTHER if on is None else Fallback(to="other", on=on)

    async def main(manager, clock):
        return await execute_with_resilience(api.call, "api", fallback=[other], manager=manager)

    assert world(main) is answer
    assert set(api.order) == {"api"}


def test_the_primary_is_asked_again_when_it_may_be_back(world):
    api = Api(api=UNPAID)

    async def main(manager, clock):
        async def once():
            return await execute_with_resilience(api.call, "api", fallback=[OTHER], manager=manager)

        await once()
        await once()
        assert api.order == ["api", "other", "other"], "it is known to have no credit"
        await clock.sleep_async(AWAY_FOR)
        api.answers.clear()
        await once()
        await once()
        assert api.order[3:] == ["api", "api"]

    world(main)


def test_an_open_circuit_moves_calls_until_it_closes(world):
    api = Api(api=DOWN)

    async def main(manager, clock):
        async def once():
            return await execute_with_resilience(
                api.call, "api", fallback=[OTHER], manager=manager, max_attempts=1, when_open="wait"
            )

        for _ in range(5):
            assert await once() == "fine"
        del api.asked[:]
        assert await once() == "fine"
        assert api.order == ["other"], "nothing waits for the circuit"
        await clock.sleep_async(31.0)
        api.answers.clear()
        await once()
        assert api.order[1:] == ["api"]

    world(main)


def test_the_last_error_says_who_was_asked(world):
    def ask(ctx):
        raise ConnectionError("no route")

    async def main(manager, clock):
        async def call(ctx):
            ask(ctx)

        with pytest.raises(ConnectionError) as caught:
            await execute_with_resilience(call, "api", fallback=[OTHER], manager=manager, max_attempts=1)
        assert caught.value.__notes__ == ["headgate: not taken by api (failing), other/small (failing)"]

    world(main)


def test_one_time_budget_is_for_all_targets(world):
    async def main(manager, clock):
        async def slow(ctx):
            await clock.sleep_async(4.0)
            return DOWN

        began = clock.now()
        with pytest.raises(TimeBudgetExceededError):
            await execute_with_resilience(
                slow, "api", fallback=[OTHER, Fallback(to="third")], manager=manager, max_attempts=1, time_budget=6.0
            )
        assert clock.now() - began == pytest.approx(6.0)

    world(main)


def test_each_target_has_its_own_keys(world):
    api = Api(api=TOO_LONG)
    ours, theirs = CredentialCoordinator(["ours-0123456789"]), CredentialCoordinator(["theirs-0123456789"])
    targets = [Fallback(to="free", on="spend"), Fallback(to="other", keys=theirs)]

    async def main(manager, clock):
        return await execute_with_resilience(api.call, "api", fallback=targets, manager=manager, credentials=ours)

    assert world(main) == "fine"
    assert [(who, key) for who, _, key in api.asked] == [("api", "ours-0123456789"), ("other", "theirs-0123456789")]


def test_a_model_of_the_same_provider_uses_its_keys_and_the_sync_form_does_the_same():
    api = Api()
    api.answers = {"api": GONE}
    keys = CredentialCoordinator(["ours-0123456789"])

    def ask(ctx):
        api.asked.append((ctx.provider, ctx.model, ctx.credential))
        return "fine" if ctx.model else GONE

    manager = ProviderResilienceManager()
    assert execute_with_resilience_sync(ask, "api", fallback=["new"], credentials=keys, manager=manager) == "fine"
    assert api.asked == [("api", "", "ours-0123456789"), ("api", "new", "ours-0123456789")]


def test_an_account_without_credit_is_not_asked_for_another_model(caplog):
    api = Api(api=UNPAID)
    caplog.set_level("INFO", logger="headgate.resilience")
    manager = ProviderResilienceManager()
    assert execute_with_resilience_sync(api, "api", fallback=["new", OTHER], manager=manager) == "fine"
    assert api.order == ["api", "other"]
    assert "api: moved to other/small (spend)" in caplog.messages


def test_call_sites_with_the_same_names_and_other_keys_know_their_own_accounts():
    asked = []

    def ask(ctx):
        asked.append((ctx.provider, ctx.model, ctx.credential[:4]))
        return UNPAID if ctx.credential.startswith("poor") else "fine"

    def call(keys, fallback, manager):
        manager = manager or ProviderResilienceManager()
        return execute_with_resilience_sync(ask, "api", fallback=[fallback], credentials=keys, manager=manager)

    poor, rich = (CredentialCoordinator([f"{name}-0123456789"]) for name in ("poor", "rich"))
    manager = ProviderResilienceManager()
    for keys in (poor, rich, poor):
        assert call(keys, Fallback(to="other", keys=rich), manager) == "fine"
    assert asked == [("api", "", "poor"), ("other", "", "rich"), ("api", "", "rich"), ("other", "", "rich")]
    asked.clear()
    poor, manager = CredentialCoordinator(["poor-0123456789"]), ProviderResilienceManager()
    assert call(rich, "new", manager) == "fine"
    assert call(poor, Fallback(model="new", keys=rich), manager) == "fine"
    assert asked == [("api", "", "rich"), ("api", "", "poor"), ("api", "new", "rich")]
    asked.clear()
    manager = ProviderResilienceManager()
    for name in ("poor", "rich") * 3:  # each is freed before the next, which may get its place in memory
        keys = None
        keys = CredentialCoordinator([f"{name}-0123456789"])
        assert call(keys, Fallback(to="other", keys=rich), manager) == "fine"
    assert [key for provider, _, key in asked if provider == "api"] == ["poor", "rich"] * 3


def test_the_reason_of_a_move_is_the_one_that_allows_it_and_only_who_was_asked_is_named(caplog):
    caplog.set_level("INFO", logger="headgate.resilience")
    spend_only = [Fallback(to=name, on="spend") for name in ("gone", "third")]
    api, manager = Api(api=UNPAID, gone=GONE), ProviderResilienceManager()
    assert execute_with_resilience_sync(api, "api", fallback=spend_only, manager=manager) == "fine"
    assert [text for text in caplog.messages if "moved" in text] == [
        "api: moved to gone (spend)",
        "gone: moved to third (spend)",
    ]

    class UnpaidError(Exception):
        status_code = 429
        body: ClassVar = {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}

    def refuse(ctx):
        raise UnpaidError

    with pytest.raises(UnpaidError) as caught:
        execute_with_resilience_sync(refuse, "api", fallback=["new"], manager=ProviderResilienceManager())
    assert caught.value.__notes__ == ["headgate: not taken by api (spend)"]


def test_a_function_that_cannot_know_its_target_is_refused():
    with pytest.raises(ConfigError, match="must take ctx"):
        execute_with_resilience_sync(lambda: 1, "api", fallback=["new"])
    with pytest.raises(ConfigError, match="must be a CredentialCoordinator"):
        execute_with_resilience_sync(lambda ctx: 1, "api", fallback=["model=m,keys=env:X"])


def test_a_guarded_function_is_called_for_another_target_in_a_task_and_in_a_thread(world):
    class GoneError(Exception):
        status_code = 404
        body: ClassVar = {"error": {"type": "invalid_request_error", "code": "model_not_found"}}

    def answer(ctx, number):
        if not ctx.model:
            raise GoneError
        return number, ctx.provider, ctx.model

    async def main(manager, clock):
        @guarded("api", fallback=[OTHER], manager=manager)
        async def ask(number, *, ctx):
            return answer(ctx, number)

        return await ask(7)

    assert world(main) == (7, "other", "small")

    @guarded("api", fallback="small", manager=ProviderResilienceManager())
    def ask(number, ctx=None):
        return answer(ctx, number)

    assert ask(8) == (8, "api", "small")


def test_a_guard_that_cannot_fall_back_says_so_when_it_decorates():
    with pytest.raises(ConfigError, match="must take ctx"):
        guarded("api", fallback=[OTHER])(lambda: 1)
    with pytest.raises(ConfigError, match="generator function"):

        @guarded("api", fallback=[OTHER])
        def pieces(ctx):
            yield 1

    with pytest.raises(ConfigError, match="is not a reason to move"):
        guarded("api", fallback=["model=m,on=money"])
