"""The frontier: which address comes next, what becomes of each, and what is still known after a restart."""

import asyncio
import json

import pytest

from headgate.batch.ledger import LedgerError
from headgate.crawl.frontier import FoundUrl, Reason, StoredRobots, VisitState
from headgate.crawl.frontier.bounds import Bounds
from headgate.crawl.frontier.frontier import Frontier, read_lost, read_open_by_host, reading
from headgate.crawl.output import JsonlOutput, Page, Result
from headgate.errors import ConfigError
from headgate.lab.virtual_time import VirtualClock

SEEDS = {"seeds": "https://a.example/"}


def url(host, name):
    return f"https://{host}.example/{name}"


def found(*urls, depth=1, on=""):
    return [FoundUrl(one, depth, on) for one in urls]


def result(visit, text="text"):
    return Result(Page(url=visit.url, final_url=visit.url, status=200, fetched_at=0.0, depth=visit.depth, text=text))


class Place:
    """A folder with a crawl in it, on a clock of its own."""

    def __init__(self, folder):
        self.path = folder / "pages.jsonl.headgate"
        self.output = folder / "pages.jsonl"
        self.clock = VirtualClock(1000.0)

    def frontier(self, identity=SEEDS, **options):
        options.setdefault("outputs", [JsonlOutput(self.output)])
        return Frontier(self.path, identity=identity, clock=self.clock, **options)

    def written(self):
        return [json.loads(line)["url"] for line in self.output.read_text().splitlines()]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def host_row(frontier, host, columns):
    with reading(frontier.path) as connection:
        return connection.execute(f"SELECT {columns} FROM hosts WHERE name = ?", (f"{host}.example",)).fetchone()


def play(scenario):
    asyncio.run(scenario())


