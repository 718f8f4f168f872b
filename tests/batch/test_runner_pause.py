"""An operator pauses a run: nothing starts, nothing is lost, and it counts as no standstill."""

import asyncio


def at(clock, seconds, act):
    asyncio.get_running_loop().call_later(seconds - clock.now(), act)


def test_no_row_starts_while_it_is_paused_and_all_are_done_in_the_end(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item, takes=0.5)
        runner = lab.runner(api, workers=4)
        at(lab.clock, 1.2, runner.pause)
        at(lab.clock, 50.0, runner.resume)
        report = await runner.run(range(40))
        assert not [when for when in api.started_at if 1.2 < when < 50.0]
        assert (report.done, len(api.calls)) == (40, 40)
        assert max(api.started_at) > 50.0

    play(scenario)


def test_what_is_under_way_is_finished(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item, takes=5.0)
        runner = lab.runner(api, workers=3)
        at(lab.clock, 1.0, runner.pause)
        at(lab.clock, 20.0, lambda: (done.append(runner.report.done), runner.resume()))
        done = []
        await runner.run(range(6))
        assert done == [3]

    play(scenario)


def test_a_pause_of_hours_is_no_standstill(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item)
        runner = lab.runner(api, workers=2)
        runner.pause()
        at(lab.clock, 8 * 3600.0, runner.resume)
        report = await runner.run(range(5))
        assert (report.done, report.stopped) == (5, "")

    play(scenario)


def test_it_is_said_why(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item)
        runner = lab.runner(api, workers=2)
        runner.pause()
        seen = []
        at(lab.clock, 5.0, lambda: (seen.extend(runner.lanes()), runner.resume()))
        await runner.run(range(5))
        assert [(lane.waits_for, lane.reason, lane.waiting) for lane in seen] == [
            ("paused", "paused by an operator", 5)
        ]

    play(scenario)


def test_a_paused_run_can_be_stopped(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item)
        runner = lab.runner(api, workers=2)
        runner.pause()
        at(lab.clock, 5.0, runner.stop)
        report = await runner.run(range(5))
        assert (report.stopped, report.open, api.calls) == ("stopped", 5, [])

    play(scenario)


def test_calls_under_way_are_counted(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item)
        runner = lab.runner(api, workers=2)
        seen = []
        at(lab.clock, 0.05, lambda: seen.append(runner.status()))
        await runner.run(range(5))
        assert [standing.in_flight for standing in (*seen, runner.status())] == [2, 0]

    play(scenario)
