import pickle
import random
import re
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from headgate.lab.scenario import HEADERS, RETRY_AFTER, Budget, Limit, Mark, Neighbour, Queue, Scenario, Stream
from headgate.lab.scenario_file import (
    _BUDGET,
    _LIMIT,
    _SCENARIO,
    ScenarioError,
    about,
    bundled,
    bundled_names,
    named,
    read_scenario,
    written,
)
from headgate.mock.quota import ALGORITHMS
from headgate.units import Outage, Rate, Step

PAGE = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")

BUCKET = Limit(rate=Rate(50.0), burst=50)


def scenario(*limits, **changes):
    return Scenario(**{"name": "test", "budgets": (Budget(limits=limits or (BUCKET,)),), **changes})


def read(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read_scenario(path)


def complaint(tmp_path, text):
    with pytest.raises(ScenarioError) as caught:
        read(tmp_path, text)
    return str(caught.value)


class TestBundled:
    def test_every_one_can_be_read_and_says_what_it_is(self):
        scenarios = bundled()
        assert list(scenarios) == bundled_names()
        assert all(each.note and each.name == name for name, each in scenarios.items())

    def test_the_pace_of_each_is_what_its_note_says(self):
        paces = {name: each.nominal for name, each in bundled().items()}
        assert paces["tb-rpm"] == paces["fw60"] == paces["limits2"] == 10
        assert paces["conc16"] == pytest.approx(40)
        assert paces["queue80"] == pytest.approx(80)
        assert paces["keys3"] == 70
        assert paces["tokens"] == pytest.approx(2.5)
        assert paces["day"] == 10

    def test_a_variant_differs_from_its_base_only_where_it_says_so(self):
        alone, together = named("share4-hdr"), named("share4-hdr-together")
        different = {
            each.name for each in fields(Scenario) if getattr(alone, each.name) != getattr(together, each.name)
        }
        assert different == {"name", "note", "together"}

    def test_an_unknown_name_is_answered_with_the_nearest(self):
        with pytest.raises(
            ScenarioError, match=r"unknown scenario 'tb5' \(did you mean 'tb50'\?\); known are conc12, "
        ):
            named("tb5")

    def test_its_file_is_shown_as_it_is_and_reads_the_same(self, tmp_path):
        for name in bundled_names():
            path = tmp_path / f"{name}.toml"
            path.write_text(written(name), encoding="utf-8")
            assert read_scenario(path) == named(name)
        assert written("step").startswith("# step.toml; docs/scenarios.md explains every field\n")
        assert "--show share4\n" in written("share4-together")


class TestPage:
    @pytest.mark.parametrize("made", [Scenario, Limit, Budget, Neighbour, Queue])
    def test_every_field_has_a_line(self, made):
        for each in fields(made):
            assert each.name == "name" or f"\n| `{each.name}` | " in PAGE, each.name
        assert "\n| `based_on` | " in PAGE

    def test_every_value_by_name_has_a_line(self):
        for names, mark in ((ALGORITHMS, ""), (HEADERS, '"'), (RETRY_AFTER, '"')):
            for name in names:
                assert f"\n| `{mark}{name}{mark}` | " in PAGE, name

    def test_the_defaults_are_true(self):
        readers = {Scenario: _SCENARIO, Limit: _LIMIT, Budget: _BUDGET}
        checked = 0
        for made, known in readers.items():
            for each in fields(made):
                default = re.search(rf"^\| `{each.name}` \| [^|]* \| `([^`]*)` \|", PAGE, re.MULTILINE)
                if default and each.default is not MISSING:
                    value = tomllib.loads(f"value = {default[1]}")["value"]
                    assert known[each.name](value) == each.default, each.name
                    checked += 1
        assert checked >= 25

    def test_its_examples_can_be_read(self, tmp_path):
        examples = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
        assert len(examples) == 2
        for text in examples:
            read(tmp_path, text)


class TestWords:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('limits = [{ rate = "50/s", burst = 20 }]', "token bucket of 50/s, burst 20; bare 429s"),
            (
                'limits = [{ algorithm = "window", rate = "9/min" }]\nkeys = 3\nheaders = "ietf"',
                "3 keys with each fixed window of 9/min; ietf headers",
            ),
            (
                'limits = [{ algorithm = "concurrency", at_once = 4 }]\nsteps = ["0.5@10s"]\nhangs = ["5s+2s"]',
                "4 at once; x0.5 from 10 s; hang from 5 to 7 s; bare 429s",
            ),
            (
                'queue = { servers = 2, room = 10 }\nflapping = 0.05\narrivals = ["20/s@0s"]\nretry_after = "date"',
                "2 servers behind a queue for 10; 0.05 of the calls fail; work at 20/s from 0 s; Retry-After (date)",
            ),
            (
                'limits = [{ rate = "5/s" }]\nneighbour = { rate = "2/s" }\n'
                'outages = ["1s+1s", "3s+1s", "5s+1s", "7s+1s"]',
                "token bucket of 5/s; 4 outages; a neighbour of 2/s; bare 429s",
            ),
            ('note = "mine"\nlimits = [{ rate = "5/s" }]', "mine"),
        ],
    )
    def test_without_a_note_the_fields_are_told(self, tmp_path, text, said):
        assert about(read(tmp_path, text)) == said


