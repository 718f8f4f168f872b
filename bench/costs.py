"""The cost table: which operations are timed, every contender's statement for each, and Headgate's mark."""

from __future__ import annotations

import random
from functools import partial
from math import inf
from types import SimpleNamespace

from bench.contenders import breakers, floors, limiters, ours, retries
from bench.measure import Contender, CostRow, Mark, Names

MANY = 100_000
SHUFFLED_KEYS = [f"host-{number}.example" for number in range(MANY)]
random.Random(7).shuffle(SHUFFLED_KEYS)

HUGE = limiters.NEVER_BINDS


# What the statements refer to, where it takes more than a line to make.


def _limits_sync() -> Names:
    from limits import RateLimitItemPerHour

    return {"hit": limiters.limits_fixed_window().hit, "limit": RateLimitItemPerHour(HUGE)}


async def _limits_async() -> Names:
    from limits import RateLimitItemPerHour
    from limits.aio.storage import MemoryStorage
    from limits.aio.strategies import FixedWindowRateLimiter

    return {"hit": FixedWindowRateLimiter(MemoryStorage()).hit, "limit": RateLimitItemPerHour(HUGE)}


def _botocore_cycle() -> Names:
    limiter = limiters.botocore_adaptive(looks_for_throttling=False)
    return {"send": limiter.on_sending_request, "receive": limiter.on_receiving_response}


def _botocore_cycle_with_detector() -> Names:
    limiter = limiters.botocore_adaptive(looks_for_throttling=True)
    answer = {
        "response": (SimpleNamespace(status_code=200, headers={}), {"ResponseMetadata": {"HTTPStatusCode": 200}}),
        "operation": SimpleNamespace(error_shapes=[]),
        "attempts": 1,
        "caught_exception": None,
        "request_dict": {"context": {}},
    }
    return {"send": limiter.on_sending_request, "receive": limiter.on_receiving_response, "answer": answer}


async def _aiolimiter() -> Names:
    from aiolimiter import AsyncLimiter

    return {"acquire": AsyncLimiter(HUGE, 1).acquire}


async def _pyrate_async() -> Names:
    return {"acquire": limiters.pyrate(HUGE, HUGE).try_acquire_async}


async def _throttled_async() -> Names:
    return {"limit": limiters.throttled_async(HUGE, HUGE).limit}


def _steindamm_keys() -> Names:
    return {"buckets": {key: limiters.steindamm_sync(key, HUGE, HUGE) for key in SHUFFLED_KEYS}}


def _bare_keys() -> Names:
    return {"buckets": {key: floors.BareBucket(HUGE) for key in SHUFFLED_KEYS}}


def _calls(**names: object) -> Names:
    return {"call": floors.succeed, "call_async": floors.succeed_async, **names}


def _executed(strategy: str, time_budget: float) -> Names:
    return _calls(**ours.executor(strategy, time_budget))


def _retried(decorate: retries.Decorator, function: retries.Function) -> Names:
    return {"retried": decorate(function)}


async def _purgatory_kept_async() -> Names:
    return _calls(breaker=await breakers.purgatory_async(5, 30.0).get_breaker("api"))


EMPTY = Contender("empty call", "call()", _calls)
EMPTY_AWAIT = Contender("empty await", "await call_async()", _calls)

