"""A recorded run, decided once more by the simulator: every call leaves when it did, and the same is learned."""

import asyncio
import json
import random

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.core.decision import Outcome
from headgate.errors import Refused
from headgate.lab.traces.reader import TraceError, read_trace
from headgate.lab.traces.replay import NotReplayableError, Recording, differences, replay
from headgate.lab.traces.trace import Heading, TraceWriter
from headgate.lab.virtual_time import LoopClock, VirtualLoop, run

pytestmark = pytest.mark.no_cover

SECONDS = 20.0


class Api:
    """A quota for each key, an outage, now and then a failure, and headers that tell what is left."""

    def __init__(self, clock, seed, *, rate=20.0, outage=(8.0, 12.0), tells=False, asks_to_wait=True):
        self._clock, self._rng = clock, random.Random(seed)
        self._rate, self._outage, self._tells, self._asks = rate, outage, tells, asks_to_wait
        self._buckets = {}

    async def call(self, key):
        """Status and headers, after a while."""
        level, filled_at = self._buckets.get(key, (10.0, 0.0))
        now = self._clock.now()
        level = min(10.0, level + (now - filled_at) * self._rate)
        status = 200
        if self._outage[0] <= now < self._outage[1]:
            status = 503
        elif level < 1.0:
            status = 429
        elif self._rng.random() < 0.01:
            status = 500
        level -= status != 429 and level >= 1.0
        self._buckets[key] = (level, now)
        await asyncio.sleep(self._rng.uniform(0.02, 0.3) if status == 200 else self._rng.uniform(0.01, 0.02))
        headers = {}
        if self._tells:
            headers = {"x-ratelimit-limit-requests": "20", "x-ratelimit-remaining-requests": str(int(level)),
                       "x-ratelimit-reset-requests": "1s"}  # fmt: skip
        if status == 429 and self._asks:
            headers["retry-after"] = "1"
        return status, headers


async def work(clock, limiter, api, key, until):
    while clock.now() < until:
        try:
            async with limiter.permit(key, max_wait=20.0) as permit:
                status, headers = await api.call(key)
                permit.report(status_code=status, headers=headers)
        except Refused as refusal:
            await asyncio.sleep(min(refusal.retry_after or 0.25, 1.0))


def recorded(path, *, config=None, seed=1, keys=2, workers=5, runner=run, **api):
    """A run of several workers and keys in virtual time, written to the file and read from it."""
    config = config or RateLimitConfig(initial_rps=5)

    async def main(clock):
        limiter = AdaptiveRateLimiter(config, clock=clock, rng=random.Random(seed))
        heading = Heading(calls=1, workers=workers * keys, keys=keys, open_for=config.open_state_duration)
        recording = Recording(path, heading, limiter)
        server = Api(clock, seed, **api)
        names = [f"host-{number}.example" for number in range(keys) for _ in range(workers)]
        await asyncio.gather(*(work(clock, limiter, server, name, SECONDS) for name in names))
        recording.end()
        assert recording.trouble is None

    runner(main)
    return read_trace(path)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 4))])
def test_every_decision_is_the_same(tmp_path, seed):
    config = RateLimitConfig(initial_rps=5, open_state_duration=2.0)
    trace = recorded(tmp_path / "run.jsonl", seed=seed, config=config)
    statuses = {call.status for call in trace.calls}
    assert {200, 429, 503} <= statuses
    assert len(trace.learned) > 50
    assert {change.state for change in trace.circuits} == {"open", "half_open", "closed"}
    assert any(call.waited > 0 for call in trace.calls)
    assert differences(trace, replay(trace, config)) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "aimd"},
        {"strategy": "gradient"},
        {"strategy": "fixed", "initial_rps": 30.0},
        {"limits": {"requests": "25/s"}},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_whatever_decides(tmp_path, settings):
    config = RateLimitConfig(**{"initial_rps": 5, "open_state_duration": 2.0, **settings})
    trace = recorded(tmp_path / "run.jsonl", config=config)
    assert differences(trace, replay(trace, config)) == []


@pytest.mark.parametrize(
    "manners",
    [
        {"tells": True},
        {"asks_to_wait": False},
        pytest.param({"outage": (0.0, 0.0)}, marks=pytest.mark.chaos),
        pytest.param({"rate": 300.0}, marks=pytest.mark.chaos),
    ],
)
def test_whatever_the_server_is_like(tmp_path, manners):
    trace = recorded(tmp_path / "run.jsonl", **manners)
    assert differences(trace, replay(trace, RateLimitConfig(initial_rps=5))) == []


def test_replaying_twice_is_the_same_twice(tmp_path):
    trace = recorded(tmp_path / "run.jsonl")
    assert replay(trace) == replay(trace)


def test_another_limiter_decides_otherwise_and_that_is_told(tmp_path):
    trace = recorded(tmp_path / "run.jsonl")
    told = differences(trace, replay(trace, RateLimitConfig(initial_rps=5, strategy="aimd")))
    assert told
    assert any("admitted at" in one for one in told)


def test_another_answer_is_another_decision(tmp_path):
    trace = recorded(tmp_path / "run.jsonl", outage=(0.0, 0.0))
    number = next(number for number, call in enumerate(trace.calls) if call.status == 429)
    call = trace.calls[number]
    trace.calls[number] = call._replace(told=call.told._replace(outcome=Outcome.OK.value), retry_after=None)
    assert differences(trace, replay(trace, RateLimitConfig(initial_rps=5)))


