"""What moves the lane of a host, in virtual time: with a fetcher, a robots cache and outcomes that are made up."""

import asyncio
from types import SimpleNamespace

from headgate.crawl.fetch.gated_fetcher import Deferred, FetchFailed
from headgate.crawl.frontier import Reason, Visit
from headgate.crawl.host_driver import SHARE, HostDriver
from headgate.crawl.robots import Rules
from headgate.crawl.scheduler import Host
from headgate.engine.lane import Lane, LaneWait
from headgate.engine.worker_pool import WorkerPool
from headgate.lab.virtual_time import run

ORIGIN = "https://a.test"
LONG = 1e9
FREE = (Rules(), LONG)


class Made:
    """A driver, and all that it did."""

    def __init__(self, clock, *, workers=64, per_host=2, delay=0.0, known=FREE, permits=None):
        self.clock, self.known = clock, known
        self.paused = False
        self.started, self.deferred, self.failed, self.shut, self.abandoned = [], [], [], [], 0
        self.pool = WorkerPool(workers, max_open=2 * workers)
        self._permits = iter(permits or ())
        self.driver = HostDriver(
            clock=clock,
            pool=self.pool,
            fetcher=SimpleNamespace(acquire=self._acquire, min_delay=lambda host: 0.0),
            robots=SimpleNamespace(recall=self._recall, read=self._read, visit_for=lambda host, origin: None),
            outcomes=SimpleNamespace(
                defer_host=lambda *deferred: self.deferred.append(deferred),
                fail=lambda *failed: self.failed.append(failed),
            ),
            reporter=SimpleNamespace(host_shut=lambda *shut: self.shut.append(shut)),
            start_fetch=self._start,
            is_paused=lambda: self.paused,
            per_host=per_host,
            delay=delay,
        )
        self.lane = self.make_lane()

    def make_lane(self, name="a.test"):
        return Lane(Host(name, 0.2), self.driver, self.clock)

    def add(self, *paths, lane=None):
        host = (lane or self.lane).route
        for path in paths:
            host.add(Visit(len(host.queue) + 1, f"https://{host.name}{path}", host.name, 0))

    async def go(self, lane=None):
        lane = lane or self.lane
        await lane.run(lambda: not lane.route.queue)

    def _start(self, lane, visit, permit):
        lane.in_flight += 1
        self.started.append((self.clock.now(), visit.url.rpartition("/")[2]))

    async def _acquire(self, url):
        return next(self._permits, None) or SimpleNamespace(abandon=self._abandon)

    def _abandon(self):
        self.abandoned += 1

    async def _recall(self, origin):
        return self.known

    async def _read(self, visit, origin, permit, next_permit):
        return self.read_result


def test_urls_go_in_order_and_no_more_at_once_than_a_host_may_have():
    async def main(clock):
        made = Made(clock)
        made.add("/1", "/2", "/3")
        task = asyncio.create_task(made.go())
        await asyncio.sleep(1.0)
        assert [path for _, path in made.started] == ["1", "2"]
        assert made.lane.waits_for is LaneWait.ANSWERS
        made.lane.in_flight -= 1
        made.lane.notifier.notify()
        await task
        assert [path for _, path in made.started] == ["1", "2", "3"]

    run(main)


def test_a_host_has_a_share_of_the_free_workers_alone():
    async def main(clock):
        made = Made(clock, workers=3 * SHARE, per_host=100)
        made.add(*(f"/{n}" for n in range(10)))
        task = asyncio.create_task(made.go())
        await asyncio.sleep(1.0)
        assert len(made.started) == 3
        task.cancel()

    run(main)


def test_the_crawl_delay_is_kept_between_two_calls():
    async def main(clock):
        made = Made(clock, per_host=8, workers=8 * SHARE, known=(Rules(delay=2.0), LONG))
        made.add("/1", "/2", "/3")
        await made.go()
        assert [at for at, _ in made.started] == [2.0, 4.0, 6.0]  # the first too: the last call is not known

    run(main)


def test_an_operators_pause_holds_the_lane_and_gives_a_permit_back():
    async def main(clock):
        made = Made(clock)
        made.add("/1")
        made.paused = True
        task = asyncio.create_task(made.go())
        await asyncio.sleep(1.0)
        assert (made.started, made.lane.waits_for) == ([], LaneWait.PAUSED)
        made.paused = False
        made.lane.notifier.notify()
        await task
        assert [path for _, path in made.started] == ["1"]

    run(main)


def test_a_host_that_must_wait_long_is_shut_and_gives_its_urls_back():
    async def main(clock):
        reason = Reason("", "circuit open")
        made = Made(clock, permits=[Deferred(60.0, reason)])
        made.add("/1", "/2")
        await made.go()
        assert made.shut == [("a.test", reason, 60.0)]
        ((host, visits, seconds, why),) = made.deferred
        assert (host, [visit.url for visit in visits], seconds, why) == (
            "a.test", [f"{ORIGIN}/1", f"{ORIGIN}/2"], 60.0, reason,
        )  # fmt: skip
        assert made.lane.opens_at == 60.0

    run(main)


def test_what_comes_while_a_host_is_shut_goes_back_at_once():
    async def main(clock):
        made = Made(clock)
        made.lane.opens_at, made.lane.route.shut_reason = 30.0, Reason("", "resting")
        made.add("/1")
        await made.go()
        assert [deferred[2] for deferred in made.deferred] == [30.0]
        assert made.started == []

    run(main)


def test_rules_are_read_before_the_first_page_and_reject_what_they_forbid():
    async def main(clock):
        made = Made(clock, known=None)
        made.read_result = Rules.parse(b"User-agent: *\nDisallow: /private", "headgate"), LONG
        made.add("/private", "/page")
        await made.go()
        assert [visit.url for visit, _ in made.failed] == [f"{ORIGIN}/private"]
        assert [path for _, path in made.started] == ["page"]
        assert (made.pool.working, made.lane.in_flight) == ({}, 1)

    run(main)


def test_without_rules_the_host_is_shut_or_fails():
    async def main(clock):
        later = Made(clock, known=None)
        later.read_result = Deferred(9.0, Reason("transient", "answered 503"), attempts=1)
        later.add("/1")
        await later.go()
        assert [(str(reason), seconds) for _, reason, seconds in later.shut] == [
            ("robots.txt: transient: answered 503", 9.0)
        ]
        never = Made(clock, known=None)
        never.read_result = FetchFailed(Reason("robots", "could not be read"), attempts=0)
        never.add("/1")
        await never.go()
        assert [why for _, why in never.failed] == [never.read_result]

    run(main)


def test_lanes_get_the_only_worker_in_turn():
    async def main(clock):
        made = Made(clock, workers=1)
        other = made.make_lane("b.test")
        busy = made.pool.start(None, asyncio.sleep(5.0))
        made.add("/1")
        made.add("/2", lane=other)
        tasks = [asyncio.create_task(made.go(lane)) for lane in (made.lane, other)]
        await asyncio.sleep(1.0)
        assert [lane.waits_for for lane in (made.lane, other)] == [LaneWait.WORKERS] * 2
        await busy
        del made.pool.working[busy]
        made.pool.dispatch()
        await asyncio.gather(*tasks)
        assert made.started == [(5.0, "1"), (5.0, "2")]

    run(main)
