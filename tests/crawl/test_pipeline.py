"""The stages of the pipeline, and how many pages are wanted, in virtual time."""

import asyncio

from headgate.crawl.pipeline import PageLimit, Stage
from headgate.crawl.report import CrawlReport, StageTimes
from headgate.engine.supervisor import Supervisor
from headgate.lab.virtual_time import run


def stage_of(work, clock, workers=2, room=1):
    stops = []
    supervisor = Supervisor(lambda stop, now: stops.append((str(stop), now)))
    times = StageTimes()
    stage = Stage(work, workers=workers, room=room, clock=clock, times=times, supervisor=supervisor)
    return stage, times, supervisor, stops


def test_a_full_stage_holds_up_the_one_before_it():
    async def main(clock):
        async def work(page):
            await asyncio.sleep(1.0)

        stage, times, *_ = stage_of(work, clock)
        stage.start()
        put_at = []
        for page in range(6):
            await stage.put(page)
            put_at.append(clock.now())
        await stage.drain()
        await stage.close()
        return put_at, times

    put_at, times = run(main)
    assert put_at == [0.0, 0.0, 0.0, 1.0, 1.0, 2.0]
    assert (times.passed, times.worked) == (6, 6.0)
    assert times.waited > 0.0


def test_what_a_stage_raises_ends_the_crawl_and_not_only_a_worker():
    async def main(clock):
        done = []

        async def work(page):
            if page == 0:
                raise ValueError("broken")
            done.append(page)

        stage, _, supervisor, stops = stage_of(work, clock, workers=1)
        stage.start()
        for page in range(3):
            await stage.put(page)
        await stage.drain()
        await stage.close()
        return done, supervisor.failure, stops

    done, failure, stops = run(main)
    assert done == [1, 2]
    assert isinstance(failure, ValueError)
    assert stops == [("failed: ValueError", True)]


def test_pages_under_way_count_towards_the_limit_until_they_turn_out_to_be_none():
    report = CrawlReport(before=2)
    limit = PageLimit(5, report)
    assert (limit.is_full, limit.is_reached) == (False, False)
    limit.open = 3
    assert (limit.is_full, limit.is_reached) == (True, False)
    limit.open, report.pages = 0, 3
    assert (limit.is_full, limit.is_reached) == (True, True)
    assert not PageLimit(None, report).is_full
