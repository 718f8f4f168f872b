"""Of several limits for one dimension only the last one held, and a limit of a day set the pace of every call."""

import asyncio
import json
import random
import threading
import time
from bisect import bisect_left
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from bench.delayed_store import DelayedStore

from headgate import AdaptiveRateLimiter, CostTooLargeError, RateLimitConfig, WaitTooLongError
from headgate.cli import execute
from headgate.cli.ui.terminal import STOPPED
from headgate.distributed.backends.sqlite import SqliteStore
from headgate.lab.virtual_time import VirtualClock, run

DAY = 86_400.0


def fixed(rate, **more):
    return RateLimitConfig(strategy="fixed", initial_rps=rate, **more)


def fullest(starts, window):
    return max(bisect_left(starts, start + window) - place for place, start in enumerate(starts))


def starts_within(seconds, config, **options):
    """When calls start that four callers make one after the other."""

    async def main(clock):
        limiter, began_at, starts = AdaptiveRateLimiter(config, clock=clock, **options), clock.now(), []

        async def caller():
            while True:
                permit = await limiter.acquire_async("api", deadline_at=began_at + seconds)
                starts.append(clock.now() - began_at)
                permit.report(status_code=200, latency=0.1)

        refused = await asyncio.gather(*(caller() for _ in range(4)), return_exceptions=True)
        assert {type(one) for one in refused} == {WaitTooLongError}
        return starts

    return run(main)


def test_all_limits_of_a_dimension_hold():
    starts = starts_within(2 * DAY, fixed(1.0, limits={"requests": ["15/min", "1500/day"]}))
    assert fullest(starts, 60.0) == 15
    assert fullest(starts, DAY) == 1500
    assert len(starts) >= 2900


@pytest.mark.parametrize("limits", [("600/day", "3/s"), ("3/s", "600/day")])
def test_the_order_in_which_they_are_given_does_not_matter(limits):
    starts = starts_within(DAY - 1, fixed(50.0, limits={"requests": list(limits)}))
    assert (fullest(starts, 1.0), len(starts)) == (3, 600)


def test_a_long_window_bounds_the_window_and_does_not_pace():
    starts = starts_within(DAY - 1, fixed(50.0, limits={"requests": "2000/day"}))
    assert len(starts) == 2000
    assert starts[-1] == pytest.approx(40.0, rel=0.01)


def calls_until_refused(limiter, most):
    """How many of so many calls start within a minute, and when the next one could."""
    for number in range(most):
        try:
            limiter.acquire("api", max_wait=60).report(status_code=200)
        except WaitTooLongError as refused:
            return number, refused.retry_after
    return most, 0.0


def test_a_long_window_rolls():
    """What was spent comes back a day after it was, not at midnight and not all at once."""
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(fixed(50.0, limits={"requests": "20/day"}), clock=clock)
    assert calls_until_refused(limiter, 10) == (10, 0.0)
    clock.advance(DAY / 2)
    assert calls_until_refused(limiter, 10) == (10, 0.0)
    clock.advance(DAY / 2)
    assert calls_until_refused(limiter, 20) == (10, pytest.approx(DAY / 2, rel=0.05))


@pytest.mark.parametrize(("limits", "pace"), [(["15/min", "1500/day"], 0.25), (["1500/day"], None)])
def test_a_snapshot_has_all_of_them(limits, pace):
    limiter = AdaptiveRateLimiter(fixed(50.0, limits={"requests": limits}), clock=VirtualClock())
    limiter.acquire("api").report(status_code=200)
    seen = limiter.key_status("api")
    assert (seen.known, len(seen.known_limits)) == (pace, len(limits))


def test_a_cost_above_the_narrowest_limit_never_fits():
    limiter = AdaptiveRateLimiter(fixed(50.0, limits={"tokens": ["100/s", "50/min"]}), clock=VirtualClock())
    with pytest.raises(CostTooLargeError):
        limiter.acquire("api", cost={"tokens": 60})


def test_processes_that_share_a_key_hold_all_of_its_limits():
    config = fixed(50.0, limits={"requests": ["30/min", "50/day"]})

    async def main(clock):
        starts, store = [], DelayedStore(clock, random.Random(1))

        async def member(number):
            limiter = AdaptiveRateLimiter(config, clock=clock, store=store, rng=random.Random(number))
            while True:
                permit = await limiter.acquire_async("api", deadline_at=100.0)
                starts.append(clock.now())
                permit.report(status_code=200)

        refused = await asyncio.gather(*map(member, range(3)), return_exceptions=True)
        assert {type(one) for one in refused} == {WaitTooLongError}
        await store.finish()
        return starts

    starts = run(main)
    assert (fullest(starts, 60.0), len(starts)) == (30, 50)