COSTS = (
    CostRow(
        name="acquire-sync",
        title="acquire, sync, thread-safe",
        floors=(
            EMPTY,
            Contender("bare bucket", "acquire()", lambda: {"acquire": floors.BareBucket(HUGE).acquire}),
        ),
        peers=(
            Contender("botocore", "acquire()", lambda: {"acquire": limiters.botocore_bucket(HUGE).acquire}),
            Contender("limits", "hit(limit, key)", _limits_sync),
            Contender("throttled", "limit(key)", lambda: {"limit": limiters.throttled_sync(HUGE, HUGE).limit}),
            Contender("pyrate", "acquire(key)", lambda: {"acquire": limiters.pyrate(HUGE, HUGE).try_acquire}),
        ),
        ours=((Contender(ours.NAME, "acquire(key)", lambda: ours.unbound("fixed")), Mark(900, 942)),),
        note="every rate and burst is 10^9; limits: fixed window of an hour; throttled: GCRA; pyrate: its default "
        "in-memory log; botocore: the token bucket of its adaptive mode",
    ),
    CostRow(
        name="cycle",
        title="whole permit cycle: acquire, report, learn, breaker",
        floors=(),
        peers=(Contender("botocore", "send(None); receive()", _botocore_cycle),),
        asides=(
            Contender("botocore with its detector", "send(None); receive(**answer)", _botocore_cycle_with_detector),
        ),
        ours=tuple(
            (
                Contender(
                    f"{ours.NAME} {strategy}",
                    "acquire(key).report(status_code=200, latency=0.01)",
                    partial(ours.unbound, strategy),
                ),
                Mark(at_most, 3800),
            )
            for strategy, at_most in (("aimd", 3500), ("adaptive", 5000))
        ),
        note="botocore: adaptive mode's on_sending_request and on_receiving_response, switched on, its caps lifted so "
        "that the learned rate never binds, without the look for throttling in the answer; it keeps no latency and "
        "has no breaker",
    ),
    CostRow(
        name="acquire-async",
        title="acquire, async",
        floors=(
            EMPTY_AWAIT,
            Contender("bare bucket", "await acquire()", lambda: {"acquire": floors.BareBucket(HUGE).acquire_async}),
        ),
        peers=(
            Contender("aiolimiter", "await acquire()", _aiolimiter),
            Contender("limits", "await hit(limit, key)", _limits_async),
            Contender("throttled", "await limit(key)", _throttled_async),
            Contender("pyrate", "await acquire(key)", _pyrate_async),
        ),
        ours=((Contender(ours.NAME, "await acquire_async(key)", lambda: ours.unbound("fixed")), Mark(1000, 1015)),),
        note="as above; only Headgate's object may be shared between threads and loops",
    ),
    CostRow(
        name="keys",
        title="acquire on one of 100,000 keys, sync",
        floors=(Contender("bare bucket", "buckets[key].acquire()", _bare_keys, SHUFFLED_KEYS),),
        peers=(
            Contender("limits", "hit(limit, key)", _limits_sync, SHUFFLED_KEYS),
            Contender("steindamm", "with buckets[key]: pass", _steindamm_keys, SHUFFLED_KEYS),
        ),
        ours=((Contender(ours.NAME, "acquire(key)", lambda: ours.unbound("fixed"), SHUFFLED_KEYS), Mark(1500, 5143)),),
        note="keys in shuffled order, all of them in use before the first sample; samples of 100 ms, chosen after "
        "shorter ones turned out to miss the sweeps of limits' own thread, which had let its minimum fall and our "
        "ratio rise above the mark",
    ),
    CostRow(
        name="breaker-sync",
        title="breaker around a call, sync, added",
        floors=(
            EMPTY,
            Contender("bare breaker", "guarded()", lambda: {"guarded": floors.bare_breaker(floors.succeed)}),
        ),
        peers=(
            Contender(
                "purgatory", "guarded()", lambda: {"guarded": breakers.purgatory_sync(5, 30.0)("api")(floors.succeed)}
            ),
            Contender("pybreaker", "breaker(call)", lambda: _calls(breaker=breakers.pybreaker(5, 30.0).call)),
            Contender("aiobreaker", "breaker(call)", lambda: _calls(breaker=breakers.aiobreaker(5, 30.0).call)),
        ),
        ours=(
            (
                Contender(ours.NAME, "breaker(call)", lambda: _calls(breaker=ours.circuit(5, 30.0).call)),
                Mark(400, 1163),
            ),
        ),
        asides=(
            Contender(
                "purgatory, its breaker kept",
                "with breaker: call()",
                lambda: _calls(breaker=breakers.purgatory_sync(5, 30.0).get_breaker("api")),
            ),
        ),
        note="closed circuit, the call succeeds, its own cost taken off; each in its cheapest documented form: for "
        "purgatory the decorator, which looks its circuit up by name each time; purgatory takes no lock",
        added_to="empty call",
    ),
    CostRow(
        name="breaker-async",
        title="breaker around a call, async, added",
        floors=(
            EMPTY_AWAIT,
            Contender(
                "bare breaker", "await guarded()", lambda: {"guarded": floors.bare_breaker_async(floors.succeed_async)}
            ),
        ),
        peers=(
            Contender(
                "purgatory",
                "await guarded()",
                lambda: {"guarded": breakers.purgatory_async(5, 30.0)("api")(floors.succeed_async)},
            ),
            Contender(
                "aiobreaker",
                "await breaker(call_async)",
                lambda: _calls(breaker=breakers.aiobreaker(5, 30.0).call_async),
            ),
            Contender("hyx", "async with breaker: await call_async()", lambda: _calls(breaker=breakers.hyx(5, 30.0))),
        ),
        ours=(
            (
                Contender(
                    ours.NAME, "await breaker(call_async)", lambda: _calls(breaker=ours.circuit(5, 30.0).call_async)
                ),
                Mark(400, 1163),
            ),
        ),
        asides=(
            Contender("purgatory, its breaker kept", "async with breaker: await call_async()", _purgatory_kept_async),
        ),
        note="as above",
        added_to="empty await",
    ),
    CostRow(
        name="retry-sync",
        title="retry around a call that succeeds, sync, added",
        floors=(EMPTY, Contender("bare loop", "retried()", partial(_retried, floors.bare_retry, floors.succeed))),
        peers=tuple(
            Contender(make.__name__, "retried()", partial(_retried, make, floors.succeed))
            for make in (retries.backoff, retries.stamina, retries.tenacity)
        ),
        ours=(
            (Contender(ours.NAME, "retry(call, max_attempts=3)", lambda: _calls(**ours.retries())), Mark(1000, 2681)),
        ),
        note="three attempts allowed; peers as decorators, Headgate as a call",
        added_to="empty call",
    ),
    CostRow(
        name="retry-async",
        title="retry around a call that succeeds, async, added",
        floors=(
            EMPTY_AWAIT,
            Contender("bare loop", "await retried()", partial(_retried, floors.bare_retry_async, floors.succeed_async)),
        ),
        peers=tuple(
            Contender(make.__name__, "await retried()", partial(_retried, make, floors.succeed_async))
            for make in (retries.hyx, retries.backoff, retries.stamina, retries.tenacity)
        ),
        ours=(
            (
                Contender(ours.NAME, "await retry_async(call_async, max_attempts=3)", lambda: _calls(**ours.retries())),
                Mark(1000, 1281),
            ),
        ),
        note="three attempts allowed; peers as decorators, Headgate as a call",
        added_to="empty await",
    ),
    CostRow(
        name="executor",
        title="the executor around a call that succeeds, async, added",
        floors=(EMPTY_AWAIT,),
        peers=tuple(
            Contender(make.__name__, "await retried()", partial(_retried, make, floors.succeed_async))
            for make in (retries.stamina, retries.tenacity)
        ),
        ours=tuple(
            (
                Contender(
                    f"{ours.NAME} {name}",
                    "await execute(call_async, key, manager=manager, resilience_config=config)",
                    partial(_executed, strategy, time_budget),
                ),
                Mark(at_most, 17_700),
            )
            for name, strategy, time_budget, at_most in (
                ("aimd", "aimd", inf, 8_000),
                ("adaptive-with-budget", "adaptive", 60.0, 12_000),
            )
        ),
        note="kill switch, pace, circuit, learning and retry budget around one call, and for the second a time budget "
        "of 60 s with its timer; the peers only retry, three attempts allowed",
        added_to="empty await",
    ),
)