class TestFile:
    def test_a_scenario_is_a_few_lines(self, tmp_path):
        text = """
        horizon = "2min"
        limits = [{ rate = "50/s", burst = 20 }, { algorithm = "window", rate = "600/min", phase = "10s" }]
        steps = ["0.5@10s"]
        arrivals = ["20/s@0s", "80/s@1min"]
        workers = 8

        [marks]
        down = "10s"
        """
        assert read(tmp_path, text) == Scenario(
            name="mine",
            horizon=120.0,
            budgets=(
                Budget(
                    limits=(
                        Limit(rate=Rate(50.0), burst=20),
                        Limit(algorithm="window", rate=Rate(600.0, 60.0), phase=10.0),
                    )
                ),
            ),
            steps=(Step(0.5, 10.0),),
            arrivals=(Stream(Rate(20.0), 0.0), Stream(Rate(80.0), 60.0)),
            workers=8,
            marks=(Mark("down", 10.0),),
        )

    def test_every_field_of_a_scenario_can_be_written(self):
        written = set(_SCENARIO) - {"limits", "keys", "shared"}
        assert written == {each.name for each in fields(Scenario)} - {"name"}

    def test_tables_make_neighbours_queues_and_budgets(self, tmp_path):
        text = """
        neighbour = { rate = "5/s", on = "10s", off = "20s" }
        queue = { servers = 2, room = 10, thrash = 0.1 }
        hangs = ["5s+2s"]
        outages = ["9s+2s"]
        starts = [0, "5s"]
        processes = 2
        together = true

        [[budgets]]
        limits = [{ rate = "5/s" }]

        [[budgets]]
        limits = [{ algorithm = "concurrency", at_once = 3 }]
        keys = 4
        shared = true
        """
        made = read(tmp_path, text)
        assert made.neighbour == Neighbour(rate=Rate(5.0), on=10.0, off=20.0)
        assert made.queue == Queue(servers=2, room=10, thrash=0.1)
        assert (made.outages, made.hangs, made.starts) == ((Outage(9.0, 2.0),), (Outage(5.0, 2.0),), (0.0, 5.0))
        assert (made.keys, made.together) == (5, True)

    def test_what_is_not_said_comes_from_the_base(self, tmp_path):
        made = read(tmp_path, 'based_on = "step-ra"\nworkers = 7')
        assert (made.workers, made.retry_after, made.steps) == (7, "exact", named("step").steps)

    def test_limits_take_the_place_of_the_base_s_budgets(self, tmp_path):
        assert read(tmp_path, 'based_on = "keys3"\nlimits = [{ rate = "7/s" }]').nominal == 7

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("worker = 3", "unknown field 'worker' (did you mean 'workers'?); a scenario has note, horizon, limits, "),
            ('limits = [{ rates = "5/s" }]', "limits[1]: unknown field 'rates' (did you mean 'rate'?); a limit has "),
            (
                'limits = [{ rate = "5/s" }, { rate = "50 pro s" }]',
                "limits[2].rate: '50 pro s' is not a rate; write 50/s, 600/min or 200/10s",
            ),
            ("limits = [{ rate = 50 }]", "limits[1].rate: '50' is not a rate; write 50/s, 600/min or 200/10s"),
            ('limits = [{ algorithm = "window" }]', "limits[1]: rate is missing; algorithm 'window' needs it"),
            ('limits = [{ algorithm = "concurrency" }]', "limits[1]: at_once is missing"),
            ('limits = [{ algorithm = "sieve", rate = "5/s" }]', "algorithm='sieve' must be one of bucket, gcra, "),
            ('limits = [{ rate = "5/s", at_once = 2 }]', "at_once=2 has no effect on algorithm 'bucket'; remove it"),
            ('limits = [{ rate = "5/s", of = "bytes" }]', "of='bytes' must be one of calls, tokens"),
            ('limits = [{ algorithm = "log", rate = "0.5/s" }]', "write 1/2s instead of 0.5/s"),
            ('limits = "5/s"', "limits: '5/s' is not a list; write it in [ ]"),
            ('limits = ["5/s"]', "limits[1]: '5/s' is not a table; a limit is written { algorithm = ... }"),
            ('limits = [{ rate = "5/s", of = "tokens" }]', "tokens is missing"),
            ("", "limits is empty"),
            ('horizon = "5 parsecs"', "horizon: '5 parsecs' is not a duration; write 40ms, 1.5s, 2min, 1h or 3d"),
            ("horizon = -5", "horizon=-5.0 must be within 1 and "),
            ('horizon = "0.1s"', "horizon=0.1 must be within 1 and "),
            ("workers = 0", "workers=0 must be within 1 and 100,000"),
            ("workers = 1.5", "workers: 1.5 is not a whole number"),
            ("workers = true", "workers: True is not a whole number"),
            ("jitter = nan", "jitter=nan must be within 0 and 1"),
            ('jitter = "much"', "jitter: 'much' is not a number"),
            ('together = "yes"', "together: 'yes' must be true or false"),
            ("note = 5", "note: 5 is not text; write it in quotes"),
            ('steps = ["10s"]', "steps[1]: '10s' is not a step; write 0.5@10s"),
            ('outages = ["10s"]', "outages[1]: '10s' is not an outage; write 12s+3s"),
            ('arrivals = ["20/s"]', "arrivals[1]: '20/s' is not a stream; write 20/s@0s"),
            ('retry_after = "later"', "retry_after='later' must be one of none, exact, short, long, date"),
            ('headers = "dutch"', "headers='dutch' must be one of none, retry-after, retry-after-date, ratelimit, "),
            ("queue = { servers = 3 }", "queue.room: a queue needs it"),
            ("queue = { servers = 0, room = 1 }", "queue: servers=0 must be within 1 and "),
            ("neighbour = { on = 3 }", "neighbour.rate: a neighbour needs it"),
            ("marks = 5", "marks: 5 is not a table"),
            ('[marks]\nx = "soon"', "marks.x: 'soon' is not a duration"),
            ('[marks]\nx = "1h"', "marks=3600.0 must be within 0 and 300"),
            ('processes = 3\nstarts = ["0s"]', "starts has 1 times for processes=3; give one for each"),
            ('based_on = "tb5"', "unknown scenario 'tb5' (did you mean 'tb50'?)"),
            ("x = = 3", "not TOML: Invalid value (at line 1"),
            ("note = '" + "x" * 70_000 + "'", "larger than 65,536 bytes"),
        ],
    )
    def test_a_mistake_is_answered_with_the_file_the_field_and_the_right_form(self, tmp_path, text, said):
        if text and not text.startswith(("limits", "x =", "queue", "based_on", "note = 'x")):
            text = 'limits = [{ rate = "5/s" }]\n' + text
        told = complaint(tmp_path, text)
        assert told.startswith(f"{tmp_path / 'mine.toml'}: ")
        assert said in told

    def test_one_budget_and_several_cannot_both_be_told(self, tmp_path):
        told = complaint(tmp_path, 'limits = [{ rate = "5/s" }]\n[[budgets]]\nlimits = [{ rate = "5/s" }]')
        assert "limits: set this in each of the [[budgets]]" in told

    def test_bytes_that_are_no_text_are_not_read(self, tmp_path):
        path = tmp_path / "mine.toml"
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(ScenarioError, match="UTF-8"):
            read_scenario(path)