class TestAdding:
    def test_an_address_is_known_once_however_often_it_is_found(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                assert await frontier.add(found(url("a", 1), url("a", 2), url("a", 1))) == 2
                assert await frontier.add(found(url("a", 2), url("b", 1))) == 1
                together = await asyncio.gather(*(frontier.add(found(url("c", 1))) for _ in range(5)))
                assert sorted(together) == [0, 0, 0, 0, 1]
                counts = await frontier.counts()
                assert (counts.waiting, counts.known, counts.hosts) == (4, 4, 3)

        play(scenario)

    def test_what_is_known_is_known_after_a_restart(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
            async with place.frontier() as frontier:
                assert await frontier.add(found(url("a", 1), url("a", 2))) == 1

        play(scenario)

    @pytest.mark.no_cover
    def test_more_than_fit_into_one_transaction(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                assert await frontier.add(FoundUrl(url("a", n), 1) for n in range(12_000)) == 12_000
                assert (await frontier.counts()).waiting == 12_000

        play(scenario)

    @pytest.mark.parametrize("strange", ["https://a.example/\ud800", "https://a.example/\0x", "no address", ""])
    def test_no_text_can_break_it(self, place, strange):
        async def scenario():
            async with place.frontier() as frontier:
                assert await frontier.add([FoundUrl(strange, 1, strange)]) == 1
                assert await frontier.add(found(strange, url("a", 1))) == 1
                assert len(await frontier.take(10)) == 2

        play(scenario)

    @pytest.mark.parametrize("over_a_restart", [False, True])
    def test_no_more_of_a_kind_than_are_bounded(self, place, over_a_restart):
        """... of those that differ in numbers alone, for each host; of other addresses as many as there are."""
        bounds, left_out = Bounds(per_shape=5), []

        def listing(host, numbers):
            return found(*(url(host, f"calendar/2031/{number}") for number in numbers), url(host, "about"))

        async def scenario():
            options = {"bounds": bounds, "left_out": lambda one, why: left_out.append(one.url)}
            async with place.frontier(**options) as frontier:
                await frontier.add(found(url("a", "x"), url("a", "y"), url("a", "z")))
                first, second, third = await frontier.take(3)
                assert await frontier.finish(first, None, listing("a", range(3))) == 4
                if not over_a_restart:
                    assert await frontier.finish(second, None, listing("a", range(9))) == 2
                    assert await frontier.finish(third, None, listing("b", range(5))) == 6
            if over_a_restart:
                async with place.frontier(**options) as frontier:
                    second, third = await frontier.take(2)
                    assert await frontier.finish(second, None, listing("a", range(9))) == 2
                    assert await frontier.finish(third, None, listing("b", range(5))) == 6
            assert left_out == [url("a", f"calendar/2031/{number}") for number in range(5, 9)]

        play(scenario)

    def test_the_bound_is_kept_by_visits_that_end_at_the_same_moment(self, place):
        async def scenario():
            async with place.frontier(bounds=Bounds(per_shape=50), per_host=100) as frontier:
                await frontier.add(found(*(url("a", "x" * number) for number in range(1, 41))))
                visits = await frontier.take(40)
                pages = [found(*(url("a", f"p/{number}-{n}") for n in range(20))) for number in range(40)]
                added = await asyncio.gather(
                    *(frontier.finish(visit, None, one) for visit, one in zip(visits, pages, strict=True))
                )
                assert sum(added) == 50

        play(scenario)

    def test_a_host_and_its_sitemaps_have_bounds_of_their_own(self, place):
        async def scenario():
            async with place.frontier(bounds=Bounds(per_host=6, per_shape=1, sitemaps=2)) as frontier:
                await frontier.add(found(url("a", "x"), url("a", "y")))
                first, second = await frontier.take(2)
                maps = [FoundUrl(url("a", f"map-{number}.xml"), -1) for number in range(4)]
                assert await frontier.finish(first, None, maps) == 2
                assert await frontier.finish(second, None, found(*(url("a", name) for name in "bcdefg"))) == 2

        play(scenario)


class TestTaking:
    def test_hosts_have_their_turn_one_after_the_other(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(*(url("big", n) for n in range(1000))))
                await frontier.add(found(url("b", 1), url("b", 2), url("c", 1), url("c", 2)))
                order = []
                for _ in range(6):
                    place.clock.advance(1.0)
                    (visit,) = await frontier.take(1)
                    order.append(visit.host.partition(".")[0])
                assert order == ["big", "b", "c", "big", "b", "c"]

        play(scenario)

    def test_one_call_deals_in_rounds_and_no_host_has_more_than_its_share(self, place):
        async def scenario():
            async with place.frontier(per_host=4) as frontier:
                await frontier.add(found(*(url("big", n) for n in range(50)), url("b", 1), url("c", 1), url("c", 2)))
                hosts = [visit.host.partition(".")[0] for visit in await frontier.take(5)]
                assert sorted(hosts) == ["b", "big", "big", "c", "c"]
                assert len(await frontier.take(100)) == 2
                assert await frontier.take(100) == []

        play(scenario)

    def test_of_a_host_the_nearest_to_a_seed_come_first_and_then_the_oldest(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", "deep"), depth=3))
                await frontier.add(found(url("a", "old"), url("a", "new"), depth=1))
                await frontier.add(found(url("a", "seed"), depth=0))
                taken = [visit.url.rpartition("/")[2] for visit in await frontier.take(10)]
                assert taken == ["seed", "old", "new", "deep"]

        play(scenario)

    def test_no_room_no_visit(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                assert await frontier.take(0) == []
                assert await frontier.take(-1) == []

        play(scenario)

    def test_a_visit_knows_how_it_was_come_upon(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add([FoundUrl(url("a", 1), 2, url("a", "index"), redirects=3)])
                (visit,) = await frontier.take(1)
                assert (visit.url, visit.host, visit.depth) == (url("a", 1), "a.example", 2)
                assert (visit.found_on, visit.redirects, visit.attempts) == (url("a", "index"), 3, 0)

        play(scenario)

    def test_what_is_taken_can_be_given_back_and_keeps_its_place(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1), url("a", 2)))
                (first,) = await frontier.take(1)
                await frontier.give_back([first])
                assert await frontier.take(1) == [first]

        play(scenario)

    def test_who_is_cancelled_while_taking_takes_nothing(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                asking = asyncio.create_task(frontier.take(1))
                await asyncio.sleep(0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                while not (taken := await frontier.take(1)):
                    await asyncio.sleep(0.001)
                assert len(taken) == 1

        play(scenario)


class TestPuttingOff:
    def test_an_address_put_off_comes_back_at_its_instant_with_reason_and_attempts(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                (visit,) = await frontier.take(1)
                until = frontier.now() + 60.0
                await frontier.put_off(visit, until, "timeout: no answer in 30 s", attempts=1)
                assert (await frontier.counts()).put_off == 1
                assert await frontier.next_at() == until
                place.clock.advance(59.9)
                assert await frontier.take(1) == []
                place.clock.advance(0.1)
                (again,) = await frontier.take(1)
                assert (again.attempts, again.rate_limited, again.reason) == (1, 0, "timeout: no answer in 30 s")
                await frontier.put_off(again, 0.0, "rate_limited: answered 429", rate_limited=1)
                (again,) = await frontier.take(1)
                assert (again.attempts, again.rate_limited) == (1, 1)

        play(scenario)

    def test_its_host_goes_on_meanwhile(self, place):
        async def scenario():
            async with place.frontier(per_host=1) as frontier:
                await frontier.add(found(url("a", 1), url("a", 2)))
                (visit,) = await frontier.take(5)
                await frontier.put_off(visit, frontier.now() + 60.0, "later")
                assert [one.url for one in await frontier.take(5)] == [url("a", 2)]

        play(scenario)

    def test_it_is_put_off_over_a_restart(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                (visit,) = await frontier.take(1)
                await frontier.put_off(visit, frontier.now() + 60.0, "circuit open")
            place.clock.advance(30.0)
            async with place.frontier() as frontier:
                assert await frontier.take(1) == []
                place.clock.advance(30.0)
                (again,) = await frontier.take(1)
                assert again.reason == "circuit open"

        play(scenario)

    @pytest.mark.parametrize("until", [float("nan"), float("-inf"), float("inf")])
    def test_an_instant_that_is_none_breaks_nothing(self, place, until):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                (visit,) = await frontier.take(1)
                await frontier.put_off(visit, until, "odd")
                place.clock.advance(31 * 86400.0)
                assert len(await frontier.take(1)) == 1

        play(scenario)

    def test_a_host_at_rest_gives_nothing_and_the_others_do(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1), url("b", 1)))
                until = frontier.now() + 60.0
                await frontier.rest("a.example", until, "its circuit is open")
                await frontier.rest("a.example", until - 50.0, "a shorter rest shortens nothing")
                await frontier.add(found(url("a", 2)))
                assert [visit.host for visit in await frontier.take(10)] == ["b.example"]
                assert await frontier.next_at() == until
                assert host_row(frontier, "a", "rest_until, next_at, reason") == (until, until, "its circuit is open")
                assert read_open_by_host(frontier.path, 10)["a.example"] == 2
                place.clock.advance(60.0)
                assert len(await frontier.take(10)) == 2

        play(scenario)

    def test_a_clock_that_is_set_back_makes_nobody_wait_longer(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1), url("b", 1)))
                (visit,) = await frontier.take(1)
                assert visit.host == "a.example"
                await frontier.put_off(visit, frontier.now() + 60.0, "later")
                await frontier.rest("b.example", frontier.now() + 60.0, "later")
            place.clock = VirtualClock(1000.0, wall=place.clock.wall() - 900.0)
            async with place.frontier() as frontier:
                place.clock.advance(61.0)
                assert len(await frontier.take(10)) == 2

        play(scenario)


class TestEnding:
    def test_a_page_is_written_its_links_are_added_and_it_is_done(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                (visit,) = await frontier.take(1)
                assert await frontier.finish(visit, result(visit), found(url("a", 1), url("a", 2), depth=2)) == 1
                assert place.written() == [url("a", 1)]
                counts = await frontier.counts()
                assert (counts.done, counts.waiting, counts.taken, counts.pages) == (1, 1, 0, 1)

        play(scenario)

    def test_a_redirect_is_done_and_no_page(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                (visit,) = await frontier.take(1)
                await frontier.finish(visit, None, [FoundUrl(url("b", 1), 1, visit.url, 1)], "sent on")
                counts = await frontier.counts()
                assert (counts.done, counts.pages, counts.waiting) == (1, 0, 1)

        play(scenario)

    def test_failed_and_refused_addresses_keep_their_reasons(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1), url("a", 2), on=url("a", "index")))
                one, two = await frontier.take(2)
                await frontier.fail(one, Reason("dns", "there is no such host"))
                await frontier.refuse(two, Reason("robots", "robots.txt forbids it"))
            async with place.frontier() as frontier:
                assert await frontier.take(10) == []
                assert await frontier.next_at() is None
                assert (await frontier.counts()).reasons == {"dns": 1, "robots": 1}
                lost = read_lost(frontier.path)
                assert [(one.url, one.state, one.reason, one.attempts) for one in lost] == [
                    (url("a", 1), VisitState.FAILED, "dns: there is no such host", 1),
                    (url("a", 2), VisitState.REFUSED, "robots: robots.txt forbids it", 0),
                ]
                assert read_lost(frontier.path, after=lost[0].number) == lost[1:]

        play(scenario)

    def test_a_visit_ends_once(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                (visit,) = await frontier.take(1)
                await frontier.finish(visit, result(visit))
                for ending in (
                    frontier.finish(visit, result(visit)),
                    frontier.fail(visit, Reason("x")),
                    frontier.give_back([visit]),
                ):
                    with pytest.raises(LedgerError, match="is not taken: its visit has already ended"):
                        await ending
                assert place.written() == [url("a", 1)]

        play(scenario)

    def test_a_finish_whose_task_is_cancelled_is_done_all_the_same(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1)))
                (visit,) = await frontier.take(1)
                finishing = asyncio.create_task(frontier.finish(visit, result(visit)))
                await asyncio.sleep(0)
                finishing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await finishing
            assert place.written() == [url("a", 1)]
            async with place.frontier() as frontier:
                assert (await frontier.counts()).done == 1

        play(scenario)

    def test_a_result_that_cannot_be_packed_harms_nobody_else(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("a", 1), url("a", 2)))
                one, two = await frontier.take(2)
                odd = Result(Page(url="", final_url="", status=200, fetched_at=0.0, depth=0, metadata={"x": object()}))
                answers = await asyncio.gather(
                    frontier.finish(one, odd), frontier.finish(two, result(two)), return_exceptions=True
                )
                assert isinstance(answers[0], TypeError)
                assert place.written() == [two.url]
                await frontier.fail(one, Reason("extract", "cannot be written"))

        play(scenario)

    def test_large_and_small_results_come_out_whole(self, place):
        async def scenario():
            async with place.frontier(per_host=100) as frontier:
                await frontier.add(found(*(url("a", n) for n in range(50))))
                visits = await frontier.take(50)
                texts = {visit.url: "x" * (visit.number % 5 * 40_000) for visit in visits}
                await asyncio.gather(*(frontier.finish(visit, result(visit, texts[visit.url])) for visit in visits))
            lines = map(json.loads, place.output.read_text().splitlines())
            assert {line["url"]: line["text"] for line in lines} == texts

        play(scenario)


class TestStanding:
    def test_robots_txt_is_kept(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                assert await frontier.robots("a.example") is None
                await frontier.keep_robots("a.example", StoredRobots(200, b"User-agent: *\n\xff", 5.0))
            async with place.frontier() as frontier:
                assert await frontier.robots("a.example") == StoredRobots(200, b"User-agent: *\n\xff", 5.0)

        play(scenario)

    def test_hosts_with_the_most_to_do_are_first(self, place):
        async def scenario():
            async with place.frontier() as frontier:
                await frontier.add(found(url("c", 1), url("c", 2), url("a", 1), *(url("b", n) for n in range(3))))
                (visit,) = await frontier.take(1)
                await frontier.fail(visit, Reason("gone"))
                assert list(read_open_by_host(frontier.path, 2).items()) == [("b.example", 3), ("c.example", 1)]
                assert host_row(frontier, "c", "lost") == (1,)

        play(scenario)

    def test_what_is_asked_for_just_before_the_end_is_counted(self, place):
        async def scenario():
            frontier = place.frontier()
            await frontier.begin()
            await frontier.add(found(*(url("a", n) for n in range(4))))
            one, two = await frontier.take(2)
            late = (
                frontier.put_off(one, frontier.now() + 9.0, "later"),
                frontier.fail(two, Reason("gone")),
                frontier.take(1),
            )
            tasks = [asyncio.create_task(task) for task in late]
            await asyncio.sleep(0)
            await frontier.close()
            await asyncio.gather(*tasks)
            async with place.frontier() as frontier:
                counts = await frontier.counts()
                assert (counts.waiting, counts.taken, counts.put_off, counts.failed) == (2, 0, 1, 1)
                assert host_row(frontier, "a", "waiting, taken, put_off, lost") == (2, 0, 1, 1)

        play(scenario)

    def test_nothing_before_begin_and_nothing_after_close(self, place):
        async def scenario():
            frontier = place.frontier()
            await frontier.close()
            with pytest.raises(LedgerError, match="is not open: call begin"):
                await frontier.take(1)
            await frontier.begin()
            with pytest.raises(LedgerError, match="is already open"):
                await frontier.begin()
            await frontier.close()
            await frontier.close()
            with pytest.raises(LedgerError, match="cannot be used after close"):
                await frontier.add(found(url("a", 1)))

        play(scenario)

    @pytest.mark.parametrize("per_host", [0, -1, 1.5, True])
    def test_per_host_is_a_whole_number(self, place, per_host):
        with pytest.raises(ConfigError, match="per_host="):
            place.frontier(per_host=per_host)