def test_a_store_that_is_lost_for_a_while_neither_stops_a_long_window_nor_lets_it_overflow():
    config = fixed(20.0, limits={"requests": ["600/min", "200/day"]})

    async def main(clock):
        starts, store = [], DelayedStore(clock, random.Random(1))

        async def member(number):
            limiter = AdaptiveRateLimiter(config, clock=clock, store=store, rng=random.Random(number))
            while True:
                permit = await limiter.acquire_async("api")
                starts.append(clock.now())
                permit.report(status_code=200)
                await asyncio.sleep(0.1)

        members = [asyncio.ensure_future(member(number)) for number in range(2)]
        counts = []
        for is_down, seconds in ((False, 4.0), (True, 4.0), (False, 60.0)):
            store.is_down = is_down
            await asyncio.sleep(seconds)
            counts.append(len(starts))
        for one in members:
            one.cancel()
        await store.finish()
        return counts

    before, lost, after = run(main)
    assert lost - before > 20, "a share of what was left, at a share of the pace"
    assert 190 <= after <= 200


def test_a_slow_store_lends_nothing_of_a_spent_day():
    async def main(clock):
        store = DelayedStore(clock, random.Random(1), delay=lambda _: 0.1)
        started = []
        for _ in range(2):
            limiter = AdaptiveRateLimiter(fixed(1000.0, limits={"requests": "20/day"}), clock=clock, store=store)
            permits = [limiter.acquire_async("api", max_wait=60) for _ in range(25)]
            started.append(
                sum(not isinstance(one, Exception) for one in await asyncio.gather(*permits, return_exceptions=True))
            )
            limiter.close()
        await store.finish()
        return started

    assert run(main) == [20, 0]


class Machine:
    """A machine's clocks. A restart begins the monotonic one anew; the time of day goes on meanwhile."""

    def __init__(self):
        self.start_at, self.wall_ahead = time.monotonic() - 1000.0, 0.0

    def now(self):
        return time.monotonic() - self.start_at

    def wall(self):
        return time.time() + self.wall_ahead


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def run_again(machine, tmp_path, patient):
    """A run of its own, which knows of the others by the store alone."""

    def start(most):
        store = SqliteStore(tmp_path / "shared.db", clock=machine)
        limiter = AdaptiveRateLimiter(fixed(1000.0, limits={"requests": "20/day"}), store=store)
        try:
            return calls_until_refused(limiter, most)
        finally:
            limiter.close()
            store.close()

    return start


def test_the_next_run_counts_on(machine, run_again):
    assert run_again(15) == (15, 0.0)
    machine.start_at -= DAY / 2
    assert run_again(15) == (5, pytest.approx(DAY / 2, rel=0.05))


def test_the_time_for_which_a_machine_was_off_counts(machine, run_again):
    assert run_again(20) == (20, 0.0)
    machine.start_at, machine.wall_ahead = time.monotonic() - 5.0, 0.75 * DAY
    assert run_again(1) == (0, pytest.approx(DAY / 4, rel=0.05))


class Api(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls += 1
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.calls = 0
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run_rows(api, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOME_KEY", "sk-do-not-show-0123456789")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"input": number}) + "\n" for number in range(12)))

    def start(*more):
        code = execute([
            "run", str(rows), "-o", str(tmp_path / "out.jsonl"), "--to", f"http://127.0.0.1:{api.server_port}",
            "--path", "/v1/things", "--keys", "env:SOME_KEY", "--json", *more,
        ])  # fmt: skip
        said = capsys.readouterr()
        return code, [json.loads(line) for line in said.out.splitlines()], said.err

    return start


def test_a_run_holds_all_limits_it_was_told_and_a_rerun_counts_on(api, run_rows):
    limits = ("--limits", "requests=5/day,requests=6000/min")
    assert run_rows(*limits)[0] == STOPPED
    assert api.calls == 5
    assert run_rows(*limits)[0] == STOPPED
    assert api.calls == 5


def test_a_run_without_a_store_warns_that_a_long_window_is_forgotten(run_rows):
    assert "--store" in run_rows("--limits", "requests=50/day", "--store", "none")[2]
    assert "--store" not in run_rows("--limits", "requests=50/min", "--store", "none")[2]


def test_a_plan_knows_that_a_long_window_does_not_pace(run_rows):
    def seconds(limits):
        return run_rows("--plan", "--limits", limits)[1][0]["seconds"]

    assert seconds("requests=12/day") == 0.0
    assert seconds("requests=12/day,requests=6/min") == 120.0
    assert seconds("requests=8/day,requests=6/min") == DAY / 2
    assert seconds("tokens=5000000/min") > 0.0


def test_a_configuration_file_may_list_several_limits(api, run_rows, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('limits = {requests = ["6000/min", "5/day"]}\n')
    assert run_rows("--config", str(config))[0] == STOPPED
    assert api.calls == 5