class TestPlan:
    def test_what_is_allowed_is_the_area_under_the_quota(self):
        plan = scenario(steps=(Step(0.5, 10.0),), outages=(Outage(15.0, 2.0),), hangs=(Outage(16.0, 3.0),))
        assert plan.allowed_between(0.0, 20.0) == pytest.approx(50 * 10 + 25 * 5 + 25 * 1)
        assert plan.allowed_between(14.0, 15.5) == pytest.approx(25)
        assert [plan.quota_at(at) for at in (0.0, 10.0, 15.0, 18.9, 19.0)] == [50, 25, 0, 0, 25]

    def test_of_several_limits_the_tightest_sets_the_pace(self):
        per_minute = Limit(algorithm="window", rate=Rate(600.0, 60.0))
        of_tokens = Limit(rate=Rate(90_000.0, 60.0), of="tokens")
        assert scenario(BUCKET, per_minute).nominal == 10
        assert scenario(BUCKET, per_minute, of_tokens, tokens=300).nominal == 5

    def test_a_daily_stock_is_no_pace_beside_one(self):
        day = Limit(algorithm="window", rate=Rate(3000.0, 86400.0))
        assert scenario(BUCKET, day).nominal == 50
        assert scenario(day).nominal == 10  # 3000 in the 300 s there are

    def test_keys_with_budgets_of_their_own_add_up(self):
        assert scenario(budgets=(Budget(limits=(BUCKET,), keys=4),)).nominal == 200
        assert scenario(budgets=(Budget(limits=(BUCKET,), keys=4, shared=True),)).nominal == 50

    def test_work_arrives_evenly_at_each_rate(self):
        plan = scenario(horizon=10.0, arrivals=(Stream(Rate(1.0), 0.0), Stream(Rate(4.0), 8.0)))
        assert list(plan.arrival_times()) == [*map(float, range(8)), *(8 + n / 4 for n in range(8))]

    def test_work_arrives_in_lots(self):
        plan = scenario(horizon=4.0, arrivals=(Stream(Rate(3.0), 1.0),), arrive_together=3)
        assert list(plan.arrival_times()) == [1.0] * 3 + [2.0] * 3 + [3.0] * 3

    def test_work_that_is_all_there_does_not_arrive(self):
        assert list(scenario().arrival_times()) == []

    def test_tokens_vary_around_their_mean_within_a_bound(self):
        seed = 3
        plan = scenario(tokens=500, tokens_variation=0.8)
        rng = random.Random(seed)
        drawn = [plan.draw_tokens(rng) for _ in range(5000)]
        assert sum(drawn) / len(drawn) == pytest.approx(500, rel=0.05), f"seed {seed}"
        assert all(1 <= each <= plan.most_tokens and each == round(each) for each in drawn)

    def test_a_call_that_never_fits_is_no_scenario(self):
        small = Limit(algorithm="window", rate=Rate(1000.0, 60.0), of="tokens")
        with pytest.raises(ValueError, match="room for 1000 tokens at worst, but one call may need 2000"):
            scenario(small, tokens=500, tokens_variation=0.5)
        with pytest.raises(ValueError, match=r"room for 0\.5 calls"):
            scenario(Limit(algorithm="concurrency", at_once=2), steps=(Step(0.25, 5.0),))

    def test_a_neighbour_needs_something_to_take(self):
        with pytest.raises(ValueError, match="neighbour"):
            scenario(Limit(algorithm="concurrency", at_once=2), neighbour=Neighbour(rate=Rate(1.0)))

    def test_it_travels_to_other_processes(self):
        for each in bundled().values():
            assert pickle.loads(pickle.dumps(each)) == each


def test_the_example_at_the_top_of_the_reader_is_valid(tmp_path):
    from headgate.lab import scenario_file

    lines = [line for line in (scenario_file.__doc__ or "").splitlines() if line.startswith("    ")]
    text = "\n".join(line.split("      all of")[0].strip() for line in lines)
    assert tomllib.loads(text)
    assert read(tmp_path, text).marks == (Mark("down", 100.0),)