def test_paces_and_circuits_are_compared_too(tmp_path):
    config = RateLimitConfig(initial_rps=5, open_state_duration=2.0)
    trace = recorded(tmp_path / "run.jsonl", config=config)
    trace.learned[7] = trace.learned[7]._replace(rate=trace.learned[7].rate * 1.00001)
    trace.circuits[0] = trace.circuits[0]._replace(state="half_open")
    del trace.circuits[-1]
    pace, *circuits = differences(trace, replay(trace, config))
    assert pace.startswith(f"pace of key {trace.learned[7].key}: ")
    assert len(circuits) == 2
    assert any("half_open at" in one and "now open at" in one for one in circuits)
    assert any("nothing, now closed at" in one for one in circuits)


class LateLoop(VirtualLoop):
    """Timers fire a little late, as real ones do."""

    def __init__(self, clock, lateness):
        super().__init__(clock)
        self._lateness = lateness

    def call_at(self, when, callback, *args, context=None):
        return super().call_at(when + self._lateness(), callback, *args, context=context)


def test_a_clock_that_wakes_late_moves_no_decision_by_much_more(tmp_path):
    """A run of the real world: each wait ends up to 3 ms after its time."""
    chance = random.Random(5)

    def late(main):
        clock = LoopClock()
        with asyncio.Runner(loop_factory=lambda: LateLoop(clock, lambda: chance.uniform(0.0, 0.003))) as runner:
            return runner.run(main(clock))

    config = RateLimitConfig(initial_rps=5, open_state_duration=2.0)
    trace = recorded(tmp_path / "run.jsonl", runner=late, config=config, outage=(0.0, 0.0))
    again = replay(trace, config)
    apart = sorted(abs(at - call.sent_at) for call, at in zip(trace.calls, again.let_through_at, strict=True))
    assert apart[len(apart) // 2] < 0.01
    assert apart[int(0.95 * len(apart))] < 0.1
    last = {one.key: one.rate for one in trace.learned}
    assert {one.key: one.rate for one in again.learned} == pytest.approx(last, rel=0.1)


def test_permits_that_end_without_an_outcome_and_costs_are_replayed(tmp_path):
    config = RateLimitConfig(strategy="fixed", initial_rps=10, token_bucket_capacity=2, limits={"tokens": "100/s"})
    path = tmp_path / "run.jsonl"

    async def main(clock):
        limiter = AdaptiveRateLimiter(config, clock=clock, rng=random.Random(1))
        recording = Recording(path, Heading(calls=1, workers=1), limiter)
        for number in range(30):
            permit = await limiter.acquire_async("api", {"tokens": 5 + number})
            await asyncio.sleep(0.05)
            if number % 3 == 0:
                permit.release()
            elif number % 3 == 1:
                permit.abandon()
            else:
                permit.report(status_code=200)
        recording.end()

    run(main)
    trace = read_trace(path)
    assert [call.told.outcome for call in trace.calls[:2]] == ["released", "ok"]
    assert trace.calls[0].told.cost == {"tokens": 5}
    assert len(trace.calls) == 20
    assert differences(trace, replay(trace, config)) == []


def test_a_recording_that_tells_too_little_is_refused(tmp_path):
    writer = TraceWriter(tmp_path / "run.jsonl", Heading(calls=1, workers=1))
    writer.call("api", 0.1, 0.2, 200, 0.0, None)
    writer.end(1.0)
    with pytest.raises(NotReplayableError, match="without their outcome"):
        replay(read_trace(tmp_path / "run.jsonl"))


def test_a_recording_names_no_host_and_its_lines_are_bounded(tmp_path):
    recorded(tmp_path / "run.jsonl")
    text = (tmp_path / "run.jsonl").read_text()
    assert "example" not in text
    assert max(map(len, text.splitlines())) < 700


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"told": 5}, "told must have an outcome"),
        ({"told": {"outcome": "fine", "at": 1}}, "told must have an outcome"),
        ({"told": {"outcome": "ok"}}, "at is missing"),
        ({"told": {"outcome": "ok", "at": 1}}, "number is missing"),
        ({"told": {"outcome": "ok", "at": 1, "number": 1, "draw": 2}}, "draw is"),
        ({"told": {"outcome": "ok", "at": 1, "number": 1, "limits": 3}}, "limits must be a list"),
        ({"told": {"outcome": "ok", "at": 1, "number": 1, "limits": [{"limit": -1}]}}, "limit is"),
        ({"told": {"outcome": "ok", "at": 1, "number": 1, "cost": {"tokens": "many"}}}, "tokens is"),
    ],
)
def test_what_others_have_written_is_checked(tmp_path, change, said):
    path = tmp_path / "run.jsonl"
    writer = TraceWriter(path, Heading(calls=1, workers=1))
    writer.end(1.0)
    heading, end = path.read_text().splitlines()
    line = json.dumps({"sent_at": 0.1, "latency": 0.1, "status": 200, **change})
    path.write_text("\n".join([heading, line, end]) + "\n")
    with pytest.raises(TraceError, match=said):
        read_trace(path)


def test_a_circuit_line_is_checked(tmp_path):
    path = tmp_path / "run.jsonl"
    writer = TraceWriter(path, Heading(calls=1, workers=1))
    writer.circuit("api", 1.0, "ajar")
    writer.end(2.0)
    with pytest.raises(TraceError, match="circuit must be one of"):
        read_trace(path)
